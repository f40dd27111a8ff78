#!/usr/bin/env python3
"""Minutes of mixed load: joins on new connections, streams left in the middle, repeated and extended prompts, evictions. Every
finished reply's hash equals its solo reference, what a client took before it left is the reference's beginning, and memory does not grow.

soak.py URL [--minutes M] [--streams N] [--pid SERVER] [--evictions] [--api-key KEY]     --evictions: red unless kept states are evicted
"""

import argparse
import random
import sys
import threading
import time

from client import Client, token_hash


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--evictions", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--api-key")
    args = parser.parse_args()
    client, pick = Client(args.url, args.api_key), random.Random(args.seed)
    print(f"seed {args.seed}", flush=True)

    # A pool of prompts that share prefixes, each with its solo reference.
    stem = [pick.randrange(10, 7900) for _ in range(300)]
    pool = []
    for i in range(24):
        prompt = stem[: pick.randrange(0, 300)] + [pick.randrange(10, 7900) for _ in range(pick.randrange(1, 120))]
        fields = {"temperature": 0} if i % 2 == 0 else {"temperature": 0.9, "seed": i}
        answer = client.complete(prompt, 16, cache_salt=f"reference-{args.seed}-{i}", **fields)
        assert answer.status == 200, answer.error
        pool.append((prompt, fields, answer.ids))

    end, lock = time.time() + args.minutes * 60, threading.Lock()
    counts = {"equal": 0, "different": 0, "left": 0, "failed": 0}

    def work(number):
        own = random.Random(args.seed * 1000 + number)
        while time.time() < end:
            prompt, fields, expected = own.choice(pool)
            leave = own.randrange(0, 10) if own.random() < 0.3 else None
            try:
                answer = client.complete(prompt, 16, stream=leave is not None or own.random() < 0.5, leave_after=leave,
                                         cache_salt=own.choice(["soak", ""]), **fields)
                if answer.left:
                    name = "left" if answer.ids == expected[: len(answer.ids)] else "different"
                elif answer.status != 200 or answer.error:
                    name = "failed"
                else:
                    name = "equal" if answer.hash == token_hash(expected) else "different"
            except OSError:
                name = "failed"
            with lock:
                counts[name] += 1

    warm, grown = None, 0
    threads = [threading.Thread(target=work, args=(i,)) for i in range(args.streams)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        time.sleep(1)
        if args.pid:
            now = resident_mib(args.pid)
            if warm is None and time.time() > end - args.minutes * 30:
                warm = now  # half of the time has passed: caches are as full as they get
            grown = now - warm if warm is not None else 0
    m = client.metrics()
    seen = {name: int(m[f"lockstep_{name}_total"]) for name in ("prompt_cache_evictions", "stopped", "recomputed", "cancelled", "failed")}
    print(counts, seen, f"grown {grown:.1f} MiB in the second half" if args.pid else "", client.get_json("/memory"))
    bad = counts["different"] + counts["failed"] or counts["equal"] == 0 or counts["left"] == 0 or grown > 24 or seen["failed"]
    bad = bad or (args.evictions and seen["prompt_cache_evictions"] == 0)
    print(f"{0 if bad else 1} passed, {1 if bad else 0} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

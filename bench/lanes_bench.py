#!/usr/bin/env python3
"""Lanes of a live server: one stream against several beside the bounds of this machine, the longest gap of a running reply while a long
prompt fills, and a prompt cache hit.

lanes_bench.py URL [--streams 8] [--tokens 48] [--long 4000] [--lockstep PROGRAM --model DIR]
With --lockstep and --model (the checkpoint that is served) the machine is measured too, before the server is asked for anything. The server
needs --parallel of --streams at least, and no other clients.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "exactness"))
from client import Client, together  # noqa: E402

PROMPT = 16  # tokens of the streams that are timed


def stream_times(client, prompt, tokens, salt):
    """Seconds from the request to each token of a streamed reply."""
    begin, times = time.perf_counter(), []

    def seen(reply):
        times.extend([time.perf_counter() - begin] * (len(reply.ids) - len(times)))

    client.complete(prompt, tokens, stream=True, cache_salt=salt, leave_when=seen)
    return times


class Machine:
    """What `lockstep bench` measures and says of this checkpoint for decode rows at `length` tokens."""

    def __init__(self, program, folder, length):
        steps = 10  # its middle step is one behind the prompt
        command = [program, "bench", folder, "--prompt", str(length - 1), "--tokens", str(steps), "--json"]
        bench = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.read, self.multiply_adds = bench["read_gb_per_second"] * 1e9, bench["gflop_per_second"] * 1e9
        self.unpack = bench["unpack_bound_tokens_per_second"]
        self.weights, self.operations = bench["weight_bytes_per_token"], bench["operations_per_token"]
        self.state = bench["bytes_per_token"] - self.weights  # recurrent state, K and V of one stream

    def report(self, rows, reached):
        moved = self.weights + rows * self.state
        bytes_ms = 1000 * moved / self.read
        gflop = rows * self.operations / 1e9
        fastest = {"multiply-adds": 1000 * gflop * 1e9 / self.multiply_adds}
        if self.unpack:
            fastest["unpack-and-dot"] = 1000 * rows / self.unpack
        name = min(fastest, key=fastest.get)
        bound = 1000 * rows / max(bytes_ms, fastest[name])
        times = ", ".join(f"{ms:.1f} ms by {n}" for n, ms in fastest.items())
        print(f"  {rows} rows: {moved / 1e6:.0f} MB in {bytes_ms:.1f} ms at {self.read / 1e9:.1f} GB/s; {gflop:.2f} GFLOP in {times}; "
              f"bound {bound:.1f} tokens/s ({'bytes' if bytes_ms > fastest[name] else name}), reached {100 * reached / bound:.0f} percent")


def decode(args, client, prompt, salt, machine):
    def rate(streams):
        job = lambda i: stream_times(client, prompt(PROMPT), args.tokens, f"{salt}-{streams}-{i}")  # noqa: E731
        times = together([(0, lambda i=i: job(i)) for i in range(streams)])
        first, last = max(t[0] for t in times), min(t[-1] for t in times)  # while all of them decode
        return sum(sum(first < x <= last for x in t) for t in times) / (last - first)

    one, many = rate(1), rate(args.streams)
    print(f"decode: one stream {one:.1f} tokens/s, {args.streams} streams {many:.1f} tokens/s together ({many / one:.2f} times)")
    if machine:
        for rows, reached in ((1, one), (args.streams, many)):
            machine.report(rows, reached)


def gap(args, client, prompt, salt):
    running = []
    tokens = 400
    thread = threading.Thread(target=lambda: running.extend(stream_times(client, prompt(PROMPT), tokens, salt + "-running")))
    begun = time.perf_counter()
    thread.start()
    time.sleep(1)
    before, begin = client.metrics(), time.perf_counter()
    stream_times(client, prompt(args.long), 1, salt + "-long")
    end, after = time.perf_counter(), client.metrics()
    thread.join()
    # The tokens of a character that takes several come in one chunk, at one time: as many rounds lie before it.
    chunks = sorted(set(running))
    beside = [(b - a) / running.count(b) for a, b in zip(chunks, chunks[1:]) if begin - begun < b and a < end - begun]
    rounds, seconds = (after[n] - before[n] for n in ("lockstep_rounds_total", "lockstep_forward_seconds_total"))
    ended = "" if len(running) == tokens and running[-1] > end - begun else "; the running reply ended first"
    longest = max(beside)
    print(f"gap: longest {1000 * longest:.0f} ms of a reply while {args.long} tokens filled in {end - begin:.1f} s, "
          f"a round with a chunk on average ({rounds:.0f}) {1000 * seconds / rounds:.0f} ms, {longest * rounds / seconds:.2f} times{ended}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--long", type=int, default=4000)
    parser.add_argument("--lockstep")
    parser.add_argument("--model")
    args = parser.parse_args()
    client, pick = Client(args.url), random.Random(1)
    prompt = lambda n: [pick.randrange(10, 7900) for _ in range(n)]  # noqa: E731
    salt = f"bench-{time.time()}"
    machine = Machine(args.lockstep, args.model, PROMPT + args.tokens // 2) if args.lockstep and args.model else None
    decode(args, client, prompt, salt, machine)
    gap(args, client, prompt, salt)
    long = prompt(args.long)
    cold, hit = (stream_times(client, long, 1, salt + "-cold")[0] for _ in range(2))
    print(f"prompt cache: first token of {args.long} tokens after {cold:.2f} s cold, {hit:.3f} s on a hit ({100 * hit / cold:.1f} percent)")


if __name__ == "__main__":
    main()

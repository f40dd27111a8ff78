#!/usr/bin/env python3
"""Lanes of a live server: one stream against several, the longest gap of a running reply while a long prompt fills, and a prompt cache hit.

lanes_bench.py URL [--streams 8] [--tokens 48] [--long 4000]
"""

import argparse
import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "exactness"))
import http.client  # noqa: E402
import urllib.parse  # noqa: E402

from client import Client, together  # noqa: E402


def stream_times(url, prompt, tokens, salt):
    """Seconds from the request to each token of a streamed reply."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600)
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, "return_token_ids": True, "cache_salt": salt}
    begin, times = time.perf_counter(), []
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                times += [time.perf_counter() - begin] * len(choice.get("token_ids") or [])
    connection.close()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--long", type=int, default=4000)
    args = parser.parse_args()
    client, pick = Client(args.url), random.Random(1)
    prompt = lambda n: [pick.randrange(10, 7900) for _ in range(n)]  # noqa: E731
    salt = f"bench-{time.time()}"

    def rate(streams):
        times = together([(0, lambda i=i: stream_times(args.url, prompt(16), args.tokens, f"{salt}-{streams}-{i}")) for i in range(streams)])
        first, last = max(t[0] for t in times), min(t[-1] for t in times)  # while all of them decode
        return sum(sum(first < x <= last for x in t) for t in times) / (last - first)

    one = rate(1)
    many = rate(args.streams)
    print(f"decode: one stream {one:.1f} tokens/s, {args.streams} streams {many:.1f} tokens/s together ({many / one:.2f} times)")

    long = prompt(args.long)
    running = []
    thread = threading.Thread(target=lambda: running.extend(stream_times(args.url, prompt(16), 400, salt + "-running")))
    thread.start()
    time.sleep(1)
    before = client.metrics()
    begin = time.perf_counter()
    cold = stream_times(args.url, long, 1, salt + "-long")[0]
    filled = time.perf_counter() - begin
    after = client.metrics()
    rounds = after["lockstep_rounds_total"] - before["lockstep_rounds_total"]
    thread.join()
    gaps = [b - a for a, b in zip(running, running[1:])]
    forward = (after["lockstep_forward_seconds_total"] - before["lockstep_forward_seconds_total"]) / rounds
    print(f"gap: longest {max(gaps):.2f} s of a running reply while {args.long} tokens filled in {filled:.1f} s; a round with a chunk took {forward:.2f} s")

    cold = stream_times(args.url, long[::-1], 1, salt + "-cold")[0]
    hit = stream_times(args.url, long[::-1], 1, salt + "-cold")[0]
    print(f"prompt cache: first token of {args.long} tokens after {cold:.2f} s cold, {hit:.3f} s on a hit ({100 * hit / cold:.1f} percent)")


if __name__ == "__main__":
    main()

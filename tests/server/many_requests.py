"""500 short requests from 32 connections lose none, and each gets the reply it gets alone.

usage: many_requests.py BASE_URL [--count 500] [--connections 32] [--key KEY]
"""
import json
import sys
import threading
import time

from wire import arguments, events, read_reply


def main():
    target, args = arguments("many requests", count=500, connections=32)
    prompts = [f"What is the capital of {name}?" for name in ("Norway", "France", "Spain", "Italy", "Peru", "Chile", "Japan", "Kenya")]
    bodies = [{"messages": [{"role": "user", "content": p}], "max_tokens": 12, "temperature": 0.7 * (i % 2), "seed": i} for i, p in enumerate(prompts)]
    alone = []
    for body in bodies:
        status, reply = target.post("/v1/chat/completions", body)
        assert status == 200, reply
        alone.append(reply["lockstep"]["token_sha256"])

    lock, numbers, failures = threading.Lock(), iter(range(args.count)), []

    def work():
        sock = target.connect()
        stream = sock.makefile("rb")
        while True:
            with lock:
                i = next(numbers, None)
            if i is None:
                return sock.close()
            streamed = i % 3 == 0
            data = json.dumps({**bodies[i % len(bodies)], "stream": streamed}).encode()
            status, reply = 0, b""
            try:
                sock.sendall(target.head("POST", "/v1/chat/completions", data) + data)
                status, _, reply = read_reply(stream)
                receipt = next(e["lockstep"] for e in events(reply) if "lockstep" in e) if streamed else json.loads(reply)["lockstep"]
                good = status == 200 and receipt["token_sha256"] == alone[i % len(bodies)]
            except (StopIteration, KeyError, ValueError, OSError):
                good = False
            if not good:
                with lock:
                    failures.append((i, status, reply[:200]))

    start = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(args.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    print(f"{args.count} requests from {args.connections} connections in {seconds:.1f} s: {args.count - len(failures)} equal to their solo replies")
    for failure in failures[:5]:
        print("  ", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

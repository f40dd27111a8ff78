"""A client that leaves frees the engine: while queued, reading its prompt and decoding, streamed or not; a fixed probe keeps its hash.

usage: leaving_clients.py BASE_URL [--key KEY] [--seconds 3]
"""
import json
import socket
import struct
import sys
import time

from wire import arguments


def main():
    target, args = arguments("leaving clients", seconds=3.0)
    reference = target.probe()
    context = target.health()["context"]
    long_prompt = {"prompt": [5] * (context * 3 // 4), "max_tokens": 50}
    long_reply = {"prompt": "Tell me a story.", "max_tokens": context // 2, "ignore_eos": True}
    worst = 0.0
    for name, body in (("decoding", long_reply), ("filling", long_prompt)):
        for stream in (False, True):
            for how in ("close", "reset", "half-close"):
                for queued in (False, True):
                    before = None
                    if queued:  # behind another one
                        before = start(target, {**long_reply, "stream": True})
                        wait(target, lambda live: live >= 1, 10)
                    sock = start(target, {**body, "stream": stream})
                    wait(target, lambda live: live >= (2 if queued else 1), 10)
                    time.sleep(0.2)
                    leave(sock, how)
                    took = wait(target, lambda live: live <= (1 if queued else 0), args.seconds)
                    if took is None:
                        print(f"{name}, stream {stream}, {how}, queued {queued}: still live after {args.seconds} s")
                        return 1
                    worst = max(worst, took)
                    if before:
                        before.close()
                        wait(target, lambda live: live == 0, 10)
    assert target.probe() == reference, "the probe's hash changed"
    print(f"24 ways to leave, each noticed within {worst * 1000:.0f} ms; probe {reference[:12]} unchanged")
    return 0


def start(target, body):
    data = json.dumps(body).encode()
    sock = target.connect()
    sock.sendall(target.head("POST", "/v1/completions", data) + data)
    return sock


def leave(sock, how):
    if how == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half-close":
        sock.shutdown(socket.SHUT_WR)
    else:
        sock.close()


def wait(target, holds, limit):
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        if holds(target.live()):
            return time.monotonic() - begin
        time.sleep(0.01)
    return None


if __name__ == "__main__":
    sys.exit(main())

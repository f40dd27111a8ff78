"""200 slow or silent connections at once do not keep a new client from being served.

usage: slow_clients.py BASE_URL [--connections 200] [--key KEY]
"""
import sys
import time

from wire import arguments


def main():
    target, args = arguments("slow clients", connections=200)
    reference = target.probe()
    alone = min(timed(target, reference) for _ in range(3))
    crowd = []
    for i in range(args.connections):
        sock = target.connect()
        if i % 4 == 1:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nX-Slow: ")
        if i % 4 == 2:
            sock.sendall(target.head("POST", "/v1/chat/completions", b"x" * 1000)[:-4] + b"\r\n\r\n{")
        if i % 4 == 3:
            sock.sendall(b"\r\n")
        crowd.append(sock)
    among = []
    for second in range(5):
        for i, sock in enumerate(crowd):
            if i % 4 in (1, 2):
                try:
                    sock.sendall(b" ")
                except OSError:
                    pass  # timed out, as it should in the end
        among.append(timed(target, reference))
        time.sleep(0.5)
    for sock in crowd:
        sock.close()
    print(f"a short reply takes {alone * 1000:.0f} ms alone, {max(among) * 1000:.0f} ms at most among {args.connections} slow connections")
    return 0 if max(among) < alone + 1.0 else 1


def timed(target, reference):
    start = time.monotonic()
    assert target.probe() == reference
    return time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())

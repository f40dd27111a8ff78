"""Signals: the first drains (new connections refused, live replies finish, exit 0), the second exits at once; a port in use is named, exit 1.

usage: signals.py COMMAND...     a scripted server (scripted_engine.h): prints "port N"; the port is its argument after the folder
"""
import json
import re
import signal
import subprocess
import sys
import threading
import time

from wire import Target, events, read_reply


def start(command, port="0"):
    server = subprocess.Popen([*command, port], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if found := re.search(r"port (\d+)", line):
            threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would hold the server up
            return server, Target(f"http://127.0.0.1:{found.group(1)}")
    raise SystemExit("the server did not start")


def stream(target, prompt):
    body = json.dumps({"prompt": prompt, "stream": True}).encode()
    sock = target.connect()
    sock.sendall(target.head("POST", "/v1/completions", body) + body)
    while target.live() == 0:
        time.sleep(0.01)
    return sock


def main():
    command = sys.argv[1:]

    for number in (signal.SIGTERM, signal.SIGINT):
        server, target = start(command)
        sock = stream(target, "say=one_two_three_four delay=150")
        server.send_signal(number)
        time.sleep(0.3)
        try:
            target.connect(2)
            raise SystemExit("a stopping server took a new connection")
        except ConnectionRefusedError:
            pass
        status, _, reply = read_reply(sock.makefile("rb"))
        assert status == 200 and events(reply)[-1] == "[DONE]", reply
        assert server.wait(10) == 0, server.returncode

    server, target = start(command)
    sock = stream(target, "delay=200 repeat=1000")
    server.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert server.poll() is None, "it should be draining"
    begin = time.monotonic()
    server.send_signal(signal.SIGTERM)
    assert server.wait(5) == 128 + signal.SIGTERM, server.returncode
    assert time.monotonic() - begin < 1

    server, target = start(command)
    begin = time.monotonic()
    idle = target.connect()
    server.send_signal(signal.SIGTERM)
    assert server.wait(5) == 0 and time.monotonic() - begin < 4, "an idle connection held the server up"

    server, target = start(command)
    second = subprocess.run([*command, str(target.port)], capture_output=True, text=True, timeout=30)
    assert second.returncode == 1 and f"port {target.port}" in second.stdout + second.stderr and "in use" in second.stdout + second.stderr, second
    server.send_signal(signal.SIGTERM)
    assert server.wait(10) == 0
    print("drains on the first signal, exits on the second, names a port in use")
    return 0


if __name__ == "__main__":
    sys.exit(main())

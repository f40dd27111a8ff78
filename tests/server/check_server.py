"""Starts a server, runs the scripts of this folder against it, and stops it with SIGTERM.

usage: check_server.py [--clients] [--quick] -- COMMAND...     COMMAND prints a line with its port or http://HOST:PORT
       --clients: the official OpenAI clients too (python with openai; node with openai in OPENAI_JS, a folder)
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent


def start(command):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open("server_under_test.log", "w"), text=True)
    for line in server.stdout:
        if found := re.search(r"https?://[^:]+:(\d+)|port (\d+)", line):
            threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would hold the server up
            return server, f"http://127.0.0.1:{found.group(1) or found.group(2)}"
    raise SystemExit(f"the server did not start: see server_under_test.log, exit code {server.wait()}")


def main():
    split = sys.argv.index("--")
    options, command = sys.argv[1:split], sys.argv[split + 1:]
    server, url = start(command)
    quick = "--quick" in options
    scripts = [["run_cases.py"], ["slow_clients.py"], ["many_requests.py"], ["leaving_clients.py"],
               ["fuzz_requests.py", "--count", "1000" if quick else "10000", "--pid", str(server.pid)]]
    runs = [[sys.executable, str(HERE / s[0]), url, *s[1:]] for s in scripts]
    if "--clients" in options:
        runs.append([sys.executable, str(HERE / "openai_client.py"), url])
        runs.append(["node", str(HERE / "openai_client.mjs"), url])
    failed = []
    try:
        for run in runs:
            begin = time.monotonic()
            folder = os.environ.get("OPENAI_JS") if run[0] == "node" else None
            code = subprocess.run(run, cwd=folder).returncode
            print(f"{'ok' if code == 0 else 'FAILED'} {pathlib.Path(run[1]).name} in {time.monotonic() - begin:.0f} s", flush=True)
            if code:
                failed.append(run[1])
            if server.poll() is not None:
                print(f"the server is gone: exit code {server.returncode}")
                return 1
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            code = server.wait(60)
            print(f"stopped by SIGTERM with exit code {code}")
            if code:
                failed.append("exit code")
        except subprocess.TimeoutExpired:
            server.kill()
            failed.append("stop")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

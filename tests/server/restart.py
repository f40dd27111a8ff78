"""Kept prompts over restarts: a server with --prompt-cache-dir is stopped, killed in the middle of a write, finds a broken file, gets other weights
and a neighbour on the same folder. Every reply's hash equals its solo reference, and cached_tokens is the point that should have been kept.

usage: restart.py LOCKSTEP MODEL     the program and a checkpoint folder
"""
import json
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "exactness"))
from client import Client, together  # noqa: E402


class Server:
    def __init__(self, lockstep, model, folder):
        self.command = [lockstep, "serve", str(model), "--port", "0", "--parallel", "4", "--context", "2048", "--prompt-cache-dir", str(folder)]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            if found := re.search(r"http://\S+:\d+", line):
                threading.Thread(target=self.process.stdout.read, daemon=True).start()  # a full pipe would hold the server up
                self.client = Client(found.group())
                return
        raise SystemExit(f"the server did not start: {self.words()}")

    def words(self):
        self.log.seek(0)
        return self.log.read()

    def disk(self, name):
        return self.client.metrics()["lockstep_prompt_cache_disk_" + name]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.process.returncode


def ids(length, seed):
    return [10 + (i * 37 + seed * 101 + i * i % 23) % 7000 for i in range(length)]


class Prompt:
    def __init__(self, body, fields):
        self.body, self.fields, self.reference, self.point = body, fields, None, None

    def ask(self, server, salt):
        """(hash, cached tokens) of a reply of 12 tokens."""
        if isinstance(self.body, list):
            reply = server.client.complete(self.body, 12, cache_salt=salt, **self.fields)
            assert reply.status == 200, reply.error
            return reply.hash, reply.cached
        body = {"model": "any", "messages": [{"role": "user", "content": self.body}], "max_tokens": 12, "cache_salt": salt, **self.fields}
        status, text = server.client.call("POST", "/v1/chat/completions", body)
        assert status == 200, text
        answer = json.loads(text)
        return answer["lockstep"]["token_sha256"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def check(self, server, point, where):
        reply_hash, cached = self.ask(server, "kept")
        assert reply_hash == self.reference, f"{where}: the hash differs from the solo reference"
        assert cached == point, f"{where}: {cached} tokens came from the cache, not {point}"


def first_life(server, prompts):
    for i, prompt in enumerate(prompts):
        prompt.reference, cached = prompt.ask(server, f"solo-{i}")
        assert cached == 0
        prompt.check(server, 0, "first")
        _, prompt.point = prompt.ask(server, "kept")  # what a server that never stopped takes
        assert prompt.point > 0
        if isinstance(prompt.body, list):
            assert prompt.point == len(prompt.body) - 1, prompt.point


def state_of(folder, salt, length):
    """The file of a kept state of so many tokens (src/prompt_cache/state_file.h)."""
    for path in (folder / "states").iterdir():
        data = path.read_bytes()
        salt_bytes, tokens = struct.unpack_from("<QQ", data, 8)
        if tokens == length and data[24:24 + salt_bytes] == salt.encode():
            return path
    raise AssertionError(f"no state of {length} tokens")


def kill_while_writing(server, folder):
    """Ends the server when a file is half written, as near as one can see from outside."""
    seen = False
    for burst in range(5):
        jobs = [(0, lambda i=i: server.client.complete(ids(300, 100 + 10 * burst + i), 2, cache_salt="burst")) for i in range(4)]
        threading.Thread(target=together, args=(jobs,), daemon=True).start()
        end = time.monotonic() + 1
        while not seen and time.monotonic() < end:
            seen = any(path.name.endswith(".tmp") for sub in ("states", "pages") for path in (folder / sub).iterdir())
        if seen:
            break
    server.process.kill()
    server.process.wait(10)
    assert seen, "no write was ever seen"


def main():
    lockstep, model = sys.argv[1], pathlib.Path(sys.argv[2])
    greedy, sampled = {"temperature": 0}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}
    prompts = [Prompt(ids(40, 1), greedy), Prompt(ids(65, 2), sampled), Prompt(ids(1200, 3), greedy), Prompt("Tell me about the sea.", sampled)]
    with tempfile.TemporaryDirectory(prefix="lockstep_restart_") as temporary:
        folder, other_model = pathlib.Path(temporary) / "kept", pathlib.Path(temporary) / "model"
        server = Server(lockstep, model, folder)
        first_life(server, prompts)
        second = subprocess.run(server.command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 1 and f"--prompt-cache-dir {folder}: another server uses it" in second.stderr, second
        server.stop()

        server = Server(lockstep, model, folder)
        states = server.disk("states")
        for prompt in prompts:
            prompt.check(server, prompt.point, "after a restart")
        assert server.disk("hits_total") == len(prompts) and server.disk("broken_total") == 0 and server.disk("states") == states > 0
        server.stop()

        broken = state_of(folder, "kept", 39)
        data = bytearray(broken.read_bytes())
        data[len(data) // 2] ^= 1
        broken.write_bytes(data)
        server = Server(lockstep, model, folder)
        prompts[0].check(server, 0, "with a broken file")
        prompts[1].check(server, prompts[1].point, "beside a broken file")
        assert server.disk("broken_total") == 1, server.disk("broken_total")
        kill_while_writing(server, folder)

        server = Server(lockstep, model, folder)
        left = [path for sub in ("states", "pages") for path in (folder / sub).iterdir() if path.name.endswith(".tmp")]
        assert not left, left
        for prompt in prompts[1:]:
            prompt.check(server, prompt.point, "after kill -9")
        assert server.disk("broken_total") == 0, server.words()
        server.stop()

        # Weights of another training step: one bit of one file.
        shutil.copytree(model, other_model)
        weights = next(other_model.glob("*.safetensors"))
        with open(weights, "r+b") as file:
            file.seek(-1, 2)
            last = file.read(1)[0]
            file.seek(-1, 2)
            file.write(bytes([last ^ 1]))
        server = Server(lockstep, other_model, folder)
        assert server.disk("states") == 0 and "of another weights" in server.words(), server.words()
        assert prompts[0].ask(server, "kept")[1] == 0
        server.stop()
    print("prompts survive a restart, a broken file, kill -9; other weights drop them")
    return 0


if __name__ == "__main__":
    sys.exit(main())

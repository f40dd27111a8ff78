#!/usr/bin/env python3
"""lockstep run in a terminal and in a pipe: streams, keeps history, Ctrl-C stops a reply and not the program, colours only on a terminal.

usage: terminal.py LOCKSTEP
"""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

LOCKSTEP = sys.argv[1]
SECONDS = 120  # of patience for any one thing


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, *args):
        self.output = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(LOCKSTEP, [LOCKSTEP, *args])

    def wait_for(self, text, since):
        """Waits until `text` is printed after position `since`; returns the position after it."""
        end = time.monotonic() + SECONDS
        while text not in self.output[since:]:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{text!r} did not come; there was {self.output[since:]!r}")
            try:
                self.output += os.read(self.fd, 65536)
            except OSError:
                raise AssertionError(f"the program ended before {text!r}; there was {self.output[since:]!r}") from None
        return since + self.output[since:].index(text) + len(text)

    def send(self, data):
        os.write(self.fd, data)

    def end(self):
        """Exit code, once the program ends."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the program did not end")


PROMPT = b"> \x1b[0m"
CTRL_C = b"\x03"


def chat():
    t = Terminal("run", "--context", "4096")
    at = t.wait_for(PROMPT, 0)
    assert b"loading" in t.output, "loading shows progress on a terminal"
    t.send(b"What is the capital of France?\n")
    at = t.wait_for(b"Paris", t.wait_for(b"France?", at))
    at = t.wait_for(PROMPT, at)
    t.send(b"And what is the capital of Spain?\n")  # only makes sense with the history
    at = t.wait_for(b"Madrid", t.wait_for(b"Spain?", at))
    at = t.wait_for(PROMPT, at)
    t.send(b"Count from 1 to 200.\n")
    at = t.wait_for(b"1", t.wait_for(b"200.", at))
    t.send(CTRL_C)  # ends the reply (or comes after it: then the prompt takes it as the first of two)
    at = t.wait_for(PROMPT, at)
    t.send(b"/new\n")
    at = t.wait_for(PROMPT, t.wait_for(b"/new", at))
    t.send(b"What is the capital of Norway?\n")
    at = t.wait_for(b"Oslo", at)
    at = t.wait_for(PROMPT, at)
    t.send(CTRL_C)
    at = t.wait_for(b"Ctrl-C again ends the program", at)
    t.send(CTRL_C)
    assert t.end() == 0

    t = Terminal("run", "--context", "4096")
    t.wait_for(PROMPT, 0)
    t.send(b"\x04")  # Ctrl-D
    assert t.end() == 0


def interrupted_prompt():
    for _ in range(20):  # an interrupt is never lost, however soon it comes after the prompt or another
        t = Terminal("run", "--context", "512")
        at = t.wait_for(PROMPT, 0)
        t.send(CTRL_C)
        t.wait_for(b"Ctrl-C again ends the program", at)
        t.send(CTRL_C)
        assert t.end() == 0


def reasoning():
    t = Terminal("run", "", "What is 17 + 23? Think first.", "--thinking", "on", "--context", "4096")
    assert t.end() == 0
    assert b"\x1b[2m" in t.output and b"\x1b[0m" in t.output, t.output  # dimmed, then not
    dim, plain = t.output.split(b"\x1b[0m", 1)
    assert b"\x1b[2m" in dim and b"17 + 23 = " in plain, t.output


def interrupted_reply():
    endless = "one two three " * 4  # greedy, the model goes on with it to the limit
    t = Terminal("run", "", endless.strip(), "--context", "4096", "--raw", "--max-tokens", "4000", "--temperature", "0")
    end = time.monotonic() + SECONDS

    def reply():  # what came after the progress lines
        last = t.output.split(b"\x1b[K")[-1]
        return b"" if last.startswith((b"loading", b"reading")) else last

    while len(reply()) < 40 and time.monotonic() < end:
        if select.select([t.fd], [], [], 0.1)[0]:
            t.output += os.read(t.fd, 65536)
    t.send(CTRL_C)
    code = t.end()
    assert code == 130, (code, t.output)


def run(*args, **kwargs):
    return subprocess.run([LOCKSTEP, *args], capture_output=True, text=True, timeout=SECONDS, **kwargs)


def pipes():
    p = run("run", "", "What is the capital of Norway?", "--context", "4096", "--stats")
    assert p.returncode == 0 and "Oslo" in p.stdout, p
    assert "\x1b" not in p.stdout + p.stderr and "loading" not in p.stderr, "no colours and no progress in a pipe"
    assert "token_sha256" in p.stderr, p.stderr
    again = run("run", "", "-", "--context", "4096", "--stats", input="What is the capital of Norway?")
    assert again.stdout == p.stdout, "a prompt from standard input is the same prompt"
    sha = [part.split("token_sha256 ")[1] for part in (p.stderr, again.stderr)]
    assert sha[0] == sha[1], sha
    for isa in ("generic",):
        other = run("run", "", "What is the capital of Norway?", "--context", "4096", "--stats", "--isa", isa, "--threads", "1")
        assert other.stderr.split("token_sha256 ")[1] == sha[0], f"{isa} and one thread give another reply"
    chat_in_pipe = run("run", "--context", "4096", input="What is the capital of France?\nAnd what is the capital of Spain?\n")
    assert chat_in_pipe.returncode == 0 and "Paris" in chat_in_pipe.stdout and "Madrid" in chat_in_pipe.stdout, chat_in_pipe


def refusals(tmp="build"):
    def refused(code, words, *args, **kwargs):
        p = run(*args, **kwargs)
        assert p.returncode == code and words in p.stderr, (args, p)

    refused(2, "did you mean --port?", "serve", "--prot", "1")
    refused(1, "is not a folder", "run", "/nowhere", "Hello")
    refused(1, "is not a folder", "serve", env={"LOCKSTEP_DEFAULT_MODEL": "/nowhere"})
    refused(1, "above the model's limit", "run", "", "Hello", "--context", "999999999")
    refused(1, "leaves no room", "run", "", "Hello " * 200, "--context", "64")
    refused(1, "--raw needs a PROMPT", "run", "--raw")
    refused(1, "--api-key is empty", "serve", "--port", "0", "--api-key", "")
    os.makedirs(f"{tmp}/empty-model", exist_ok=True)
    refused(1, "config.json: No such file", "serve", f"{tmp}/empty-model")
    p = run("info", f"{tmp}/empty-model")
    assert p.returncode == 1 and "serves      no: " in p.stdout, p
    facts = json.loads(run("info", "--json").stdout)
    assert facts["serves"] is True and facts["stop_ids"] == [8000, 8002], facts
    assert run("version").stdout.startswith("lockstep ")


def main():
    for test in (pipes, refusals, chat, interrupted_prompt, reasoning, interrupted_reply):
        begin = time.monotonic()
        test()
        print(f"ok    {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)


main()

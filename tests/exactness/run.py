"""What cells share: the client, the scale, prompts, solo references and the server's counters."""

import random
import threading
import time

from client import token_hash, together

SCALES = {
    "small": {"streams": [2, 4, 16], "staggers": [0, 5, 50], "lengths": [1, 2, 15, 16, 17, 33, 64, 130], "alone": [257, 600],
              "reply": 12, "long": 1200},
    "full": {"streams": [2, 4, 16, 64], "staggers": [0, 5, 50, 500], "lengths": [1, 2, 15, 16, 17, 31, 33, 64, 127, 128, 129, 300, 513],
             "alone": [1025, 2050, 8000], "reply": 24, "long": 8000},
}
CELLS = {}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ROUNDS = ("lockstep_rounds_total", "lockstep_computed_rows_total", "lockstep_decode_rows_total")


def cell(function):
    CELLS[function.__name__] = function
    return function


class Run:
    def __init__(self, client, scale, seed, lanes=None):
        self.client, self.scale = client, SCALES[scale]
        self.random = random.Random(seed)
        self.salt = f"run-{seed}-"
        self.references, self.pool, self.salts = {}, {}, 0
        self._lanes = lanes
        self.context = client.get_json("/health")["context"]

    def prompt(self, length):
        return [self.random.randrange(10, 7900) for _ in range(length)]

    def pooled(self, length, kind):
        """One of a few prompts of this length, so that cells can share its reference."""
        return self.pool.setdefault((length, kind), self.prompt(length))

    def fields(self, i):
        """Half greedy, half sampled."""
        return {"temperature": 0} if i % 2 == 0 else {"temperature": 0.8, "top_p": 0.95, "seed": 7 + i}

    def new_salt(self):
        self.salts += 1
        return f"{self.salt}{self.salts}"

    def solo(self, prompt, tokens, fields):
        """Ids of the reference, alone and in a cache of its own. A shorter reply is the beginning of a longer one."""
        key = (tuple(prompt), tuple(sorted(fields.items())))
        if len(self.references.get(key, [])) < tokens:
            answer = self.client.complete(prompt, tokens, cache_salt=self.new_salt(), **fields)
            assert answer.status == 200, answer.error
            assert answer.cached == 0, "a reference came from the prompt cache"
            assert len(answer.ids) == tokens and answer.hash == token_hash(answer.ids), "a reference's hash is not that of its ids"
            self.references[key] = answer.ids
        return self.references.get(key, [])[:tokens]  # no tokens: left before the first

    def check(self, prompt, fields, answer, where):
        """A reply, or the part of it that a client took before it left, equals its reference."""
        if isinstance(answer, Exception):
            raise AssertionError(f"{where}: {answer!r}")
        assert answer.status == 200 and not answer.error, f"{where}: {answer.status} {answer.error}"
        expected = token_hash(self.solo(prompt, len(answer.ids), fields))
        assert answer.left or answer.hash is not None, f"{where}: no hash"
        assert (token_hash(answer.ids) if answer.left else answer.hash) == expected, f"{where}: the hash differs from its solo reference"

    def check_all(self, checks):
        """Longest first, so that each reference is made once."""
        for prompt, fields, answer, where in sorted(checks, key=lambda c: -len(getattr(c[2], "ids", ()))):
            self.check(prompt, fields, answer, where)

    def moved(self, before, *names):
        after = self.client.metrics()
        return [after[f"lockstep_{name}_total"] - before[f"lockstep_{name}_total"] for name in names]

    def wait(self, what, condition, seconds=60):
        deadline = time.time() + seconds
        while not condition(self.client.metrics()):
            assert time.time() < deadline, f"not seen in {seconds} s: {what}"
            time.sleep(0.01)

    @property
    def lanes(self):
        """Streams that the server runs at a time: as given, or found by asking for more and more until one waits."""
        most = 160
        if self._lanes is None:
            release, seen = threading.Event(), []

            def watch(live):
                self.wait("streams that run or wait", lambda m: m[RUNNING] + m[WAITING] >= most)
                time.sleep(0.3)
                m = self.client.metrics()
                seen.append((m[RUNNING], m[WAITING]))
                release.set()

            def hold():
                self.client.complete([11], 3000, stream=True, cache_salt=self.salt, leave_when=lambda reply: release.is_set())

            together([(0, hold)] * most, watch)
            self.wait("an idle server", idle)
            running, waiting = seen[0]
            assert waiting > 0, f"{most} streams run at a time; say --lanes"
            self._lanes = int(running)
        return self._lanes

    def widest(self, streams, live):
        """Whether, while at least that many clients live, there was a time when every round had exactly `streams` streams, all decoding."""
        before = self.client.metrics()
        while live() >= streams:
            time.sleep(0.002)
            after = self.client.metrics()
            rounds, rows, decoded = (after[n] - before[n] for n in ROUNDS)
            if rounds and rows == decoded == streams * rounds:
                return True
            if rounds:
                before = after
        return False


def idle(metrics):
    return metrics[RUNNING] + metrics[WAITING] == 0

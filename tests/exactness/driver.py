#!/usr/bin/env python3
"""Exactness of a live server: every reply's token hash equals its solo reference however it is served (docs/exactness.md).

driver.py URL [--cells NAME,...] [--scale small|full] [--api-key KEY]
Each cell also asserts that it took the path it names (cached tokens, streams a round, evictions, stops from /metrics), else it is red.
Prints one line a cell and ends with `N passed, N failed`; exit 1 on a failure.
"""

import argparse
import random
import sys
import time

from client import Client, together

SCALES = {
    "small": {"streams": [1, 2, 4, 16], "lengths": [1, 2, 15, 16, 17, 33, 64, 130, 257, 600], "reply": 12, "long": 1200},
    "full": {"streams": [1, 2, 4, 16, 64], "lengths": [1, 2, 15, 16, 17, 31, 33, 64, 127, 128, 129, 300, 513, 1025, 2050, 8000], "reply": 24, "long": 8000},
}
CELLS = {}


def cell(function):
    CELLS[function.__name__] = function
    return function


class Run:
    def __init__(self, client, scale, seed):
        self.client, self.scale = client, SCALES[scale]
        self.random = random.Random(seed)
        self.references = {}
        self.salt = f"run-{seed}-"

    def prompt(self, length):
        return [self.random.randrange(10, 7900) for _ in range(length)]

    def fields(self, i):
        """Half greedy, half sampled."""
        return {"temperature": 0} if i % 2 == 0 else {"temperature": 0.8, "top_p": 0.95, "seed": 7 + i}

    def solo(self, prompt, reply, fields):
        """The reference: alone, in a cache of its own."""
        key = (tuple(prompt), reply, tuple(sorted(fields.items())))
        if key not in self.references:
            answer = self.client.complete(prompt, reply, cache_salt=f"{self.salt}solo-{len(self.references)}", **fields)
            assert answer.status == 200, answer.error
            assert answer.cached == 0, "a reference came from the prompt cache"
            self.references[key] = answer.hash
        return self.references[key]

    def check(self, prompt, reply, fields, answer, where):
        if isinstance(answer, Exception):
            raise AssertionError(f"{where}: {answer!r}")
        assert answer.status == 200 and not answer.error, f"{where}: {answer.status} {answer.error}"
        assert answer.hash == self.solo(prompt, reply, fields), f"{where}: hash {answer.hash[:12]} differs from its solo reference"


@cell
def concurrent(run):
    """E2: 1 to N streams, staggered joins, greedy and sampled, streamed and not."""
    shared = 0
    for streams in run.scale["streams"]:
        for stagger_ms in (0, 5, 50) if streams <= 4 else (0, 5):
            jobs, expected = [], []
            for i in range(streams):
                prompt = run.prompt(run.random.choice(run.scale["lengths"]))
                fields = run.fields(i)
                run.solo(prompt, run.scale["reply"], fields)
                expected.append((prompt, fields))
                salt = f"{run.salt}c-{streams}-{stagger_ms}-{i}"
                jobs.append((i * stagger_ms / 1000,
                             lambda p=prompt, f=fields, s=salt, i=i: run.client.complete(p, run.scale["reply"], stream=i % 3 == 0, cache_salt=s, **f)))
            before = run.client.metrics()
            for i, answer in enumerate(together(jobs)):
                run.check(*expected[i][:1], run.scale["reply"], expected[i][1], answer, f"{streams} streams, {stagger_ms} ms apart, number {i}")
            after = run.client.metrics()
            shared += after["lockstep_shared_rounds_total"] - before["lockstep_shared_rounds_total"]
    assert shared > 0, "streams never shared a round"


@cell
def leavers(run):
    """E5: streams left in the middle, queued requests left, refused requests: neighbours keep their hashes."""
    reply = run.scale["reply"] * 2
    keep = [(run.prompt(40 + i), run.fields(i)) for i in range(3)]
    for prompt, fields in keep:
        run.solo(prompt, reply, fields)
    before = run.client.metrics()
    jobs = [(0.002 * i, lambda p=p, f=f, i=i: run.client.complete(p, reply, stream=i == 1, cache_salt=f"{run.salt}l{i}", **f))
            for i, (p, f) in enumerate(keep)]
    for i in range(6):
        jobs.append((0.003 * i, lambda i=i: run.client.complete(run.prompt(50), 400, stream=True, leave_after=1 + i, cache_salt=f"{run.salt}x{i}")))
    jobs.append((0.01, lambda: run.client.complete(run.prompt(20), 10**9 * 0 - 1)))  # refused
    answers = together(jobs)
    for i, (prompt, fields) in enumerate(keep):
        run.check(prompt, reply, fields, answers[i], f"kept stream {i}")
    assert answers[-1].status == 400, "max_tokens -1 was not refused"
    deadline = time.time() + 60
    while run.client.metrics()["lockstep_cancelled_total"] - before["lockstep_cancelled_total"] < 6:
        assert time.time() < deadline, "streams that were left were not cancelled"
        time.sleep(0.05)
    for i, (prompt, fields) in enumerate(keep):
        answer = run.client.complete(prompt, reply, cache_salt=f"{run.salt}after{i}", **fields)
        run.check(prompt, reply, fields, answer, f"after the leavers, {i}")


@cell
def resumed(run):
    """E3: A, B that shares 80 percent of A, A again; every cut of a shared prefix; cached_tokens is the expected point."""
    reply, salt = run.scale["reply"], run.salt + "resumed"
    a = run.prompt(run.scale["long"] // 2)
    b = a[: len(a) * 8 // 10] + run.prompt(len(a) // 5)
    first = run.client.complete(a, reply, cache_salt=salt, temperature=0)
    run.check(a, reply, {"temperature": 0}, first, "A")
    assert first.cached == 0
    run.check(b, reply, {"temperature": 0}, run.client.complete(b, reply, cache_salt=salt, temperature=0), "B")
    again = run.client.complete(a, reply, cache_salt=salt, temperature=0)
    run.check(a, reply, {"temperature": 0}, again, "A again")
    assert again.cached == len(a) - 1, f"A again resumed at {again.cached}, not {len(a) - 1}"
    # Continue after finish_reason length: the reply's own state, one row before its end.
    longer = a + first.ids
    answer = run.client.complete(longer, reply, cache_salt=salt, temperature=0)
    run.check(longer, reply, {"temperature": 0}, answer, "continued")
    assert answer.cached == len(longer) - 1, f"the continuation resumed at {answer.cached}, not {len(longer) - 1}"
    # Sampled, regenerated with another seed from the same kept state.
    for seed in (1, 2):
        fields = {"temperature": 1.0, "seed": seed}
        answer = run.client.complete(a, reply, cache_salt=salt, **fields)
        run.check(a, reply, fields, answer, f"regenerated with seed {seed}")
        assert answer.cached == len(a) - 1


@cell
def together_on_a_prefix(run):
    """Requests that arrive together on one new prefix compute it once; if the filler leaves, a waiter takes over."""
    reply, salt = run.scale["reply"], run.salt + "prefix"
    shared = run.prompt(run.scale["long"])
    prompts = [shared + run.prompt(5 + i) for i in range(3)]
    for prompt in prompts:
        run.solo(prompt, reply, {"temperature": 0})
    before = run.client.metrics()
    answers = together([(0, lambda p=p: run.client.complete(p, reply, cache_salt=salt, temperature=0)) for i, p in enumerate(prompts)])
    for i, answer in enumerate(answers):
        run.check(prompts[i], reply, {"temperature": 0}, answer, f"prompt {i}")
    computed = (run.client.metrics()["lockstep_computed_rows_total"] - before["lockstep_computed_rows_total"])
    assert computed < 1.5 * len(shared) + 3 * (reply + 20), f"{computed} rows were computed for one prefix of {len(shared)}"
    # The filler leaves while it fills.
    salt += "-left"
    jobs = [(0, lambda: run.client.complete(prompts[0], reply, stream=True, leave_after=0, cache_salt=salt, temperature=0)),
            (0.01, lambda: run.client.complete(prompts[1], reply, cache_salt=salt, temperature=0))]
    answers = together(jobs)
    run.check(prompts[1], reply, {"temperature": 0}, answers[1], "the waiter")


@cell
def choices(run):
    """E10: n choices equal n requests with the seeds the reply names; the prompt is computed once."""
    reply, prompt = run.scale["reply"], run.prompt(120)
    fields = {"temperature": 0.9, "seed": 42}
    before = run.client.metrics()
    answer = run.client.complete(prompt, reply, n=4, cache_salt=run.salt + "choices", **fields)
    assert answer.status == 200, answer.error
    computed = run.client.metrics()["lockstep_computed_rows_total"] - before["lockstep_computed_rows_total"]
    assert computed <= len(prompt) + 4 * (reply + 2), f"{computed} rows: the prompt was not computed once"
    seen = set()
    for i, choice in enumerate(answer.choices):
        own = choice["lockstep"]
        fields["seed"] = own["seed"]
        assert own["token_sha256"] == run.solo(prompt, reply, fields), f"choice {i} differs from its own request"
        seen.add(own["seed"])
    assert len(seen) == 4 and answer.choices[0]["lockstep"]["seed"] == "42"
    assert answer.hash == answer.choices[0]["lockstep"]["token_sha256"]


@cell
def pressure(run):
    """Kept states are evicted and streams stopped and recomputed when the budget is small (needs a server started with one)."""
    streams, reply = 12, run.scale["reply"] * 4
    jobs, expected = [], []
    for i in range(streams):
        prompt, fields = run.prompt(200 + 7 * i), run.fields(i)
        expected.append((prompt, fields))
        run.solo(prompt, reply, fields)
        jobs.append((0, lambda p=prompt, f=fields, i=i: run.client.complete(p, reply, cache_salt=f"{run.salt}p{i}", **f)))
    before = run.client.metrics()
    answers = together(jobs)
    for i, answer in enumerate(answers):
        run.check(expected[i][0], reply, expected[i][1], answer, f"stream {i} under pressure")
    after = run.client.metrics()
    moved = {name: after[name] - before[name] for name in ("lockstep_prompt_cache_evictions_total", "lockstep_stopped_total", "lockstep_recomputed_total")}
    assert any(v > 0 for v in moved.values()), f"nothing was evicted or stopped: {moved}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--cells", default=",".join(c for c in CELLS if c != "pressure"))
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--api-key")
    args = parser.parse_args()
    run = Run(Client(args.url, args.api_key), args.scale, args.seed)
    print(f"seed {args.seed}, scale {args.scale}", flush=True)
    passed = failed = 0
    for name in args.cells.split(","):
        begin = time.time()
        try:
            CELLS[name](run)
            passed += 1
            print(f"ok    {name} ({time.time() - begin:.1f} s)", flush=True)
        except (AssertionError, KeyError, OSError) as error:
            failed += 1
            print(f"FAIL  {name}: {error!r}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

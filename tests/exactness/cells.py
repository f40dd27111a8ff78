"""Cells over prompts given as token ids: streams together, streams left, kept states, choices."""

import threading

from client import together, token_hash
from run import RUNNING, WAITING, cell, idle

GREEDY = {"temperature": 0}


@cell
def alone(run):
    """Every length, greedy and sampled, streamed and not, in a cache of its own: a repeat equals the first run."""
    for i, length in enumerate(run.scale["lengths"] + run.scale["alone"]):
        prompt, fields = run.pooled(length, i % 4), run.fields(i % 4)
        answer = run.client.complete(prompt, run.scale["reply"], stream=i % 3 == 0, cache_salt=run.new_salt(), **fields)
        run.check(prompt, fields, answer, f"a prompt of {length}")
        assert answer.cached == 0


def long_prompt(run, streams, stagger_ms):
    """Tokens of the first stream's prompt, where others are to join while it fills; 0: a prompt like the others'."""
    ends = streams in (run.scale["streams"][0], run.scale["streams"][-1])
    return run.scale["alone"][-1 if ends else -2] if stagger_ms == 50 else 0


class Stream:
    """Number i of several. The early ones of a long stagger run until all have met, then leave in the middle; the others end."""

    def __init__(self, run, i, streams, stagger_ms, reply):
        lengths = run.scale["lengths"]
        self.leaves = (streams - 1 - i) * stagger_ms > 300
        # Those that leave have long references, so they share four prompts.
        length = lengths[len(lengths) // 2 - 2 + i % 4] if self.leaves else lengths[i % len(lengths)]
        if i == 0:
            length = long_prompt(run, streams, stagger_ms) or length
        self.prompt, self.fields, self.delay = run.pooled(length, i % 4), run.fields(i % 4), i * stagger_ms / 1000
        self.tokens = 6000 if self.leaves else reply
        self.streamed, self.salt = self.leaves or i % 3 == 0, run.new_salt()

    def job(self, run, met):
        leave_when = (lambda reply: met.is_set()) if self.leaves else None
        tokens = min(self.tokens, run.context - len(self.prompt))
        return run.client.complete(self.prompt, tokens, stream=self.streamed, cache_salt=self.salt, leave_when=leave_when, **self.fields)


def run_streams(run, streams, stagger_ms, reply):
    """Whether all of them (at most the server's lanes) decoded in the same rounds; every reply is checked."""
    all_streams = [Stream(run, i, streams, stagger_ms, reply) for i in range(streams)]
    met, seen, wanted = threading.Event(), [], min(streams, run.lanes)

    def watch(live):
        seen.append(run.widest(wanted, live))
        met.set()

    answers = together([(s.delay, lambda s=s: s.job(run, met)) for s in all_streams], watch)
    where = f"{streams} streams, {stagger_ms} ms apart, number "
    run.check_all([(s.prompt, s.fields, answers[i], where + str(i)) for i, s in enumerate(all_streams)])
    run.wait("an idle server", idle)
    return seen[0]


@cell
def concurrent(run):
    """E2: N streams, staggered joins, greedy and sampled, streamed and not; all N, or as many as there are lanes, share their rounds."""
    for streams in run.scale["streams"]:
        for stagger_ms in run.scale["staggers"]:
            reply = run.scale["reply"] + 60 + 2 * streams + long_prompt(run, streams, stagger_ms) // 64  # rounds that prompts take
            for _ in range(4):
                if run_streams(run, streams, stagger_ms, reply):
                    break
                reply *= 2  # some ended before all had joined: how long a round takes depends on the machine
            else:
                raise AssertionError(f"{streams} streams {stagger_ms} ms apart never decoded together, with replies of {reply // 2} tokens")


@cell
def queued(run):
    """More streams than lanes: they wait, some are left while they wait, the others equal their references."""
    lanes, release = run.lanes, threading.Event()
    before = run.client.metrics()
    held = run.pooled(33, 0)
    hold = {**GREEDY, "stream": True, "leave_when": lambda reply: release.is_set()}
    jobs = [(0, lambda: run.client.complete(held, 3000, cache_salt=run.salt, **hold))] * lanes
    waiting = [(run.pooled(40 + i, i), run.fields(i)) for i in range(3)]
    late = [(0.5, lambda p=p, f=f, i=i: run.client.complete(p, run.scale["reply"], stream=i == 1, cache_salt=run.new_salt(), **f))
            for i, (p, f) in enumerate(waiting)]

    def watch(live):
        try:
            run.wait("lanes full, three streams waiting", lambda m: (m[RUNNING], m[WAITING]) == (lanes, 3))
            left = [run.client.send_only(held, 50, stream=i > 0) for i in range(3)]
            run.wait("six streams waiting", lambda m: m[WAITING] == 6)
            for connection in left:
                connection.close()
            run.wait("queued streams cancelled", lambda m: m["lockstep_cancelled_total"] == before["lockstep_cancelled_total"] + 3)
            assert run.client.metrics()[RUNNING] == lanes
        finally:
            release.set()

    answers = together(jobs + late, watch)
    run.check_all([(held, GREEDY, a, "a stream that held a lane") for a in answers[:lanes]])
    run.check_all([(*waiting[i], a, f"queued stream {i}") for i, a in enumerate(answers[lanes:])])
    run.wait("an idle server", idle)


@cell
def refused(run):
    """Requests that can never run are refused by name beside a running stream, whose reply stays."""
    prompt, reply = run.pooled(64, 1), run.scale["reply"] * 4
    cases = [(lambda: run.client.complete(run.prompt(run.context), 1), "context_length_exceeded", "prompt"),
             (lambda: run.client.chat([{"role": "user", "content": "word " * run.context}], 1), "context_length_exceeded", "messages"),
             (lambda: run.client.complete([12], -1), "invalid_value", "max_tokens"),
             (lambda: run.client.complete([12], 0), "invalid_value", "max_tokens"),
             (lambda: run.client.complete([12], "many"), "invalid_value", "max_tokens"),
             (lambda: run.client.complete([1 << 30], 1), "invalid_value", "prompt[0]"),
             (lambda: run.client.complete([], 1), "invalid_value", "prompt")]
    before = run.client.metrics()
    running = lambda: run.client.complete(prompt, reply, cache_salt=run.new_salt(), **run.fields(1))  # noqa: E731
    answers = together([(0, running)] + [(0.01, c[0]) for c in cases])
    assert run.moved(before, "requests", "failed") == [1, 0], "a refused request reached the lanes"
    run.check(prompt, run.fields(1), answers[0], "the running stream")
    for (_, code, param), answer in zip(cases, answers[1:]):
        assert not isinstance(answer, Exception), repr(answer)
        got = (answer.status, answer.error and answer.error["code"], answer.error and answer.error["param"])
        assert got == (400, code, param), f"{got} instead of 400 {code} {param}"


@cell
def leavers(run):
    """E5: streams left in the middle beside others: what they took and what the others say equals the references, also afterwards."""
    reply = run.scale["reply"] * 2
    keep = [(run.pooled(40 + i, i), run.fields(i)) for i in range(3)]
    gone = [(run.pooled(50, i % 4), run.fields(i % 4)) for i in range(6)]
    before = run.client.metrics()
    jobs = [(0.002 * i, lambda p=p, f=f, i=i: run.client.complete(p, reply, stream=i == 1, cache_salt=run.new_salt(), **f))
            for i, (p, f) in enumerate(keep)]
    jobs += [(0.003 * i, lambda p=p, f=f, i=i: run.client.complete(p, 400, stream=True, leave_after=1 + i, cache_salt=run.new_salt(), **f))
             for i, (p, f) in enumerate(gone)]
    answers = together(jobs)
    run.check_all([(*r, answers[i], f"stream {i}") for i, r in enumerate(keep + gone)])
    assert all(a.left for a in answers[3:])
    run.wait("cancelled streams", lambda m: m["lockstep_cancelled_total"] - before["lockstep_cancelled_total"] == 6)
    for prompt, fields in keep:
        run.check(prompt, fields, run.client.complete(prompt, reply, cache_salt=run.new_salt(), **fields), "after the leavers")


@cell
def resumed(run):
    """E3: A, B that shares 80 percent of A, A again, continued after finish_reason length, edited, regenerated."""
    reply, salt = run.scale["reply"], run.salt + "resumed"
    a = run.prompt(run.scale["long"] // 2)
    b = a[: len(a) * 8 // 10] + run.prompt(len(a) // 5)

    def expect(prompt, fields, cached, where):
        answer = run.client.complete(prompt, reply, cache_salt=salt, **fields)
        run.check(prompt, fields, answer, where)
        assert answer.cached == cached, f"{where} resumed at {answer.cached}, not {cached}"
        return answer

    first = expect(a, GREEDY, 0, "A")
    expect(b, GREEDY, len(a) * 8 // 10 // 2048 * 2048, "B")  # the last of A's spaced states that B shares
    expect(a, GREEDY, len(a) - 1, "A again")
    assert first.finish == "length"
    longer = a + first.ids
    expect(longer, GREEDY, len(longer) - 1, "A continued")  # the reply's own state, one row before its end
    edited = longer[:-3] + run.prompt(5)
    expect(edited, GREEDY, len(a) - 1, "A's reply edited")
    for seed in (1, 2):
        expect(a, {"temperature": 1.0, "seed": seed}, len(a) - 1, f"regenerated with seed {seed}")


@cell
def together_on_a_prefix(run):
    """Requests that arrive together on one new prefix compute it once; if the filler leaves, a waiter takes over."""
    reply, salt = run.scale["reply"], run.salt + "prefix"
    shared = run.prompt(run.scale["long"])
    prompts = [shared + run.prompt(5 + i) for i in range(min(3, run.lanes))]
    before = run.client.metrics()
    answers = together([(0, lambda p=p: run.client.complete(p, reply, cache_salt=salt, **GREEDY)) for p in prompts])
    computed, = run.moved(before, "computed_rows")
    run.check_all([(p, GREEDY, answers[i], f"prompt {i}") for i, p in enumerate(prompts)])
    assert computed < 1.5 * len(shared) + 3 * (reply + 20), f"{computed} rows were computed for one prefix of {len(shared)}"
    assert sorted(a.cached for a in answers) == [0] + [len(shared)] * (len(prompts) - 1), [a.cached for a in answers]
    # The filler leaves while it fills; what it has is kept for the waiter.
    salt += "-left"
    filling = run.client.send_only(prompts[0], reply, stream=True, cache_salt=salt, **GREEDY)
    run.wait("a filling stream", lambda m: m[RUNNING] == 1)

    def watch(live):
        run.wait("a waiter", lambda m: m[WAITING] == 1)
        filling.close()

    answer, = together([(0, lambda: run.client.complete(prompts[1], reply, cache_salt=salt, **GREEDY))], watch)
    run.check(prompts[1], GREEDY, answer, "the waiter")
    assert 0 < answer.cached < len(shared), f"the waiter went on at {answer.cached} of {len(shared)}"


@cell
def choices(run):
    """E10: n choices equal n requests with the seeds the reply names; the prompt is computed once."""
    reply, prompt = run.scale["reply"], run.prompt(120)
    fields = {"temperature": 0.9, "seed": 42}
    before = run.client.metrics()
    answer = run.client.complete(prompt, reply, n=4, cache_salt=run.new_salt(), **fields)
    assert answer.status == 200, answer.error
    computed, = run.moved(before, "computed_rows")
    assert computed <= len(prompt) + 4 * (reply + 2), f"{computed} rows: the prompt was not computed once"
    seeds = [choice["lockstep"]["seed"] for choice in answer.choices]
    for seed, choice in zip(seeds, answer.choices):
        alone = run.solo(prompt, reply, {**fields, "seed": seed})
        assert choice["lockstep"]["token_sha256"] == token_hash(alone), f"the choice of seed {seed} differs from its own request"
    assert len(set(seeds)) == 4 and seeds[0] == "42"
    assert answer.hash == answer.choices[0]["lockstep"]["token_sha256"]

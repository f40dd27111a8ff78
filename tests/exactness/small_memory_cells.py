"""Cells for a server with little memory: states evicted and kept again, streams stopped and recomputed."""

import time

from client import together
from run import RUNNING, cell, idle

GREEDY = {"temperature": 0}
FLAGS = {  # of the server; its other flags are free
    "evicted": "--prompt-cache-gib 0.01",
    "evicted_in_part": "--prompt-cache-gib 0.02, --context 4096 or more",
    "pressure": "--parallel 64 --memory-gib 0.05 --context 1024, so that about 8 streams fit beside the weights",
}


def fill_until(run, evictions):
    """Other prompts, each of which leaves one small state, until this many have been evicted. How many were."""
    before, made = run.client.metrics(), 0
    while run.moved(before, "prompt_cache_evictions")[0] < evictions:
        answer = run.client.complete(run.prompt(1), 2, cache_salt=run.new_salt(), **GREEDY)
        assert answer.status == 200, answer.error
        run.wait("an idle server", idle)  # a reply's state is kept after its last event
        made += 1
        assert made < 2000, "the server's prompt cache is too large for this cell"
    return run.moved(before, "prompt_cache_evictions")[0]


def expect(run, prompt, salt, cached, where):
    answer = run.client.complete(prompt, run.scale["reply"], cache_salt=salt, **GREEDY)
    run.check(prompt, GREEDY, answer, where)
    assert answer.cached == cached, f"{where} resumed at {answer.cached}, not {cached}"
    run.wait("an idle server", idle)


@cell
def evicted(run):
    """A is kept, evicted by others, computed anew and kept again; twice."""
    a, salt = run.prompt(150), run.new_salt()
    run.solo(a, run.scale["reply"], GREEDY)  # before, so that no reference comes between the steps
    expect(run, a, salt, 0, "A")
    expect(run, a, salt, len(a) - 1, "A kept")
    for turn in ("first", "second"):
        # A's states are among those kept now, and the least recently used go first.
        fill_until(run, run.client.metrics()["lockstep_prompt_cache_entries"])
        expect(run, a, salt, 0, f"A evicted the {turn} time")
        expect(run, a, salt, len(a) - 1, f"A restored the {turn} time")


@cell
def evicted_in_part(run):
    """A long A loses its latest states and keeps an older one that B used since: A resumes there, and at its end the time after."""
    a, salt, reply = run.prompt(2300), run.new_salt(), run.scale["reply"]
    b = a[:2100] + run.prompt(100)
    run.solo(a, reply, GREEDY)
    run.solo(b, reply, GREEDY)
    fill_until(run, run.client.metrics()["lockstep_prompt_cache_entries"] + 1)  # the cache is full, of others' states
    older = run.client.metrics()["lockstep_prompt_cache_entries"]
    before = run.client.metrics()
    expect(run, a, salt, 0, "A")
    expect(run, b, salt, 2048, "B")  # A's spaced state, which is now newer than A's own end
    gone, = run.moved(before, "prompt_cache_evictions")
    # Oldest first: what was kept before, A's end and A's reply, then the state at 2,048.
    evictions = fill_until(run, older + 2 - gone) + gone
    assert evictions == older + 2, f"{evictions} states were evicted at once, not {older + 2}: the state at 2,048 may be gone"
    expect(run, a, salt, 2048, "A, its end evicted")
    expect(run, a, salt, len(a) - 1, "A once more")


@cell
def pressure(run):
    """64 streams on a budget that holds about 8: streams are stopped and recomputed, states evicted, the budget is never passed."""
    # The first ten fill the budget; after 256 tokens each takes pages for 256 more, together more than a stream's bytes, which may be left.
    streams = [(run.pooled(24 + 9 * (i % 2), i % 2), run.fields(i % 2), 512) if i < 10 else
               (run.pooled(24 + 9 * (i % 4), i % 4), run.fields(i % 4), run.scale["reply"]) for i in range(64)]
    before, running = run.client.metrics(), []

    def watch(live):
        while live():
            running.append(run.client.metrics()[RUNNING])
            time.sleep(0.05)

    jobs = [(0 if i < 10 else 0.3, lambda s=s, i=i: run.client.complete(s[0], s[2], stream=i % 2 == 0, cache_salt=run.new_salt(), **s[1]))
            for i, s in enumerate(streams)]
    answers = together(jobs, watch)
    stopped, recomputed, evictions, failed = run.moved(before, "stopped", "recomputed", "prompt_cache_evictions", "failed")
    run.check_all([(s[0], s[1], answers[i], f"stream {i} under pressure") for i, s in enumerate(streams)])
    assert all(len(a.ids) == s[2] for a, s in zip(answers, streams))
    memory = run.client.get_json("/memory")
    seen = f"{max(running):.0f} streams at a time, {stopped:.0f} stopped, {recomputed:.0f} recomputed, {evictions:.0f} states evicted"
    assert stopped > 0 and recomputed > 0 and evictions > 0, seen
    assert failed == 0 and memory["peak_bytes"] <= memory["budget_bytes"], memory
    assert 2 < max(running) <= 24, f"the budget is not one for about 8: {seen}"
    print(f"      {seen}")
    run.wait("an idle server", idle)

"""Requests that broke other engines, tried on this one: prints the table of docs/probes.md and fails where an answer is not what it must be.

usage: probes.py BASE_URL [--fresh-url URL] [--key KEY] [--turns 20]
       --fresh-url: the same model with the prompt cache off, for replies that nothing can have touched
"""
import concurrent.futures
import json
import random
import sys
import time

from wire import arguments, events, read_reply, Target

CHAT, RAW = "/v1/chat/completions", "/v1/completions"
STORY = "Tell me a story about Ada."


class Probes:
    def __init__(self, target, fresh, turns):
        self.target, self.fresh, self.turns = target, fresh, turns
        self.rng = random.Random(5)

    # ---- helpers

    def chat(self, text, where=None, **more):
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        return (where or self.target).post(CHAT, {"messages": messages, "max_tokens": 48, "temperature": 0, **more})

    def raw(self, prompt, where=None, **more):
        return (where or self.target).post(RAW, {"prompt": prompt, "max_tokens": 32, "temperature": 0, **more})

    def stream(self, path, body):
        status, _, reply = self.target.request("POST", path, {**body, "stream": True})
        assert status == 200, (status, reply)
        out = {"content": "", "reasoning": "", "ids": [], "events": events(reply)}
        for event in out["events"]:
            for choice in event["choices"] if event != "[DONE]" else []:
                delta = choice.get("delta", choice)
                out["content"] += delta.get("content", "") + choice.get("text", "")
                out["reasoning"] += delta.get("reasoning_content", "")
                out["ids"] += choice.get("token_ids", [])
        out["receipt"] = next(e["lockstep"] for e in out["events"] if e != "[DONE]" and "lockstep" in e)
        return out

    def together(self, bodies, gap=0.0):
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            futures = []
            for path, body in bodies:
                futures.append(pool.submit(self.target.post, path, body))
                time.sleep(gap)
            return [f.result() for f in futures]

    def refused(self, path, body, param, code=None):
        status, reply = self.target.post(path, body)
        assert status == 400, (status, reply)
        error = reply["error"]
        assert error["param"] == param and (code is None or error["code"] == code), error
        return f"400 {error['code']}, param {param}"

    def ids_prompt(self, n):
        return [self.rng.randrange(10, 7000) for _ in range(n)]

    @staticmethod
    def sha(reply):
        return reply["lockstep"]["token_sha256"]

    def context(self):
        return self.target.health()["context"]

    # ---- 2 streaming and UTF-8

    def probe_1(self):
        """S with emoji, Korean, joined emoji; the prompt makes the model copy them"""
        text = "Repeat: \U0001f469\u200d\U0001f469\u200d\U0001f467 \ud55c\uad6d\uc5b4 \U0001f44d\U0001f3fd Gr\u00f6\u00dfe"
        for seed in range(4):
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 64, "temperature": 1.5, "seed": seed, "return_token_ids": True}
            status, whole = self.target.post(CHAT, body)
            streamed = self.stream(CHAT, body)
            assert streamed["content"] == whole["choices"][0]["message"]["content"] and streamed["ids"] == whole["choices"][0]["token_ids"]
        rough = [self.rng.randrange(100, 256) for _ in range(40)]  # byte tokens: halves of characters
        body = {"prompt": rough, "max_tokens": 64, "temperature": 2, "seed": 3}
        streamed = self.stream(RAW, body)
        assert streamed["content"] == self.target.post(RAW, body)[1]["choices"][0]["text"]
        return "streams equal whole replies byte for byte, ids too"

    def probe_2(self):
        """entry 1 with four streams at once"""
        bodies = [{"messages": [{"role": "user", "content": f"\U0001f44d {i} \ud55c\uad6d"}], "max_tokens": 48, "temperature": 1.2, "seed": i} for i in range(4)]
        solo = [self.stream(CHAT, b)["content"] for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert [s["content"] for s in pool.map(lambda b: self.stream(CHAT, b), bodies)] == solo
        return "equal bytes"

    def probe_4(self):
        """T with random token ids, temperature 1.5, 200 requests"""
        for i in range(200):
            status, reply = self.target.post(RAW, {"prompt": self.ids_prompt(8), "max_tokens": 8, "temperature": 1.5, "seed": i})
            assert status == 200 and isinstance(reply["choices"][0]["text"], str)
        return "200 of 200 replies are valid JSON"

    # ---- 3 stop strings

    def probe_5(self):
        """stop strings cut out of a known reply, at every place, streamed and not, thinking on and off"""
        count = 0
        for more in ({}, {"chat_template_kwargs": {"enable_thinking": True}}):
            status, whole = self.chat(STORY, **more)
            text = whole["choices"][0]["message"]["content"] or whole["choices"][0]["message"]["reasoning_content"]
            for at in range(2, min(len(text) - 9, 40), 3):
                stop = text[at:at + 7]
                cut = text[:text.find(stop)]
                body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 48, "temperature": 0, "stop": [stop], **more}
                message = self.target.post(CHAT, body)[1]["choices"][0]["message"]
                streamed = self.stream(CHAT, body)
                whole_text = message["content"] or message.get("reasoning_content", "")
                assert whole_text == cut, (stop, whole_text, cut)
                assert (streamed["content"] or streamed["reasoning"]) == cut, (stop, streamed)
                count += 1
        self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, "response_format")
        return f"{count} stops cut exactly in all modes; response_format is refused by name"

    def probe_6(self):
        """a stop of 40 characters that never occurs: deltas are not late"""
        body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 48, "temperature": 0}
        plain, held = self.stream(CHAT, body), self.stream(CHAT, {**body, "stop": ["\u00a7" * 40]})
        shape = lambda s: [e["choices"][0]["delta"].get("content") for e in s["events"] if e != "[DONE]"]
        assert shape(plain) == shape(held)
        return "the same deltas with and without it"

    def probe_7(self):
        """stop ["<|eot_id|><|start_header_id|>assistant<|end_header_id|>"]"""
        stop = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
        assert self.chat("Say: pleas")[1]["choices"] == self.chat("Say: pleas", stop=[stop])[1]["choices"]
        return "the reply is whole"

    # ---- 4 templates and roles

    def probe_8(self):
        """C with [user, assistant, system, user]"""
        messages = [{"role": r, "content": c} for r, c in (("user", "a"), ("assistant", "b"), ("system", "c"), ("user", "d"))]
        status, reply = self.chat(messages)
        assert status in (200, 400)
        return "200" if status == 200 else f"400 with the template's words: {reply['error']['message']!r}"

    def probe_10(self):
        """the system text changes between turns"""
        for system in ("You answer briefly.", "You answer at length."):
            assert self.chat([{"role": "system", "content": system}, {"role": "user", "content": "Hi"}])[0] == 200
        return "200"

    def probe_11(self):
        """history with a tool call and no, empty and full reasoning_content: the prompts by /tokenize"""
        texts = []
        for reasoning in ({}, {"reasoning_content": ""}, {"reasoning_content": "Look it up."}):
            call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
            messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call], **reasoning},
                        {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
            ids = self.target.post("/tokenize", {"messages": messages})[1]["tokens"]
            texts.append(self.target.post("/detokenize", {"tokens": ids})[1]["prompt"])
        assert texts[0] == texts[1] and "Look it up." in texts[2] and "Look it up." not in texts[0]
        assert all("<function=get_weather>" in t and "Paris" in t for t in texts)
        return "absent equals empty; the full one stands in its think block"

    # ---- 6 thinking

    def probe_15(self):
        """thinking on, max_tokens 20, both modes"""
        more = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 6, "ignore_eos": True}
        whole = self.chat(STORY, **more)[1]["choices"][0]["message"]
        streamed = self.stream(CHAT, {"messages": [{"role": "user", "content": STORY}], "temperature": 0, **more})
        if streamed["content"]:
            assert streamed["content"] == whole["content"] and streamed["reasoning"] == whole.get("reasoning_content", "")
            return "the thought ended in time; both modes agree"
        assert whole["content"] == "" and whole["reasoning_content"] == streamed["reasoning"] != ""
        return "all of it in reasoning_content, in both modes"

    def probe_16(self):
        """thinking_budget 400"""
        return self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "thinking_budget": 400}, "thinking_budget")

    def probe_17(self):
        """plain C with thinking on"""
        message = self.chat("What is 17 + 23? Think first.", max_tokens=200, chat_template_kwargs={"enable_thinking": True})[1]["choices"][0]["message"]
        assert "think>" not in message["content"] and message["reasoning_content"]
        return f"content {message['content'][:40]!r}, reasoning_content {message['reasoning_content'][:40]!r}"

    # ---- 5, 7, 8, 10: not built, so refused by name

    def probe_12(self):
        """a required tool"""
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
        return self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "tool_choice": "required"}, "tools", "unsupported_value")

    def probe_18(self):
        """structured output: response_format, guided_json, guided_regex, guided_grammar"""
        for field, value in (("response_format", {"type": "json_schema", "json_schema": {}}), ("guided_json", {}), ("guided_regex", "a"), ("guided_grammar", "a")):
            self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], field: value}, field, "unsupported_value")
        return "400 unsupported_value, each by its name"

    def probe_24(self):
        """logprobs: true, top_logprobs; prompt_logprobs"""
        self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 3}, "logprobs")
        self.refused(RAW, {"prompt": "x", "prompt_logprobs": 1}, "prompt_logprobs")
        return "400 unsupported_value, each by its name"

    def probe_25(self):
        """T with n, best_of, echo, logprobs"""
        for field, value in (("best_of", 2), ("echo", True), ("logprobs", 5), ("logprobs", True)):
            self.refused(RAW, {"prompt": "x", field: value}, field)
        status, reply = self.raw("x", n=2)
        assert status == 200 and len(reply["choices"]) == 2
        return "n is honoured, the others are refused by name"

    def probe_31(self):
        """frequency, presence and repetition penalties, logit_bias"""
        for field, value in (("frequency_penalty", 2.0), ("frequency_penalty", -2.0), ("presence_penalty", 1), ("repetition_penalty", 1.1), ("logit_bias", {"5": 1})):
            self.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], field: value}, field, "unsupported_value")
        return "400 unsupported_value: none is dropped in silence"

    def probe_32(self):
        """repetition_penalty 0, negative, 1e9"""
        for value in (0.0, -1, 1e9):
            self.refused(RAW, {"prompt": "x", "repetition_penalty": value}, "repetition_penalty")
        return "400"

    # ---- 9 seeds and sampling

    def probe_26(self):
        """temperature 0.7, seed 123, 10 repeats, idle and under load"""
        body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 32, "temperature": 0.7, "seed": 123}
        idle = {self.sha(self.target.post(CHAT, body)[1]) for _ in range(10)}
        noise = [(CHAT, {"messages": [{"role": "user", "content": f"Noise {i}"}], "max_tokens": 32, "temperature": 1}) for i in range(10)]
        loaded = {self.sha(r) for _, r in self.together([(CHAT, body)] * 10 + noise)[:10]}
        assert len(idle | loaded) == 1
        unseeded = {self.sha(self.chat(STORY, temperature=0.7)[1]) for _ in range(3)}
        assert len(unseeded) == 1
        return "one distinct reply; without a seed, too"

    def probe_27(self):
        """n=4, seed=1, temperature 1"""
        body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 1, "seed": 1}
        _, four = self.target.post(RAW, {**body, "n": 4})
        _, again = self.target.post(RAW, {**body, "n": 4})
        hashes = [c["lockstep"]["token_sha256"] for c in four["choices"]]
        assert len(set(hashes)) == 4 and hashes == [c["lockstep"]["token_sha256"] for c in again["choices"]]
        for choice in four["choices"]:  # each is a request of its own with the seed it names
            assert self.sha(self.target.post(RAW, {**body, "seed": choice["lockstep"]["seed"]})[1]) == choice["lockstep"]["token_sha256"]
        return "four different choices, repeated; each equals a request with the seed it names"

    def probe_28(self):
        """temperature 0, 1e-8, 1e-5, 1e-4, 0.01, 2.0, 1e6, -1, NaN as text"""
        greedy = self.sha(self.raw(STORY)[1])
        for t in (0, 1e-8, 1e-5, 1e-4):
            assert self.sha(self.raw(STORY, temperature=t, seed=9)[1]) == greedy, t
        for t in (0.01, 2.0):
            assert self.raw(STORY, temperature=t, seed=9)[0] == 200
        for t in (1e6, -1, "NaN"):
            self.refused(RAW, {"prompt": "x", "temperature": t}, "temperature")
        return "tiny ones equal greedy; 1e6, -1 and NaN are 400"

    def probe_29(self):
        """temperature 999999, top_p -1, repeat_penalty 0, one by one and together"""
        self.refused(RAW, {"prompt": "x", "temperature": 999999}, "temperature")
        self.refused(RAW, {"prompt": "x", "top_p": -1}, "top_p")
        self.refused(RAW, {"prompt": "x", "repeat_penalty": 0}, "repeat_penalty")
        self.refused(RAW, {"prompt": "x", "temperature": 999999, "top_p": -1, "repeat_penalty": 0}, "temperature")
        return "400, naming the first"

    # ---- 11 concurrent equals solo

    def probe_33(self):
        """one prompt at levels 1, 2, 4, 8, 16, joining at staggered times"""
        hashes = set()
        for level in (1, 2, 4, 8, 16):
            for gap in (0.0, 0.02):
                hashes |= {self.sha(r) for _, r in self.together([(RAW, {"prompt": STORY, "max_tokens": 32, "temperature": 0})] * level, gap)}
        assert len(hashes) == 1
        return "one distinct id list over 62 replies"

    def probe_34(self):
        """32 random prompts, alone and 16 at once, greedy and sampled"""
        bodies = [(RAW, {"prompt": self.ids_prompt(self.rng.randrange(2, 60)), "max_tokens": 16, "temperature": i % 2, "seed": i}) for i in range(32)]
        solo = [self.sha(self.target.post(*b)[1]) for b in bodies]
        shared = [self.sha(r) for half in (bodies[:16], bodies[16:]) for _, r in self.together(half)]
        assert solo == shared
        return "32 of 32 equal"

    def probe_35(self):
        """four identical requests 0, 5, 50, 500 ms apart"""
        hashes = set()
        for gap in (0, 0.005, 0.05, 0.5):
            hashes |= {self.sha(r) for _, r in self.together([(CHAT, {"messages": [{"role": "user", "content": STORY}], "max_tokens": 32, "temperature": 0})] * 4, gap)}
        assert len(hashes) == 1
        return "one text"

    # ---- 12 prompt cache

    def same_as_fresh(self, path, body):
        kept = self.target.post(path, body)[1]
        assert self.sha(kept) == self.sha(self.fresh.post(path, body)[1]), body
        return kept["usage"]["prompt_tokens_details"]["cached_tokens"]

    def probe_36(self):
        """A cold, A again, A + suffix, against a server without the cache"""
        a = self.ids_prompt(300)
        cached = [self.same_as_fresh(RAW, {"prompt": p, "max_tokens": 24, "temperature": 0, "ignore_eos": True}) for p in (a, a, a + self.ids_prompt(20))]
        assert cached[0] == 0 and cached[1] > 0 and cached[2] > 0
        return f"each equals fresh; cached tokens {cached} of 300, 300, 320"

    def probe_38(self):
        """many unique prompts, then early ones again"""
        prompts = [self.ids_prompt(200) for _ in range(60)]
        for p in prompts:
            self.target.post(RAW, {"prompt": p, "max_tokens": 2, "temperature": 0})
        for p in prompts[:6] + prompts[-3:]:
            self.same_as_fresh(RAW, {"prompt": p, "max_tokens": 16, "temperature": 0, "ignore_eos": True})
        return "9 of 9 equal fresh (a budget of a few states is in the engine's own tests)"

    def probe_39(self):
        """an append-only chat: prompt tokens computed each turn"""
        messages, computed, new = [], [], []
        before = 0
        for turn in range(self.turns):
            messages.append({"role": "user", "content": f"Turn {turn}: what is the capital of Norway, and of France?"})
            body = {"messages": messages, "max_tokens": 24, "temperature": 0}
            reply = self.target.post(CHAT, body)[1]
            if turn % 5 == 4:
                assert self.sha(reply) == self.sha(self.fresh.post(CHAT, body)[1])
            usage = reply["usage"]
            computed.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
            new.append(usage["prompt_tokens"] - before)
            before = usage["prompt_tokens"]
            messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        assert all(c <= n + 32 for c, n in zip(computed[1:], new[1:])), (computed, new)
        return f"{self.turns} turns: at most {max(c - n for c, n in zip(computed[1:], new[1:]))} tokens computed beyond a turn's new ones; replies equal fresh"

    def probe_41(self):
        """a long prompt, its reply, a short follow-up; thinking on and off; with and without reasoning_content sent back"""
        long = " ".join(f"Item {i} is {self.rng.randrange(1000)}." for i in range(120))
        seen = []
        for thinking in (False, True):
            for echo in (False, True):
                more = {"max_tokens": 24, "temperature": 0, "chat_template_kwargs": {"enable_thinking": thinking}}
                first = [{"role": "user", "content": f"{thinking}{echo} {long}"}]
                reply = self.target.post(CHAT, {"messages": first, **more})[1]
                message = reply["choices"][0]["message"]
                back = {"role": "assistant", "content": message["content"]}
                if echo and "reasoning_content" in message:
                    back["reasoning_content"] = message["reasoning_content"]
                body = {"messages": first + [back, {"role": "user", "content": "And?"}], **more}
                cached = self.same_as_fresh(CHAT, body)
                seen.append((cached, reply["usage"]["prompt_tokens"]))
                assert cached >= reply["usage"]["prompt_tokens"] - 16, seen
        return "cached of first prompt's tokens: " + ", ".join(f"{c} of {p}" for c, p in seen)

    # ---- 14 context

    def probe_44(self):
        """prompts of limit-1, limit, limit+1 tokens; max_tokens huge"""
        n = self.context()
        status, reply = self.raw([5] * (n - 1), max_tokens=10**9)
        assert status == 200 and reply["usage"]["completion_tokens"] == 1
        for size in (n, n + 1):
            self.refused(RAW, {"prompt": [5] * size}, "prompt", "context_length_exceeded")
        return "limit-1: one token, finish_reason length; limit and limit+1: 400 context_length_exceeded with the counts"

    def probe_45(self):
        """an over-long prompt, streamed and not"""
        for stream in (False, True):
            self.refused(RAW, {"prompt": [5] * (self.context() + 9), "stream": stream}, "prompt", "context_length_exceeded")
        return "400 before any event"

    # ---- 15 to 17

    def probe_46(self):
        """clients that leave while queued, filling, decoding, streamed or not"""
        return "tests/server/leaving_clients.py: 24 ways, each frees the engine within a step"

    def probe_47(self):
        """bodies: invalid UTF-8, lone surrogates, NUL, 100k-deep arrays, duplicate keys, BOM, empty, wrong type, endless chunks, 1 GiB length, 1e999"""
        bad = [b"\xb2\xe2", b'{"prompt": "\\ud800"}', b"[" * 100_000, b'{"prompt":"x","prompt":"y"}', b'\xef\xbb\xbf{"prompt":"x"}', b'{"prompt":"x","seed":1e999}',
               b'{"messages": "x"}']
        for body in bad:
            status, _, reply = self.target.request("POST", CHAT, body)
            assert 400 <= status < 500 and json.loads(reply)["error"]["message"], (status, body[:40])
        assert self.target.request("POST", CHAT, b"")[0] == 400
        assert self.raw("a\0b")[0] == 200
        with self.target.connect() as sock:
            sock.sendall(self.target.head("POST", RAW, b"").replace(b"Content-Length: 0", b"Content-Length: 1073741824"))
            assert read_reply(sock.makefile("rb"))[0] == 413
        with self.target.connect() as sock:
            sock.sendall(self.target.head("POST", RAW, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
            try:
                for _ in range(40):
                    sock.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
            except OSError:
                pass
            assert read_reply(sock.makefile("rb"))[0] == 413
        return "4xx each (a NUL character in a string is text: 200); 1 GiB and endless chunks 413"

    def probe_48(self):
        """a request as large as the context, then ten small ones"""
        n = self.context()
        with concurrent.futures.ThreadPoolExecutor(11) as pool:
            large = pool.submit(self.raw, [5] * (n // 2), max_tokens=2)
            small = [pool.submit(self.raw, f"Hi {i}", max_tokens=4) for i in range(10)]
            assert all(f.result()[0] == 200 for f in small) and large.result()[0] in (200, 400)
        return "all answered"

    # ---- 19 smaller ones

    def probe_smaller_usage(self):
        """streamed usage: exactly once, last, empty choices, only if asked; equal to the ids"""
        body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 32, "temperature": 0, "return_token_ids": True}
        streamed = self.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        with_usage = [e for e in streamed["events"] if e != "[DONE]" and e.get("usage")]
        assert len(with_usage) == 1 and with_usage[0]["choices"] == [] and streamed["events"][-2] is with_usage[0]
        assert with_usage[0]["usage"]["completion_tokens"] == len(streamed["ids"])
        assert not any(e.get("usage") for e in self.stream(CHAT, body)["events"] if e != "[DONE]")
        return "once, last, with the count of the returned ids"

    def probe_smaller_images(self):
        """an image part to a text model"""
        part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/none.png"}}
        return self.refused(CHAT, {"messages": [{"role": "user", "content": [part]}]}, "messages[0].content[0].type")

    def probe_smaller_prompts(self):
        """prompt as string, list of strings, ids, list of lists, empty list, ids at the vocabulary's edge"""
        for prompt in ("x", ["x"], [5, 6], [[5, 6]]):
            assert self.raw(prompt)[0] == 200, prompt
        for prompt, param in (([], "prompt"), (["x", "y"], "prompt"), ([[5], [6]], "prompt"), ([10**6], "prompt[0]"), ([-1], "prompt[0]")):
            self.refused(RAW, {"prompt": prompt}, param)
        return "served, or 400 naming the prompt or the id"


OTHERS = [  # not sent here: what they ask for, and where the answer is
    ("3", "streamed tool arguments with umlauts and emoji", "tools are refused by name until they are built (12)"),
    ("9", "a new system note in every turn", "the bundled model's template takes a system message at the beginning only (8)"),
    ("13", "tool arguments in Chinese, streamed and not", "as 12"),
    ("14", "a tool call that must survive a prompt-cache hit", "as 12"),
    ("19", "a schema with a recursive $ref", "as 18"),
    ("20", "a schema with an enum behind $ref", "as 18"),
    ("21", "a schema with numbers above 2^53", "as 18"),
    ("22", "a schema of 2,000 properties beside a plain stream", "as 18"),
    ("23", "prompt_logprobs with drafts on and off", "as 24"),
    ("30", "penalties with drafts on and off", "as 31"),
    ("37", "drafts and the prompt cache together", "needs drafts; 36, 38 and 39 hold without them"),
    ("40", "a needle of the first turn asked for in the second", "what a small model remembers is its own; 39 and 41 hold that nothing is lost on the way"),
    ("42", "acceptance of drafts above temperature 0", "needs drafts"),
    ("43", "the guarantee, stated and tested", "docs/exactness.md; ./check tests it on every push"),
    ("49", "memory under eviction churn", "the ledger is a hard limit; the engine's tests evict under it"),
    ("50", "hostile model files", "the checkpoint and text tests, and their fuzz targets"),
]

HEAD = """# Probes

Users of other engines that do this job reported bugs in public. Each entry is such a report turned into a request: what was tried here, on the bundled
model with four lanes and the prompt cache on, and the answer it got. C is POST /v1/chat/completions, T is POST /v1/completions, S the same streamed;
"fresh" is the reply of a second server without a prompt cache. Replies are compared by their token hash. After each entry a fixed greedy request must give its
hash. The table is printed by `tests/server/probes.py`, which fails where an answer is not what it must be; what failed at first is a case in
`tests/server/cases` or a unit test now.
"""


def main():
    target, args = arguments("probes", fresh_url="", turns=20)
    fresh = Target(args.fresh_url, args.key) if args.fresh_url else target
    probes = Probes(target, fresh, args.turns)
    reference = target.probe()
    rows, failed = [], 0
    for name in [n for n in dir(Probes) if n.startswith("probe_")]:
        call = getattr(probes, name)
        number = name.removeprefix("probe_").replace("smaller_", "19: ")
        begin = time.monotonic()
        try:
            answer = call()
        except Exception as error:  # an answer that is not what it must be; go on with the others
            failed += 1
            answer = f"**not as it must be**: {type(error).__name__} {str(error)[:200]}"
        if target.probe() != reference:
            failed += 1
            answer += " **(the fixed probe changed)**"
        print(f"{number}: {answer} ({time.monotonic() - begin:.1f} s)", file=sys.stderr, flush=True)
        rows.append((number, " ".join(call.__doc__.split()), answer))
    rows += OTHERS
    rows.sort(key=lambda r: (r[0].startswith("19:"), int(r[0].split(":")[0]), r[0]))
    print(HEAD + "\n| no. | tried | answer |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

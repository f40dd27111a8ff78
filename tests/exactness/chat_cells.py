"""Cells over chats. Where each one resumes is worked out here, from /tokenize and the rules of docs/prompt_cache.md, and met exactly."""

from run import cell

GREEDY = {"temperature": 0}
SYSTEM = {"role": "system", "content": "You answer in one short sentence. Say what a word means, plainly."}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
SPACING = 2048  # tokens between the kept states of a long prompt


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def shared(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Conversation:
    """Chats in one cache of their own, and the states that should be kept of them, as token ids."""

    def __init__(self, run, template=None):
        self.run, self.salt, self.template, self.kept = run, run.new_salt(), template or {}, []

    def ids(self, messages):
        return self.run.client.tokenize(messages, **self.template)

    def keep(self, messages, ids, reply):
        """Where the next request leaves this one's tokens: a further turn, another last message, another chat of the same system prompt."""
        others = [messages + [assistant("Quite so."), user("Why?")], messages[:-1] + [{"role": messages[-1]["role"], "content": "Zero."}]]
        if len(messages) > 2 and messages[0]["role"] == "system":
            others.append([messages[0], user("Zero.")])
        points = {min(shared(ids, self.ids(other)), len(ids) - 1) for other in others} | set(range(SPACING, len(ids), SPACING))
        self.kept += [ids[:p] for p in points] + [(ids + reply)[:-1]]

    def expected(self, ids):
        return max((len(k) for k in self.kept if len(k) < len(ids) and ids[: len(k)] == k), default=0)

    def say(self, where, messages, tokens=40, at_least=0, stream=False, **fields):
        """One chat: resumed where expected (and not before at_least), with the hash of its solo run."""
        fields = {**GREEDY, **fields}
        ids = self.ids(messages)
        expected = self.expected(ids)
        answer = self.run.client.chat(messages, tokens, stream=stream, cache_salt=self.salt, **self.template, **fields)
        alone = self.run.client.chat(messages, tokens, cache_salt=self.run.new_salt(), **self.template, **fields)
        for a in (answer, alone):
            assert a.status == 200 and not a.error, f"{where}: {a.status} {a.error}"
        assert alone.prompt_ids == ids, f"{where}: /tokenize gives other ids than the chat ran"
        assert answer.hash == alone.hash, f"{where}: the hash differs from its solo reference"
        assert alone.cached == 0 and answer.cached == expected, f"{where}: resumed at {answer.cached}, not {expected} of {len(ids)}"
        assert answer.cached >= at_least, f"{where}: only {answer.cached} of {len(ids)} were expected to be kept"
        self.keep(messages, ids, answer.ids)
        alone.cached_here = answer.cached
        return alone

    def continue_ids(self, where, answer, tokens):
        """The reply goes on after finish_reason length, as token ids: from the reply's own state, one row before its end."""
        longer = answer.prompt_ids + answer.ids
        rest = self.run.client.complete(longer, tokens, cache_salt=self.salt, **GREEDY)
        self.run.check(longer, GREEDY, rest, where)
        assert rest.cached == self.expected(longer) == len(longer) - 1, f"{where}: resumed at {rest.cached} of {len(longer)}"


def talk(chat, tokens):
    """The turns of one conversation, each with the path that it names."""
    turn = [SYSTEM, user("What is a dog?")]
    first = chat.say("first", turn, tokens)
    assert first.cached_here == 0
    opened = len(chat.ids([SYSTEM, user("What is a dog?")])) - 6  # all but the generation prompt, more or less
    chat.say("the same again", turn, tokens, at_least=opened, stream=True)
    chat.say("regenerated, seed 1", turn, tokens, at_least=opened, temperature=1.0, seed=1)
    chat.say("regenerated, seed 2", turn, tokens, at_least=opened, temperature=1.0, seed=2)
    system = shared(chat.ids([SYSTEM, user("a")]), chat.ids([SYSTEM, user("b")]))
    chat.say("last turn edited", [SYSTEM, user("What is a lamp?")], tokens, at_least=system)
    content = first.choices[0]["message"]["content"] or "A dog."
    follow = turn + [assistant(content), user("And what is a cat?")]
    second = chat.say("follow-up", follow, tokens, at_least=opened)
    chat.say("follow-up again", follow, tokens, at_least=len(chat.ids(follow)) - 6, stream=True)
    chat.say("follow-up edited", follow[:-1] + [user("And a horse?")], tokens, at_least=opened)
    chat.say("first reply edited", turn + [assistant("It barks."), user("Who?")], tokens, at_least=opened)
    third = follow + [assistant(second.choices[0]["message"]["content"] or "A cat."), user("What is a river?")]
    chat.say("third turn", third, tokens, at_least=len(chat.ids(follow)) - 6)
    chat.say("another chat under the system prompt", [SYSTEM, user("Name a tree.")], tokens, at_least=system)


@cell
def chats(run):
    """E3 in chats, with and without thinking: again, regenerated, edited, followed up (think block dropped), system prompt shared."""
    talk(Conversation(run), 24)
    talk(Conversation(run, THINKING), 60)


@cell
def chats_cut_short(run):
    """Chats that ended with finish_reason length, with and without thinking, go on: as token ids, and with a further turn."""
    for template in ({}, THINKING):
        chat = Conversation(run, template)
        turn = [SYSTEM, user("What is a mountain?")]
        cut = chat.say("cut short", turn, 4)
        assert cut.choices[0]["finish_reason"] == "length"
        chat.continue_ids("as token ids", cut, 20)
        content = cut.choices[0]["message"]["content"] or ""
        chat.say("with a further turn", turn + [assistant(content), user("Go on.")], at_least=len(cut.prompt_ids) - 6)


@cell
def chats_long(run):
    """A system prompt beyond the spacing of kept states, shared by two chats, then with another end; then the first chat once more."""
    words = " ".join(str(run.random.randrange(10, 99)) for _ in range(900))
    system = {"role": "system", "content": words}
    chat = Conversation(run)
    assert chat.say("first", [system, user("What is a dog?")], 12).cached_here == 0
    chat.say("another under it", [system, user("What is a cat?")], 12, at_least=SPACING)
    edited = {"role": "system", "content": words[:-8] + " and so on"}
    answer = chat.say("its end edited", [edited, user("What is a cat?")], 12, at_least=SPACING)
    assert answer.cached_here % SPACING == 0
    chat.say("first again", [system, user("What is a dog?")], 12, at_least=SPACING)

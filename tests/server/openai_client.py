"""The official OpenAI client for Python chats, streams, and reads usage and errors as its typed exceptions.

usage: openai_client.py BASE_URL [--key KEY]      (pip install openai)
"""
import asyncio
import sys

import openai

from wire import arguments

ASK = [{"role": "user", "content": "What is the capital of Norway?"}]


def expect(kind, call, **fields):
    try:
        call()
    except kind as error:
        for name, value in fields.items():
            assert getattr(error, name) == value, (name, getattr(error, name), error)
        assert error.body and error.request_id, error
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def main():
    target, _ = arguments("the official client")
    key = target.key or "none"
    client = openai.OpenAI(base_url=target.base_url + "/v1", api_key=key, max_retries=0)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model

    whole = client.chat.completions.create(model=model, messages=ASK, max_tokens=40, temperature=0)
    message = whole.choices[0].message
    assert whole.choices[0].finish_reason in ("stop", "length") and message.role == "assistant"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    assert whole.usage.completion_tokens_details.reasoning_tokens >= 0
    assert whole.model == model and whole.id.startswith("chatcmpl-") and whole.created > 0 and whole.system_fingerprint

    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(model=model, messages=ASK, max_tokens=40, temperature=0, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
        usage = chunk.usage or usage
    assert text == message.content, (text, message.content)
    assert finish == whole.choices[0].finish_reason and usage.completion_tokens == whole.usage.completion_tokens

    with client.chat.completions.stream(model=model, messages=ASK, max_tokens=40, temperature=0) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == message.content

    thinking = client.chat.completions.create(model=model, messages=ASK, max_tokens=60, temperature=0, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert thinking.choices[0].message.model_extra.get("reasoning_content"), thinking

    legacy = client.completions.create(model=model, prompt="The capital of Norway is", max_tokens=8, temperature=0)
    streamed = "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="The capital of Norway is", max_tokens=8, temperature=0, stream=True))
    assert legacy.choices[0].text == streamed, (legacy.choices[0].text, streamed)

    raw = client.chat.completions.with_raw_response.create(model=model, messages=ASK, max_tokens=1, extra_headers={"x-request-id": "mine-1"})
    assert raw.headers["x-request-id"] == "mine-1" and raw.parse()._request_id == "mine-1"

    create = client.chat.completions.create
    expect(openai.BadRequestError, lambda: create(model=model, messages=ASK, temperature=5), param="temperature", code="invalid_value", status_code=400)
    expect(openai.BadRequestError, lambda: create(model=model, messages=ASK, temperature=5, stream=True), param="temperature")
    expect(openai.BadRequestError, lambda: create(model=model, messages=ASK, frequency_penalty=1), param="frequency_penalty", code="unsupported_value")
    expect(openai.BadRequestError, lambda: create(model=model, messages=[]), param="messages")
    expect(openai.BadRequestError, lambda: create(model=model, messages=[{"role": "user", "content": "word " * 60000}]), code="context_length_exceeded",
           param="messages")
    expect(openai.NotFoundError, lambda: client.models.retrieve("nobody"), code="model_not_found")
    if target.key:
        wrong = openai.OpenAI(base_url=target.base_url + "/v1", api_key="wrong", max_retries=0)
        expect(openai.AuthenticationError, lambda: wrong.models.list(), code="invalid_api_key", status_code=401)

    async def together():
        async with openai.AsyncOpenAI(base_url=target.base_url + "/v1", api_key=key, max_retries=0) as many:
            replies = await asyncio.gather(*(many.chat.completions.create(model=model, messages=ASK, max_tokens=40, temperature=0) for _ in range(8)))
        return {r.choices[0].message.content for r in replies}

    assert asyncio.run(together()) == {message.content}
    print(f"openai {openai.__version__} (Python): chat, stream, completions, usage, request ids and typed errors as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())

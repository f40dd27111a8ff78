"""Malformed and random requests. Passes when nothing answers 5xx, the server lives, a fixed probe keeps its hash, and memory does not grow.

usage: fuzz_requests.py BASE_URL [--count 10000] [--seed 1] [--key KEY] [--pid PID] [--growth-mib 64]
"""
import json
import random
import socket
import sys

from wire import arguments, read_reply

PATHS = ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/v1/models", "/health", "/v1/requests/x", "/", "/v1/models/%zz"]
FIELDS = ["messages", "prompt", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream",
          "stream_options", "n", "ignore_eos", "return_token_ids", "chat_template_kwargs", "logprobs", "tools", "response_format", "logit_bias", "priority",
          "cache_salt", "tokens", "reasoning_effort", "echo", "best_of", "user", "metadata", "no_such_field", "add_generation_prompt"]
NUMBERS = ["0", "-0", "1", "-1", "0.5", "1e999", "-1e999", "1e-999", "1e308", "9223372036854775807", "9223372036854775808", "18446744073709551616",
           "-9223372036854775809", "2147483648", "1" * 400, "0." + "3" * 400, "1E+2", "16.0", "01", "+1", ".5", "1.", "0x10", "NaN", "Infinity"]
TEXTS = ['"x"', '""', '"\\u0000"', '"\\ud800"', '"\\udfff\\ud800"', '"\\ud83d\\ude00"', '"<|im_start|>"', '"</think>"', '"' + "a" * 300 + '"',
         '"\\q"', '"unclosed', '"{{ messages }}"', '"\\"}]}"', '"\u00e4\u4f60\U0001f44d"']


def value(rng, depth=0):
    kind = rng.randrange(10)
    if depth > 4 or kind < 3:
        return rng.choice(NUMBERS + TEXTS + ["true", "false", "null"])
    if kind < 6:
        return "[" + ",".join(value(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    if kind < 8:
        return "{" + ",".join('"' + rng.choice(FIELDS + ["role", "content", "type", "text"]) + '":' + value(rng, depth + 1) for _ in range(rng.randrange(4))) + "}"
    if kind == 8:
        return rng.choice(["[", "{"]) * rng.choice([1, 63, 64, 65, 5000])
    role = rng.choice(['"user"', '"assistant"', '"system"', '"tool"', '"developer"', '"x"', "5", '"<|im_end|>"'])
    return '[{"role":' + role + ',"content":' + value(rng, depth + 2) + "}]"


def body(rng):
    """A body near a good one, or far from it."""
    kind = rng.randrange(8)
    if kind == 0:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(400)))
    if kind == 1:
        return value(rng).encode("utf-8", "surrogatepass")
    members = ['"max_tokens":' + rng.choice(["1", "2"])]
    members += ['"prompt":"hi"', '"messages":[{"role":"user","content":"hi"}]']
    for _ in range(rng.choice([0, 0, 1, 2, 3])):
        members.append('"' + rng.choice(FIELDS) + '":' + value(rng))
    rng.shuffle(members)
    text = bytearray(("{" + ",".join(members) + "}").encode("utf-8", "surrogatepass"))
    if kind == 2:  # flipped bytes
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.randrange(256)
    if kind == 3:
        del text[rng.randrange(len(text)):]
    if kind == 4:
        at = rng.randrange(len(text))
        text[at:at] = rng.choice([b"\x00", b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"{{{{", b'"'])
    return bytes(text)


def header_junk(rng):
    return rng.choice([b"", b"", b"", b"X: " + bytes(rng.randrange(1, 256) for _ in range(20)) + b"\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: gzip\r\n",
                       b"Expect: " + rng.choice([b"100-continue", b"x"]) + b"\r\n", b" folded: x\r\n", b"A" * rng.choice([100, 70000]) + b": b\r\n", b"no colon\r\n",
                       b"Connection: " + rng.choice([b"close", b"upgrade", b"keep-alive"]) + b"\r\n", b"x-request-id: \x01\x02\r\n",
                       b"Content-Type: " + rng.choice([b"text/plain", b"application/json;charset=gbk", b"\x00"]) + b"\r\n", b"Content-Encoding: br\r\n"])


def request(rng, key):
    payload = body(rng)
    method = rng.choice([b"POST"] * 12 + [b"GET", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"BREW", b"\x16\x03\x01"])
    path = rng.choice(PATHS[:4] * 4 + PATHS).encode()
    version = rng.choice([b"HTTP/1.1"] * 12 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 x", b""])
    head = method + b" " + path + b" " + version + b"\r\nHost: x\r\n" + header_junk(rng)
    if key:
        head += b"Authorization: Bearer " + key.encode() + b"\r\n"
    head += b"Content-Type: application/json\r\n"
    kind = rng.randrange(8)
    if kind == 0:  # chunked, sometimes broken
        out = head + b"Transfer-Encoding: chunked\r\n\r\n"
        at = 0
        while at < len(payload):
            n = rng.randrange(1, 40)
            piece = payload[at:at + n]
            size = b"%x" % len(piece) if rng.randrange(30) else rng.choice([b"zz", b"-1", b"ffffffffffffffffff", b"%x" % (len(piece) + 1), b"0"])
            out += size + rng.choice([b"", b";x=y"]) + b"\r\n" + piece + b"\r\n"
            at += n
        return method, out + (b"0\r\n\r\n" if rng.randrange(10) else b"")
    length = len(payload) if kind > 1 else rng.choice([0, len(payload) + 7, max(0, len(payload) - 3), 1 << 30, 1 << 70, -1])
    return method, head + b"Content-Length: %d\r\n\r\n" % length + payload


def main():
    target, args = arguments("malformed and random requests", count=10000, seed=1, growth_mib=64)
    rng = random.Random(args.seed)
    reference = target.probe()
    counts, start_memory = {}, None
    for i in range(args.count):
        if i == args.count // 10:
            start_memory = target.memory_mib()
        if i % (args.count // 10 or 1) == 0:
            assert target.probe() == reference, "the probe's hash changed"
        method, data = request(rng, target.key)
        status = 0
        with target.connect() as sock:
            try:
                sock.sendall(data)
                if rng.randrange(50) == 0:
                    continue  # leave without reading
                sock.shutdown(socket.SHUT_WR) if rng.randrange(10) == 0 else sock.settimeout(0.3)
                stream = sock.makefile("rb")
                if method == b"HEAD":
                    line = stream.readline()
                    status = int(line.split()[1]) if line else 0
                else:
                    status, headers, reply = read_reply(stream)
                    if status >= 400:
                        error = json.loads(reply)["error"]
                        assert error["message"] and error["type"] and error["code"] and "param" in error, reply
            except (TimeoutError, ConnectionError):
                pass  # an unfinished request waits for the rest
        counts[status] = counts.get(status, 0) + 1
        if status >= 500:
            print(f"request {i} of seed {args.seed} answered {status}:\n{data!r}")
            return 1
    assert target.probe() == reference, "the probe's hash changed"
    memory = target.memory_mib()
    print(f"{args.count} requests, seed {args.seed}: replies by status {dict(sorted(counts.items()))}; probe {reference[:12]} unchanged; memory "
          f"{start_memory and round(start_memory)} -> {memory and round(memory)} MiB after a tenth and at the end")
    if memory and memory > start_memory + args.growth_mib:
        print("memory grew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

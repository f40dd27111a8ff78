"""Runs cases/*.case against a server; those marked "scripted:" ask for the scripted engine's replies and are left out.

usage: run_cases.py BASE_URL [--key KEY]
"""
import json
import pathlib
import re
import sys

from wire import arguments, events, read_reply


def expand(text):
    text = re.sub(r"\[\[(\d+)\*(.*?)\]\]", lambda m: m.group(2) * int(m.group(1)), text)
    out = b""
    for i, part in enumerate(re.split(r"\\x([0-9a-f]{2})", text)):
        out += bytes([int(part, 16)]) if i % 2 else part.encode()
    return out


def read(path):
    cases, case, part = [], None, None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("=== "):
            case, part = {"name": line[4:], "line": number, "head": [], "body": "", "reply": [], "expected": ""}, "request"
            cases.append(case)
        elif line.startswith("> ") and part == "request":
            case["head"].append(line[2:])
        elif line.startswith("< "):
            case["reply"].append(line[2:])
            part = "reply"
        elif line and not (part != "request" and line[0] == "#"):
            case["body" if part == "request" else "expected"] += line
    return cases


def summary(body):
    out = {"content": "", "reasoning_content": "", "text": "", "done": False}
    for event in events(body):
        if event == "[DONE]":
            out["done"] = True
            continue
        for name in ("usage", "error", "lockstep"):
            if event.get(name) is not None:
                out[name] = event[name]
        for choice in event.get("choices", []):
            out["text"] += choice.get("text", "")
            for name in ("content", "reasoning_content"):
                out[name] += choice.get("delta", {}).get(name, "")
            out["finish_reason"] = choice["finish_reason"] or out.get("finish_reason")
    return out


def difference(want, got, at=""):
    if want == "?":
        return None if got is not None else at + " is null"
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{at} is {got!r}"
        return next((d for k, v in want.items() if (d := difference(v, got[k], f"{at}.{k}") if k in got else f"{at}.{k} is missing")), None)
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"{at} is {got!r}"
        return next((d for i, v in enumerate(want) if (d := difference(v, got[i], f"{at}[{i}]"))), None)
    if isinstance(want, str) and want.startswith("~") and isinstance(got, str):
        return None if want[1:] in got else f"{at} is {got!r}"
    return None if want == got and type(want) is type(got) else f"{at} is {got!r}, not {want!r}"


def main():
    target, _ = arguments("cases")
    run = failed = 0
    for path in sorted(pathlib.Path(__file__).parent.joinpath("cases").glob("*.case")):
        for case in read(path):
            if case["name"].startswith("scripted:"):
                continue
            run += 1
            method, where = case["head"][0].split(" ", 1)
            headers = [expand(h).decode("latin-1").split(": ", 1) for h in case["head"][1:]]
            body = expand(case["body"]) or None
            typed = [h for h in headers if h[0].lower() == "content-type"]
            head = target.head(method, where, body, headers)
            if typed:
                head = head.replace(b"Content-Type: application/json\r\n", b"", 1)
            with target.connect() as sock:
                sock.sendall(head + (body or b""))
                status, reply_headers, reply = read_reply(sock.makefile("rb"))
            problem = None if str(status) == case["reply"][0] else f"status {status}: {reply[:300]}"
            for line in case["reply"][1:]:
                name, value = line.split(": ", 1)
                problem = problem or (None if reply_headers.get(name) == value else f"{name} is {reply_headers.get(name)!r}")
            if not problem and case["expected"]:
                got = summary(reply) if reply_headers.get("content-type", "").startswith("text/event-stream") else json.loads(reply)
                problem = difference(json.loads(case["expected"]), got)
            if problem:
                failed += 1
                print(f"{path.name}:{case['line']}: {case['name']}: {problem}")
    print(f"{run} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

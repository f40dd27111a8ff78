#!/usr/bin/env python3
"""Asks one streamed chat question and prints the reply as it comes, then a receipt: tokens a second beside the bound of the bytes a token
reads, and the hash of the reply's token ids. usage: demo_chat.py URL LOCKSTEP QUESTION"""
import http.client
import json
import subprocess
import sys
import time
import urllib.parse


def main():
    url, lockstep, question = sys.argv[1:4]
    print(f"> {question}\n")
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=120)
    body = {"messages": [{"role": "user", "content": question}], "stream": True, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{response.status} {response.read().decode()}")
    first = last = None
    tokens, sha256 = 0, None
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            sys.exit(chunk["error"]["message"])
        tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
        sha256 = (chunk.get("lockstep") or {}).get("token_sha256", sha256)
        for choice in chunk["choices"]:
            delta = choice.get("delta", {})
            text = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
            if text:
                last = time.monotonic()
                first = first or last
                print(text, end="", flush=True)
    if not tokens or not sha256:
        sys.exit("the reply ended without its usage and token hash")
    speed = (tokens - 1) / (last - first) if tokens > 1 and last > first else 0.0
    bounds = json.loads(subprocess.run([lockstep, "bench", "--bounds", "--json"], check=True, capture_output=True, text=True).stdout)
    print(f"\n\n{tokens} tokens, {speed:.0f} tokens/s; bound {bounds['bytes_bound_tokens_per_second']:.0f} "
          f"({bounds['bytes_per_token'] / 1e6:.1f} MB a token at {bounds['read_gb_per_second']:.1f} GB/s); token_sha256 {sha256}")


main()

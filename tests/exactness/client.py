"""Requests to a live server, standard library only: a reply as its ids, hash, usage and finish."""

import hashlib
import http.client
import json
import struct
import threading
import urllib.parse


def token_hash(ids):
    """The server's token_sha256 (docs/api.md)."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


class Reply:
    def __init__(self):
        self.status, self.ids, self.hash, self.finish, self.usage, self.error = 0, [], None, None, None, None
        self.choices, self.prompt_ids, self.left = [], None, False

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"] if self.usage else None


class Client:
    def __init__(self, base_url, api_key=None, timeout=600):
        parts = urllib.parse.urlsplit(base_url)
        self.host, self.port, self.timeout = parts.hostname, parts.port, timeout
        self.headers = {"Content-Type": "application/json"}
        if api_key:
            self.headers["Authorization"] = "Bearer " + api_key

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get_json(self, path):
        return json.loads(self.call("GET", path)[1])

    def metrics(self):
        """Name (without labels; the last of a family) to value."""
        values = {}
        for line in self.call("GET", "/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name.split("{")[0]] = float(value)
        return values

    def tokenize(self, messages, **fields):
        status, text = self.call("POST", "/tokenize", {"messages": messages, **fields})
        assert status == 200, text
        return json.loads(text)["tokens"]

    def complete(self, prompt_ids, max_tokens, **fields):
        """One /v1/completions request; fields as for post."""
        return self.post("/v1/completions", {"prompt": prompt_ids, "max_tokens": max_tokens, "ignore_eos": True}, **fields)

    def chat(self, messages, max_tokens, **fields):
        return self.post("/v1/chat/completions", {"messages": messages, "max_tokens": max_tokens}, **fields)

    def post(self, path, body, stream=False, leave_after=None, leave_when=None, headers=None, **fields):
        """leave_after, leave_when: close the connection after so many tokens of a stream, or when a function of the reply says so."""
        body = {"model": "any", "return_token_ids": True, **body, **fields}
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        if leave_after is not None:
            leave_when = lambda reply: len(reply.ids) >= leave_after  # noqa: E731
        reply = Reply()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request("POST", path, json.dumps(body), {**self.headers, **(headers or {})})
            response = connection.getresponse()
            reply.status = response.status
            if response.status != 200:
                reply.error = json.loads(response.read())["error"]
            elif stream:
                self._read_stream(response, reply, leave_when)
            else:
                self._read_whole(json.loads(response.read()), reply)
        finally:
            connection.close()
        return reply

    def send_only(self, prompt_ids, max_tokens, **fields):
        """Sends a /v1/completions request and reads nothing; the caller closes the connection that is returned."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        body = {"prompt": prompt_ids, "max_tokens": max_tokens, "ignore_eos": True, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body), self.headers)
        return connection

    @staticmethod
    def _read_whole(answer, reply):
        reply.choices, reply.prompt_ids = answer["choices"], answer.get("prompt_token_ids")
        first = answer["choices"][0]
        reply.ids, reply.finish = first["token_ids"], first["finish_reason"]
        reply.usage, reply.hash = answer["usage"], answer["lockstep"]["token_sha256"]

    @staticmethod
    def _read_stream(response, reply, leave_when):
        for line in response:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                reply.error = event["error"]
                continue
            for choice in event["choices"]:
                reply.ids += choice.get("token_ids") or []
                reply.finish = choice["finish_reason"] or reply.finish
            reply.usage = event.get("usage") or reply.usage
            reply.hash = event.get("lockstep", {}).get("token_sha256", reply.hash)
            if leave_when is not None and leave_when(reply):
                reply.left = True
                return


def together(jobs, watch=None):
    """Runs (delay in seconds, function) jobs on threads; their results in order, an exception as itself. watch(live) is called beside them;
    live() counts those that have not ended."""
    results = [None] * len(jobs)

    def work(i, delay, job):
        if delay:
            threading.Event().wait(delay)
        try:
            results[i] = job()
        except Exception as error:  # noqa: BLE001  (a cell reports it)
            results[i] = error

    threads = [threading.Thread(target=work, args=(i, delay, job), daemon=True) for i, (delay, job) in enumerate(jobs)]
    for t in threads:
        t.start()
    if watch:
        watch(lambda: sum(t.is_alive() for t in threads))
    for t in threads:
        t.join()
    return results

"""Requests to a live server, standard library only: a reply as its ids, hash, usage and finish."""

import http.client
import json
import threading
import urllib.parse


class Reply:
    def __init__(self):
        self.status, self.ids, self.hash, self.finish, self.usage, self.error = 0, [], None, None, None, None
        self.choices, self.left = [], False

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

    def complete(self, prompt_ids, max_tokens, stream=False, leave_after=None, headers=None, **fields):
        """One /v1/completions request. leave_after: close the connection after that many tokens of a stream."""
        body = {"model": "any", "prompt": prompt_ids, "max_tokens": max_tokens, "return_token_ids": True, "ignore_eos": True, **fields}
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        reply = Reply()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {**self.headers, **(headers or {})})
            response = connection.getresponse()
            reply.status = response.status
            if response.status != 200:
                reply.error = json.loads(response.read())["error"]
            elif stream:
                self._read_stream(response, reply, leave_after)
            else:
                self._read_whole(json.loads(response.read()), reply)
        finally:
            connection.close()
        return reply

    @staticmethod
    def _read_whole(answer, reply):
        reply.choices = answer["choices"]
        first = answer["choices"][0]
        reply.ids, reply.finish = first["token_ids"], first["finish_reason"]
        reply.usage, reply.hash = answer["usage"], answer["lockstep"]["token_sha256"]

    @staticmethod
    def _read_stream(response, reply, leave_after):
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
            if leave_after is not None and len(reply.ids) >= leave_after:
                reply.left = True
                return


def together(jobs):
    """Runs (delay in seconds, function) jobs on threads; their results in order, an exception as itself."""
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
    for t in threads:
        t.join()
    return results

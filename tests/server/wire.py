"""Shared by the scripts here: raw HTTP over a socket, the fixed probe, health, memory. Standard library only."""
import argparse
import json
import socket
import urllib.parse


class Target:
    def __init__(self, base_url, key=None, pid=None):
        url = urllib.parse.urlparse(base_url)
        self.host, self.port, self.key, self.pid = url.hostname, url.port or 80, key, pid
        self.base_url = base_url.rstrip("/")

    def connect(self, timeout=60):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def head(self, method, path, body=None, headers=()):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        lines += [f"{name}: {value}" for name, value in headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def request(self, method, path, value=None, headers=(), timeout=600):
        """One request on a connection of its own: (status, headers, body)."""
        body = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        with self.connect(timeout) as sock:
            sock.sendall(self.head(method, path, body, headers) + (body or b""))
            return read_reply(sock.makefile("rb"))

    def post(self, path, value, **more):
        status, _, body = self.request("POST", path, value, **more)
        return status, json.loads(body)

    def health(self):
        status, _, body = self.request("GET", "/health", timeout=30)
        assert status == 200, status
        return json.loads(body)

    def live(self):
        return sum(self.health()["requests"].values())

    def probe(self):
        """The hash of one fixed greedy reply."""
        status, reply = self.post("/v1/completions", {"prompt": "The capital of Norway is", "max_tokens": 16, "temperature": 0, "ignore_eos": True})
        assert status == 200, reply
        return reply["lockstep"]["token_sha256"]

    def memory_mib(self):
        """Resident memory of the server's process beyond what its ledger holds (kept prompt states may fill their budget); None without its id."""
        if not self.pid:
            return None
        status, _, body = self.request("GET", "/memory")
        held = json.loads(body)["held_bytes"] if status == 200 else 0
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024 - held / 2**20


def read_reply(stream):
    line = stream.readline()
    if not line:
        return 0, {}, b""
    status = int(line.split()[1])
    headers = {}
    while (line := stream.readline().strip()):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if status == 100:
        return read_reply(stream)
    if status == 204:
        return status, headers, b""
    if "content-length" in headers:
        return status, headers, stream.read(int(headers["content-length"]))
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (size := int(stream.readline(), 16)):
            body += stream.read(size)
            stream.readline()
        stream.readline()
        return status, headers, body
    return status, headers, stream.read()


def events(body):
    """The parsed data of an event stream; "[DONE]" as it is."""
    out = []
    for line in body.decode().split("\n"):
        if line.startswith("data: "):
            out.append(line[6:] if line[6:] == "[DONE]" else json.loads(line[6:]))
    return out


def arguments(description, **more):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("base_url", help="http://HOST:PORT")
    parser.add_argument("--key")
    parser.add_argument("--pid", type=int, help="the server's process, to watch its memory")
    for name, default in more.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    args = parser.parse_args()
    return Target(args.base_url, args.key, args.pid), args

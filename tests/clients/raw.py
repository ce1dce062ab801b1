"""Clients without a library, which send the same requests: curl, and a page in Chromium."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from clients.programs.lines import CITY, HELLO, LONG, PLACE, RESULT, TOOL

PAGE = Path(__file__).parent / "programs/page.html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: The sandbox does not work as root. Without a port for debugging, a browser without a window ends at once.
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-crash-reporter",
    "--remote-debugging-port=0",
)
_TOOLS: Any = [
    {"type": "function", "function": {"name": TOOL, "description": "The weather of a city.", "parameters": CITY}}
]
#: Fields of the body of each case with a chat request.
CASES: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "stream": {"stream": True, "stream_options": {"include_usage": True}},
    "tools": {"tools": _TOOLS},
    "tools_stream": {"tools": _TOOLS, "stream": True},
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
    },
    "leave": {"stream": True, "max_tokens": LONG},
    "leave_plain": {"max_tokens": LONG},
    "unknown_model": {"model": "unknown"},
    "wrong_key": {},
}


class Sender(Protocol):
    """Sends a request: url, method, headers, body, and whether to leave before the end.

    Returns status and text, or an error.
    """

    def send(self, job: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Raw:
    """A client that sends the cases to a server with OpenAI's API."""

    name: str
    sender: Sender
    url: str
    key: str = field(repr=False)
    model: str

    def ask(self, case: str) -> Any:
        if case == "models":
            listed, one = self.send("GET", "/v1/models"), self.send("GET", f"/v1/models/{self.model}")
            return {"models": [entry["id"] for entry in listed["data"]], "one": one["id"]}
        if case == "embeddings":
            return self.send("POST", "/v1/embeddings", {"model": self.model, "input": "Hello"})
        body = {"model": self.model, "messages": HELLO, **CASES[case]}
        found = self.send(
            "POST",
            "/v1/chat/completions",
            body,
            "sk-wrong" if case == "wrong_key" else self.key,
            case.startswith("leave"),
        )
        if case == "tools" and "choices" in found:
            call = found["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": RESULT}
            end = self.send("POST", "/v1/chat/completions", {**body, "messages": [*HELLO, call, result]})
            return called([call]) | {"text": end["choices"][0]["message"]["content"]}
        return seen(found)

    def send(self, method: str, path: str, body: Any = None, key: str = "", leave: bool = False) -> Any:
        """Return the JSON of an answer, the list of a stream's events, or an error."""
        headers = {"authorization": f"Bearer {key or self.key}"} | (
            {"content-type": "application/json"} if body else {}
        )
        job = {
            "url": self.url + path,
            "method": method,
            "headers": headers,
            "body": json.dumps(body) if body else None,
            "leave": leave,
        }
        found = self.sender.send(job)
        if "error" in found or leave:
            return found
        if found["status"] != 200:
            return {
                "error": "Refused",
                "status": found["status"],
                "body": json.loads(found["text"]),
                "message": found["text"],
            }
        if not found["text"].startswith("data: "):
            return json.loads(found["text"])
        events = [line.removeprefix("data: ") for line in found["text"].splitlines() if line]
        assert events.pop() == "[DONE]"
        return [json.loads(event) for event in events]


def seen(found: Any) -> Any:
    """Return the parts of an answer that a library would show."""
    if isinstance(found, list):
        deltas = [choice["delta"] for event in found for choice in event["choices"]]
        if any(delta.get("tool_calls") for delta in deltas):
            return called(deltas)
        parts = [delta["content"] for delta in deltas if delta.get("content")]
        return {"text": "".join(parts), "parts": len(parts), "usage": used(found[-1])}
    if "choices" not in found:
        return found
    content = found["choices"][0]["message"]["content"]
    return {"data": json.loads(content)} if content.startswith("{") else {"text": content, "usage": used(found)}


def used(answer: Any) -> list[int]:
    return [answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]]


def called(messages: list[Any]) -> dict[str, Any]:
    """Return the tool that a message or its parts call."""
    functions = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    return {
        "tool": functions[0]["name"],
        "arguments": json.loads("".join(function.get("arguments") or "" for function in functions)),
    }


@dataclass(frozen=True)
class Curl:
    """Sends requests by curl. Its options are in standard input, because other users see the arguments of processes."""

    environment: Mapping[str, str] = field(repr=False)

    def send(self, job: Mapping[str, Any]) -> dict[str, Any]:
        body = job["body"]
        lines = [f"url = {json.dumps(job['url'])}", f"request = {job['method']}"]
        lines += [f'header = "{name}: {value}"' for name, value in job["headers"].items()]
        lines += [f"data-raw = {json.dumps(body)}"] if body else []
        command = ["curl", "--silent", "--show-error", "--no-buffer", "--write-out", "\n%{http_code}", "--config", "-"]
        patience = ["--max-time", "1"] if job["leave"] else []
        done = subprocess.run(
            [*command, *patience],
            input="\n".join(lines),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"error": f"exit status {done.returncode}", "message": done.stderr}
        text, _newline, status = done.stdout.rpartition("\n")
        return {"status": int(status), "text": text}


@dataclass
class Browser:
    """A page in Chromium, with the origin http://HOST:PORT. Its server gives it each request, and gets the answer."""

    origin: str
    jobs: queue.Queue[Any] = field(default_factory=queue.Queue)
    results: queue.Queue[Any] = field(default_factory=queue.Queue)

    def send(self, job: Mapping[str, Any]) -> dict[str, Any]:
        self.jobs.put(job)
        found: dict[str, Any] = self.results.get(timeout=20)
        return found


class _Pages(BaseHTTPRequestHandler):
    browsers: Mapping[str, Browser]

    def log_message(self, *_arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        page = self.path == "/"
        content = (
            PAGE.read_bytes()
            if page
            else json.dumps(self._browser().jobs.get()).encode()
            if self.path == "/next"
            else b""
        )
        self._reply(content, "text/html" if page else "application/json")

    def do_POST(self) -> None:
        self._browser().results.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._reply(b"{}", "application/json")

    def _browser(self) -> Browser:
        return self.browsers[self.headers["host"]]

    def _reply(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """A browser that ends is not an error of a test."""


@contextmanager
def pages(port: int) -> Iterator[list[Browser]]:
    """Serve the page with two origins, of which servers get only the first one. No browser is started."""
    server = _Server(("127.0.0.1", port), _Pages)
    hosts = [f"{name}:{server.server_address[1]}" for name in ("127.0.0.1", "localhost")]
    found = [Browser(f"http://{host}") for host in hosts]
    _Pages.browsers = dict(zip(hosts, found, strict=True))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def browser() -> str:
    """Return the program of a browser, "" without one."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), "")


@contextmanager
def chromium(page: str, digest: str) -> Iterator[None]:
    """Open a page in a browser without a window.

    It has no variable for a CA, so it takes the digest of a server's key.
    """
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        command = [
            browser(),
            *OPTIONS,
            f"--ignore-certificate-errors-spki-list={digest}",
            f"--user-data-dir={folder}",
            page,
        ]
        environment = {"PATH": os.defpath, "HOME": folder}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)

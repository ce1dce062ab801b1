"""A fixture that imitates the API of a vLLM server, for the tests of the gateway. It runs no model."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
_WORDS = ("one", " two", " three")


@dataclass
class Backend:
    """A server of one model.

    ``broken``: the status of each answer of the model, 200 for none. ``pause``: seconds before a plain answer, and
    before each word of a stream. ``words``: how many words a stream has. ``breaks``: after how many words a stream ends
    without its end, 0 for never. ``refusal`` and ``redirect``: an answer of 400, and a place to redirect to.
    ``lag``: seconds before the answer to a health check. ``closed``: whether the guard refuses new requests.
    ``drops``: whether it closes the connection in place of an answer.
    ``running``, ``left``, ``checks`` and ``sent``: open requests, those whose client left, health checks, and events of
    streams.
    """

    name: str
    key: str = ""
    port: int = 0
    broken: int = 200
    pause: float = 0
    lag: float = 0
    closed: bool = False
    drops: bool = False
    words: int = 3
    breaks: int = 0
    running: int = 0
    left: int = 0
    checks: int = 0
    sent: int = 0
    refusal: dict[str, Any] | None = None
    redirect: str = ""
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def _chat(backend: Backend, word: str | None, index: int, usage: bool = False) -> dict[str, Any]:
    delta = {"content": word} if word is not None else {}
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": None if word is not None else "stop"}]
    return {
        "id": f"chat-{index}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": backend.name,
        "choices": choices,
    }


def _text(backend: Backend, word: str | None, index: int, usage: bool = False) -> dict[str, Any]:
    choices = [] if usage else [{"index": 0, "text": word or "", "finish_reason": None if word is not None else "stop"}]
    return {"id": f"cmpl-{index}", "object": "text_completion", "created": 1, "model": backend.name, "choices": choices}


def _events(backend: Backend, path: str, body: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a stream as vLLM writes them: the first one at once, then one for each word."""
    words = [_WORDS[index % len(_WORDS)] for index in range(backend.words)]
    usage = {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}
    if path == "/v1/messages":
        start = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": backend.name}
        yield _event(
            {"type": "message_start", "message": {**start, "usage": {"input_tokens": 7, "output_tokens": 0}}}, True
        )
        for word in words:
            yield _event(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}, True
            )
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": len(words)}}
        yield _event(end, True) + _event({"type": "message_stop"}, True)
        return
    if path == "/v1/responses":
        yield _event({"type": "response.created", "response": {"id": "r", "usage": None}}, True)
        for word in words:
            yield _event({"type": "response.output_text.delta", "delta": word}, True)
        total = {"input_tokens": 7, "output_tokens": len(words), "total_tokens": 7 + len(words)}
        yield _event({"type": "response.completed", "response": {"id": "r", "usage": total}}, True)
        return
    chunk = _chat if path == "/v1/chat/completions" else _text
    options = body.get("stream_options") or {}
    always = options.get("include_usage") and options.get("continuous_usage_stats")
    yield ""
    for index, word in enumerate((*words, None)):
        now = {"prompt_tokens": 7, "completion_tokens": min(index + 1, len(words)), "total_tokens": 0}
        yield _event(chunk(backend, word, index) | ({"usage": now} if always else {}))
    if options.get("include_usage"):
        yield _event({**chunk(backend, None, 0, usage=True), "usage": usage})
    yield "data: [DONE]\n\n"


def _event(data: dict[str, Any], named: bool = False) -> str:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data, separators=(',', ':'))}\n\n"


def answer(backend: Backend, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the plain answer of a path."""
    whole = "".join(_WORDS)
    base = {"id": "x", "created": 1, "model": backend.name, "usage": USAGE}
    if path == "/v1/chat/completions":
        message = {"role": "assistant", "content": f"{backend.name}: {whole}"}
        return {
            **base,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    if path == "/v1/completions":
        return {
            **base,
            "object": "text_completion",
            "choices": [{"index": 0, "text": whole, "finish_reason": "stop", "logprobs": None}],
        }
    if path == "/v1/embeddings":
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        return {
            **base,
            "object": "list",
            "data": [{"object": "embedding", "index": index, "embedding": [0.5, 1.0]} for index in range(len(given))],
        }
    if path == "/v1/responses":
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        part = {"type": "output_text", "text": whole, "annotations": []}
        output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}]
        return {
            "id": "resp_x",
            "object": "response",
            "created_at": 1,
            "model": backend.name,
            "status": "completed",
            "output": output,
            "usage": usage,
        }
    if path.startswith("/v1/messages"):
        usage = {"input_tokens": 7, "output_tokens": 3}
        content = [{"type": "text", "text": f"{backend.name}: {whole}"}]
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": backend.name,
            "content": content,
            "usage": usage,
        }
        return {"input_tokens": 6} if path.endswith("/count_tokens") else message
    results = [
        {"index": index, "document": {"text": text}, "relevance_score": 0.5}
        for index, text in enumerate(body["documents"])
    ]
    return {"id": "x", "model": backend.name, "usage": {"total_tokens": 10}, "results": results}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend: Backend

    def log_message(self, *_arguments: Any) -> None:
        pass

    def _reply(self, status: int, data: Any) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        # Without kept connections, which would outlive the server.
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _allowed(self) -> bool:
        return not self.backend.key or self.headers.get("authorization") == f"Bearer {self.backend.key}"

    def do_GET(self) -> None:
        if self.path == "/health":
            self.backend.checks += 1
            time.sleep(self.backend.lag)
            self._reply(503 if self.backend.closed else 200, {})
        elif not self._allowed():
            self._reply(401, {"error": "Unauthorized"})
        else:
            self._reply(200, {"object": "list", "data": [{"id": self.backend.name, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.backend.closed:
            self._reply(503, {"error": {"message": "stops", "type": "server_error", "code": "server_stops"}})
            return
        self.backend.bodies.append((self.path, body))
        self.backend.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.backend.running += 1
        try:
            self._answer(body)
        except ConnectionError:
            self.backend.left += 1
        finally:
            self.backend.running -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        if not self._allowed():
            self._reply(401, {"error": "Unauthorized"})
        elif self.backend.redirect:
            self.send_response(307)
            self.send_header("location", self.backend.redirect)
            self.send_header("content-length", "0")
            self.end_headers()
        elif self.backend.drops:
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.backend.refusal:
            self._reply(400, self.backend.refusal)
        elif self.backend.broken != 200:
            self._reply(
                self.backend.broken,
                {"error": {"message": "the engine is dead", "type": "server_error", "code": self.backend.broken}},
            )
        elif self.path == "/v1/responses" and body.get("previous_response_id"):
            self._reply(
                404,
                {"error": {"message": "Response with id 'x' not found.", "type": "invalid_request_error", "code": 404}},
            )
        elif body.get("stream"):
            self._stream(body)
        else:
            self._rest()
            self._reply(200, answer(self.backend, self.path, body))

    def _rest(self) -> None:
        """Pause. Raises ConnectionError if the client leaves."""
        until = time.monotonic() + self.backend.pause
        while (rest := until - time.monotonic()) > 0:
            readable = select.select([self.connection], [], [], min(rest, 0.05))[0]
            if readable and not self.connection.recv(
                1, 0 if isinstance(self.connection, ssl.SSLSocket) else socket.MSG_PEEK
            ):
                raise ConnectionError("the client left")

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("server", "uvicorn")
        self.send_header("connection", "close")
        self.send_header("x-internal", "yes")
        self.end_headers()
        for index, part in enumerate(_events(self.backend, self.path, body)):
            if index:
                self._rest()
            if self.backend.breaks and index > self.backend.breaks:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.backend.sent += 1
            if part:
                self.wfile.write(f"{len(part.encode()):x}\r\n{part}\r\n".encode())
        self.wfile.write(b"0\r\n\r\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_arguments: Any) -> None:
        """A client that leaves is not an error of a test."""


@contextmanager
def serve(backend: Backend, pair: tuple[str, str] | None = None) -> Iterator[Backend]:
    """Serve the backend on a port of loopback, with TLS if a certificate and its key are given.

    After that, connections are refused.
    """
    server = _Server(("127.0.0.1", backend.port), type("Handler", (_Handler,), {"backend": backend}))
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    backend.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield backend
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

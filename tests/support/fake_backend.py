"""A fixture that imitates the API of a vLLM server, for the tests of the gateway. It runs no model."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
_WORDS = ("one", " two", " three")


@dataclass
class Backend:
    """A server of one model. ``broken``: the status of each answer of the model, 200 for none."""

    name: str
    key: str = ""
    port: int = 0
    broken: int = 200
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def _chat(backend: Backend, word: str | None, index: int, usage: bool = False) -> dict[str, Any]:
    delta = {"content": word} if word is not None else {}
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": None if word is not None else "stop"}]
    return {"id": f"chat-{index}", "object": "chat.completion.chunk", "created": 1, "model": backend.name, "choices": choices}


def _text(backend: Backend, word: str | None, index: int, usage: bool = False) -> dict[str, Any]:
    choices = [] if usage else [{"index": 0, "text": word or "", "finish_reason": None if word is not None else "stop"}]
    return {"id": f"cmpl-{index}", "object": "text_completion", "created": 1, "model": backend.name, "choices": choices}


def answer(backend: Backend, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the plain answer of a path."""
    whole = "".join(_WORDS)
    base = {"id": "x", "created": 1, "model": backend.name, "usage": USAGE}
    if path == "/v1/chat/completions":
        message = {"role": "assistant", "content": f"{backend.name}: {whole}"}
        return {**base, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    if path == "/v1/completions":
        return {**base, "object": "text_completion", "choices": [{"index": 0, "text": whole, "finish_reason": "stop", "logprobs": None}]}
    if path == "/v1/embeddings":
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        return {**base, "object": "list", "data": [{"object": "embedding", "index": index, "embedding": [0.5, 1.0]} for index in range(len(given))]}
    if path == "/v1/responses":
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        part = {"type": "output_text", "text": whole, "annotations": []}
        output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}]
        return {"id": "resp_x", "object": "response", "created_at": 1, "model": backend.name, "status": "completed", "output": output, "usage": usage}
    results = [{"index": index, "document": {"text": text}, "relevance_score": 0.5} for index, text in enumerate(body["documents"])]
    return {"id": "x", "model": backend.name, "usage": {"total_tokens": 10}, "results": results}


class _Handler(BaseHTTPRequestHandler):
    # Without kept connections, which would outlive the server.
    protocol_version = "HTTP/1.0"
    backend: Backend

    def log_message(self, *_arguments: Any) -> None:
        pass

    def _reply(self, status: int, data: Any) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _allowed(self) -> bool:
        return not self.backend.key or self.headers.get("authorization") == f"Bearer {self.backend.key}"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._reply(200, {})
        elif not self._allowed():
            self._reply(401, {"error": "Unauthorized"})
        else:
            self._reply(200, {"object": "list", "data": [{"id": self.backend.name, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.backend.bodies.append((self.path, body))
        self.backend.headers.append({name.lower(): value for name, value in self.headers.items()})
        if not self._allowed():
            self._reply(401, {"error": "Unauthorized"})
        elif self.backend.broken != 200:
            self._reply(self.backend.broken, {"error": {"message": "the engine is dead", "type": "server_error", "code": self.backend.broken}})
        elif body.get("stream"):
            self._stream(body)
        else:
            self._reply(200, answer(self.backend, self.path, body))

    def _stream(self, body: dict[str, Any]) -> None:
        chunk = _chat if self.path == "/v1/chat/completions" else _text
        rows = [chunk(self.backend, word, index) for index, word in enumerate((*_WORDS, None))]
        if (body.get("stream_options") or {}).get("include_usage"):
            rows.append({**chunk(self.backend, None, len(rows), usage=True), "usage": USAGE})
        text = "".join(f"data: {json.dumps(row)}\n\n" for row in rows) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_arguments: Any) -> None:
        """A client that leaves is not an error of a test."""


@contextmanager
def serve(backend: Backend, pair: tuple[str, str] | None = None) -> Iterator[Backend]:
    """Serve the backend on a port of loopback, with TLS if a certificate and its key are given. After that, connections are refused."""
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

"""Answers in place of vLLM: `vllm serve` by uvicorn, with the API's guard, TLS, and fake_openai's function as its model.

It runs no model and reads no weights. It ignores the arguments that it does not know.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
from collections.abc import Iterator
from typing import Any

try:
    from vllm.fake_openai import Model, response  # type: ignore[import-not-found]  # In its wheel.
except ImportError:
    from fake_openai import Model, response

#: The release that it reports.
VERSION = "0.32.0"


class Server:
    """The ASGI application."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.running = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Respond to a request, or to the start and the end of the server."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        content = b""
        while scope["method"] == "POST":
            message = await receive()
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.running += 1
        try:
            kind, parts = self.answer(scope["path"], json.loads(content) if content else {})
            headers = [(b"content-type", kind)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for part in parts:
                await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.running -= 1

    def answer(self, path: str, body: dict[str, Any]) -> tuple[bytes, list[str]]:
        """Return the content type of a response, and its parts."""
        if path == "/metrics":
            return b"text/plain", [
                f'vllm:num_requests_running{{model_name="{self.model.name}"}} {self.running - 1}.0\n'
            ]
        if body.get("stream"):
            return b"text/event-stream", list(events(self.model, body))
        entry = {"id": self.model.name, "root": self.model.root, "max_model_len": self.model.max_model_len}
        said = {
            "/health": {},
            "/version": {"version": VERSION},
            "/v1/models": {"object": "list", "data": [entry]},
        }.get(path)
        return b"application/json", [json.dumps(complete(self.model, body) if said is None else said)]


def complete(model: Model, body: dict[str, Any]) -> dict[str, Any]:
    """Return the whole response to a completion or a chat."""
    asked = {"max_tokens": 16, "logprobs": 0, "top_logprobs": 0} | body
    result = response(model, asked)
    (choice,) = result["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    usage = {"prompt_tokens": len(model.render(body)), "completion_tokens": len(text)}
    result["choices"] = [{**choice, "index": 0, "finish_reason": "length"}]
    return {**result, "model": model.name, "usage": usage}


def events(model: Model, body: dict[str, Any]) -> Iterator[str]:
    """Yield the server-sent events of a chat."""
    whole = complete(model, body)
    text = whole["choices"][0]["message"]["content"]
    for character in text:
        yield event([{"index": 0, "delta": {"content": character}, "finish_reason": None}])
    yield event([{"index": 0, "delta": {}, "finish_reason": "length"}])
    yield event([], usage=whole["usage"])
    yield "data: [DONE]\n\n"


def event(choices: list[dict[str, Any]], **more: Any) -> str:
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': choices, **more})}\n\n"


def main() -> None:
    """Serve as the head, or wait as another rank, until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--middleware")
    parser.add_argument("--ssl-certfile")
    parser.add_argument("--ssl-keyfile")
    given, _ignored = parser.parse_known_args()
    if given.headless:
        signal.pause()
    app: Any = Server(Model(name=given.served_model_name, root=given.model))
    if given.middleware:
        module, _, name = given.middleware.rpartition(".")
        app = getattr(importlib.import_module(module), name)(app)
    uvicorn = importlib.import_module("uvicorn")
    tls = {"ssl_certfile": given.ssl_certfile, "ssl_keyfile": given.ssl_keyfile}
    uvicorn.run(app, host=given.host, port=given.port, access_log=False, **tls)


if __name__ == "__main__":
    main()

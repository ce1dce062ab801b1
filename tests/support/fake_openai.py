"""A vLLM server over HTTP whose model is a function: token IDs in, logits out.

Its numbers can be changed like a kernel's.
"""

from __future__ import annotations

import json
import math
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VOCABULARY = 64
#: The last token ends an answer.
END = VOCABULARY - 1


@dataclass
class Model:
    """``weights`` select the function, ``scale`` multiplies its logits, and ``step`` rounds them, as BF16 does."""

    weights: int = 1
    scale: float = 1.0
    step: float = 0.0
    name: str = "tiny"
    root: str = "/srv/models/tiny"
    max_model_len: int = 4096
    template: bool = True
    #: Part of each rendered chat, like a date.
    date: str = "2026-11-22"
    key: str = ""
    #: (drafted, accepted) tokens of each request, None without speculative decoding.
    drafts: tuple[int, int] | None = None
    #: Replaces the response to a request, by its path and body.
    hostile: Callable[[str, dict[str, Any]], bytes | None] = lambda _path, _body: None
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def logprobs(self, context: list[int]) -> list[float]:
        """Return the log-probability of each token after the context."""

        generator = random.Random(f"{self.weights} {zlib.crc32(bytes(context))}")
        logits = [generator.gauss(0, 2) * self.scale for _token in range(VOCABULARY)]
        if self.step:
            logits = [round(logit / self.step) * self.step for logit in logits]
        total = math.log(sum(math.exp(logit) for logit in logits))
        return [logit - total for logit in logits]

    def generate(self, prompt: list[int], most: int) -> list[tuple[int, list[float]]]:
        """Return the greedy tokens, each with the log-probabilities of all tokens."""
        context, found = list(prompt), []
        while len(found) < most and (not found or found[-1][0] != END):
            values = self.logprobs(context)
            token = max(range(VOCABULARY), key=values.__getitem__)
            found.append((token, values))
            context.append(token)
        return found

    def render(self, body: dict[str, Any]) -> list[int]:
        """Return the prompt's token IDs."""
        given = body.get("prompt")
        if isinstance(given, list):
            return given
        chat = f"{self.date} {body.get('tools', '')} " + " ".join(
            f"{turn['role']}: {turn['content']}" for turn in body.get("messages", [])
        )
        return [byte % END for byte in (given or chat).encode()]


def _top(values: list[float], count: int) -> dict[str, float]:
    best = sorted(range(VOCABULARY), key=values.__getitem__, reverse=True)[:count]
    return {f"token_id:{token}": values[token] for token in best}


def response(model: Model, body: dict[str, Any]) -> dict[str, Any]:
    """Return vLLM's response to a completion or a chat."""
    prompt = model.render(body)
    found = model.generate(prompt, body["max_tokens"])
    text = "".join(chr(ord("0") + token) for token, _values in found)
    if "messages" in body:
        content = [
            {
                "token": f"token_id:{token}",
                "logprob": values[token],
                "bytes": [0],
                "top_logprobs": [
                    {"token": name, "logprob": value, "bytes": [0]}
                    for name, value in _top(values, body["top_logprobs"]).items()
                ],
            }
            for token, values in found
        ]
        choice = {"message": {"role": "assistant", "content": text}, "logprobs": {"content": content}}
        return {"choices": [choice], "prompt_token_ids": prompt}
    choice = {"text": text, "prompt_token_ids": prompt}
    if "prompt_logprobs" in body:
        rest = [
            {str(prompt[index]): {"logprob": model.logprobs(prompt[:index])[prompt[index]], "rank": 1}}
            for index in range(1, len(prompt))
        ]
        return {"choices": [{**choice, "logprobs": None, "prompt_logprobs": [None, *rest]}]}
    lists = {
        "tokens": [f"token_id:{token}" for token, _values in found],
        "token_logprobs": [values[token] for token, values in found],
        "top_logprobs": [_top(values, body["logprobs"]) for _token, values in found],
    }
    return {"choices": [{**choice, "logprobs": lists}]}


class _Handler(BaseHTTPRequestHandler):
    model: Model

    def do_GET(self) -> None:
        """Report the model, the release and the counters."""
        model = self.model
        if self.path == "/metrics":
            drafted = [
                f"vllm:spec_decode_num_{name}_tokens_total{{engine='0'}} {count * len(model.requests)}.0"
                for name, count in self.counts()
            ]
            self.reply(200, "\n".join(["# HELP", *drafted]).encode())
        elif self.path == "/version":
            self.reply(200, b'{"version": "0.32.0"}')
        else:
            entry = {"id": model.name, "root": model.root, "max_model_len": model.max_model_len}
            self.reply(200, json.dumps({"data": [entry]}).encode())

    def counts(self) -> list[tuple[str, int]]:
        """Return the counters of one request by name."""
        return list(zip(("draft", "accepted"), self.model.drafts, strict=True)) if self.model.drafts else []

    def do_POST(self) -> None:
        """Respond as the model does, or as the test requires."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.model
        model.requests.append((self.path, body))
        if model.key and self.headers["Authorization"] != f"Bearer {model.key}":
            self.reply(401, b"{}")
        elif (planted := model.hostile(self.path, body)) is not None:
            self.reply(200, planted)
        elif "messages" in body and not model.template:
            self.reply(
                400, b'{"error": {"message": "you must provide a chat template if the tokenizer does not define one."}}'
            )
        elif len(model.render(body)) + body["max_tokens"] > model.max_model_len:
            self.reply(400, b'{"error": {"message": "maximum context length exceeded"}}')
        else:
            self.reply(200, json.dumps(response(model, body)).encode())

    def reply(self, status: int, content: bytes) -> None:
        """Send a response."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def serve(model: Model) -> Iterator[str]:
    """Serve a model, and yield the server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model})) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()

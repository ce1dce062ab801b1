# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM middleware (--middleware) that requires the key for every path except health and metrics.

vLLM itself requires its key only below /v1 and for a few more paths. In every release from 0.13.0 to 0.33.0,
POST /invocations returns a completion for the same body without a key; /pause and /tokenize are open too.
It takes the key from the headers of both APIs, and limits bodies, which vLLM reads without one.
Root can close it for new requests before a stop, while open ones go on (draining).
It also counts the requests without a complete response, for the watchdog: the engine reports a request after its first
step, so that the metrics of an engine that hangs before this step are those of an idle one.
The role vllm_serve copies this file to the head. It imports only the standard library.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

#: These reveal nothing about the requests and responses of other clients.
OPEN = frozenset({"/health", "/ping", "/metrics"})
#: A header of the responses from these paths: the number of requests to other paths without a complete response. A
#: server of several processes gives the number of one of them.
OPEN_REQUESTS = "x-gb10-open-requests"
#: Maximum bytes of a body, and the seconds for it. A request with images has some megabytes.
MOST_BODY, BODY_SECONDS = 64 << 20, 300.0
#: Maximum bytes of the bodies of all open requests. vLLM keeps a body until its request ends.
MOST_OF_ALL = 512 << 20
#: A file in vLLM's folder of settings: the seconds for which the server takes no new requests, since root wrote it. One
#: from before the server's start does not count, so that it needs no removal.
DRAIN = "drain"
_METRICS, _MODELS = "/metrics", "/v1/models"
#: Type of error in Anthropic's API, and code in OpenAI's.
_ERRORS: Mapping[int, tuple[str, str, str]] = {
    401: ("authentication_error", "invalid_api_key", "The API key is missing or wrong."),
    404: ("not_found_error", "model_not_found", "The server has no model of this name."),
    408: (
        "invalid_request_error",
        "request_timeout",
        f"The rest of the request did not arrive within {BODY_SECONDS:g} s.",
    ),
    413: ("request_too_large", "request_too_large", f"The request is larger than {MOST_BODY >> 20} MiB."),
    503: (
        "overloaded_error",
        "server_overloaded",
        f"The open requests have more than {MOST_OF_ALL >> 20} MiB. Try again later.",
    ),
}
_DRAINS = ("overloaded_error", "server_stops", "The server stops soon and takes no new requests. Try again later.")


class Guard:
    """ASGI middleware. Raises KeyError when a server without a key starts."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._key = os.environ["VLLM_API_KEY"].encode()
        self._drain = Drain(os.path.join(os.environ["VLLM_CONFIG_ROOT"], DRAIN))
        self._requests = self._held = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forward a request, or refuse it."""
        kind = scope["type"]
        without_key = kind == "http" and scope["path"] in OPEN
        # Browsers send OPTIONS without a key, to find out whether they may send one.
        if kind not in ("http", "websocket") or scope.get("method") == "OPTIONS":
            await self._app(scope, receive, send)
        elif not (without_key or self._allowed(scope)):
            await (
                send({"type": "websocket.close", "code": 1008}) if kind == "websocket" else _refuse(401, scope, send)
            )
        elif self._drain.now() and kind == "http" and scope["path"] != _METRICS:
            await _refuse(503, scope, send, _DRAINS)
        elif without_key:
            await self._app(scope, receive, self._with_count(send))
        else:
            # vLLM asks for the key again, and only in this header.
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            scope = {**scope, "headers": [*headers, (b"authorization", b"Bearer " + self._key)]}
            await (self._app(scope, receive, send) if kind == "websocket" else self._http(scope, receive, send))

    async def _http(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] == "GET" and scope["path"].startswith(f"{_MODELS}/"):
            await self._model(scope, receive, send)
            return
        size = 0

        def hold(more: int) -> int:
            nonlocal size
            size += more
            self._held += more
            return 413 if size > MOST_BODY else 503 if self._held > MOST_OF_ALL else 0

        try:
            parts = await _body(scope, receive, hold) if scope["method"] == "POST" else []
            await (
                _refuse(parts, scope, send) if isinstance(parts, int) else self._forward(scope, parts, receive, send)
            )
        finally:
            self._held -= size

    async def _forward(self, scope: dict[str, Any], parts: list[dict[str, Any]], receive: Any, send: Any) -> None:
        async def replayed() -> Any:
            return parts.pop(0) if parts else await receive()

        self._requests += 1
        try:
            await self._app(scope, replayed, send)
        finally:
            self._requests -= 1

    async def _model(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer with one entry of the list of models. vLLM has the list alone."""
        sent: list[dict[str, Any]] = []

        async def keep(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app({**scope, "path": _MODELS, "raw_path": _MODELS.encode()}, receive, keep)
        listed = json.loads(b"".join(message.get("body", b"") for message in sent))
        name = scope["path"].removeprefix(f"{_MODELS}/")
        entry = next((entry for entry in listed.get("data", ()) if entry["id"] == name), None)
        await (_answer(200, entry, scope, send) if entry else _refuse(404, scope, send))

    def _with_count(self, send: Any) -> Any:
        async def forward(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                count = (OPEN_REQUESTS.encode(), str(self._requests).encode())
                message = {**message, "headers": [*message.get("headers", ()), count]}
            await send(message)

        return forward

    def _allowed(self, scope: dict[str, Any]) -> bool:
        headers = dict(reversed(scope["headers"]))
        scheme, _blank, key = headers.get(b"authorization", b"").partition(b" ")
        given = key if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        return hmac.compare_digest(given.strip(), self._key)


class Drain:
    """Whether the server takes no new requests now. ``path``: the file of root."""

    def __init__(self, path: str) -> None:
        self._path, self._until = path, 0.0
        self._seen, _seconds = self._read()

    def now(self) -> bool:
        """Look at the file: a new one counts from now on."""
        seen, seconds = self._read()
        if seen != self._seen:
            self._seen, self._until = seen, time.monotonic() + seconds
        return time.monotonic() < self._until

    def _read(self) -> tuple[int, float]:
        try:
            with open(self._path, encoding="ascii") as file:
                return os.fstat(file.fileno()).st_mtime_ns, float(file.read(20))
        except (OSError, ValueError):
            return 0, 0.0


async def _body(scope: dict[str, Any], receive: Any, hold: Callable[[int], int]) -> list[dict[str, Any]] | int:
    """Return the messages with the whole body, or the status of the refusal."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if length.isdigit() and int(length) > MOST_BODY:
        return 413
    try:
        return await asyncio.wait_for(_received(receive, hold), BODY_SECONDS)
    except asyncio.TimeoutError:  # noqa: UP041  # Python 3.10 has two of them.
        return 408


async def _received(receive: Any, hold: Callable[[int], int]) -> list[dict[str, Any]] | int:
    parts: list[dict[str, Any]] = []
    while not parts or parts[-1].get("more_body", False):
        parts.append(await receive())
        if status := hold(len(parts[-1].get("body", b""))):
            return status
    return parts


def _origins(scope: dict[str, Any]) -> Collection[str]:
    """Return the origins that vLLM answers (--allowed-origins), from its own middleware, which this one is around."""
    entries = getattr(scope.get("app"), "user_middleware", ())
    return next((entry.kwargs["allow_origins"] for entry in entries if "allow_origins" in entry.kwargs), ())


async def _refuse(status: int, scope: dict[str, Any], send: Any, error: tuple[str, str, str] | None = None) -> None:
    """Answer with an error in the form of the API that the path belongs to."""
    kind, code, message = error or _ERRORS[status]
    if scope["path"].startswith("/v1/messages"):
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    await _answer(status, body, scope, send)


async def _answer(status: int, body: dict[str, Any], scope: dict[str, Any], send: Any) -> None:
    headers = [(b"content-type", b"application/json")] + [(b"www-authenticate", b"Bearer")] * (status == 401)
    origin, allowed = dict(scope["headers"]).get(b"origin", b""), _origins(scope)
    # Without these headers, a page sees no status and no text.
    if origin and ("*" in allowed or origin.decode("latin-1") in allowed):
        headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM middleware (--middleware) that requires the key for every path except health and metrics.

vLLM itself requires its key only below /v1 and for a few more paths. In every release from 0.13.0 to 0.33.0,
POST /invocations returns a completion for the same body without a key; /pause and /tokenize are open too.
It takes the key from the headers of both APIs. Clients have the paths of PUBLIC; the head itself has all.
It limits bodies, and messages of websockets, which vLLM reads without a limit.
Root can close it for new requests before a stop, while open ones go on (draining).
It also counts the requests without a complete response, for the watchdog: the engine reports a request after its first
step, so that the metrics of an engine that hangs before this step are those of an idle one.
io_connections limits what comes before a request. The role vllm_serve copies this file and its imports to the head. All
need only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api.io_connections import OPEN, limit_connections
from ansible_collections.gb10.cluster.plugins.module_utils.common import answers, bodies, costs, limits

#: Methods of requests: vLLM keeps a series of metrics for each name that a client invents. Those of the paths above: it
#: writes the metrics for another method in the server's loop.
_METHODS, _READING_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"}), frozenset({"GET", "HEAD"})
#: Seconds for which the page of the metrics is the same: writing one takes some milliseconds of the whole process.
_PAGE_SECONDS = 0.5
#: A header of the responses from these paths: the number of requests to other paths without a complete response. A
#: server of several processes gives the number of one of them.
OPEN_REQUESTS = "x-gb10-open-requests"
#: Paths for clients: those of vLLM 0.13.0 to 0.33.0 that answer a request and change nothing for others. Source: its
#: routes, in vllm/entrypoints. The others stop the engine, read its state, or load weights and adapters.
PUBLIC = frozenset(
    """
    /classify /cohere/v2/chat /cohere/v2/chat/render /detokenize /generative_scoring /inference/v1/generate /load
    /openapi.json /pooling /rerank /score /tokenize /tokenizer_info /v1/audio/transcriptions /v1/audio/translations
    /v1/chat/completions /v1/chat/completions/batch /v1/chat/completions/derender /v1/chat/completions/render
    /v1/completions /v1/completions/derender /v1/completions/render /v1/decisions /v1/embeddings /v1/messages
    /v1/messages/count_tokens /v1/messages/render /v1/models /v1/realtime /v1/rerank /v1/responses /v1/responses/render
    /v1/score /v1/systemone /v2/embed /v2/rerank /version
    """.split()
)
#: Beginnings of paths with a name.
_NAMED = ("/v1/models/", "/v1/responses/")
#: Paths that take a form with a file. Only its fields are limited, by vLLM's own library.
_FORMS = ("/v1/audio/transcriptions", "/v1/audio/translations")
#: Beginnings of a proxy's headers. uvicorn takes the client's address from the first one, if it trusts the sender.
_PROXIED = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"via")
#: The memory of the bodies of all open requests of one address, and of all; their answers have as much. vLLM keeps a
#: body until its request ends. Small ones always have room: an address may be a gateway's, with many clients.
_OF_CLIENT, _OF_ALL, _SMALL = 256 << 20, 512 << 20, 16 << 10
#: Maximum bytes of all messages of a websocket: at once, and for each second of the connection, which are six times
#: those of sound. vLLM keeps them until it has read them.
_MOST_SOUND, _SOUND_RATE = 64 << 20, 256 << 10
#: A file in vLLM's folder of settings: the seconds for which the server takes no new requests, since root wrote it. One
#: from before the server's start does not count, so that it needs no removal.
DRAIN = "drain"
_METRICS, _MODELS = "/metrics", "/v1/models"
#: Statuses of refusals of a request without a key.
_WITHOUT_KEY = (401, 405)
#: vLLM's function that cleans the text of an error, and the most characters for it: 1,000 take 20 ms.
_CLEAN, _MOST_ERROR = "sanitize_message", 1000
#: Bytes of a form that are parsed at once, and the most lines that begin like the boundary of a part: a file of 60 MB
#: with such lines alone took 20 s.
_PIECE, _BOUNDARY, _MOST_BOUNDARIES = 64 << 10, b"\r\n--", 1000
#: Seconds that a request waits for the memory of its answers, and between two looks.
_ROOM_SECONDS, _ROOM_LOOK = 60.0, 0.1
#: Headers from which vLLM takes a request's names.
_NAMING = (b"x-request-id", b"x-session-id")
#: The header that makes uvicorn close the connection, so that it does not parse the rest of a body.
_CLOSE = (b"connection", b"close")
#: Status and text of each refusal, by its code in OpenAI's API.
_REFUSALS: Mapping[str, tuple[int, str]] = {
    **limits.REFUSALS,
    **costs.REFUSALS,
    "invalid_api_key": (401, "The API key is missing or wrong."),
    "method_not_allowed": (405, "This path has no such method."),
    "model_not_found": (404, "The server has no model of this name."),
    "unknown_url": (404, "The API has no such path for clients. Other paths of vLLM are only for the head itself."),
    "unsupported_encoding": (415, "This path takes only multipart/form-data."),
    bodies.WRONG: (400, "The request is not valid, or an entry of a list in it is not."),
    "server_stops": (503, "The server stops soon and takes no new requests. Try again later."),
}
#: Types of error in Anthropic's API.
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


class Guard:
    """ASGI middleware. Raises KeyError when a server without a key starts."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._key = os.environ["VLLM_API_KEY"].encode()
        # A fallback on the same node has another one.
        self._drain = Drain(os.path.join(os.environ["VLLM_CONFIG_ROOT"], os.environ.get("GB10_DRAIN", DRAIN)))
        self._requests = 0
        self._budget = limits.Budget(_OF_CLIENT, _OF_ALL, _SMALL)
        self._answers = limits.Budget(_OF_CLIENT, _OF_ALL)
        self._reading = asyncio.Lock()
        self._types: dict[str, bodies.Verify | None] = {}
        self._page, self._page_end, self._writing = list[dict[str, Any]](), 0.0, asyncio.Lock()
        bound_errors()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forward a request, or refuse it."""
        kind, path = scope["type"], _path(scope)
        if kind not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif code := self._refusal(scope):
            await _refuse(code, scope, send)
        elif _preflight(scope):
            await self._empty(scope, receive, send)
        elif kind == "http" and path in OPEN:
            answer = self._metrics if path == _METRICS else self._empty
            await answer(scope, receive, _with(send, self._count))
        else:
            # vLLM requires the key again, and only in this header.
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            scope = {**scope, "headers": [*headers, (b"authorization", b"Bearer " + self._key)]}
            await (self._websocket if kind == "websocket" else self._http)(scope, receive, send)

    def _refusal(self, scope: dict[str, Any]) -> str:
        """Return the code of a request's refusal, "" to forward it."""
        path, http = _path(scope), scope["type"] == "http"
        without_key = http and path in OPEN
        if http and scope["method"] not in (_READING_METHODS if without_key else _METHODS):
            return "method_not_allowed"
        if _preflight(scope):
            return ""
        if not (without_key or self._allowed(scope)):
            return "invalid_api_key"
        if http and path != _METRICS and self._drain.now():
            return "server_stops"
        return "" if without_key or _public(path) or _own(scope) else "unknown_url"

    async def _empty(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forward a request without its body, which is not parsed: the connection closes after the response."""
        await self._app(scope, _no_body(receive), _with(send, lambda: _CLOSE) if _has_body(scope) else send)

    async def _metrics(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer with the page of the metrics, which is written once for all that ask at the same time."""
        async with self._writing:
            if time.monotonic() > self._page_end:
                page = list[dict[str, Any]]()

                async def keep(message: dict[str, Any]) -> None:
                    page.append(message)

                # One form for all: without a choice of names or of a compression.
                plain = {**scope, "method": "GET", "headers": [], "query_string": b""}
                await self._app(plain, _no_body(receive), keep)
                self._page, self._page_end = page, time.monotonic() + _PAGE_SECONDS
        for message in self._page:
            await send({**message, "body": b""} if scope["method"] == "HEAD" and "body" in message else message)

    async def _http(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        path = _path(scope)
        if scope["method"] == "GET" and path.startswith(f"{_MODELS}/"):
            await self._model(scope, receive, send)
            return
        form = path in _FORMS
        if form and not dict(reversed(scope["headers"])).get(b"content-type", b"").lower().startswith(
            b"multipart/form-data"
        ):
            await _refuse("unsupported_encoding", scope, send)
            return
        with contextlib.closing(self._share(scope, None if form else limits.most(path))) as share:
            body = await _body(scope, receive, share)
            if isinstance(body, bytes) and not form:
                body = await self._refused(scope, path, body, share) or body
            elif isinstance(body, bytes) and body.count(_BOUNDARY) > _MOST_BOUNDARIES:
                body = bodies.WRONG
            await (
                _refuse(body, scope, send)
                if isinstance(body, str)
                else self._forward(
                    scope, self._replayed(body, receive, share.memory > limits.MOST_TOGETHER, divided=form), send
                )
            )

    async def _refused(self, scope: dict[str, Any], path: str, body: bytes, share: limits.Share) -> str:
        """Return the code of the refusal of a body, and hold the memory of its answers if there is none."""
        if any(name in _NAMING and len(value) > costs.MOST_NAME for name, value in scope["headers"]):
            return costs.NAMED
        # One large body at a time: its texts exist here, too, until they are verified.
        async with self._reading if share.memory > limits.MOST_TOGETHER else contextlib.nullcontext():
            code, size = await self._read(scope, path, body)
        if code:
            return code
        end = time.monotonic() + _ROOM_SECONDS
        while (code := share.expect(size)) == limits.FULL and time.monotonic() < end:
            await asyncio.sleep(_ROOM_LOOK)
        return code

    async def _read(self, scope: dict[str, Any], path: str, body: bytes) -> tuple[str, int]:
        """Return the code of the refusal of a body's members, or "" and the bytes that its answers need."""
        found = bodies.members(body)
        if found is None:
            return limits.ENCODING, 0
        for code in bodies.refusals(path, found, self._type(scope, path)):
            if code:
                return code, 0
            await asyncio.sleep(0)
        return "", answers.memory(path, found)

    def _type(self, scope: dict[str, Any], path: str) -> bodies.Verify | None:
        """Return what verifies a body as vLLM's route does, None for a route that takes any body."""
        if path not in PUBLIC:
            return None
        if path not in self._types:
            self._types[path] = _type_of(scope.get("app"), path)
        return self._types[path]

    def _share(self, scope: dict[str, Any], most: int | None) -> limits.Share:
        """Return the memory of a body, which counts for the client's address."""
        client = (scope.get("client") or ("",))[0]
        # A proxy may name anything.
        with contextlib.suppress(ValueError):
            client = limits.source(client)
        return limits.Share(self._budget, client, most, self._answers)

    def _replayed(self, body: bytes, receive: Any, large: bool, *, divided: bool) -> Any:
        """Return what receives a body, and later the end of the connection.

        ``divided``: in pieces, because its parser can take them, and others have their turn between them.
        """
        size = _PIECE if divided else max(1, len(body))
        starts = range(0, max(1, len(body)), size)
        waiting = [
            {"type": "http.request", "body": body[start : start + size], "more_body": start + size < len(body)}
            for start in reversed(starts)
        ]

        async def replayed() -> Any:
            if divided:
                await asyncio.sleep(0)
            elif large and waiting:
                # vLLM parses it at once: one body at a time, so that it answers others between them.
                async with self._reading:
                    await asyncio.sleep(limits.PAUSE)
            return waiting.pop() if waiting else await receive()

        return replayed

    async def _websocket(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forward a websocket, and close it after a message beyond the limits."""
        share, total, begin = self._share(scope, limits.MOST_MARKS), 0, time.monotonic()
        client, kept = share.client, 0

        async def checked() -> Any:
            nonlocal share, total, kept
            share.close()
            share = self._share(scope, limits.MOST_MARKS)
            message = await receive()
            data = message.get("text") or message.get("bytes") or b""
            total += len(data)
            used = int(_SOUND_RATE * (time.monotonic() - begin))
            # vLLM keeps the sound that it has not transcribed yet, as numbers of four bytes.
            self._budget.give(client, kept)
            kept = 2 * max(0, total - used)
            room = self._budget.take(client, kept)
            kept *= room
            encoded = data.encode("utf-8", "replace") if isinstance(data, str) else data
            if room and total <= _MOST_SOUND + used and not share.add(encoded):
                return message
            await send({"type": "websocket.close", "code": 1009})
            return {"type": "websocket.disconnect", "code": 1009}

        try:
            await self._app(scope, checked, send)
        finally:
            share.close()
            self._budget.give(client, kept)

    async def _forward(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self._requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests -= 1

    async def _model(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer with one entry of the list of models. vLLM has the list alone."""
        sent: list[dict[str, Any]] = []

        async def keep(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app({**scope, "path": _MODELS, "raw_path": _MODELS.encode()}, receive, keep)
        listed = json.loads(b"".join(message.get("body", b"") for message in sent))
        name = _path(scope).removeprefix(f"{_MODELS}/")
        entry = next((entry for entry in listed.get("data", ()) if entry["id"] == name), None)
        await (_answer(200, entry, scope, send) if entry else _refuse("model_not_found", scope, send))

    def _count(self) -> tuple[bytes, bytes]:
        return OPEN_REQUESTS.encode(), str(self._requests).encode()

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


def _path(scope: dict[str, Any]) -> str:
    """Return the path that vLLM's routes see: without the prefix of --root-path."""
    path, root = scope.get("path", ""), scope.get("root_path", "")
    return str(path.removeprefix(root) if path.startswith(f"{root}/") else path)


def _preflight(scope: dict[str, Any]) -> bool:
    """Return whether a browser finds out without a key whether it may send one.

    vLLM's own middleware answers such a request, and no route sees it: another OPTIONS of /metrics/ wrote its page.
    """
    names = {name for name, _value in scope["headers"]}
    return scope.get("method") == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


def _type_of(app: Any, path: str) -> bodies.Verify | None:
    """Return the type of a route's body. Source: FastAPI 0.115 to 0.136, routing.APIRoute."""
    for route in getattr(app, "routes", ()):
        body = getattr(route, "body_field", None)
        if body is not None and route.path == path:
            from pydantic import TypeAdapter  # noqa: PLC0415  # Only the server needs it.

            verify: bodies.Verify = TypeAdapter(body.field_info.annotation).validate_python
            return verify
    return None


def _public(path: str) -> bool:
    """Return whether clients have a path. Behind a slash at its end, vLLM redirects to the path without it."""
    return path.rstrip("/") in PUBLIC or path.startswith(_NAMED)


def _own(scope: dict[str, Any]) -> bool:
    """Return whether the head itself sent a request: its address is the server's, and no proxy was between."""
    client, server = scope.get("client"), scope.get("server")
    proxied = any(name.startswith(_PROXIED) for name, _value in scope["headers"])
    return bool(client and server and client[0] == server[0]) and not proxied


def _has_body(scope: dict[str, Any]) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _with(send: Any, header: Callable[[], tuple[bytes, bytes]]) -> Any:
    """Return what sends a response with a further header."""

    async def forward(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), header()]}
        await send(message)

    return forward


def _no_body(receive: Any) -> Any:
    """Return what receives an empty body, because these paths read none, and later the end of the connection."""
    empty = [{"type": "http.request", "body": b"", "more_body": False}]

    async def received() -> Any:
        return empty.pop() if empty else await receive()

    return received


async def _body(scope: dict[str, Any], receive: Any, share: limits.Share) -> bytes | str:
    """Return the whole body, or the code of the refusal."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if length.isdigit() and int(length) > limits.MOST_BODY:
        return limits.LARGE
    # It may arrive in a million parts.
    body, more, end = bytearray(), True, time.monotonic() + limits.BODY_SECONDS
    while more:
        try:
            part = await asyncio.wait_for(receive(), min(limits.BODY_SILENCE, end - time.monotonic()))
        except asyncio.TimeoutError:  # noqa: UP041  # Python 3.10 has two of them.
            return limits.SLOW
        if part["type"] != "http.request":
            # The client has left.
            return limits.SLOW
        data, more = part.get("body", b""), part.get("more_body", False)
        if code := share.add(data):
            return code
        body += data
    return bytes(body)


def _origins(scope: dict[str, Any]) -> Collection[str]:
    """Return the origins that vLLM answers (--allowed-origins), from its own middleware, which this one is around."""
    entries = getattr(scope.get("app"), "user_middleware", ())
    return next((entry.kwargs["allow_origins"] for entry in entries if "allow_origins" in entry.kwargs), ())


async def _refuse(code: str, scope: dict[str, Any], send: Any) -> None:
    """Answer with an error in the form of the API that the path belongs to."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    status, message = _REFUSALS[code]
    if _path(scope).startswith("/v1/messages"):
        kind = _TYPES.get(status, "invalid_request_error")
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    await _answer(status, body, scope, send)


async def _answer(status: int, body: dict[str, Any], scope: dict[str, Any], send: Any) -> None:
    headers = [(b"content-type", b"application/json")] + [(b"www-authenticate", b"Bearer")] * (status == 401)
    headers += [_CLOSE] * (status in _WITHOUT_KEY)
    origin, allowed = dict(scope["headers"]).get(b"origin", b""), _origins(scope)
    # Without these headers, a page sees no status and no text.
    if origin and ("*" in allowed or origin.decode("latin-1") in allowed):
        headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def bound_errors() -> None:
    """Let vLLM clean only the beginning of an error's text, which a client can write.

    Its search for paths needs the cube of the length, while no other request goes on: a name of 13 KB stopped the
    server for 18 s. Source: vLLM 0.32, entrypoints/serve/exception_handling/utils.py; modules import it by name.
    """
    for name, module in list(sys.modules.items()):
        # An import that failed can leave None.
        clean = vars(module).get(_CLEAN) if name.startswith("vllm.") and isinstance(module, ModuleType) else None
        if callable(clean) and not isinstance(clean, Bounded):
            setattr(module, _CLEAN, Bounded(clean))


class Bounded:
    """A function of a text that gets only its beginning."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean

    def __call__(self, message: str) -> str:
        return self._clean(message[:_MOST_ERROR])


limit_connections()

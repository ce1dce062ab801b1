# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's program: it checks keys, and forwards requests to the models' servers.

    python -m ...gateway.io_proxy SETTINGS STATE_FOLDER [CERTIFICATE KEY]

It runs as the gateway's user in the environment with aiohttp. `requests` decides which requests are forwarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import ssl
import sys
import time
import traceback
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, limits
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, forward, io_state, requests
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.io_listen import (
    JSON,
    SERVER,
    Listener,
    PayloadError,
    aiohttp,
    connector,
    web,
)
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.io_state import Entry, State
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.requests import Refusal

#: Seconds to connect to a server, and until a kept connection to it ends: vLLM closes one after five.
_CONNECT_SECONDS, _KEPT_SECONDS = 5.0, 3.0
#: Bytes of a plain answer that is read whole, and of a body that is sent in parts.
_WHOLE, _PARTS = 256 << 10, 1 << 20
#: Bytes that may wait for a slow client, before writing waits for it: asyncio's own limit.
_WAITING = 64 << 10
_OK, _LEFT, _REDIRECTS, _ERRORS = 200, 499, 300, 400
#: The status and the code of a server that is about to rest, and the most bytes of this answer.
_CLOSED, _STOPS, _MOST_REFUSAL = 503, b'"server_stops"', 4096


class RefusedError(Exception):
    """A request ends with a refusal."""

    def __init__(self, refusal: Refusal, unread: bool = False) -> None:
        super().__init__(refusal.code)
        #: ``unread``: no server has received the request.
        self.refusal, self.unread = refusal, unread


@dataclass
class Record:
    """The entry of a request in the log and the counts."""

    client: str
    path: str
    model: str = ""
    answered: str = ""
    status: int = _LEFT
    tokens: forward.Tokens = field(default_factory=forward.Tokens)


class Gateway:
    """Answers requests, with connections to the models' servers."""

    def __init__(self, state: State, places: io_state.Places) -> None:
        self.state = state
        self.budget = limits.Budget()
        self.origins: list[str] = state.settings["origins"]
        self._reading, self._answers = asyncio.Lock(), asyncio.Lock()
        self._silence = float(state.settings["silence_timeout"])
        self.session = self._session(places, keepalive_timeout=_KEPT_SECONDS)
        # For models with another server: the host of a kept connection may be gone, and only a new one shows it.
        self.fresh = self._session(places, force_close=True)

    def _session(self, places: io_state.Places, **options: Any) -> Any:
        """Return a session with connections of its own."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._silence)
        return aiohttp.ClientSession(
            connector=connector(limit=0, resolver=_resolver(places), **options),
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept"),
        )

    async def read(self, entry: Entry, path: str, key: str, body: bytes) -> tuple[int, bytes]:
        """Read a path of a model's server, or send a body to it, for its checks. Raises OSError with the reason."""
        parts: list[bytes] = []
        method, options = "POST" if body else "GET", {"data": body or None, **_options(entry)}
        try:
            async with self.session.request(
                method, entry.base + path, headers=forward.request_headers({}, key), **options
            ) as answer:
                while sum(map(len, parts)) <= io_state.MOST_LISTING and (data := await answer.content.readany()):
                    parts.append(data)
                return answer.status, b"".join(parts)
        except aiohttp.ClientError as error:
            raise ConnectionError(_reason(error)) from error

    async def handle(self, request: Any) -> Any:
        """Answer one request."""
        # From Python 3.12 on, the library begins an answer at once, and goes on with the next request of the data if
        # this one waits for nothing: 4 MB of requests without a key were one turn of 6 s.
        await asyncio.sleep(0)
        request.protocol.works(True)
        shared = SERVER | (requests.shared(request.headers, self.origins) if self.origins else {})
        path = request.raw_path.partition("?")[0]
        try:
            return await self._answer(request, path, shared)
        except RefusedError as error:
            body = requests.refusal_body(error.refusal, path)
            return web.Response(
                body=body, status=error.refusal.status, headers=JSON | shared | requests.refusal_headers(error.refusal)
            )
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            if not request.protocol.connected:
                raise ConnectionResetError("the client left") from error
            # The error's own text may have parts of the request.
            place = traceback.extract_tb(error.__traceback__)[-1]
            say(f"internal error: {type(error).__name__} in {os.path.basename(place.filename)} line {place.lineno}")
            if request.writer.output_size:
                # A second answer inside of the first one would look like its text.
                request.protocol.end()
                raise ConnectionResetError("the answer has begun") from error
            return web.Response(body=requests.refusal_body(requests.FAILED, path), status=500, headers=JSON | shared)
        finally:
            request.protocol.works(False)

    async def _answer(self, request: Any, path: str, shared: dict[str, str]) -> Any:
        method = request.method
        if method == "OPTIONS" and "Access-Control-Allow-Origin" in shared:
            return web.Response(status=204, headers=shared | requests.preflight(request.headers))
        if path == requests.ALIVE and method in ("GET", "HEAD"):
            return web.Response(body=b'{"status": "ok"}', headers=JSON | shared)
        known = self.state.known.now()
        name = known.of_key(requests.key_of(request.headers))
        if not name:
            raise RefusedError(requests.UNKNOWN_KEY)
        client = known.clients.get(name)
        if method == "GET":
            return web.Response(body=self._own(path, client), headers=JSON | shared)
        route = requests.ROUTES.get(path)
        if route is None or method != "POST":
            raise RefusedError(requests.UNKNOWN_ROUTE)
        began, record = time.monotonic(), Record(name, path)
        try:
            with contextlib.closing(limits.Share(self.budget, name, limits.most(route.path))) as share:
                return await self._model(request, route, client, record, share, shared)
        except RefusedError as error:
            record.status, record.model = error.refusal.status, record.model or error.refusal.model
            raise
        finally:
            self._note(record, time.monotonic() - began)

    def _own(self, path: str, client: clients.Client | None) -> bytes:
        """Return an answer of the gateway itself."""
        if path == requests.REPORT:
            if client:
                raise RefusedError(requests.FORBIDDEN)
            return self.state.report()
        found = requests.listed(requests.listing(self.state.settings["models"], client), urllib.parse.unquote(path))
        if not isinstance(found, bytes):
            raise RefusedError(found or requests.UNKNOWN_ROUTE)
        return found

    def _note(self, record: Record, seconds: float) -> None:
        """Write the log's line of a request, and count it. A refusal of an unknown model has no model."""
        tokens = f"prompt_tokens={record.tokens.prompt} completion_tokens={record.tokens.completion}"
        model = record.model + (f" answered={record.answered}" if record.answered not in ("", record.model) else "")
        say(
            f"client={record.client} model={model or '-'} path={record.path} status={record.status} {tokens} "
            f"seconds={seconds:.3f}"
        )
        if record.model:
            self.state.count(
                record.client,
                record.model,
                record.answered,
                record.status >= 400 and record.status != _LEFT,
                record.tokens,
            )

    async def _model(
        self,
        request: Any,
        route: requests.Route,
        client: clients.Client | None,
        record: Record,
        share: limits.Share,
        shared: dict[str, str],
    ) -> Any:
        """Forward a request to a model."""
        parts = await _body(request, share)
        found = await self._accepted(parts, route, client, share.memory > limits.MOST_TOGETHER)
        if isinstance(found, Refusal):
            raise RefusedError(found)
        record.model = found.model
        answer, entry = await self._awake(request, route, found, record)
        try:
            # A long stream keeps no body.
            found.body = b""
            share.close()
            return await self._pass(
                request,
                forward.reader(route.path, answer.headers, found.usage, found.usage_always),
                answer,
                record,
                shared,
            )
        finally:
            answer.close()
            self.state.busy[entry.id] -= 1

    async def _accepted(
        self, parts: list[bytes], route: requests.Route, client: clients.Client | None, large: bool
    ) -> requests.Accepted | Refusal:
        """Read the body."""
        async with self._turn(large) as pause:
            body = b"".join(parts)
            parts.clear()
            given = requests.parsed(body)
            del body
            await asyncio.sleep(pause)
            return requests.accept(self.state.gateway, route, given, client, self.state.servers())

    async def _renamed(self, body: bytes, model: str) -> bytes:
        """Return a body for another model."""
        async with self._turn(2 * len(body) > limits.MOST_TOGETHER) as pause:
            given = json.loads(body)
            await asyncio.sleep(pause)
            return requests.encoded(given, model)

    @contextlib.asynccontextmanager
    async def _turn(self, large: bool, lock: asyncio.Lock | None = None) -> AsyncIterator[float]:
        """Yield the seconds between two steps. ``lock``: of the answers, which do not delay the bodies.

        Large bodies have their turn one at a time, so that the requests of others go on between their steps.
        """
        if not large:
            yield 0
            return
        async with lock or self._reading:
            await asyncio.sleep(limits.PAUSE)
            yield limits.PAUSE

    async def _awake(
        self, request: Any, route: requests.Route, found: requests.Accepted, record: Record
    ) -> tuple[Any, Entry]:
        """Return the answer of _ask(), after waking a server that rests. A fallback answers meanwhile."""
        ids, end = list(found.resting), time.monotonic() + self.state.settings["wake_timeout"]
        if found.targets and ids:
            io_state.wake(self.state, ids, self.read)
        while True:
            try:
                return await self._ask(request, route, found, record)
            except RefusedError as error:
                ids = ids or self._may_rest(found.targets)
                if not ids or error.refusal.code != requests.UNAVAILABLE or time.monotonic() > end:
                    raise
                started = await io_state.woken(self.state, ids, self.read)
                # One that rested had no open request: it closed a connection that it had not taken yet.
                if not started or (started != io_state.WOKEN and not error.unread):
                    raise
                healthy = (id_ for id_ in ids if id_ not in self.state.errors)
                found.targets = [requests.Target(id_, self.state.entries[id_].name) for id_ in healthy]

    def _may_rest(self, targets: Sequence[requests.Target]) -> list[str]:
        """Return the servers that may have begun to rest since their last check."""
        return [target.id for target in targets if target.id in self.state.gateway.wakes]

    async def _ask(
        self, request: Any, route: requests.Route, found: requests.Accepted, record: Record
    ) -> tuple[Any, Entry]:
        """Return the answer of the first server that begins one, and count its open request.

        Only a request that no server has received goes to a fallback. One that a server has received goes to one other
        replica. After a time limit it goes nowhere.
        """
        received, reasons = False, dict(found.resting)
        for index, target in enumerate(found.targets):
            if received and target.model != found.named:
                break
            if target.model != found.named:
                found.body, found.named = await self._renamed(found.body, target.model), target.model
            last = received or [other.model for other in found.targets[index + 1 : index + 2]] != [target.model]
            entry, answer = self.state.entries[target.id], None
            self.state.busy[entry.id] += 1
            try:
                answer = await self._post(request, route, found.body, entry)
                stops = await _stops(answer, entry)
                if not (reason := _failure(answer.status, last, stops)):
                    record.answered = target.model
                    return answer, entry
                reasons[entry.id] = reason
                received |= not stops
            except aiohttp.ClientError as error:
                self.state.wake.set()
                if isinstance(error, aiohttp.SocketTimeoutError):
                    raise RefusedError(requests.silent(record.model, self._silence)) from error
                reasons[entry.id] = _reason(error)
                received |= not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            finally:
                if record.answered != target.model:
                    self.state.busy[entry.id] -= 1
                    if answer is not None:
                        answer.close()
            if last and received:
                break
        raise RefusedError(requests.unanswered(self.state.gateway, record.model, reasons), not received)

    async def _post(self, request: Any, route: requests.Route, body: bytes, entry: Entry) -> Any:
        headers = forward.request_headers(request.headers, entry.key) | {"Content-Length": str(len(body))}
        others = len(self.state.gateway.models[entry.name]) > 1 or self.state.gateway.fallbacks.get(entry.name)
        session = self.fresh if others else self.session
        try:
            # A server that sends interim answers without end is never silent.
            async with asyncio.timeout(self._silence + limits.BODY_SECONDS):
                answer = await session.post(
                    entry.base + route.path, data=_sent(body), headers=headers, **_options(entry)
                )
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            raise aiohttp.SocketTimeoutError from error
        if answer.status in forward.FAILED or answer.status == forward.DENIED:
            self.state.wake.set()
        return answer

    async def _pass(
        self, request: Any, reader: forward.Answer, answer: Any, record: Record, shared: dict[str, str]
    ) -> Any:
        """Pass an answer to the client. A client that reads slowly holds back the server."""
        if answer.status < _OK or _REDIRECTS <= answer.status < _ERRORS:
            # After a 101, the connection would be no HTTP any more.
            raise RefusedError(self._ended(ValueError(f"HTTP {answer.status}"), record))
        headers = forward.response_headers(answer.headers) | requests.fallback(record.model, record.answered) | shared
        if answer.content_length is not None and answer.content_length <= _WHOLE:
            try:
                content = await answer.read()
            except aiohttp.ClientError as error:
                raise RefusedError(self._ended(error, record)) from error
            record.status = answer.status
            record.tokens = forward.whole(content) if answer.status == _OK else record.tokens
            return web.Response(body=content, status=answer.status, headers=headers)
        record.status = answer.status
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        try:
            while data := await answer.content.readany():
                # Most parts are of one token, and pay for no turn.
                async with self._turn(True, self._answers) if forward.many(data) else contextlib.nullcontext():
                    kept = reader.feed(data)
                if kept:
                    await self._write(request, response, kept)
            await self._write(request, response, reader.end())
        except aiohttp.ClientConnectionResetError:
            # The client left. Only writing to it raises this error.
            raise
        except aiohttp.ClientError as error:
            refusal = self._ended(error, record)
            record.status = refusal.status
            if isinstance(reader, forward.Plain):
                request.protocol.end()
                return response
            await self._write(request, response, requests.refusal_event(refusal, record.path))
        finally:
            record.tokens = reader.tokens if answer.status == _OK else record.tokens
        await response.write_eof()
        return response

    def _ended(self, error: Exception, record: Record) -> Refusal:
        """Return the refusal in place of the rest of an answer."""
        self.state.wake.set()
        say(f"{record.answered}: an answer ended early: {type(error).__name__}")
        return (
            requests.silent(record.model, self._silence)
            if isinstance(error, aiohttp.SocketTimeoutError)
            else requests.BROKEN
        )

    async def _write(self, request: Any, response: Any, data: bytes) -> None:
        """Write to the client. One that reads nothing for the time limit is disconnected. Raises ConnectionError."""
        transport = request.transport
        if transport is None or transport.get_write_buffer_size() + len(data) < _WAITING:
            await response.write(data)
            return
        try:
            async with asyncio.timeout(self._silence):
                await response.write(data)
        except TimeoutError:
            request.protocol.end()
            raise ConnectionResetError("the client reads nothing") from None


async def _body(request: Any, share: limits.Share) -> list[bytes]:
    """Return the parts of the body. Raises RefusedError beyond a limit, before the rest is read."""
    length = request.content_length
    if length is not None and length > limits.MOST_BODY:
        raise RefusedError(requests.of_body(limits.LARGE))
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedError(requests.ENCODED)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    content = request.content
    if content.is_eof():
        # Most requests arrive at once.
        parts = [content.read_nowait()]
        _count(parts[0], share)
        return parts
    parts = []
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.BODY_SECONDS
    try:
        async with asyncio.timeout_at(min(end, loop.time() + limits.BODY_SILENCE)) as limit:
            while data := await content.readany():
                parts.append(data)
                _count(data, share)
                limit.reschedule(min(end, loop.time() + limits.BODY_SILENCE))
    except TimeoutError as error:
        raise RefusedError(requests.of_body(limits.SLOW)) from error
    except PayloadError as error:
        raise RefusedError(requests.NOT_HTTP) from error
    return parts


def _count(data: bytes, share: limits.Share) -> None:
    if code := share.add(data):
        raise RefusedError(requests.of_body(code))


def _sent(body: bytes) -> Any:
    """Return a body for the library: a large one in parts, so that no second copy waits for a slow server."""
    return body if len(body) <= _PARTS else _in_parts(body)


async def _in_parts(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _PARTS):
        yield body[begin : begin + _PARTS]


async def _stops(answer: Any, entry: Entry) -> bool:
    """Return whether a server that may rest refused a request before its end. The API's guard has other refusals."""
    if answer.status != _CLOSED or not entry.wake or not 0 < (answer.content_length or 0) <= _MOST_REFUSAL:
        return False
    try:
        async with asyncio.timeout(limits.BODY_SILENCE):
            return _STOPS in await answer.read()
    except TimeoutError:
        return False


def _failure(status: int, last: bool, stops: bool) -> str:
    """Return why another server gets the request, "" to pass the answer.

    A client cannot correct the gateway's own key.
    """
    if status == forward.DENIED:
        return "it does not take the gateway's key"
    if stops:
        return "it stops"
    return f"HTTP {status}" if status in forward.FAILED and not last else ""


def _options(entry: Entry) -> dict[str, Any]:
    return {"ssl": entry.tls or True, "allow_redirects": False}


def _reason(error: Any) -> str:
    """Return why a server did not answer, without its address."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLError):
        return f"its certificate is not trusted: {str(cause)[:200]}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno) if cause.errno > 0 else "its name was not found"
    if isinstance(error, TimeoutError):
        return "timed out"
    return "no connection" if isinstance(error, aiohttp.ClientConnectorError) else "it closed the connection"


def _resolver(places: io_state.Places) -> Any:
    """Return what finds the addresses of the servers' names, and permits them."""

    class Resolver(aiohttp.ThreadedResolver):  # type: ignore[misc]  # The development tools have no aiohttp.
        async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> Any:
            found = await super().resolve(host, port, family)
            places.know(host, [entry["host"] for entry in found])
            return found

    return Resolver()


async def run(settings: str, folder: str, *pair: str) -> None:
    """Run the gateway until a signal stops it."""
    text = io_file.read_bounded(settings, 1 << 24)
    if text is None:
        raise FileNotFoundError(settings)
    state = State(json.loads(text), folder)
    places = io_state.Places(state.settings["models"])
    places.confine()
    secured = None
    if pair:
        secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secured.load_cert_chain(*pair)
    gateway = Gateway(state, places)
    await io_state.first_check(state, gateway.read)
    listener = Listener(gateway.handle)
    serving = listener.serve(state.settings["host"], state.settings["port"], secured)
    jobs = [asyncio.create_task(job) for job in (serving, io_state.watch(state, gateway.read), io_state.keep(state))]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # No job ends by itself.
    for job in jobs:
        job.add_done_callback(lambda _job: stop.set())
    await stop.wait()
    failed = [job for job in jobs if job.done()]
    for job in jobs:
        job.cancel()
    for proof in state.proofs.values():
        proof.cancel()
    await listener.stop()
    await gateway.session.close()
    await gateway.fresh.close()
    await state.save()
    for job in failed:
        job.result()


def main() -> None:
    """Run the program. Collecting garbage less often takes about a tenth off the time of many new connections."""
    gc.set_threshold(100_000, 20, 20)
    gc.freeze()
    asyncio.run(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What uvicorn's connections take before a request reaches the guard: sizes, times, numbers, and pieces of data."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_turns, limits

#: Paths without a key. These reveal nothing about the requests and responses of other clients.
OPEN = frozenset({"/health", "/ping", "/metrics"})
#: Open connections of one address, which may be a gateway's, and of all.
_MOST_OF_SOURCE, _MOST_CONNECTIONS = 2048, 8192
#: Maximum bytes of a websocket's message: some seconds of sound.
_MOST_MESSAGE = 4 << 20
#: Bytes of a request's beginning that are parsed at once, at most to the end of its head.
_BEGIN, _END_OF_HEAD = 1 << 10, b"\r\n\r\n"
#: What refuses a head of many lines, and the beginning of an accepted websocket.
_MANY_LINES = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_SWITCHED = b"HTTP/1.1 101"


class Messages(io_turns.Turns):
    """A websocket of uvicorn.

    The library keeps a connection whose handshake it cannot parse, without an answer. So each one counts for its
    source, and has as much time for the handshake as another request for its head.
    """

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and begin the time of its handshake."""
        super().connection_made(transport)
        _open(self)
        self._handshake_timer = self._later(limits.HEAD_SECONDS, self._end_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for another connection."""
        self._handshake_timer.cancel()
        _SOURCES.close(self)
        super().connection_lost(exc)

    def _end_silent(self) -> None:
        if self._reading.begin.startswith(_SWITCHED):
            _SOURCES.work(self)
        else:
            self._reading.abort()

    def data_received(self, data: bytes) -> None:
        """Queue the data behind the handshake."""
        if self._reading.get_protocol() is self:
            self.add(data, 0)
        else:
            self.parse(data)


class Limits(io_turns.Turns):
    """What uvicorn's connection takes before a request reaches the guard: sizes, times, and pieces of data.

    The beginning of a request is parsed at once, and the rest in turns.
    """

    def __init__(self, config: Any, *arguments: Any, **options: Any) -> None:
        config.h11_max_incomplete_event_size = limits.MOST_HEAD
        # Messages wait in a queue before a reader takes them, and 16 KB can become 16 MiB.
        config.ws_max_size, config.ws_max_queue, config.ws_per_message_deflate = _MOST_MESSAGE, 1, False
        super().__init__(config, *arguments, **options)

    def connection_made(self, transport: Any) -> None:
        self._lines, self._last = 0, b""
        super().connection_made(transport)
        self._wait_for_head()
        _open(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for another connection."""
        _SOURCES.close(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the head of a request, and queue the rest. A refusal closes the connection before its turn."""
        if not self._waits():
            self.add(data, 0)
            return
        end = data.find(_END_OF_HEAD, 0, _BEGIN)
        self.add(data, _BEGIN if end < 0 else end + len(_END_OF_HEAD))

    def parse(self, data: bytes) -> None:
        """Parse a piece, and give what waits behind the head of a websocket to the websocket."""
        if self._waits() and self._has_many_lines(data):
            self.transport.write(_MANY_LINES)
            self.transport.close()
            return
        super().parse(data)
        # Anyone may ask for the paths without a key, and take nothing of the answer: these make room for others.
        if not self._waits() and self.scope["path"] not in OPEN:
            _SOURCES.work(self)
        protocol = self._reading.get_protocol()
        if protocol not in (None, self):
            _SOURCES.close(self)
        if self._waiting and protocol not in (None, self):
            waiting = bytes(self._waiting)
            self._waiting.clear()
            protocol.data_received(waiting)

    def _waits(self) -> bool:
        """Return whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _has_many_lines(self, data: bytes) -> bool:
        """Count the lines of a head: h11 needs 15 ms for 8,000 of them, as soon as the last one arrives."""
        seen = self._last + data
        end = seen.find(_END_OF_HEAD)
        self._lines += data.count(b"\n", 0, len(data) if end < 0 else max(0, end - len(self._last)))
        self._last = seen[1 - len(_END_OF_HEAD) :]
        many = self._lines > limits.MOST_HEADERS
        if end >= 0:
            self._lines, self._last = 0, b""
        return many

    def may_parse(self) -> bool:
        """Return whether the connection is open: uvicorn pauses its reading, not its parser."""
        return not self._reading.closed

    def on_response_complete(self) -> None:
        # Requests that wait in the parser would begin without a turn. No client sends one before the answer.
        if self.conn.trailing_data[0]:
            self.transport.close()
        _SOURCES.wait(self)
        super().on_response_complete()
        self._head_timer.cancel()
        self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(limits.HEAD_SECONDS, self._end_silent)

    def _end_silent(self) -> None:
        # A websocket has another protocol.
        if self._waits() and self.transport.get_protocol() is self:
            self.transport.close()


_SOURCES: limits.Sources[io_turns.Turns] = limits.Sources(_MOST_OF_SOURCE, _MOST_CONNECTIONS)


def _open(connection: io_turns.Turns) -> None:
    """Count a connection for its source, and close one that is too many."""
    peer = connection.transport.get_extra_info("peername")
    crowded = _SOURCES.open(connection, limits.source(peer[0]) if isinstance(peer, tuple) else "")
    if crowded is not None:
        # It may have an answer that nobody takes, for which close() would wait.
        crowded.transport.abort()


def limit_connections() -> None:
    """Limit what uvicorn takes before a request reaches this guard: its parser in C has no limit for a request's head.

    vLLM imports this file before uvicorn chooses its protocol. Source: uvicorn, config.py and protocols/http.
    """
    try:
        from uvicorn.protocols.http import auto, h11_impl  # type: ignore[import-not-found]  # noqa: PLC0415
        from uvicorn.protocols.websockets import auto as websockets  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError:
        # Only the server has it.
        return

    auto.AutoHTTPProtocol = type("Limited", (Limits, h11_impl.H11Protocol), {})
    if websockets.AutoWebSocketsProtocol:
        websockets.AutoWebSocketsProtocol = type("LimitedMessages", (Messages, websockets.AutoWebSocketsProtocol), {})

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections of a server whose data is parsed in turns: the mechanism of both doors, with uvicorn and with aiohttp."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from weakref import WeakKeyDictionary

#: Bytes that are parsed in a turn. uvloop reads 250 KB at once; 40,000 chunks of one byte in them take 0.4 s.
PIECE = 8 << 10
#: Seconds until the other side must have taken a part of its waiting data.
UNREAD_SECONDS = 60.0
#: A library's connection.
Protocol: Any = object
#: Loop -> its connections with waiting data.
_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Turns]] = WeakKeyDictionary()


class _Reading:
    """A transport whose reading goes on only if no data of its connection waits.

    ``held``: paused by the library. ``closed``: by this side, or lost. The transport itself is closing as soon as the
    other side ends TLS, while complete data still waits.
    """

    def __init__(self, transport: Any, connection: Turns) -> None:
        self._transport = transport
        self._connection: Turns | None = connection
        self.held = self.closed = False
        #: The beginning of what was written.
        self.begin = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.begin = self.begin or bytes(data[:16])
        self._transport.write(data)

    def close(self) -> None:
        self.closed = True
        self._transport.close()
        if self._connection is not None:
            self._connection.watch_unread()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def pause(self) -> None:
        """Pause until the waiting data is parsed."""
        self._transport.pause_reading()

    def end(self) -> None:
        """Forget the connection, which is lost."""
        self.closed, self._connection = True, None

    def pause_reading(self) -> None:
        self.held = True
        self.pause()

    def resume_reading(self) -> None:
        self.held = False
        if self._connection is None or not self._connection.wait():
            self._transport.resume_reading()


class Turns(Protocol):  # type: ignore[misc]  # Its class is known when the server starts.
    """A connection whose data waits in one queue of all connections, and reads nothing meanwhile.

    The server parses one piece between two turns of its loop, so that no number of connections delays the others.
    ``piece``: its bytes.
    """

    piece = PIECE

    def connection_made(self, transport: Any) -> None:
        """Put the transport behind one that knows of waiting data."""
        self._waiting, self._queued = bytearray(), False
        self._unread = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        self._queue, self._later = _QUEUES.setdefault(loop, deque()), loop.call_later
        self._reading = _Reading(transport, self)
        super().connection_made(self._reading)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drop the waiting data, and the reference cycle that would keep the library's objects until a collection."""
        self._waiting.clear()
        self._reading.end()
        self._watch_unread(None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the other side some time to take a part of its waiting data."""
        super().pause_writing()
        self.watch_unread()

    def resume_writing(self) -> None:
        """Forget that time, except for a closed connection, whose end waits for the rest."""
        self._watch_unread(None)
        if self._reading.closed:
            self.watch_unread()
        super().resume_writing()

    def watch_unread(self) -> None:
        """Begin the time within which the other side has to take a part of its waiting data, if there is any."""
        size = self._reading.get_write_buffer_size()
        if size and self._unread_timer is None:
            self._watch_unread(size)

    def _watch_unread(self, size: int | None) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        if size is not None:
            self._unread, self._unread_timer = size, self._later(UNREAD_SECONDS, self._end_unread)

    def _end_unread(self) -> None:
        """Close the connection if the other side has taken nothing. The answer would stay in memory."""
        size = self._reading.get_write_buffer_size()
        if size >= self._unread:
            self._reading.abort()
        else:
            self._watch_unread(size)

    def parse(self, data: bytes) -> None:
        """Parse a piece."""
        super().data_received(data)

    def may_parse(self) -> bool:
        """Return whether the connection is open, and the library reads."""
        return not self._reading.closed and not self._reading.held

    def data_received(self, data: bytes) -> None:
        """Parse the first piece at once if nothing waits, and queue the rest."""
        self.add(data, PIECE)

    def add(self, data: bytes, first: int) -> None:
        """Parse the ``first`` bytes at once if nothing waits, and queue the rest."""
        idle = not self._waiting
        self._waiting += data
        if idle and first:
            self._parse(first)
        if self._waiting and not self._reading.closed:
            self._reading.pause()
            self.wait()

    def wait(self) -> bool:
        """Wait for a turn if there is data, and return whether there is."""
        if self._waiting and not self._queued and self.may_parse():
            self._queued = True
            self._queue.append(self)
            if len(self._queue) == 1:
                self._later(0, self._turn)
        return bool(self._waiting)

    def _turn(self) -> None:
        """Parse a piece, and give the turn to the next connection."""
        try:
            self._parse(self.piece)
        finally:
            self._queue.popleft()
            self._queued = False
            if self._queue:
                self._later(0, self._queue[0]._turn)
            if not self.wait() and not self._reading.held and not self._reading.closed:
                self._reading.resume_reading()

    def _parse(self, most: int) -> None:
        if self._reading.closed:
            self._waiting.clear()
            return
        piece = bytes(self._waiting[:most])
        del self._waiting[: len(piece)]
        self.parse(piece)

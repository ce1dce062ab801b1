# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's HTTP server: connections with limits, for a function that answers requests."""

from __future__ import annotations

import asyncio
import functools
import importlib
import itertools
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_journal, io_turns, limits
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import io_state, requests

aiohttp: Any = None
web: Any = None
#: The library's connection, and its error of an incomplete body.
_Handler: Any = object
_Client: Any = object
PayloadError: Any = ValueError
try:
    aiohttp, web, _protocol, _client = map(
        importlib.import_module, ("aiohttp", "aiohttp.web", "aiohttp.web_protocol", "aiohttp.client_proto")
    )
    _Handler, _Client, PayloadError = _protocol.RequestHandler, _client.ResponseHandler, _protocol.RequestPayloadError
except ImportError:
    # Only the gateway's environment has it. Other programs read this file without it.
    pass

#: Seconds for running requests when the service stops, and for the rest of a refused body.
_STOP_SECONDS, _LINGER_SECONDS = 30.0, 2.0
#: Connections that are accepted before other work goes on.
_AT_ONCE = 8
#: Bytes of the buffer of a connection with TLS.
_TLS_BUFFER = 32 << 10
#: A server's host that does not answer for 11 s is gone: asked after 5 s without data, then every 2 s, three times.
#: Not TCP_USER_TIMEOUT, which would also end the connection to a server that does not read for a while. Source: tcp(7).
_ALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 2),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
#: Headers of the gateway's own answers. The library would add its version.
SERVER, JSON = {"Server": "gb10"}, {"Content-Type": "application/json"}


class Connection(io_turns.Turns, _Handler):  # type: ignore[misc]  # The development tools have no aiohttp.
    """A client's connection. One without a complete head has few bytes and little time."""

    # All that asyncio reads at once, which takes at most 0.04 s: the memory of many small parts of a body stays used.
    piece = 256 << 10

    def __init__(self, listener: Listener, **options: Any) -> None:
        super().__init__(listener.server, loop=asyncio.get_running_loop(), **options)
        self._sources, self._head = listener.sources, 0
        self.opening: asyncio.Task[Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Parse the beginning of a request, and queue the rest."""
        self.add(data, io_turns.PIECE if self._current_request is None else 0)

    def parse(self, data: bytes) -> None:
        """Parse a piece, and close a connection whose head is too large."""
        # The library keeps later requests until the answer to the present one ends.
        later = self._current_request is not None and self._current_request.content.is_eof()
        super().parse(data)
        # The library waits for a head, and this was not the end of one.
        waits = self._waiter is not None and not self._messages
        self._head = self._head + len(data) if waits or later else 0
        if self._head > limits.MOST_HEAD:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for another connection."""
        self._sources.close(self)
        super().connection_lost(exc)

    def handle_error(
        self, _request: Any, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> Any:
        """Answer invalid HTTP, without the words of the library."""
        del exc, message
        refusal = requests.NOT_HTTP if status < 500 else requests.FAILED
        response = web.Response(body=requests.refusal_body(refusal, ""), status=refusal.status, headers=JSON | SERVER)
        response.force_close()
        return response

    def works(self, busy: bool) -> None:
        """Note whether the connection has a request."""
        (self._sources.work if busy else self._sources.wait)(self)

    def end(self) -> None:
        """Close the connection at once, also while it is being opened."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


class Answers(io_turns.Turns, _Client):  # type: ignore[misc]  # The development tools have no aiohttp.
    """A connection to a model's server, whose data is parsed in turns, too: it may send chunks of one byte."""

    def connection_made(self, transport: Any) -> None:
        """End the connection soon after its host is gone. A busy server's kernel answers."""
        super().connection_made(transport)
        for option, value in _ALIVE:
            transport.get_extra_info("socket").setsockopt(*option, value)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Parse the rest, which a server may have sent with its end, but none behind an end by this side."""
        while self._waiting and exc is None and not self._reading.closed:
            self._parse(io_turns.PIECE)
        super().connection_lost(exc)


def connector(**options: Any) -> Any:
    """Return what opens connections to the models' servers."""
    found = aiohttp.TCPConnector(**options)
    # The library has no option for it.
    found._factory = functools.partial(Answers, loop=asyncio.get_running_loop())
    return found


class Listener:
    """Accepts connections for a function that answers a request."""

    def __init__(self, handle: Callable[[Any], Awaitable[Any]]) -> None:
        # A client that leaves ends its request here, and so at the server.
        self.server = web.Server(handle, handler_cancellation=True)
        self.sources: limits.Sources[Connection] = limits.Sources()
        quiet = logging.getLogger("gb10-gateway")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._options = {
            "keepalive_timeout": limits.HEAD_SECONDS,
            "lingering_time": _LINGER_SECONDS,
            "max_headers": limits.MOST_HEADERS,
            "auto_decompress": False,
            "access_log": None,
            "logger": quiet,
        }

    async def serve(self, host: str, port: int, secured: ssl.SSLContext | None) -> None:
        """Accept connections until the task is cancelled."""
        # Each connection with TLS has this buffer from its beginning. asyncio's own 256 KiB for each would be 1 GB in
        # all.
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=host == "::") as listener:
            listener.setblocking(False)
            io_state.notify("READY=1")
            # A flood of connections must not stop everything else.
            for number in itertools.count():
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    channel, peer = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:
                    io_journal.say(f"a connection was not accepted: {error}")
                    await asyncio.sleep(0.5)
                    continue
                connection = Connection(self, **self._options)
                self._open(connection, channel, secured)
                superfluous = self.sources.open(connection, limits.source(peer[0]))
                if superfluous is not None:
                    superfluous.end()

    def _open(self, connection: Connection, channel: socket.socket, secured: ssl.SSLContext | None) -> None:
        """Begin to serve a connection, after TLS's handshake."""
        wait = limits.HEAD_SECONDS if secured else None
        loop = asyncio.get_running_loop()
        opening = loop.connect_accepted_socket(lambda: connection, channel, ssl=secured, ssl_handshake_timeout=wait)

        def opened(task: asyncio.Task[Any]) -> None:
            connection.opening = None
            if task.cancelled() or task.exception():
                self.sources.close(connection)
                channel.close()

        # Even a task that never ran calls it.
        connection.opening = loop.create_task(opening)
        connection.opening.add_done_callback(opened)

    async def stop(self) -> None:
        """End all connections, running requests after a while."""
        self.server.pre_shutdown()
        await self.server.shutdown(_STOP_SECONDS)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to a server of this host: one deadline for each whole answer, and secrets for the server's unit alone.

Any user may listen on a free port. So a secret goes only into a connection whose other end a process of the right unit
holds, which the kernel's table of sockets shows. A look at the listeners before a connection would prove less: the port
can change hands in between.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import os
import socket
import ssl
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, sockets, systemd

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class SecretError(ValueError):
    """A secret is not valid, or must not be sent. The text does not contain it."""


class StrangerError(SecretError):
    """A process outside the expected units has the other end of a connection."""


@dataclass(frozen=True)
class Secret:
    """A secret of a local server: its file ("" for none), the units that may receive it, and its name in errors."""

    path: str
    units: Collection[str]
    name: str = "the API's key"


def read(path: str) -> str:
    """Return the secret in a file, "" without one. Raises OSError and SecretError.

    http.client rejects a header of another form with an error that quotes it.
    """
    text = (io_file.read_file(path)[0] or "").strip() if path else ""
    if not text.isascii() or len(text.split()) > 1:
        raise SecretError(f"{path} does not contain a key (one line of ASCII without blanks)")
    return text


def reveal(secret: Secret, connection: socket.socket) -> str:
    """Return a secret for the other end of a connection to this host, "" without one.

    Raises StrangerError unless a process of the units holds the other end, SecretError, and OSError.
    """
    found = read(secret.path)
    if found:
        try:
            verify(connection, secret.units)
        except StrangerError as error:
            raise StrangerError(f"{error}, so {secret.name} was not sent") from None
    return found


def verify(connection: socket.socket, units: Collection[str]) -> None:
    """Verify that a process of the units holds the other end of a connection to this host. Raises StrangerError."""
    server, client = connection.getpeername()[:2], connection.getsockname()[:2]
    inodes = sockets.servers(map(io_file.read, _TABLES), server, client)
    if not inodes:
        raise StrangerError(f"{server[0]} port {server[1]} is not an open socket of this host")
    pids = [pid for pid in _pids() if _unit(pid) in units]
    if others := inodes - _holders(pids).keys():
        strangers = [process(pid) for inode, found in _holders(_pids()).items() if inode in others for pid in found]
        shown = {f"{each['process']} ({each['unit'] or 'no unit'})" for each in strangers}
        by = ", ".join(sorted(shown)) or "a process of another user"
        raise StrangerError(f"port {server[1]} is used by {by} instead of {' or '.join(units)}")


def listeners() -> list[dict[str, Any]]:
    """Return every listening TCP socket as {address, port, pid, process, unit}; pid is None for sockets of other
    namespaces."""
    found = [entry for table in _TABLES for entry in sockets.listening(io_file.read(table))]
    holders = _holders(_pids()) if found else {}
    return [
        {"address": entry["address"], "port": entry["port"], **process(holders.get(entry["inode"], [None])[-1])}
        for entry in sorted(found, key=lambda entry: (entry["port"], entry["address"]))
    ]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _holders(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return the processes of each socket, as far as this user sees them; root sees all."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        # The process or the descriptor may have gone.
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    kind, _colon, inode = os.readlink(f"/proc/{pid}/fd/{name}").partition(":")
                    if kind == "socket":
                        found.setdefault(int(inode[1:-1]), []).append(pid)
    return found


def process(pid: int | None) -> dict[str, Any]:
    """Return {pid, process, unit} of a process; pid is None, and the others "", if it is unknown."""
    if pid is None:
        return {"pid": None, "process": "", "unit": ""}
    return {
        "pid": pid,
        "process": io_file.read(f"/proc/{pid}/comm").strip(),
        "unit": _unit(pid),
    }


def _unit(pid: int) -> str:
    return systemd.unit_of_cgroup(io_file.read(f"/proc/{pid}/cgroup"))


class Connection(http.client.HTTPConnection):
    """A connection to a server, with TLS if there is a context. ``timeout`` limits each request with its whole answer.

    It uses no proxy and follows no redirect.
    """

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext | None = None) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls, self._seconds = context, timeout

    def connect(self) -> None:
        """Connect, and verify the server's certificate if there is a context."""
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)

    def request(  # type: ignore[override]
        self, method: str, url: str, body: Any = None, headers: Any = None, *, secret: Secret | None = None
    ) -> None:
        """Send a request, with a secret if the server's unit may have it. Raises as reveal() does, and OSError."""
        deadline = time.monotonic() + self._seconds
        self.response_class = functools.partial(_Response, deadline=deadline)  # type: ignore[assignment]
        given = dict(headers or {})
        if self.sock is not None:
            self.sock.settimeout(self._seconds)
        if secret and secret.path:
            if self.sock is None:
                self.connect()
            if shown := reveal(secret, self.sock):
                given["Authorization"] = f"Bearer {shown}"
        super().request(method, url, body, given)


class _Response(http.client.HTTPResponse):
    """An answer that has arrived by the deadline as a whole, or raises TimeoutError."""

    def __init__(self, sock: socket.socket, *arguments: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(Limited(self.fp.detach(), sock, deadline))


class Limited(io.RawIOBase):
    """The bytes of a connection until a deadline: a sender of single bytes would renew a time limit for each read."""

    def __init__(self, raw: Any, connection: socket.socket, deadline: float) -> None:
        self._raw, self._connection, self._deadline = raw, connection, deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read the bytes that have arrived. Raises TimeoutError after the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        """Close the connection's file too."""
        super().close()
        self._raw.close()

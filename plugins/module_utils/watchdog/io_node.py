# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observe a node for the watchdog: processes of the services, NCCL RAS, reachability, vLLM's metrics."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.gb10.cluster.plugins.module_utils.api import io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_local, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_peer
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import DOWN, SILENT, UP, Engine, Process

#: Source: NCCL, documentation of the RAS subsystem. Its answer takes the requested 2 s while a rank is missing.
_RAS_PLACE, _RAS_SECONDS, _MOST_RAS = ("127.0.0.1", 28028), 3.0, 1 << 18
#: Ranks of one host share the port, so a connection may reach another one than the stopped rank.
_RAS_TRIES = 3
_METRICS_SECONDS = 5.0
#: A TCP port that each node has or refuses; both responses show that its kernel answers.
_SSH = 22


def processes(units: Sequence[str]) -> list[Process]:
    """Return the processes of the units, those of their containers included."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and systemd.unit_of_cgroup(io_file.read(f"/proc/{name}/cgroup")) in units:
            found.append(parse.process(io_file.read(f"/proc/{name}/stat")))
    return [process for process in found if process]


def metrics(server: io_client.Server, unit: str) -> tuple[str, Engine | None]:
    """Return UP, SILENT or DOWN of the API of a unit, and the engine's values.

    An HTTP error counts as SILENT, and a port of another process as DOWN.
    """
    try:
        with server.open("/metrics", _METRICS_SECONDS, units=(unit,)) as answer:
            engine = parse.engine(io_client.body_of(answer), answer.headers.get(io_guard.OPEN_REQUESTS, ""))
    except (ConnectionRefusedError, io_local.StrangerError):
        return DOWN, None
    except (OSError, http.client.HTTPException):
        return SILENT, None
    return (UP, engine) if engine else (SILENT, None)


def ras(units: Collection[str], place: tuple[str, int] = _RAS_PLACE, seconds: float = _RAS_SECONDS) -> str | None:
    """Return the status of NCCL RAS, "" without a rank that listens (another transport, or no NCCL), None from a silent
    one. Any other local process may listen on the port.

    ``units`` are those of the ranks; ``seconds`` limits each of several tries.
    """
    for _try in range(_RAS_TRIES):
        try:
            with socket.create_connection(place, seconds) as connection:
                io_local.verify(connection, units)
                connection.sendall(b"timeout 2\nverbose status\n")
                text = _received(connection, time.monotonic() + seconds)
        except TimeoutError:
            continue
        except (OSError, io_local.StrangerError):
            return ""
        return text
    return None


def _received(connection: socket.socket, deadline: float) -> str:
    """Return all text until the end or the deadline. Raises TimeoutError if there is none."""
    received = b""
    try:
        with connection.makefile("rb", buffering=0) as raw, io_local.Limited(raw, connection, deadline) as answer:
            while len(received) < _MOST_RAS and (data := answer.read(65536)):
                received += data
    except TimeoutError:
        if not received:
            raise
    return received.decode("utf-8", "replace")


def reachable(address: str) -> bool:
    """Return whether the kernel of a node answers on the fabric."""
    return io_peer.error(address, _SSH) not in io_peer.SILENT


def unreachable(addresses: Mapping[str, str]) -> list[str]:
    """Return the names of the nodes (name -> address) whose kernel does not answer. All are queried at once."""
    with ThreadPoolExecutor(max_workers=len(addresses) or 1) as pool:
        return [
            name
            for name, answers in zip(addresses, pool.map(reachable, addresses.values()), strict=True)
            if not answers
        ]


def boot() -> str:
    """Return the ID of this boot."""
    return io_file.read("/proc/sys/kernel/random/boot_id").strip()

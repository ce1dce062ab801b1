# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop the services of a node when a start leaves too little memory. gb10-memory-guard.service runs this file as root.

On a GB10 the GPU allocates from the host's memory, and a host without memory freezes. The processes are killed first,
by one write for each cgroup: systemd would give them a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse

#: Seconds between two samples of a start, and between two looks at the processes and the API.
_SAMPLE, _LOOK = 0.25, 2.0
_LOOKS = round(_LOOK / _SAMPLE)
_CONNECT_SECONDS, _STOP_SECONDS = 0.2, 120
_KEY = b"MemAvailable:"
#: Source: mlockall(2).
_MCL_CURRENT, _MCL_FUTURE = 1, 2
#: Maximum characters of a record.
_MOST = 1 << 16


def say(text: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Meminfo:
    """/proc/meminfo, open and with a buffer, so that a sample needs no memory."""

    def __init__(self, path: str = "/proc/meminfo") -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._buffer = bytearray(4096)

    def available(self) -> int:
        """Return MemAvailable in bytes. Raises ValueError, OSError."""
        os.preadv(self._file, [self._buffer], 0)
        begin = self._buffer.index(_KEY) + len(_KEY)
        return int(self._buffer[begin : self._buffer.index(b" kB", begin)]) << 10


def ranks(proc: str = "/proc") -> frozenset[int]:
    """Return the IDs of the rank processes of the services."""
    return frozenset(int(pid) for pid in filter(str.isdecimal, os.listdir(proc)) if _is_rank(f"{proc}/{pid}"))


def _is_rank(folder: str) -> bool:
    named = io_file.read(f"{folder}/comm").startswith(parse.RANKS)
    return named and parse.unit_of_cgroup(io_file.read(f"{folder}/cgroup")) in paths.UNITS


def listens(address: tuple[str, int] | None) -> bool:
    """Return whether a server listens at the address. vLLM binds its port before the load, and listens after it."""
    if address is None:
        return False
    try:
        socket.create_connection(address, _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def kill(cgroups: str = "/sys/fs/cgroup") -> None:
    """Kill all processes of the services.

    Docker's containers are in a slice of the unit's name. Source: cgroup-v2.rst.
    """
    for unit in paths.UNITS:
        for folder in (f"system.slice/{unit}", f"gb10.slice/{unit.removesuffix('.service')}.slice"):
            with contextlib.suppress(OSError), open(f"{cgroups}/{folder}/cgroup.kill", "w", encoding="ascii") as file:
                file.write("1")


def stop() -> None:
    """Stop the services, so that systemd does not restart them."""
    for unit in reversed(paths.UNITS):
        if not os.path.exists(f"{paths.UNIT_FOLDER}/{unit}"):
            continue
        try:
            # A service has no module with run_command.
            # pylint: disable-next=ansible-bad-function
            subprocess.run(["systemctl", "stop", unit], timeout=_STOP_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{unit} was not stopped: {error}. Its next start is refused by {paths.MEMORY_GUARD_STOP}")


def lock() -> None:
    """Keep this process in memory. Without the privilege it can be paged out."""
    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT | _MCL_FUTURE):
        say(f"the memory of the guard is not locked: {os.strerror(ctypes.get_errno())}")


def starts(path: str = paths.MEMORY_GUARD_STARTS) -> list[Mapping[str, Any]]:
    """Return the recorded starts. A damaged record is replaced."""
    with contextlib.suppress(OSError, ValueError):
        found = bounded_json.load(io_file.read_bounded(path, _MOST) or "[]", _MOST)
        if isinstance(found, list):
            return found
    return []


def _write(path: str, content: Any) -> None:
    try:
        io_file.write_file(path, json.dumps(content) + "\n", io_file.READABLE)
    except OSError as error:
        say(f"{path} was not written: {error}")


class Guard:
    """The guard of a node. ``floor`` in bytes, 0 to only record; ``address`` of the API on the head."""

    def __init__(self, floor: int, limit: float, address: tuple[str, int] | None) -> None:
        self.floor, self.limit, self.address = floor, limit, address
        self.meminfo, self.state = Meminfo(), guard.State()
        self.minimum = self.written = 0

    def look(self) -> None:
        """Look at the processes and the API, and record a changed minimum."""
        before, now = self.state.start, time.monotonic()
        found = ranks()
        self.state, end = guard.observe(self.state, found, bool(before) and listens(self.address), now, self.limit)
        if before is None and self.state.start:
            self.minimum, self.written = self.meminfo.available(), 0
            say(f"a start begins with {self.minimum / guard.GIB:.1f} GiB available")
        if before and end:
            self._end(guard.entry(before, self.minimum, self.floor, now, time.time(), end))
        elif self.state.start and self.minimum != self.written:
            _write(
                paths.MEMORY_GUARD_PRESENT, guard.entry(self.state.start, self.minimum, self.floor, now, time.time())
            )
            self.written = self.minimum

    def sample(self) -> None:
        """Sample the memory, and stop the services below the floor."""
        available = self.meminfo.available()
        self.minimum = min(self.minimum, available)
        if available < self.floor and (start := self.state.start):
            kill()
            # Before systemd restarts a unit: it waits for gb10_restart_delay.
            record = guard.entry(start, self.minimum, self.floor, time.monotonic(), time.time(), guard.STOPPED)
            _write(paths.MEMORY_GUARD_STOP, record)
            say(f"stopped the services: {guard.reason(record)}")
            stop()
            self.state = guard.State(known=start.ranks)
            self._end(record)

    def _end(self, record: Mapping[str, Any]) -> None:
        _write(paths.MEMORY_GUARD_STARTS, guard.kept(starts(), record))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(paths.MEMORY_GUARD_PRESENT)
        say(
            f"a start ended ({record['end']}) after {record['seconds']} s; at least "
            f"{self.minimum / guard.GIB:.1f} GiB were available"
        )

    def run(self) -> None:
        """Run until the service ends."""
        while True:
            self.look()
            for _sample in range(_LOOKS):
                time.sleep(_SAMPLE if self.state.start else _LOOK)
                if not self.state.start:
                    break
                self.sample()


def main() -> None:
    """Parse the arguments and run the guard."""
    parser = argparse.ArgumentParser(description="Stop the services of a node when a start leaves too little memory.")
    parser.add_argument("--floor", type=float, required=True, help="GiB of MemAvailable; 0 only records the minimum")
    parser.add_argument("--limit", type=float, required=True, help="seconds after which a start counts as over")
    parser.add_argument("--api", nargs=2, metavar=("HOST", "PORT"), help="where the head's API listens after the load")
    options = parser.parse_args()
    address = (options.api[0], int(options.api[1])) if options.api else None
    found = Guard(round(options.floor * guard.GIB), options.limit, address)
    lock()
    found.run()


if __name__ == "__main__":
    main()

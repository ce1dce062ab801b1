# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End the ranks of a node when too little memory is left. gb10-memory-guard.service runs this file as root.

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
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, io_json, paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse

#: Seconds between two samples of a start, of ranks that serve, and between two looks at the processes and the API.
_SAMPLE, _SERVICE_SAMPLE, _LOOK = 0.25, 1.0, 2.0
_CONNECT_SECONDS, _STOP_SECONDS = 0.2, 120
#: Seconds after which the status of a watchdog is old: a sample of it takes seconds on a busy node.
_STATUS_SECONDS = 20.0
_KEY = b"MemAvailable:"
#: Source: mlockall(2).
_MCL_CURRENT, _MCL_FUTURE = 1, 2
#: Maximum characters of a record.
_MOST = 1 << 16
#: Maximum bytes of a record of /dev/kmsg, and records of one sample. Source: kernel/printk, PRINTK_MESSAGE_MAX.
_KMSG_BYTES, _KMSG_RECORDS = 8192, 1000


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


class Kmsg:
    """/dev/kmsg from its end. Without it the guard runs on: a container of a lab has none."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            say(f"{path} cannot be read, so the guard does not see errors of the GPU's driver: {error}")

    def refused(self) -> bool:
        """Return whether the GPU's driver refused memory since the last call. Each record counts once."""
        found = False
        for _record in range(_KMSG_RECORDS if self._file is not None else 0):
            try:
                records = os.read(self._file or 0, _KMSG_BYTES)
            except BrokenPipeError:
                # The kernel overwrote records. The next read is of the oldest one.
                continue
            except OSError:
                break
            if not records:
                break
            found |= any(map(guard.refused, records.splitlines()))
        return found


def ranks(proc: str = "/proc") -> frozenset[int]:
    """Return the IDs of the rank processes of the services."""
    return frozenset(int(pid) for pid in filter(str.isdecimal, os.listdir(proc)) if _is_rank(f"{proc}/{pid}"))


def _is_rank(folder: str) -> bool:
    return parse.is_rank(io_file.read(f"{folder}/comm"), io_file.read(f"{folder}/cgroup"))


def largest(proc: str = "/proc") -> guard.Process | None:
    """Return the largest process outside of the services. Its arguments may be secret, so only its name is read."""
    found = guard.Process("", 0)
    for pid in filter(str.isdecimal, os.listdir(proc)):
        lines = io_file.read(f"{proc}/{pid}/status").split("\n")
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        # Without the files that it maps, which the kernel can drop.
        size = sum(int(fields.get(key, "0 kB").split()[0]) for key in ("RssAnon", "RssShmem")) << 10
        if size > found.size and systemd.unit_of_cgroup(io_file.read(f"{proc}/{pid}/cgroup")) not in paths.UNITS:
            # A process chooses its name.
            name = "".join(filter(str.isprintable, fields.get("Name", "").strip()))
            found = guard.Process(name, size)
    return found if found.size else None


def listens(address: tuple[str, int] | None, status: str = paths.WATCHDOG_STATUS) -> bool:
    """Return whether a server listens at the address. vLLM binds its port before the load, and listens after it.

    A node without the API knows it from the head's watchdog, by the status of its own; False without one.
    """
    if address is None:
        try:
            fresh = time.time() - os.stat(status).st_mtime < _STATUS_SECONDS
            return fresh and (io_json.json_file(status, _MOST) or {}).get("serves") is True
        except (OSError, ValueError):
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
            return [each for each in found if isinstance(each, dict)]
    return []


def _write(path: str, content: Any) -> None:
    try:
        io_file.write_file(path, json.dumps(content) + "\n", io_file.READABLE)
    except OSError as error:
        say(f"{path} was not written: {error}")


class Guard:
    """The guard of a node. ``floor`` in bytes, 0 to only record; ``address`` of the API on the head.

    ``window``: the seconds within which it restarts the ranks at most once.
    """

    def __init__(self, floor: int, limit: float, mode: str, window: float, address: tuple[str, int] | None) -> None:
        self.floor, self.limit, self.mode, self.window, self.address = floor, limit, mode, window, address
        self.meminfo, self.kmsg = Meminfo(), Kmsg()
        self.state, self.pressure = guard.State(), guard.Pressure()
        #: Kept in memory: a full disk must not permit a second restart.
        self.starts = starts()
        self.minimum = self.written = 0

    def look(self) -> None:
        """Look at the processes and the API, and record a changed minimum."""
        before, now = self.state.start, time.monotonic()
        found = ranks()
        self.state, end = guard.observe(self.state, found, bool(before) and listens(self.address), now, self.limit)
        if before is None and self.state.start:
            self.minimum, self.written = self.meminfo.available(), 0
            self.pressure = guard.Pressure()
            # Former records are not of this start.
            self.kmsg.refused()
            say(f"a start begins with {self.minimum / guard.GIB:.1f} GiB available")
        if before and end:
            self._end(guard.entry(before, self.minimum, self.floor, now, time.time(), end))
        elif self.state.start and self.minimum != self.written:
            _write(
                paths.MEMORY_GUARD_PRESENT, guard.entry(self.state.start, self.minimum, self.floor, now, time.time())
            )
            self.written = self.minimum

    def sample(self) -> None:
        """Sample the memory and the driver's errors, and act when too little memory is left."""
        available, refusal, start = self.meminfo.available(), self.kmsg.refused(), self.state.start
        self.minimum = min(self.minimum, available) if start else available
        self.pressure, cause = guard.sampled(
            self.pressure, available, self.floor, bool(start), refusal, time.monotonic()
        )
        if cause:
            self._act(cause)
        elif refusal:
            say(f"the GPU's driver refused memory (NV_ERR_NO_MEMORY) with {available / guard.GIB:.1f} GiB available")

    def _act(self, cause: str) -> None:
        start, clock = self.state.start, time.time()
        end = guard.action(self.mode, bool(start), self.starts, clock, self.window)
        if end != guard.REPORTED:
            kill()
        other = None
        with contextlib.suppress(OSError, ValueError):
            other = largest()
        record = guard.entry(start, self.minimum, self.floor, time.monotonic(), clock, end)
        record = guard.acted(record, cause, other)
        if end == guard.STOPPED:
            # Before systemd restarts a unit: it waits for gb10_restart_delay.
            _write(paths.MEMORY_GUARD_STOP, record)
        say(f"{end}: {guard.reason(record)}")
        if end == guard.STOPPED:
            stop()
            self.state = guard.State(known=start.ranks if start else self.state.known)
        self._record(record)

    def _record(self, record: Mapping[str, Any]) -> None:
        self.starts = guard.kept(self.starts, record)
        _write(paths.MEMORY_GUARD_STARTS, self.starts)
        if self.state.start is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(paths.MEMORY_GUARD_PRESENT)

    def _end(self, record: Mapping[str, Any]) -> None:
        self._record(record)
        say(
            f"a start ended ({record['end']}) after {record['seconds']} s; at least "
            f"{self.minimum / guard.GIB:.1f} GiB were available"
        )

    def _pause(self) -> float:
        return _SAMPLE if self.state.start else _SERVICE_SAMPLE if self.state.known else _LOOK

    def run(self) -> None:
        """Run until the service ends."""
        while True:
            self.look()
            slept = 0.0
            while slept < _LOOK:
                slept += (pause := self._pause())
                time.sleep(pause)
                if pause == _LOOK:
                    break
                self.sample()


def main() -> None:
    """Parse the arguments and run the guard."""
    parser = argparse.ArgumentParser(description="End the ranks of a node when too little memory is left.")
    parser.add_argument("--floor", type=float, required=True, help="GiB of MemAvailable; 0 only records the minimum")
    parser.add_argument("--limit", type=float, required=True, help="seconds after which a start counts as over")
    parser.add_argument("--mode", choices=guard.MODES, required=True, help="what to do while the ranks serve")
    parser.add_argument("--window", type=float, required=True, help="seconds with at most one restart")
    parser.add_argument("--api", nargs=2, metavar=("HOST", "PORT"), help="where the head's API listens after the load")
    options = parser.parse_args()
    address = (options.api[0], int(options.api[1])) if options.api else None
    found = Guard(round(options.floor * guard.GIB), options.limit, options.mode, options.window, address)
    lock()
    found.run()


if __name__ == "__main__":
    main()

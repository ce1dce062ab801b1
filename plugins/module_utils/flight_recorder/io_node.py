# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the values of a sample: the kernel's files, a running nvidia-smi, and vLLM's metrics."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface
from typing import IO, Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import parse, record, schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.node import gpu
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu

_NET, _RDMA = "/sys/class/net", "/sys/class/infiniband"
#: Seconds: after which a value is old; without a line, after which nvidia-smi is ended; until its next start; for a
#: request of metrics, and for one connection to sshd.
_OLD, _HANGS, _PAUSE, _REQUEST, _PROBE = 3 * schema.INTERVAL, 30.0, 60.0, 1.5, 2.0
#: Maximum bytes of nvidia-smi's output in one sample, and of a page of metrics: a busy server has 100 KB.
_MOST_OUTPUT, _MOST_PAGE = 1 << 16, 1 << 21
#: Source: netdevice(7).
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_MOST_ADDRESSES = 4


class Smi:
    """A nvidia-smi that repeats its query: each start of one costs 20 ms of CPU. It can hang with its driver."""

    def __init__(self, query: Sequence[str] = gpu.QUERY) -> None:
        self._query = [*query, f"--loop-ms={schema.INTERVAL * 1000:.0f}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._found: dict[str, tuple[float, Gpu]] = {}
        self._rest = b""
        self._next = self._heard = 0.0

    def read(self, now: float) -> tuple[Gpu, ...]:
        """Return the newest values of each GPU, () while none are known. Does not wait."""
        if self._process is None and now >= self._next:
            self._start(now)
        if self._process and self._process.stdout:
            self._take(self._process.stdout, now)
        if self._process and (self._process.poll() is not None or now - self._heard > _HANGS):
            self.stop()
            self._next = now + _PAUSE
        return tuple(found for when, found in self._found.values() if now - when <= _OLD)

    def _start(self, now: float) -> None:
        self._next, self._heard, self._rest = now + _PAUSE, now, b""
        with contextlib.suppress(OSError):
            # A service has no module with run_command.
            # pylint: disable-next=ansible-bad-function
            self._process = subprocess.Popen(
                self._query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        if self._process and self._process.stdout:
            os.set_blocking(self._process.stdout.fileno(), False)

    def _take(self, output: IO[bytes], now: float) -> None:
        try:
            data = self._rest + os.read(output.fileno(), _MOST_OUTPUT)
        except BlockingIOError:
            return
        text, _newline, self._rest = data.rpartition(b"\n")
        self._rest = self._rest[-_MOST_OUTPUT:]
        for found in gpu.gpus(text.decode("utf-8", "replace")):
            self._found[found.index], self._heard = (now, found), now

    def stop(self) -> None:
        """End nvidia-smi. One that waits for its driver stays a zombie until the driver answers."""
        if self._process:
            self._process.kill()
            if self._process.stdout:
                self._process.stdout.close()
            self._process.poll()
        self._process = None


class Metrics:
    """vLLM's metrics, read by a thread: a hanging server must not stop the recorder. ``url`` is the API's."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        # Only the head needs TLS in its memory.
        from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client  # noqa: PLC0415

        self._server = io_client.Server(given["url"], given["ca_file"], given["server_name"])
        self._connection: http.client.HTTPConnection | None = None
        self._found: tuple[float, Engine | None] = (0.0, None)
        threading.Thread(target=self._run, daemon=True).start()

    def read(self, now: float) -> Engine | None:
        """Return the newest values, None while none are known."""
        when, found = self._found
        return found if now - when <= _OLD else None

    def _run(self) -> None:
        while True:
            begun = time.monotonic()
            found = None
            with contextlib.suppress(OSError, http.client.HTTPException):
                found = parse.engine(self._page())
            self._found = (time.monotonic(), found)
            if found is None and self._connection:
                self._connection.close()
                self._connection = None
            time.sleep(max(0.5, begun + schema.INTERVAL - time.monotonic()))

    def _page(self) -> str:
        """Return the page. The connection stays: a handshake each time would cost more than the rest of the sample."""
        if self._connection is None:
            self._connection = self._server.connection(_REQUEST)
        self._connection.request("GET", "/metrics")
        answer = self._connection.getresponse()
        page = answer.read(_MOST_PAGE + 1)
        if answer.status != http.HTTPStatus.OK or len(page) > _MOST_PAGE:
            raise http.client.HTTPException(f"HTTP status {answer.status}, {len(page)} bytes")
        return page.decode("utf-8", "replace")


def sample(given: Mapping[str, Any], gpus: tuple[Gpu, ...], engine: Engine | None) -> Sample:
    """Return the node's sample. ``given``: the settings."""
    available, total, swap = parse.memory(io_file.read("/proc/meminfo"))
    return Sample(
        round(time.time(), 3),
        given["node"],
        available,
        total,
        swap,
        parse.pressure(io_file.read("/proc/pressure/memory")),
        parse.load(io_file.read("/proc/loadavg")),
        gpus,
        tuple(_rail(each["interface"], each["hca"]) for each in given["rails"]),
        engine,
    )


def _rail(interface: str, hca: str) -> SampledRail:
    net, port = f"{_NET}/{interface}", f"{_RDMA}/{hca}/ports/1"
    # An interface that is down has no carrier to read.
    carrier = io_file.read(f"{net}/carrier").strip()
    return SampledRail(
        interface,
        carrier == "1" if carrier or os.path.exists(net) else None,
        parse.count(io_file.read(f"{net}/speed")),
        parse.count(io_file.read(f"{net}/mtu")),
        parse.count(io_file.read(f"{net}/statistics/rx_bytes")),
        parse.count(io_file.read(f"{net}/statistics/tx_bytes")),
        parse.count(io_file.read(f"{port}/counters/port_rcv_data"), parse.RDMA_WORD) if hca else None,
        parse.count(io_file.read(f"{port}/counters/port_xmit_data"), parse.RDMA_WORD) if hca else None,
        io_file.read(f"{net}/operstate").strip()[:16],
        parse.port_state(io_file.read(f"{port}/state")) if hca else "",
    )


def addresses(left_out: Sequence[str]) -> tuple[IPv4Interface, ...]:
    """Return the first IPv4 address of each interface except bridges, the loopback and some others."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        # socket.if_nameindex() needs netlink, which the unit does not permit.
        for name in sorted(os.listdir(_NET)):
            if name == "lo" or name in left_out or os.path.exists(f"{_NET}/{name}/bridge"):
                continue
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                parts = (fcntl.ioctl(connection, each, request)[20:24] for each in (_SIOCGIFADDR, _SIOCGIFNETMASK))
                found.append(IPv4Interface("/".join(map(socket.inet_ntoa, parts))))
    return tuple(found[:_MOST_ADDRESSES])


def probe(address: str, port: int = 22) -> str:
    """Return what sshd of an address does: a kernel accepts connections also while user space is frozen."""
    try:
        with socket.create_connection((address, port), _PROBE) as connection:
            connection.settimeout(_PROBE)
            try:
                return record.ANSWERS if connection.recv(4) == b"SSH-" else record.ACCEPTS
            except OSError:
                return record.ACCEPTS
    except ConnectionRefusedError:
        return record.REFUSES
    except TimeoutError:
        return record.NOTHING
    except OSError as error:
        # A neighbor that does not answer is not a host; without a route, nothing is known.
        return record.NOTHING if error.errno == errno.EHOSTUNREACH else record.UNREACHABLE

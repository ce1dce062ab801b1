# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulate several hosts with a GPU each on one machine, for tests that need several Sparks.

Each host is a set of namespaces (network, mounts, host name) on one bridge, with its own /tmp and /dev/shm. NCCL, Ray
and vLLM therefore treat them as different machines, and ranks connect over sockets. The hosts share the driver, which
shows all GPUs. An option limits nvidia-smi to one GPU, and CUDA_VISIBLE_DEVICES hides the others. Several hosts can
share a GPU: CUDA gives each its turn. Cables join two hosts each, beside the bridge, and no host forwards packets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NETWORK, BRIDGE, DEVICE = "10.121.0", "gb10gpu", "fabric0"
#: Prepares the new namespaces.
_PREPARE = """
set -e
hostname "$1"
mount --make-rprivate /
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /dev/shm
mount -t sysfs sysfs /sys
ip link set lo up
echo 0 > /proc/sys/net/ipv4/ip_forward
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Host:
    """A host: the command prefix to run a program there, and a Python for Ansible's modules."""

    name: str
    address: str
    gpu: int | None
    pid: int
    prefix: tuple[str, ...]
    python: str

    def environment(self) -> dict[str, str]:
        """Return the environment of a login there."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return own | {"CUDA_VISIBLE_DEVICES": "" if self.gpu is None else str(self.gpu)}

    def run(self, *argv: str) -> str:
        """Run a program there, and return what it wrote to stdout. Raises CalledProcessError."""
        return subprocess.run([*self.prefix, *argv], stdout=subprocess.PIPE, text=True, check=True).stdout


@dataclass(frozen=True)
class End:
    """An end of a cable: the number of its host, its device, and the device's index and address with prefix length."""

    host: int
    device: str
    index: int
    address: str


@contextlib.contextmanager
def hosts(
    count: int, folder: Path, gpus: int | None = None, cables: Sequence[tuple[End, End]] = (), mtu: int = 9000
) -> Iterator[list[Host]]:
    """Create ``count`` hosts that share ``gpus`` GPUs in turn (0: none, None: one each), and their cables.

    ``folder`` must be outside /tmp. Needs root.
    """
    gpus = count if gpus is None else gpus
    with contextlib.ExitStack() as stack:
        _ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(_ip, "link", "delete", BRIDGE)
        _ip("address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        there = [_host(number, number % gpus if gpus else None, folder, stack) for number in range(count)]
        for ends in cables:
            _cable(there, ends, mtu)
        yield there


def _cable(there: Sequence[Host], ends: tuple[End, End], mtu: int) -> None:
    def device(end: End) -> list[str]:
        # NCCL numbers the devices by their indexes.
        return ["name", end.device, "index", str(end.index), "mtu", str(mtu), "netns", str(there[end.host].pid)]

    _ip("link", "add", *device(ends[0]), "type", "veth", "peer", *device(ends[1]))
    for end in ends:
        there[end.host].run("ip", "address", "add", end.address, "dev", end.device)
        there[end.host].run("ip", "link", "set", end.device, "up")


def _host(number: int, gpu: int | None, folder: Path, stack: contextlib.ExitStack) -> Host:
    name, address = f"gpu{number + 1}", f"{NETWORK}.{11 + number}"
    holder = subprocess.Popen(
        ["unshare", "-m", "-u", "-n", "bash", "-c", _PREPARE, "bash", name], stdout=subprocess.PIPE, text=True
    )
    stack.callback(holder.wait)
    stack.callback(holder.kill)
    if holder.stdout is None or holder.stdout.readline() != "ready\n":
        sys.exit(f"{name}: its namespaces could not be created")
    _ip("link", "add", f"{BRIDGE}{number}", "type", "veth", "peer", "name", DEVICE, "netns", str(holder.pid))
    # The kernel removes the devices of ended namespaces later.
    stack.callback(_ip, "link", "delete", f"{BRIDGE}{number}")
    _ip("link", "set", f"{BRIDGE}{number}", "master", BRIDGE, "up")
    prefix = ("nsenter", f"--target={holder.pid}", "--mount", "--uts", "--net")
    programs = folder / name
    programs.mkdir(parents=True, exist_ok=True)
    if gpu is not None:
        smi = shutil.which("nvidia-smi") or sys.exit("nvidia-smi is missing")
        _script(programs / "nvidia-smi", f'exec {smi} -i {gpu} "$@"')
    _script(programs / "python", f'exec {" ".join(prefix)} env PATH={programs}:"$PATH" {sys.executable} "$@"')
    host = Host(name, address, gpu, holder.pid, prefix, str(programs / "python"))
    host.run("ip", "address", "add", f"{address}/24", "dev", DEVICE)
    host.run("ip", "link", "set", DEVICE, "up")
    return host


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulate several hosts with one GPU each on one machine, for tests that need several Sparks.

Each host is a set of namespaces (network, mounts, host name) on one bridge, with its own /tmp and /dev/shm. NCCL, Ray
and vLLM therefore treat them as different machines, and ranks connect over sockets. The hosts share the driver, which
shows all GPUs. An option limits nvidia-smi to one GPU, and CUDA_VISIBLE_DEVICES hides the others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Host:
    """A host: the command prefix to run a program there, and a Python for Ansible's modules."""

    name: str
    address: str
    gpu: int
    prefix: tuple[str, ...]
    python: str

    def environment(self) -> dict[str, str]:
        """Return the environment of a login there."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return own | {"CUDA_VISIBLE_DEVICES": str(self.gpu)}


@contextlib.contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Create ``count`` hosts, each with the GPU of its number. ``folder`` must be outside /tmp. Needs root."""
    with contextlib.ExitStack() as stack:
        _ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(_ip, "link", "delete", BRIDGE)
        _ip("address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        yield [_host(number, folder, stack) for number in range(count)]


def _host(number: int, folder: Path, stack: contextlib.ExitStack) -> Host:
    name, address = f"gpu{number + 1}", f"{NETWORK}.{11 + number}"
    holder = subprocess.Popen(
        ["unshare", "-m", "-u", "-n", "bash", "-c", _PREPARE, "bash", name], stdout=subprocess.PIPE, text=True
    )
    stack.callback(holder.wait)
    stack.callback(holder.kill)
    if holder.stdout is None or holder.stdout.readline() != "ready\n":
        sys.exit(f"{name}: its namespaces could not be created")
    _ip("link", "add", f"{BRIDGE}{number}", "type", "veth", "peer", "name", DEVICE, "netns", str(holder.pid))
    _ip("link", "set", f"{BRIDGE}{number}", "master", BRIDGE, "up")
    prefix = ("nsenter", f"--target={holder.pid}", "--mount", "--uts", "--net")
    subprocess.run([*prefix, "ip", "address", "add", f"{address}/24", "dev", DEVICE], check=True)
    subprocess.run([*prefix, "ip", "link", "set", DEVICE, "up"], check=True)
    programs = folder / name
    programs.mkdir(parents=True, exist_ok=True)
    smi = shutil.which("nvidia-smi") or sys.exit("nvidia-smi is missing")
    _script(programs / "nvidia-smi", f'exec {smi} -i {number} "$@"')
    _script(programs / "python", f'exec {" ".join(prefix)} env PATH={programs}:"$PATH" {sys.executable} "$@"')
    return Host(name, address, number, prefix, str(programs / "python"))


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)

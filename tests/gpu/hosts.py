# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with a GPU each, out of one host: a fixture for what needs several Sparks.

Each is a set of namespaces (network, mounts, host name) on one bridge, with /tmp and /dev/shm of its own, so that neither NCCL, Ray nor vLLM takes
them for one machine: ranks meet over sockets. What is not separate: the driver, which shows all GPUs; nvidia-smi is told to show one, and
CUDA_VISIBLE_DEVICES hides the others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NETWORK, BRIDGE, DEVICE = "10.121.0", "gb10gpu", "fabric0"
#: Run in the new namespaces before they are used.
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
    """A host: what goes before a command to run it there, and a Python for Ansible's modules."""

    name: str
    address: str
    gpu: int
    prefix: tuple[str, ...]
    python: str

    def environment(self) -> dict[str, str]:
        """Return what a login there would have."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return own | {"CUDA_VISIBLE_DEVICES": str(self.gpu)}


@contextlib.contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Make that many hosts, each with the GPU of its number. ``folder`` must be outside /tmp. Root is needed."""
    with contextlib.ExitStack() as stack:
        _ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(_ip, "link", "delete", BRIDGE)
        _ip("address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        yield [_host(number, folder, stack) for number in range(count)]


def _host(number: int, folder: Path, stack: contextlib.ExitStack) -> Host:
    name, address = f"gpu{number + 1}", f"{NETWORK}.{11 + number}"
    holder = subprocess.Popen(["unshare", "-m", "-u", "-n", "bash", "-c", _PREPARE, "bash", name], stdout=subprocess.PIPE, text=True)
    stack.callback(holder.wait)
    stack.callback(holder.kill)
    if holder.stdout is None or holder.stdout.readline() != "ready\n":
        sys.exit(f"{name}: its namespaces could not be made")
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


@contextlib.contextmanager
def running(host: Host, command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program on a host for as long as the block lasts; what it leaves behind is ended with it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*host.prefix, *command], env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        time.sleep(1)

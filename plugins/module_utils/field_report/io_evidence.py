# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the evidence of a node. Changes nothing. Of its logs, only the known lines leave the node."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.owners import NETPLAN_FOLDERS
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import evidence, excerpt
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import io_records
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import report as flight_recorder_report
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit

_MOST = 1 << 20
_PROGRAMS = (
    "ninja",
    "nvcc",
    "g++",
    "gcc",
    "python3",
    "netplan",
    "nmcli",
    "nft",
    "docker",
    "podman",
    "nvidia-ctk",
    "ib_write_bw",
    "rdma",
)
_PACKAGES = (
    *(
        "python3-venv",
        "python3.12-venv",
        "python3.11-venv",
        "python3-dev",
        "python3.12-dev",
        "python3.11-dev",
        "g++",
        "ninja-build",
    ),
    *(
        "netplan.io",
        "network-manager",
        "unattended-upgrades",
        "rdma-core",
        "ibverbs-providers",
        "perftest",
        "libnccl2",
        "libnccl-dev",
    ),
    *(
        "docker-ce",
        "docker.io",
        "containerd.io",
        "nvidia-container-toolkit",
        "dgx-release",
        "nvidia-driver-*",
        "cuda-toolkit-*",
    ),
)
_DPKG_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
_UNITS = (paths.RAY_UNIT, paths.VLLM_UNIT)
#: Lines of the log of a unit that failed.
_LOG = 200
#: Seconds, and records of hosts that fell silent.
_RECENT, _MOST_RECORDS = 30 * 86400, 3


def read(run: Run, install_dir: str) -> dict[str, Any]:
    """Return {evidence, unread}.

    Each item is read alone: a failed one is None, with its reason in ``unread``.
    """
    unread: dict[str, str] = {}
    readers: dict[str, Callable[[], Any]] = {
        "release": lambda: evidence.release(
            _file("/etc/dgx-release"), _file("/etc/os-release"), _file("/proc/version")
        ),
        "command_line": lambda: _file("/proc/cmdline").split(),
        "nvidia_smi": lambda: evidence.nvidia_smi(
            _output(run, "nvidia-smi", "-q", "-d", "MEMORY,CLOCK,POWER,PERFORMANCE")
        ),
        "netplan": lambda: evidence.netplan(_netplan()),
        "netplan_accepted": lambda: _accepted(run),
        "profiles": lambda: evidence.profiles(
            _output(run, "nmcli", "-t", "-f", "NAME,TYPE,DEVICE,AUTOCONNECT,STATE", "connection", "show")
        ),
        "networkd": lambda: evidence.columns(
            _output(run, "networkctl", "list", "--no-legend", "--no-pager"), (1, 2, 3, 4), str.isdecimal
        ),
        "routes": lambda: evidence.routes(_output(run, "ip", "-oneline", "route", "show", "default")),
        "devices": lambda: list(_devices()),
        "toolkit": lambda: _toolkit(run),
        "programs": lambda: list(_programs(install_dir)),
        "packages": lambda: _packages(run),
        "apt": lambda: list(_apt(run)),
        "updates": lambda: _words(
            run,
            "systemctl",
            "is-active",
            "unattended-upgrades.service",
            "apt-daily.service",
            "apt-daily-upgrade.service",
        ),
        "reboot": lambda: list(_reboot()),
        "failed_units": lambda: evidence.columns(
            _output(run, "systemctl", "list-units", "--failed", "--plain", "--no-legend"), (0,)
        ),
        "logs": lambda: list(_logs(run)),
        "flight_records": lambda: list(_flight_records()),
    }
    found = {}
    for name in evidence.ITEMS:
        try:
            found[name] = evidence.bounded(readers[name]())
        # Any error must leave the other items.
        except Exception as error:  # noqa: BLE001
            found[name] = None
            unread[name] = evidence.bounded(str(error) or type(error).__name__)
    return {"evidence": found, "unread": unread}


def _file(path: str) -> str:
    return io_file.read_bounded(path, _MOST) or ""


def _output(run: Run, *argv: str) -> str:
    """Return the output of a command. Raises OSError with its error."""
    status, stdout, stderr = run(list(argv))
    if status:
        raise OSError(f"{argv[0]}: {(stderr or stdout).strip() or f'exit status {status}'}")
    return stdout[:_MOST]


def _words(run: Run, *argv: str) -> list[str]:
    """Return the state of each unit: systemctl is-active has an exit status for the states."""
    status, stdout, stderr = run(list(argv))
    if status == NOT_INSTALLED:
        raise OSError(stderr)
    return [f"{unit} {state}" for unit, state in zip(argv[2:], stdout.split(), strict=False)]


def _netplan() -> Iterator[tuple[str, str, int]]:
    for folder in NETPLAN_FOLDERS:
        for path in sorted(glob.glob(f"{folder}/*.yaml")):
            yield folder, os.path.basename(path), os.stat(path).st_mode & 0o7777


def _accepted(run: Run) -> str:
    if shutil.which("netplan") is None:
        return "netplan is not installed"
    # Not the folder of the service user: root writes into it.
    with tempfile.TemporaryDirectory(prefix="gb10-report-") as scratch:
        return evidence.accepted(io_netplan.refusal(run, {}, [], scratch))


def _devices() -> Iterator[str]:
    for path in sorted([*glob.glob("/dev/infiniband/*"), *glob.glob("/dev/nvidia*")]):
        yield f"{path} {os.stat(path).st_mode & 0o7777:04o}"


def _toolkit(run: Run) -> list[str]:
    found = io_toolkit.facts(run)
    places = [f"{place} -> {os.path.realpath(place)}" for place in sorted(glob.glob("/usr/local/cuda*"))]
    compiler = f"g++ and Python's headers: {'yes' if found['host_compiler'] else 'no'}"
    return [
        *places,
        f"nvcc {found['release'] or found['reason'] or 'not found'}",
        " ".join(found["architectures"]),
        compiler,
    ]


def _programs(install_dir: str) -> Iterator[str]:
    for name in _PROGRAMS:
        yield f"{name} {shutil.which(name) or 'not found'}"
    ninja = f"{install_dir}/runtime/current/bin/ninja"
    yield f"ninja of the runtime {'found' if os.access(ninja, os.X_OK) else 'not found'}"


def _packages(run: Run) -> list[str]:
    # Its status is 1 if one of the packages is unknown.
    status, stdout, stderr = run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\\n", *_PACKAGES])
    if status == NOT_INSTALLED:
        raise OSError(stderr)
    return evidence.packages(stdout)


def _apt(run: Run) -> Iterator[str]:
    """Yield who holds dpkg's locks, and the age of the package lists."""
    files = {}
    for path in filter(os.path.exists, _DPKG_LOCKS):
        found = os.stat(path)
        files[evidence.lock_key(found.st_dev, found.st_ino)] = path
    for process, path in evidence.holders(_file("/proc/locks"), files):
        yield f"{path} is held by {io_file.read(f'/proc/{process}/comm').strip() or 'another process'}"
    lists = glob.glob("/var/lib/apt/lists/*_*Release")
    newest = max((os.stat(path).st_mtime for path in lists), default=None)
    yield f"package lists: {'none' if newest is None else evidence.days(time.time() - newest) + ' old'}"
    status, stdout, stderr = run(["dpkg", "--audit"])
    if status or stdout.strip():
        yield f"dpkg --audit: {(stdout or stderr).strip()}"


def _reboot() -> Iterator[str]:
    if os.path.exists("/run/reboot-required"):
        yield "a reboot is required"
        yield from sorted(set(_file("/run/reboot-required.pkgs").split()))


def _logs(run: Run) -> Iterator[str]:
    """Yield the known ones of the last lines of the log of each service of this collection that failed."""
    for unit in _UNITS:
        if run(["systemctl", "is-failed", unit])[0] == 0:
            text = _output(run, "journalctl", "-u", unit, "-n", str(_LOG), "-o", "cat", "--no-pager")
            yield from (f"{unit}: {line}" for line in excerpt.known(text.splitlines()))


def _flight_records() -> Iterator[str]:
    """Yield the last records of hosts that fell silent, with the known ones of their kernels' lines."""
    for _path, found in io_records.read(time.time() - _RECENT)[-_MOST_RECORDS:]:
        lines = flight_recorder_report.lines(found)
        logged = list(filter(flight_recorder_report.is_logged, lines))
        yield from (line for line in lines if line not in logged)
        yield from excerpt.known(logged)

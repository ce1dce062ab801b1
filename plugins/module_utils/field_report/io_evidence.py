# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the evidence of a node that needs no plan, no runtime and no model. Changes nothing.

Most items are the lines of a file or of a command's output as they are: the controller redacts them. Of the logs, only
the known lines leave the node.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.owners import NETPLAN_FOLDERS
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import excerpt, redact
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import io_records
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import report as flight_recorder_report
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit

_MOST = 1 << 20
#: Files by item, and the lines that count. The others of /etc/dgx-release name the machine.
_FILES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "release": (
        ("/etc/dgx-release", "/etc/os-release", "/proc/version"),
        r"DGX_(?:PRETTY_NAME|NAME|SWBUILD_DATE|SWBUILD_VERSION|PLATFORM|OTA_VERSION|OTA_DATE)=|PRETTY_NAME=|Linux ",
    ),
    "command_line": (("/proc/cmdline",), ""),
    "reboot": (("/run/reboot-required", "/run/reboot-required.pkgs"), ""),
}
#: Commands by item, and the lines of their output that count.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "nvidia_smi": ("nvidia-smi -q -d MEMORY,CLOCK,POWER,PERFORMANCE", ""),
    "profiles": ("nmcli -f TYPE,DEVICE,AUTOCONNECT,STATE,NAME connection show", ""),
    "networkd": ("networkctl list --no-legend --no-pager", ""),
    "routes": ("ip -oneline route show default", ""),
    "packages": (
        "dpkg-query -W -f ${db:Status-Status}\\t${Package}\\t${Version}\\n python3-venv python3.12-venv "
        "python3.11-venv python3-dev python3.12-dev python3.11-dev g++ ninja-build netplan.io network-manager "
        "unattended-upgrades rdma-core ibverbs-providers perftest libnccl2 libnccl-dev docker-ce docker.io "
        "containerd.io nvidia-container-toolkit dgx-release nvidia-driver-* cuda-toolkit-*",
        "installed",
    ),
    "locks": ("lslocks --noheadings --notruncate --output COMMAND,PATH", r".* /var/(?:lib|cache)/(?:dpkg|apt)/"),
    "dpkg": ("dpkg --audit", ""),
    "updates": (
        "systemctl list-units --all --plain --no-legend unattended-upgrades.service apt-daily.service "
        "apt-daily-upgrade.service",
        "",
    ),
    "failed_units": ("systemctl list-units --failed --plain --no-legend", ""),
}
_PROGRAMS = "ninja nvcc g++ gcc python3 netplan nmcli nft docker podman nvidia-ctk ib_write_bw rdma".split()
#: Files whose permissions count.
_NETPLAN = tuple(f"{folder}/*.yaml" for folder in NETPLAN_FOLDERS)
_DEVICES = ("/dev/infiniband/*", "/dev/nvidia*")
#: Lines of the log of a unit that failed.
_LOG = 200
#: Seconds, and records of hosts that fell silent.
_RECENT, _MOST_RECORDS = 30 * 86400, 3


def read(run: Run, install_dir: str) -> dict[str, Any]:
    """Return {evidence, unread}.

    Each item is read alone: a failed one is None, with its reason in ``unread``.
    """
    programs = [*_PROGRAMS, f"{install_dir}/runtime/current/bin/ninja"]
    readers: dict[str, Callable[[], Any]] = {
        **{item: partial(_file_lines, files, kept) for item, (files, kept) in _FILES.items()},
        **{item: partial(_output, run, command.split(), kept) for item, (command, kept) in _COMMANDS.items()},
        "netplan": lambda: list(_modes(_NETPLAN)),
        "netplan_accepted": lambda: _accepted(run),
        "devices": lambda: list(_modes(_DEVICES)),
        "toolkit": lambda: {
            **io_toolkit.facts(run),
            "places": list(map(os.path.realpath, glob.glob("/usr/local/cuda*"))),
        },
        "programs": lambda: [f"{name} {shutil.which(name) or 'not found'}" for name in programs],
        "package_lists": _package_lists,
        "logs": lambda: list(_logs(run)),
        "flight_records": lambda: list(_flight_records()),
    }
    found: dict[str, Any] = dict.fromkeys(readers)
    unread: dict[str, str] = {}
    for item, reader in readers.items():
        try:
            found[item] = redact.bounded(reader())
        # Any error must leave the other items.
        except Exception as error:  # noqa: BLE001
            unread[item] = redact.bounded(str(error) or type(error).__name__)
    return {"evidence": found, "unread": unread}


def _file_lines(files: Iterable[str], kept: str) -> list[str]:
    texts = [io_file.read_bounded(path, _MOST) or "" for path in files]
    return [line for text in texts for line in text.splitlines() if re.match(kept, line)]


def _output(run: Run, argv: list[str], kept: str = "") -> list[str]:
    """Return the lines of a command's output that count. Raises OSError with its error.

    dpkg-query fails if one of the packages is unknown.
    """
    status, stdout, stderr = run(argv)
    if status and not stdout.strip():
        raise OSError(f"{argv[0]}: {stderr.strip() or f'exit status {status}'}")
    return [line for line in stdout[:_MOST].splitlines() if line.strip() and re.match(kept, line)]


def _modes(patterns: Iterable[str]) -> Iterator[str]:
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        yield f"{path} {os.stat(path).st_mode & 0o7777:04o}"


def _accepted(run: Run) -> str:
    if shutil.which("netplan") is None:
        return "netplan is not installed"
    # Not the folder of the service user: root writes into it.
    with tempfile.TemporaryDirectory(prefix="gb10-report-") as scratch:
        return io_netplan.refusal(run, {}, [], scratch) or "yes"


def _package_lists() -> str:
    """Return the day of the newest package list."""
    newest = max(map(os.path.getmtime, glob.glob("/var/lib/apt/lists/*_*Release")), default=None)
    return "none" if newest is None else time.strftime("%Y-%m-%d", time.gmtime(newest))


def _logs(run: Run) -> Iterator[str]:
    """Yield the known ones of the last lines of the log of each service of this collection that failed."""
    for unit in (paths.RAY_UNIT, paths.VLLM_UNIT):
        if run(["systemctl", "is-failed", unit])[0] == 0:
            lines = _output(run, ["journalctl", "-u", unit, "-n", str(_LOG), "-o", "cat", "--no-pager"])
            yield from (f"{unit}: {line}" for line in excerpt.known(lines))


def _flight_records() -> Iterator[str]:
    """Yield the last records of hosts that fell silent, with the known ones of their kernels' lines."""
    for _path, found in io_records.read(time.time() - _RECENT)[-_MOST_RECORDS:]:
        lines = flight_recorder_report.lines(found)
        logged = list(filter(flight_recorder_report.is_logged, lines))
        yield from (line for line in lines if line not in logged)
        yield from excerpt.known(logged)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the state of a node's Debian packages. Read-only."""

from __future__ import annotations

import fcntl
import glob
import os
import struct
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_local
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages

#: The locks of apt and dpkg. Source: apt, apt-pkg/deb/debsystem.cc and acquire.cc.
_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock")
#: struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = "hhqqi4x"
#: The stamp of the last successful update (Ubuntu), and the folder that each update changes.
_STAMPS = ("var/lib/apt/periodic/update-success-stamp", "var/lib/apt/lists")
_MOST = 1 << 16


def read(run: Run, wanted: Sequence[str]) -> dict[str, Any]:
    """Return {lacking, holder, stale, reboot}, as node_info documents them. Raises OSError, ValueError."""
    known = packages.names(wanted)
    # It fails if one of the packages is unknown, and still lists the others.
    _status, listing, _error = (
        run(["dpkg-query", "--show", f"--showformat={packages.FORMAT}", "--", *known]) if known else (0, "", "")
    )
    return {
        "lacking": packages.lacking(wanted, listing),
        "holder": holder(),
        "stale": packages.stale(lists_age()),
        "reboot": reboot(),
    }


def holder(root: str = "/") -> dict[str, Any]:
    """Return {pid, process, unit} of the process that holds a lock of apt or dpkg, {} if none does. Raises OSError."""
    for path in _LOCKS:
        try:
            file = os.open(os.path.join(root, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        finally:
            os.close(file)
        if kind != fcntl.F_UNLCK:
            # A process of another PID namespace has no number here.
            return io_local.process(pid if pid > 0 else None)
    return {}


def lists_age(root: str = "/") -> float | None:
    """Return the seconds since the last update of the package lists, None without lists. Raises OSError."""
    if not glob.glob(os.path.join(glob.escape(root), "var/lib/apt/lists/*Packages*")):
        return None
    stamps = [path for path in (os.path.join(root, name) for name in _STAMPS) if os.path.exists(path)]
    return time.time() - os.stat(stamps[0]).st_mtime


def reboot(root: str = "/") -> dict[str, Any]:
    """Return {required, packages} of a pending reboot. Raises OSError, ValueError."""
    required = os.path.exists(os.path.join(root, "run/reboot-required"))
    text = io_file.read_bounded(os.path.join(root, "run/reboot-required.pkgs"), _MOST) if required else ""
    return {"required": required, "packages": packages.reboot_packages(text or "")}

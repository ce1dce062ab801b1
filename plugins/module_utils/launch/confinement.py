# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Confinement of the service user's processes by systemd, as strict as CUDA and RDMA allow.

These properties do not work: PrivateDevices, ProtectClock (it closes all device files except a clock's),
MemoryDenyWriteExecute (kernel compilers), ProcSubset (/proc/meminfo), PrivateNetwork, a system call filter.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths

_PROPERTIES = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ReadWritePaths={folders}",
    # A model may be in a home directory.
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    # The RDMA library needs AF_NETLINK.
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
)
#: Removes a killed rank's shared memory and semaphores with the user's last service.
_REMOVE_IPC = "RemoveIPC=yes"


def properties(user: str, writable: Sequence[str]) -> list[str]:
    """Return the properties of a unit. ``writable``: folders outside the user's home that its processes may change."""
    folders = " ".join((paths.home(user), *writable))
    return [*(line.format(folders=folders) for line in _PROPERTIES), _REMOVE_IPC]


def query(user: str, writable: Sequence[str]) -> list[str]:
    """Return the command prefix for a query in a runtime: confined like its ranks, without network, for ten minutes at
    most."""
    return transient(user, writable, ["PrivateNetwork=yes", "RuntimeMaxSec=600"])


def anonymous(seconds: int) -> list[str]:
    """Return the command prefix for a program that changes nothing: as a temporary user without network or a home.

    It needs no service user, so it also works on a cluster that another tool set up.
    """
    confined = [line for line in _PROPERTIES if "{folders}" not in line]
    limits = ["DynamicUser=yes", "PrivateNetwork=yes", f"RuntimeMaxSec={seconds}", *confined]
    return [*transient("", [], limits), "--setenv=HOME=/tmp"]


def transient(user: str, writable: Sequence[str], limits: Sequence[str]) -> list[str]:
    """Return the command prefix of a transient unit with the properties ``limits``, confined like the ranks.

    With the user "" it runs as root and is not confined, as the client of a container engine needs it.
    """
    confined = [line for line in properties(user, writable) if line != _REMOVE_IPC] if user else []
    owner = [f"--uid={user}"] if user else []
    return [
        "systemd-run",
        "--wait",
        "--pipe",
        "--quiet",
        "--collect",
        *owner,
        *(f"--property={line}" for line in (*limits, *confined)),
    ]

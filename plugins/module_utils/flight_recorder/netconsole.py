# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's netconsole: it sends the kernel's messages over a network interface while user space is dead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The kernel's folder of targets, and the one of this collection. Source: the kernel's networking/netconsole.
FOLDER = "/sys/kernel/config/netconsole"
TARGET = f"{FOLDER}/gb10"
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
#: A complete entry. Source: the kernel's include/uapi/linux/if_arp.h, ATF_COM.
_COMPLETE = 0x2


def mac(table: str, interface: str, address: str) -> str:
    """Return the MAC address of a neighbor in /proc/net/arp, "" if it is not known."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) == 6 and (fields[0], fields[5]) == (address, interface) and int(fields[2], 16) & _COMPLETE:
            return fields[3] if _MAC.fullmatch(fields[3]) else ""
    return ""


def attributes(target: Mapping[str, Any], neighbor: str) -> dict[str, str]:
    """Return file -> content of a target, in the order of their writing. ``target``: of the settings."""
    return {
        "dev_name": target["interface"],
        "local_ip": target["from"],
        "local_port": str(target["port"]),
        "remote_ip": target["address"],
        "remote_port": str(target["port"]),
        "remote_mac": neighbor,
        "enabled": "1",
    }

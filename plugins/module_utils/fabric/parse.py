# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert sysfs files of network hardware to plain data. An unknown number is None.

Sources: Linux Documentation/ABI: testing/sysfs-class-net, testing/sysfs-bus-pci, stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The files of a PCI device that pci_facts reads.
PCI_FILES = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
#: The kernel's name of a GID's type -> the name that ibv_devinfo and show_gids print.
_GID_TYPES = {"IB/RoCE v1": "RoCE v1"}


def speed(text: str) -> int | None:
    """Return a link's speed in Mb/s. Without carrier, the file holds -1 or cannot be read ("")."""
    number = _number(text)
    return number if number is not None and number > 0 else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text.strip()) else None


def device_type(uevent: str) -> str:
    """Return the DEVTYPE of a network device's uevent: wlan, bond, bridge, vlan and so on; "" for Ethernet and for
    loopback."""
    found = re.search(r"^DEVTYPE=(.*)$", uevent, re.MULTILINE)
    return found[1] if found else ""


def pci_facts(address: str, files: Mapping[str, str]) -> dict[str, Any] | None:
    """Convert the PCI_FILES of a device to {address, width, max_width, speed, max_speed}; None for another bus."""
    if not _PCI_ADDRESS.fullmatch(address):
        return None
    return {
        "address": address,
        "width": _number(files["current_link_width"]),
        "max_width": _number(files["max_link_width"]),
        "speed": files["current_link_speed"].strip(),
        "max_speed": files["max_link_speed"].strip(),
    }


def port_state(text: str) -> str:
    """Return the name in an RDMA port's state, such as ACTIVE of "4: ACTIVE"."""
    return text.strip().partition(": ")[2] or text.strip()


def is_gid(text: str) -> bool:
    """Return whether a slot of the GID table is in use: a free one is all zeros, or cannot be read."""
    return bool(text.strip("0:\n"))


def gid_facts(index: int, gid: str, gid_type: str, interface: str) -> dict[str, Any]:
    """Convert an entry of the GID table to {index, gid, type, interface}."""
    kind = gid_type.strip()
    return {"index": index, "gid": gid.strip(), "type": _GID_TYPES.get(kind, kind), "interface": interface.strip()}


def round_trip(stdout: str) -> dict[str, float | None]:
    """Convert ping's summary to {lost_percent, min_ms, avg_ms, max_ms}, None for missing values.

    Source: iputils, ping.c.
    """
    lost = re.search(r"([\d.]+)% packet loss", stdout)
    times = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/[\d.]+ ms", stdout)
    values = [float(text) for text in times.groups()] if times else [None] * 3
    return {
        "lost_percent": float(lost[1]) if lost else None,
        **dict(zip(("min_ms", "avg_ms", "max_ms"), values, strict=True)),
    }

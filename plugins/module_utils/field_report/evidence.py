# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of a node that needs no plan, no runtime and no model: the output of tools and files, parsed with limits.

All values are texts, numbers, or lists of them. They may have names: the controller redacts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: Bounds of a value: entries of a list, and characters of a text.
MOST_ENTRIES, MOST_TEXT = 200, 600
#: The items of a node's evidence, in the order of the report.
ITEMS = (
    "release",
    "command_line",
    "nvidia_smi",
    "netplan",
    "netplan_accepted",
    "profiles",
    "networkd",
    "routes",
    "devices",
    "toolkit",
    "programs",
    "packages",
    "apt",
    "updates",
    "reboot",
    "failed_units",
    "logs",
    "flight_records",
)
#: Fields of /etc/dgx-release. The others name the machine.
_RELEASE = (
    "DGX_NAME",
    "DGX_PRETTY_NAME",
    "DGX_SWBUILD_DATE",
    "DGX_SWBUILD_VERSION",
    "DGX_PLATFORM",
    "DGX_OTA_VERSION",
    "DGX_OTA_DATE",
)
#: Sections of nvidia-smi -q that decide: memory, clocks, power and their limits.
_SECTIONS = re.compile(r"memory|clock|power|throttle|event|performance|cuda version|driver version", re.IGNORECASE)


def bounded(value: Any) -> Any:
    """Return a value within the limits. Control characters become spaces."""
    if isinstance(value, str):
        return cut(" ".join("".join(char if char.isprintable() else " " for char in value).split()))
    if isinstance(value, Mapping):
        return {cut(str(key)): bounded(each) for key, each in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [bounded(each) for each in value[:MOST_ENTRIES]]
    return value if value is None or isinstance(value, bool | int | float) else cut(str(value))


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Return the begin of a text, in whole words: a part of a key has another form."""
    return text if len(text) <= most else f"{text[: most - 4].rpartition(' ')[0]} ..."


def release(dgx: str, system: str, kernel: str) -> list[str]:
    """Return the fields of /etc/dgx-release, the name in /etc/os-release, and /proc/version."""
    name = {key: value for key, value in _assignments(system) if key == "PRETTY_NAME"}
    fields = [f"{key}={value}" for key, value in _assignments(dgx) if key in _RELEASE]
    return [*fields, *name.values(), *([kernel.strip()] if kernel else [])]


def _assignments(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            yield key.strip(), value.strip().strip("\"'")


def nvidia_smi(text: str) -> list[str]:
    """Return the lines of nvidia-smi -q about memory, clocks and power, each with its sections."""
    found: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(" : ")
        if not name.strip():
            continue
        depth = len(line) - len(line.lstrip())
        path = [(other, section) for other, section in path if other < depth]
        if not colon:
            path.append((depth, name.strip()))
            continue
        # The first section is the GPU's bus.
        sections = [section for other, section in path if other]
        place = " / ".join([*sections, name.strip()])
        if _SECTIONS.search(place):
            found.append(f"{place}: {value.strip()}")
    return found


def netplan(files: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return the netplan files as text. ``files``: folder, name, and permission bits."""
    return [f"{folder}/{name} {mode:04o}" for folder, name, mode in files]


def accepted(reason: str) -> str:
    """Return whether netplan accepts the files. ``reason``: what fabric/io_netplan.refusal() returned."""
    if not reason:
        return "yes"
    # The names of changed files can name a Wi-Fi network.
    return f"no: {reason}" if reason.startswith("netplan rejects it") else "yes, but some changes were never applied"


def profiles(text: str) -> list[str]:
    """Return NetworkManager's profiles from nmcli --terse --fields NAME,TYPE,DEVICE,AUTOCONNECT,STATE connection
    show."""
    found = []
    for line in text.splitlines():
        fields = [part.replace("\\:", ":") for part in re.split(r"(?<!\\):", line)]
        if len(fields) == 5:
            name, kind, device, automatic, state = fields
            found.append(f"{name} {kind} device={device or 'none'} autoconnect={automatic} {state or 'inactive'}")
    return found


def routes(text: str) -> list[str]:
    """Return the interfaces of the default routes."""
    return [f"default by {interface}" for interface in re.findall(r"^default\b.*?\bdev (\S+)", text, re.MULTILINE)]


def columns(text: str, numbers: Sequence[int], sort: Callable[[str], bool] = bool) -> list[str]:
    """Return columns of each line of a table without a header. ``sort``: the first column's condition."""
    rows = [line.lstrip("●* ").split() for line in text.splitlines()]
    return [" ".join(row[number] for number in numbers if number < len(row)) for row in rows if row and sort(row[0])]


def packages(text: str) -> list[str]:
    """Return the installed packages from dpkg-query, with lines of status, package and version."""
    rows = (line.split() for line in text.splitlines())
    return [f"{row[1]} {row[2]}" for row in rows if len(row) == 3 and row[0].startswith("ii")]


def holders(locks: str, files: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return (process number, file) of each lock in /proc/locks. ``files``: file by "MAJOR:MINOR:INODE"."""
    found = []
    for line in locks.splitlines():
        row = line.split()
        # A process that waits has an arrow in the second column, and holds nothing.
        if len(row) >= 6 and row[1] != "->" and row[4].isdecimal() and row[5] in files:
            found.append((int(row[4]), files[row[5]]))
    return sorted(set(found))


def lock_key(device: int, inode: int) -> str:
    """Return a file's identity in /proc/locks. ``device``: as stat() returns it."""
    major = (device >> 8 & 0xFFF) | (device >> 32 & ~0xFFF)
    minor = (device & 0xFF) | (device >> 12 & ~0xFF)
    return f"{major:02x}:{minor:02x}:{inode}"


def days(seconds: float) -> str:
    """Return an age in days with one decimal."""
    return f"{max(0.0, seconds) / 86400:.1f} days"

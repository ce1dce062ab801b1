# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the output of systemctl, and records of the kernel's log, to data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Counts

UNIT_PROPERTIES = ("Id", "LoadState", "ActiveState", "NRestarts")
#: Errors of the driver in the kernel's log. Source: NVIDIA, "XID Errors"; NVIDIA/open-gpu-kernel-modules#1358.
KERNEL_ERRORS: Mapping[str, re.Pattern[str]] = {
    "xid": re.compile(r"NVRM: Xid "),
    "no_memory": re.compile(r"NVRM: .*NV_ERR_NO_MEMORY"),
}
#: Priority and facility, sequence number, time, flags; then the text. Source: the kernel's dev-kmsg.
_RECORD = re.compile(r"(\d{1,6}),(\d{1,19}),[^;]*;([^\n]*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def units(output: str) -> list[tuple[str, str, int]]:
    """Return (unit, ActiveState, automatic restarts) of the units that exist, from systemctl show."""
    found = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in output.split("\n\n")]
    return [
        (each["Id"], each.get("ActiveState", ""), int(count) if _NUMBER.fullmatch(count := each["NRestarts"]) else 0)
        for each in found
        if each.get("LoadState") == "loaded" and "NRestarts" in each
    ]


def counted(before: Counts, boot: str, records: Iterable[str]) -> Counts:
    """Return the counts with those records of the kernel that were not counted yet. A new ``boot`` starts at 0."""
    counts = before if before.boot == boot else Counts(boot)
    found, last = {kind: counts.found.get(kind, 0) for kind in KERNEL_ERRORS}, counts.last
    for record in records:
        match = _RECORD.match(record)
        # A facility other than 0 is a program that wrote to the log.
        if not match or int(match[1]) >> 3 or int(match[2]) <= counts.last:
            continue
        last = max(last, int(match[2]))
        for kind, pattern in KERNEL_ERRORS.items():
            found[kind] += pattern.search(match[3]) is not None
    return replace(counts, last=last, found=found)

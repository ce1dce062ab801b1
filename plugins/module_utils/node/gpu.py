# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The present state of a node's GPUs."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass

#: The values that a GB10 reports. One query: each start of nvidia-smi costs CPU time.
FIELDS = (
    "index",
    "driver_version",
    "temperature.gpu",
    "power.draw",
    "clocks.sm",
    "utilization.gpu",
    "clocks_event_reasons.active",
)
#: A caller may add an interval.
QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_BITS = re.compile(r"0x[0-9A-Fa-f]{1,16}", re.ASCII)


@dataclass(frozen=True)
class Gpu:
    """One GPU of nvidia-smi; None for a value that it does not report. ``clock`` in MHz, ``utilization`` in percent.

    ``reasons``: the bits of NVML's reasons for another clock than the highest.
    """

    index: str
    driver: str
    temperature: float | None
    power: float | None
    clock: float | None
    utilization: float | None
    reasons: int | None


def gpus(output: str) -> list[Gpu]:
    """Return the GPUs of a QUERY. Lines of another form are left out."""
    rows = ([cell.strip() for cell in row] for row in csv.reader(output.splitlines()))
    return [_gpu(dict(zip(FIELDS, row, strict=True))) for row in rows if len(row) == len(FIELDS)]


def _gpu(row: Mapping[str, str]) -> Gpu:
    bits = row["clocks_event_reasons.active"]
    return Gpu(
        row["index"],
        row["driver_version"],
        _number(row["temperature.gpu"]),
        _number(row["power.draw"]),
        _number(row["clocks.sm"]),
        _number(row["utilization.gpu"]),
        int(bits, 16) if _BITS.fullmatch(bits) else None,
    )


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None

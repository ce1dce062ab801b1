# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of steps as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.plan import KEEP, Step

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Return a number of bytes with a decimal unit, such as 5.2 GB."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def lines(steps: Sequence[Step], sizes: Mapping[str, int]) -> list[str]:
    """Return a line for each step, kept items last: verb, path, kind, size and note. ``sizes`` are bytes by path."""
    ordered = sorted(steps, key=lambda step: step.verb == KEEP)
    return [_line(step, sizes.get(step.name)) for step in ordered] or ["nothing of this collection is left"]


def _line(step: Step, count: int | None) -> str:
    kind = step.kind if count is None else f"{step.kind}, {size(count)}"
    return f"{step.verb} {step.name} ({kind}): {step.note}"

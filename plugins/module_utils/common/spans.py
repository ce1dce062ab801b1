# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Durations as readable text."""

from __future__ import annotations

import re

_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """Return a duration in its largest unit, such as 3 h."""
    size, unit = next((entry for entry in _SPANS if seconds >= entry[0]), _SPANS[-1])
    return f"{int(seconds // size)} {unit}"


def seconds(text: str) -> int | None:
    """Return the seconds of a text such as 90s, 30m or 2h, 0 for an empty text or 0, None for another one."""
    if text in ("", "0"):
        return 0
    found = re.fullmatch(r"([1-9]\d{0,5})([smh])", text)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else None

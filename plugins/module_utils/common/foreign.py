# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text that another machine, a process or a user wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

#: Maximum characters of a line, unless a caller has another limit.
MOST = 300


def line(text: str, most: int = MOST) -> str:
    """Return the begin of a text as one line that cannot change a terminal."""
    return "".join(char if char.isprintable() else " " for char in text[:most])


def plain(data: Any) -> Any:
    """Return plain data of another machine in which each text is one line that cannot change a terminal."""
    if isinstance(data, str):
        return line(data, len(data))
    if isinstance(data, Mapping):
        return {plain(key): plain(value) for key, value in data.items()}
    return [plain(each) for each in data] if isinstance(data, list | tuple) else data


class Quota:
    """At most ``most`` lines in ``seconds`` about each source, such as a node. Others are counted."""

    def __init__(self, most: int, seconds: float = 3600.0) -> None:
        self._seconds = seconds
        self._most = most
        self._times: dict[str, deque[float]] = {}
        self._left_out: dict[str, int] = {}

    def take(self, source: str, now: float) -> bool:
        """Return whether a line may follow at a time."""
        times = self._times.setdefault(source, deque())
        while times and now - times[0] >= self._seconds:
            times.popleft()
        if len(times) >= self._most:
            self._left_out[source] = self._left_out.get(source, 0) + 1
            return False
        times.append(now)
        return True

    def left_out(self, source: str) -> str:
        """Return once how many lines were left out, as the end of the next line."""
        count = self._left_out.pop(source, 0)
        return f" ({count} earlier ones were left out)" if count else ""

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The seconds of each part of vLLM's start, by the clock of its log.

Ray forwards the lines of its workers in batches, seconds after they were written. So a line with a time of its own
counts at that time. Source of the words: the Python files of vLLM 0.18.1 to 0.33.0, and launch/io_gates.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.launch import log_line

#: Part -> the message that ends it, in order. With several ranks, the last one ends it.
PARTS: Mapping[str, str] = {
    "gates": r"gb10-gates open",
    "imports": r".*\bversion \d|non-default args",
    "config": r"Initializing a V1 LLM engine",
    # The second is that of vLLM's second model runner.
    "ranks": r"Starting to load model|Loading model from scratch",
    "weights": r"Loading weights took|Model loading took",
    "compile": r"(?:\[[^\]]{1,60}\] )?torch\.compile\b.{0,60}\b(?:took|takes) \d",
    "memory": r"[\w +]{1,20} KV cache size: ",
    # It has no message: it ends where the graphs begin.
    "kernels": r"(?!)",
    "graphs": r"Graph capturing finished in (\d{1,6}(?:\.\d{1,6})?) secs",
    "engine": r"init engine .{0,80} took ",
    "server": r"(?:INFO:\s+)?Application startup complete",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in PARTS.items()}
#: Seconds. A time without a fraction says no more than the journal's; a later one than an hour is of another clock.
_FRACTION, _MOST_LATE = 1.0, 3600.0


def read(entries: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the seconds of the parts of a complete start. Their sum is the time to the server's readiness.

    ``entries``: (seconds since boot, text) of all lines since systemd's first one. A part without its message, such as
    the graphs of an eager engine, is left out and counts for the next one. {} unless the server is ready.
    """
    server = (number for number, (_when, line) in enumerate(entries) if _matches("server", line))
    # What a server logs afterwards may be weeks long.
    if (ready := next(server, None)) is None:
        return {}
    ends: dict[str, float] = {}
    graphs = 0.0
    for when, line in _timed(entries[: ready + 1]):
        _level, _address, text = log_line.parts(line)
        for name, pattern in _PATTERNS.items():
            if match := pattern.match(text):
                ends[name] = max(when, ends.get(name, when))
                graphs = max(graphs, float(match[1])) if name == "graphs" else graphs
    if graphs:
        ends["kernels"] = ends["graphs"] - graphs
    found, now = dict[str, float](), entries[0][0]
    for name in PARTS:
        if name in ends:
            found[name] = round(max(0.0, ends[name] - now), 1)
            now = max(now, ends[name])
    return found


def summary(parts: Mapping[str, float]) -> str:
    """Return the parts as one line, "" without one. A part below half a second is left out."""
    found = {name: parts[name] for name in PARTS if name in parts}
    listed = ", ".join(f"{name} {seconds:.0f}" for name, seconds in found.items() if seconds >= 0.5)
    return f"ready after {sum(found.values()):.0f} s ({listed})" if found else ""


def _matches(name: str, line: str) -> bool:
    return _PATTERNS[name].match(log_line.parts(line)[2]) is not None


def _timed(entries: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the entries with the times of their lines, in seconds since boot."""
    clocks = [log_line.clock(line) for _when, line in entries]
    # Of this node's lines, the one that the journal got soonest has the difference between both clocks.
    own = ((when - clock, line) for (when, line), clock in zip(entries, clocks, strict=True) if clock)
    difference = min((apart for apart, line in own if not log_line.parts(line)[1]), default=0.0)
    return [
        (clock + difference if clock and _FRACTION <= when - clock - difference <= _MOST_LATE else when, line)
        for (when, line), clock in zip(entries, clocks, strict=True)
    ]

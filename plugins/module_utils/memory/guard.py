# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a start of ranks begins and ends on a node, and the record of its lowest available memory.

A start is that of rank processes, not of a unit: with Ray, the ranks of a worker start in a unit that runs for days.
All times are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

GIB = 1 << 30
#: Ends of a start: the API listened and the first requests passed; the ranks ended; the time is over; the guard's stop.
ANSWERED, ENDED, OVER, STOPPED = "answered", "ended", "over", "stopped"
#: Seconds for the first requests, which may compile kernels, after the API listens.
_FIRST_REQUESTS = 60.0
#: The phase of a start after that. Only the head knows it.
_REQUESTS = "first requests"
#: Number of starts in the record.
_KEPT = 10


@dataclass(frozen=True)
class Start:
    """A start: when its first rank was seen, its processes, and when the API first listened."""

    began: float
    ranks: frozenset[int]
    listened: float | None = None


@dataclass(frozen=True)
class State:
    """The start that runs, or None, and the ranks that begin no other one, None before the first observation.

    The age of a process is no sign: Ray may turn one that waited for days into a rank.
    """

    start: Start | None = None
    known: frozenset[int] | None = None


def observe(state: State, ranks: frozenset[int], listens: bool, now: float, limit: float) -> tuple[State, str]:
    """Return the state after an observation, and how the start ended, "" if it runs or there is none.

    ``ranks`` are the IDs of the node's rank processes. ``listens``: whether the API does, False on nodes without one.
    ``limit``: the seconds that a start may take.
    """
    start, idle = state.start, State(known=ranks)
    if start is None:
        # A guard that was restarted must not stop ranks that serve.
        new = state.known is not None and ranks - state.known
        return (State(Start(now, ranks)) if new else idle), ""
    listened = (start.listened if start.listened is not None else now) if listens else None
    if not start.ranks & ranks:
        # New ranks are of the next start.
        return State(known=frozenset()), ENDED
    if listened is not None and now - listened >= _FIRST_REQUESTS:
        return idle, ANSWERED
    if now - start.began >= limit:
        return idle, OVER
    return State(replace(start, ranks=start.ranks | ranks, listened=listened)), ""


def entry(start: Start, minimum: int, floor: int, now: float, clock: float, end: str = "") -> dict[str, Any]:
    """Return the record of a start. ``clock`` is the time of day. Without ``end`` the start runs."""
    return {
        "time": round(clock - (now - start.began)),
        "seconds": round(now - start.began),
        "minimum": minimum,
        "floor": floor,
        "phase": "start" if start.listened is None else _REQUESTS,
        "end": end,
    }


def kept(starts: Sequence[Mapping[str, Any]], latest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the record after one more start."""
    return [*starts, latest][-_KEPT:]


def reason(stop: Mapping[str, Any]) -> str:
    """Return why the guard stopped the services, as a clause, from the record of the start."""
    phase = f", in the {_REQUESTS}" if stop["phase"] == _REQUESTS else ""
    return (
        f"only {stop['minimum'] / GIB:.1f} GiB of memory were available {stop['seconds']} s after the start of "
        f"the ranks{phase}, less than {stop['floor'] / GIB:g} GiB (vllm_serve_memory_floor)"
    )


def lowest(starts: Sequence[Mapping[str, Any]]) -> str:
    """Return the lowest available memory of the last start as the end of a sentence, "" without one."""
    return f", lowest {starts[-1]['minimum'] / GIB:.1f}" if starts else ""

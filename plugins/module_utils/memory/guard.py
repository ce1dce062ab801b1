# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a start of ranks begins and ends on a node, when too little memory is left, and the records of both.

A start is that of rank processes, not of a unit: with Ray, the ranks of a worker start in a unit that runs for days.
All times are seconds of the monotonic clock, except those in records. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans

GIB = 1 << 30
#: Modes: at run time restart the ranks once, and then stop; stop at once; only report. A start is never restarted.
RESTART, STOP, REPORT = MODES = ("restart", "stop", "report")
#: Ends of a start: the API listened and the first requests passed; the ranks ended; the time is over; the guard's stop.
ANSWERED, ENDED, OVER, STOPPED = "answered", "ended", "over", "stopped"
#: The guard's other actions: end the ranks, which systemd starts again; leave them alone.
RESTARTED, REPORTED = "restarted", "reported"
#: Why it acts: the available memory is below the floor; the GPU's driver refused memory.
FLOOR, DRIVER = "floor", "driver"
#: Seconds for the first requests, which may compile kernels, after the API listens.
_FIRST_REQUESTS = 60.0
#: The phases after that, and of ranks that serve.
_REQUESTS, _SERVICE = "first requests", "service"
#: Number of starts in the record.
_KEPT = 10
#: Samples below the floor in a row: of ranks that serve, one may be a dip.
_SAMPLES = 2
#: A refusal counts below so many floors. One on a GB10 froze with 8.7 GiB free. At 15 GiB and more, the refusals were
#: those of other programs, and the ranks served on. Sources: MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks#23, vLLM #56824.
_REFUSED = 5
#: The driver first tries pages of 64 KiB, and logs the refusal from this file. Then it takes small pages, and a start
#: that served had 23 of these lines. An allocation that fails for good adds a line of another file. Sources: vLLM
#: #56824, NVIDIA/open-gpu-kernel-modules#1358 (in a frozen host, 4 of 202 lines).
_RETRIED = b" @ mem_desc.c:"
_GIVEN_UP = (b"[NV_ERR_NO_MEMORY]", b"Cannot allocate sysmem through fb heap")
#: Seconds after an action without another, unless a start begins: killed ranks may stay for a while.
_QUIET = 600.0
#: Seconds for which the status shows a restart or a report.
_SHOWN = 86400.0
#: The least size of another process to name.
_NAMED = GIB >> 1


@dataclass(frozen=True)
class Start:
    """A start: when its first rank was seen, its processes, and when the API first listened."""

    began: float
    ranks: frozenset[int]
    listened: float | None = None


@dataclass(frozen=True)
class State:
    """The start that runs, or None, and the ranks that begin no other one, None before the first observation.

    The age of a process is not a sign: Ray may turn one that waited for days into a rank.
    """

    start: Start | None = None
    known: frozenset[int] | None = None


@dataclass(frozen=True)
class Pressure:
    """The samples below the floor in a row, and until when the guard does not act again."""

    low: int = 0
    quiet: float | None = None


@dataclass(frozen=True)
class Process:
    """A process other than the ranks: the kernel's name of it, and its memory in bytes."""

    name: str
    size: int


def observe(state: State, ranks: frozenset[int], listens: bool, now: float, limit: float) -> tuple[State, str]:
    """Return the state after an observation, and how the start ended, "" if it runs or there is none.

    ``ranks`` are the IDs of the node's rank processes. ``listens``: whether the API does, False if it is unknown.
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


def refused(record: bytes) -> bool:
    """Return whether a record of /dev/kmsg shows that the GPU's driver refused memory for good.

    The kernel gives its own facility, 0, to no record of a process. Source: Documentation/ABI/testing/dev-kmsg.
    """
    prefix, _separator, text = record.partition(b";")
    priority = prefix.partition(b",")[0]
    return (
        priority.isdigit()
        and int(priority) >> 3 == 0
        and text.startswith(b"NVRM: ")
        and _RETRIED not in text
        and any(each in text for each in _GIVEN_UP)
    )


def sampled(
    pressure: Pressure, available: int, floor: int, starting: bool, refusal: bool, now: float
) -> tuple[Pressure, str]:
    """Return the state after a sample, and why the guard acts, "" if it does not.

    ``refusal``: whether the driver refused memory since the sample before. A floor of 0 never acts.
    """
    low = pressure.low + 1 if available < floor else 0
    if pressure.quiet is not None and now < pressure.quiet:
        return replace(pressure, low=low), ""
    cause = ""
    if low >= (1 if starting else _SAMPLES):
        cause = FLOOR
    elif refusal and available < _REFUSED * floor:
        cause = DRIVER
    return (Pressure(quiet=now + _QUIET) if cause else Pressure(low)), cause


def action(mode: str, starting: bool, records: Sequence[Mapping[str, Any]], clock: float, window: float) -> str:
    """Return the guard's action: STOPPED, RESTARTED or REPORTED.

    A second one within ``window`` seconds stops for good. After a stop, only a requested start begins again. ``clock``
    is the time of day, as in ``records``.
    """
    if mode == REPORT:
        return REPORTED
    since = max((number for number, each in enumerate(records) if each.get("end") == STOPPED), default=0)
    again = any(each.get("end") == RESTARTED and clock - each.get("time", 0) < window for each in records[since:])
    return RESTARTED if mode == RESTART and not starting and not again else STOPPED


def entry(start: Start | None, minimum: int, floor: int, now: float, clock: float, end: str = "") -> dict[str, Any]:
    """Return the record of a start, or of an action while ranks serve. ``clock`` is the time of day.

    Without ``end`` the start runs.
    """
    seconds = now - start.began if start else 0.0
    phase = _SERVICE if start is None else "start" if start.listened is None else _REQUESTS
    return {
        "time": round(clock - seconds),
        "seconds": round(seconds),
        "minimum": minimum,
        "floor": floor,
        "phase": phase,
        "end": end,
    }


def acted(record: Mapping[str, Any], cause: str, other: Process | None) -> dict[str, Any]:
    """Return the record of an action: its cause, and the largest other process if it is large."""
    named = {"name": other.name, "size": other.size} if other and other.size >= _NAMED else {}
    return {**record, "cause": cause, "other": named}


def kept(starts: Sequence[Mapping[str, Any]], latest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the record after one more start."""
    return [*starts, latest][-_KEPT:]


def reason(record: Mapping[str, Any]) -> str:
    """Return why the guard acted, as a clause, from the record."""
    serving = record["phase"] == _SERVICE
    phase = f", in the {_REQUESTS}" if record["phase"] == _REQUESTS else ""
    when = "while the model served" if serving else f"{record['seconds']} s after the start of the ranks{phase}"
    memory = f"{record['minimum'] / GIB:.1f} GiB of memory were available {when}"
    floor = f"{record['floor'] / GIB:g} GiB (vllm_serve_memory_floor)"
    other = record.get("other")
    named = f"; the largest other process is {other['name']} with {other['size'] / GIB:.1f} GiB" if other else ""
    if record.get("cause") == DRIVER:
        return (
            f"the GPU's driver refused memory (NV_ERR_NO_MEMORY) when {memory}, less than {_REFUSED} x {floor}{named}"
        )
    return f"only {memory}, less than {floor}{named}"


def shown(starts: Sequence[Mapping[str, Any]], clock: float) -> str:
    """Return the guard's last action of the last day that is not a stop, as the predicate of a node, "" without one."""
    record = next((each for each in reversed(starts) if each.get("end") in (RESTARTED, REPORTED)), None)
    if record is None or clock - record["time"] >= _SHOWN:
        return ""
    what = "had its ranks ended once by" if record["end"] == RESTARTED else "has a report of"
    return f"{what} the memory guard {spans.span(max(0.0, clock - record['time']))} ago: {reason(record)}"


def lowest(starts: Sequence[Mapping[str, Any]]) -> str:
    """Return the lowest available memory of the last start as the end of a sentence, "" without one."""
    return f", lowest {starts[-1]['minimum'] / GIB:.1f}" if starts else ""

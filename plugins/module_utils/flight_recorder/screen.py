# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The screen of a running cluster: the query to a node, the state of each node, and its lines.

A node is not trusted: its answer is bounded and typed, and its texts cannot change a terminal. ``now`` and ``at`` are
seconds of the controller's monotonic clock. A style is "good", "warn", "bad", "dim" or "".
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, foreign, paths, spans
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard

Span = tuple[str, str]
Line = Sequence[Span]

GIB = 1 << 30
GOOD, WARN, BAD, DIM = "good", "warn", "bad", "dim"
_FILES = (
    paths.WATCHDOG_STATUS,
    paths.MEMORY_GUARD_PRESENT,
    paths.MEMORY_GUARD_STARTS,
    paths.MEMORY_GUARD_STOP,
)
_UNITS = (*paths.UNITS, paths.WATCHDOG_UNIT, paths.MEMORY_GUARD_UNIT, paths.RECORDER_UNIT)
#: Between two parts of an answer: no JSON has this character.
_PART = "\x1e"
#: Maximum characters of a file.
_MOST = 1 << 16
#: The query to a node, as root. Its time gives the age of the sample without a comparison of two clocks. The sample
#: belongs to a service user, so that root does not open it. On a terminal, systemctl would print colors.
COMMAND = (
    f"timeout 2 setpriv --reuid=65534 --regid=65534 --clear-groups head -c {_MOST} {paths.RECORDER_SAMPLE} "
    "2>/dev/null; printf '\\036'; "
    f"for file in {' '.join(_FILES)}; do head -c {_MOST} $file 2>/dev/null; printf '\\036'; done; "
    f"LC_ALL=C date +%s.%N; printf '\\036'; systemctl show --property=Id,LoadState,ActiveState {' '.join(_UNITS)} | cat"
)
#: NVML's reasons for a lower clock, with the style of each. Source: nvmlClocksEventReasons.
_REASONS: Mapping[int, Span] = {
    0x4: ("power cap", WARN),
    0x8: ("hw slowdown", BAD),
    0x20: ("heat", WARN),
    0x40: ("hw heat", BAD),
    0x80: ("power brake", BAD),
    0x2: ("clocks set", ""),
    0x1: ("idle", DIM),
}
#: Below this clock in MHz, a GPU that computes is stuck: docs/verification.md#gpu-clock-stuck.
_STUCK, _COMPUTES = 1000.0, 50.0
#: Seconds without a token while requests run, which may also read a long prompt.
_STALLED = 30.0
_KEPT = 200
#: A share of the KV cache at which requests soon wait.
_FULL = 0.9
_BARS = "▁▂▃▄▅▆▇█"
_WIDE = 100


@dataclass(frozen=True)
class Reading:
    """The answer of a node. ``age``: of its sample, in seconds. ``services``: unit -> state, installed ones only.

    ``lowest``: of the memory in the last start, which began at ``start`` (time of day). ``stopped``: why the memory
    guard stopped the services, "" if it did not.
    """

    sample: Sample | None = None
    age: float | None = None
    services: Mapping[str, str] = field(default_factory=dict)
    watchdog: Mapping[str, Any] = field(default_factory=dict)
    lowest: int | None = None
    start: float = 0.0
    stopped: str = ""


@dataclass(frozen=True)
class Watched:
    """A watched node, its last answer and the sample before. ``floor`` in bytes. ``error``: why the last query failed.

    ``lowest``: of the memory since the last start, as far as it was seen. ``progress``: when the engine last made a
    token or had no request. ``speeds``: its tokens per second, the newest last.
    """

    name: str
    head: bool = False
    floor: int = 0
    reading: Reading = Reading()
    at: float | None = None
    former: Sample | None = None
    error: str = ""
    lowest: int | None = None
    progress: float | None = None
    speeds: tuple[float, ...] = ()


def parse(answer: str) -> Reading:
    """Return the reading of an answer to COMMAND. Raises ValueError."""
    parts = answer.split(_PART)
    if len(parts) != len(_FILES) + 3:
        raise ValueError("the answer is not complete")
    sample, watchdog, present, starts, stop, clock, units = (part.strip() for part in parts)
    found = schema.parse(sample.encode()) if sample else None
    elapsed = float(clock) - found.time if found else None
    if elapsed is not None and not math.isfinite(elapsed):
        raise ValueError("the time of the node is not a finite number")
    records = [*_json(starts, list), *([_json(present, dict)] if present else [])]
    latest = records[-1] if records and isinstance(records[-1], Mapping) else {}
    return Reading(
        sample=found,
        age=None if elapsed is None else max(0.0, elapsed),
        services=_services(units),
        watchdog=_json(watchdog, dict),
        lowest=int(latest["minimum"]) if _number(latest.get("minimum")) else None,
        start=float(latest["time"]) if _number(latest.get("time")) else 0.0,
        stopped=_stopped(_json(stop, dict)),
    )


def _json(text: str, kind: type[Any]) -> Any:
    """Return the JSON of a file of a program of this collection, empty without one. Raises ValueError."""
    found = bounded_json.load(text, _MOST) if text else kind()
    if not isinstance(found, kind):
        raise ValueError("a file has JSON of another type")
    return found


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _services(shown: str) -> dict[str, str]:
    blocks = [
        dict(line.strip().split("=", 1) for line in block.splitlines() if "=" in line)
        for block in shown.replace("\r", "").split("\n\n")
    ]
    return {
        each["Id"]: foreign.line(each.get("ActiveState", ""))
        for each in blocks
        if each.get("Id") in _UNITS and each.get("LoadState") != "not-found"
    }


def _stopped(record: Mapping[str, Any]) -> str:
    try:
        return foreign.line(guard.reason(record)) if record else ""
    except (KeyError, TypeError, ValueError):
        return "its record cannot be read"


def advance(node: Watched, reading: Reading, at: float) -> Watched:
    """Return the node after an answer."""
    old, new = node.reading.sample, reading.sample
    fresh = new is not None and (old is None or new.time != old.time)
    former = old if fresh else node.former
    result = replace(node, reading=reading, at=at, former=former, error="", lowest=_lowest(node, reading))
    if not fresh or new is None:
        return result
    speed, engine = rate(result, "generated"), new.engine
    moved = bool(speed) or bool(rate(result, "read")) or not (engine and engine.running)
    return replace(
        result,
        progress=at if moved or node.progress is None else node.progress,
        speeds=(*node.speeds, speed)[-_KEPT:] if speed is not None else node.speeds,
    )


def _lowest(node: Watched, reading: Reading) -> int | None:
    # A new start has its own minimum.
    known = node.lowest if reading.start == node.reading.start else None
    now = reading.sample.memory_available if reading.sample else None
    return min((each for each in (known, reading.lowest, now) if each is not None), default=None)


def failed(node: Watched, error: str) -> Watched:
    """Return the node after a query without an answer."""
    return replace(node, error=foreign.line(" ".join(error.split())) or "no reason given")


def rate(node: Watched, counter: str) -> float | None:
    """Return the growth per second of a counter of the engine, None if it is unknown or the engine started again."""
    old, new = node.former, node.reading.sample
    if old is None or new is None or new.time <= old.time:
        return None
    before, after = (getattr(each.engine or Engine(), counter) for each in (old, new))
    return _growth(before, after, new.time - old.time)


def _growth(before: float | None, after: float | None, seconds: float) -> float | None:
    """Return the growth per second, None if it is unknown, negative or not a finite number: a node reports any."""
    if before is None or after is None or after < before:
        return None
    found = (after - before) / seconds
    return found if math.isfinite(found) else None


def _traffic(node: Watched) -> float | None:
    """Return the traffic of all rails in both directions in Gb/s."""
    old, new = node.former, node.reading.sample
    if old is None or new is None or new.time <= old.time:
        return None
    totals = []
    for sample in (old, new):
        counts = [
            count
            for rail in sample.rails
            for count in (rail.rx, rail.tx, rail.rdma_rx, rail.rdma_tx)
            if count is not None
        ]
        totals.append(sum(counts) if counts else None)
    before, after = totals
    found = _growth(before, after, new.time - old.time)
    return None if found is None else found * 8e-9


def age(node: Watched, now: float) -> float | None:
    """Return the age of the node's sample in seconds."""
    known = node.reading.age
    return None if known is None or node.at is None else known + max(0.0, now - node.at)


def stale(node: Watched, now: float, interval: float) -> bool:
    """Return whether the node's values are old."""
    old = age(node, now)
    return bool(node.error) or old is None or old > 3 * schema.INTERVAL + 2 * interval


# The table.


def _value(found: float | None, form: str = ".0f", scale: float = 1.0) -> str:
    return "-" if found is None else format(found / scale, form)


def _memory(node: Watched, found: int | None) -> Span:
    style = ""
    if found is not None and node.floor:
        style = BAD if found < node.floor else WARN if found < 2 * node.floor else ""
    return _value(found, ".1f", GIB), style


def _gpus(node: Watched, name: str, of: Callable[[Sequence[float]], float]) -> float | None:
    sample = node.reading.sample
    values = [getattr(gpu, name) for gpu in (sample.gpus if sample else ()) if getattr(gpu, name) is not None]
    return of(values) if values else None


def reasons(node: Watched) -> list[Span]:
    """Return why the GPUs of a node have a lower clock, the worst first."""
    sample = node.reading.sample
    bits = [gpu.reasons for gpu in (sample.gpus if sample else ()) if gpu.reasons is not None]
    return sorted(
        (span for bit, span in _REASONS.items() if any(bit & each for each in bits)),
        key=lambda span: (BAD, WARN, "", DIM).index(span[1]),
    )


def _stuck(node: Watched) -> bool:
    clock, used = _gpus(node, "clock", min), _gpus(node, "utilization", max)
    return clock is not None and used is not None and clock < _STUCK and used >= _COMPUTES


def _slowed(node: Watched) -> Span:
    found = reasons(node)
    return ("+".join(text for text, _style in found), found[0][1]) if found else ("-", "")


def _clock(node: Watched) -> Span:
    return _value(_gpus(node, "clock", min)), BAD if _stuck(node) else ""


def down(rail: SampledRail) -> str:
    """Return why a rail does not work, "" if it does or if it is unknown."""
    if rail.carrier is False:
        return "no carrier"
    return f"RDMA {rail.rdma}" if rail.rdma not in ("", "ACTIVE") else ""


def _rails(node: Watched) -> Span:
    sample = node.reading.sample
    rails = [rail for rail in (sample.rails if sample else ()) if rail.carrier is not None]
    if not rails:
        return "-", ""
    up = [rail for rail in rails if not down(rail)]
    speeds = [rail.speed for rail in up if rail.speed]
    if len(up) < len(rails):
        return f"{len(up)}/{len(rails)} DOWN", BAD
    return f"{len(up)}/{len(rails)}{f' {min(speeds) // 1000}G' if speeds else ''}", GOOD


def watchdog(node: Watched) -> Span:
    """Return the state of a node's watchdog."""
    state, found = node.reading.services.get(paths.WATCHDOG_UNIT), node.reading.watchdog
    if state is None:
        return "-", ""
    if state != "active":
        return "DOWN", BAD
    if found.get("witnesses"):
        return "WITNESS", BAD
    if _number(stalled := found.get("stalled")) and stalled:
        return f"stall{min(999, int(stalled))}s", WARN
    if found.get("head") is True:
        return ("armed", GOOD) if found.get("armed") is True else ("unarmed", WARN)
    return "on", GOOD


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    cell: Callable[[Watched], Span]
    wide: bool = False
    align: str = ">"

    def text(self, found: str) -> str:
        """Return a text as wide as the column."""
        return f"{found[: self.width]:{self.align}{self.width}}"


_COLUMNS = (
    _Column(
        "GiB free", 8, lambda node: _memory(node, node.reading.sample.memory_available if node.reading.sample else None)
    ),
    _Column("low", 5, lambda node: _memory(node, node.lowest)),
    _Column("wait%", 5, lambda node: (_value(node.reading.sample.pressure if node.reading.sample else None), ""), True),
    _Column(
        "load", 5, lambda node: (_value(node.reading.sample.load if node.reading.sample else None, ".1f"), ""), True
    ),
    _Column("GPU%", 4, lambda node: (_value(_gpus(node, "utilization", max)), "")),
    _Column("W", 4, lambda node: (_value(_gpus(node, "power", sum)), "")),
    _Column("MHz", 4, _clock),
    _Column("°C", 3, lambda node: (_value(_gpus(node, "temperature", max)), "")),
    _Column("slowed by", 11, _slowed, align="<"),
    _Column("rails", 8, _rails, align="<"),
    _Column("Gb/s", 5, lambda node: (_value(_traffic(node), ".1f"), ""), True),
    _Column("watchdog", 8, watchdog, align="<"),
)
_NAME, _AGE = (10, 16), 4


def _table(nodes: Sequence[Watched], now: float, interval: float, width: int) -> Iterator[Line]:
    columns = [column for column in _COLUMNS if width >= _WIDE or not column.wide]
    name = _NAME[width >= _WIDE]
    titles = [f"{'node':{name}}", *(each.text(each.title) for each in columns), f"{'age':>{_AGE}}"]
    yield [(" ".join(titles), DIM)]
    for node in nodes:
        old = stale(node, now, interval)
        cells = [(f"{node.name[:name]:{name}}", BAD if node.error else DIM if old else "")]
        for column in columns:
            text, style = column.cell(node)
            cells.append((f" {column.text(text)}", DIM if old else style))
        seconds = age(node, now)
        shown_age = (
            "-" if seconds is None else f"{seconds:.0f}s" if seconds < 1000 else spans.span(seconds).replace(" ", "")
        )
        yield [*cells, (f" {shown_age:>{_AGE}}", BAD if old else "")]


# The engine.


def _state(node: Watched, now: float, interval: float) -> Span:
    """Return the engine's activity, in words."""
    sample = node.reading.sample
    if sample is None or stale(node, now, interval):
        return f"UNKNOWN: {node.name} has no new sample", BAD if node.at is not None or node.error else DIM
    if sample.engine is None:
        unit = paths.VLLM_UNIT.removesuffix(".service")
        state = node.reading.services.get(paths.VLLM_UNIT, "not installed")
        return f"THE API DOES NOT ANSWER: {unit} is {state}", WARN if state in ("active", "activating") else BAD
    return _activity(node, sample.engine, now)


def _activity(node: Watched, engine: Engine, now: float) -> Span:
    if rate(node, "generated") is None:
        return "MEASURING", DIM
    if rate(node, "generated"):
        return "DECODING", GOOD
    if rate(node, "read"):
        return "READING PROMPTS", GOOD
    if not engine.running:
        return "IDLE", DIM
    silent = now - (node.progress if node.progress is not None else now)
    return f"NO TOKEN for {silent:.0f} s", BAD if silent > _STALLED else WARN


def _engine(node: Watched, now: float, interval: float, width: int) -> Iterator[Line]:
    sample, state = node.reading.sample, _state(node, now, interval)
    engine = (sample.engine if sample and not stale(node, now, interval) else None) or Engine()
    speed, read = rate(node, "generated"), rate(node, "read")
    figures = [
        (f"   {_value(speed, '.1f')} tokens/s", GOOD if speed else ""),
        (f"   prompts {_value(read)} tokens/s", ""),
        (f"   {_value(engine.running)} running", ""),
        (f"   {_value(engine.waiting)} waiting", WARN if engine.waiting else ""),
    ]
    yield [state, *(figures if engine != Engine() else ())]
    used = engine.kv_cache
    gauge = "" if used is None else f" [{'#' * round(20 * max(0.0, min(1.0, used))):-<20}]"
    yield [
        (f"KV cache{gauge} {_value(used, '.0%')}", WARN if used is not None and used >= _FULL else ""),
        (f"   prefix hits {_share(engine.cache_hits, engine.cache_queries)}", ""),
        (f"   draft accepted {_share(engine.accepted, engine.drafted)}", ""),
    ]
    most, title = max(node.speeds, default=0.0), "tokens/s "
    kept = node.speeds[-(width - len(title) - 16) :]
    bars = "".join(_BARS[min(len(_BARS) - 1, int(each / most * len(_BARS)))] if most else _BARS[0] for each in kept)
    yield [(title, DIM), (bars, ""), (f" at most {most:.1f}" if bars else "-", DIM)]


def _share(part: float | None, whole: float | None) -> str:
    return f"{part / whole:.0%}" if part is not None and whole else "-"


# The problems.


def problems(node: Watched, now: float, interval: float) -> Iterator[Span]:
    """Yield the faults of a node, as text and style. Old values have none."""
    reading = node.reading
    if node.error:
        yield f"does not answer: {node.error}", BAD
        return
    if reading.stopped:
        yield f"the memory guard stopped the services: {reading.stopped}", BAD
    for unit, state in reading.services.items():
        if state == "failed" or (unit == paths.MEMORY_GUARD_UNIT and state != "active"):
            yield f"{unit} is {state}", BAD
    witnesses = reading.watchdog.get("witnesses")
    for witness in witnesses[:3] if isinstance(witnesses, list) else ():
        yield f"watchdog: {foreign.line(str(witness))}", BAD
    if alarm := reading.watchdog.get("last_alarm"):
        yield f"watchdog: last alarm {foreign.line(str(alarm))}", WARN
    if not stale(node, now, interval):
        yield from _of_sample(node)
    elif node.at is not None:
        yield (
            f"no new sample: {paths.RECORDER_UNIT} is {reading.services.get(paths.RECORDER_UNIT, 'not installed')}",
            BAD,
        )


def _of_sample(node: Watched) -> Iterator[Span]:
    """Yield the faults of a node's rails, memory and GPU."""
    sample = node.reading.sample or Sample(0.0, node.name)
    for rail in sample.rails:
        if why := down(rail):
            yield f"rail {rail.interface}: {why}", BAD
    if sample.memory_available is not None and sample.memory_available < node.floor:
        yield f"only {sample.memory_available / GIB:.1f} GiB are free, less than the floor of {node.floor / GIB:g}", BAD
    slow = [text for text, style in reasons(node) if style in (WARN, BAD)]
    cause = f" by {', '.join(slow)}" if slow else ""
    power, heat = (_value(found) for found in (_gpus(node, "power", sum), _gpus(node, "temperature", max)))
    figures = f"{_clock(node)[0]} MHz, {power} W, {heat} °C"
    if _stuck(node):
        yield f"the GPU is stuck{cause}: {figures} (gpu-clock-stuck)", BAD
    elif slow:
        yield f"the GPU is slowed{cause}: {figures}", reasons(node)[0][1]


def frame(
    nodes: Sequence[Watched], title: str, clock: str, now: float, interval: float, width: int, height: int
) -> list[Line]:
    """Return the lines of the screen, at most ``height``, each at most ``width`` wide.

    ``title``: the model. ``clock``: the time of day. Problems that do not fit are counted in the last line.
    """
    floors = sorted({node.floor for node in nodes})
    limit = f"floor {'/'.join(f'{floor / GIB:g}' for floor in floors)} GiB" if any(floors) else "no memory floor"
    result: list[Line] = [[(f"{title}   ", ""), (f"{clock}   every {interval:g} s   {limit}   q ends", DIM)]]
    for node in nodes:
        if node.head:
            result += _engine(node, now, interval, width)
    result += [[], *_table(nodes, now, interval, width)]
    found = [(node.name, *problem) for node in nodes for problem in problems(node, now, interval)]
    found.sort(key=lambda each: each[2] != BAD)
    room = max(1, height - len(result) - 1)
    lines: list[Line] = [
        [(line, style)]
        for name, text, style in found
        for line in textwrap.wrap(f"{name}: {text}", width, subsequent_indent="  ", max_lines=3, placeholder=" ...")
    ]
    if len(lines) > room:
        lines = [*lines[: room - 1], [(f"and {len(lines) - room + 1} more lines", WARN)]]
    result += [[], *lines] if lines else []
    return [_clipped(line, width) for line in result[:height]]


def _clipped(line: Line, width: int) -> Line:
    result, left = [], width
    for text, style in line:
        if left > 0 and text:
            result.append((text[:left], style))
            left -= len(text)
    return result

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A record as text, and the next step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import adapter
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import record
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.record import Record
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Sample

GIB = 1 << 30
#: Bytes of available memory, and degrees of a GPU, at which a host is in danger. Sources: the default of
#: vllm_serve_memory_floor; owners' alerts (docs/monitoring.md).
_LOW, _HOT = 2 * GIB, 85
#: What precedes a line of the kernel, and how many a report has.
_KERNELS = ("kernel: ", "netconsole (not authenticated): ")
_KERNEL = 12
#: Seconds before the end over which values are compared.
_SPANS = (10, 60)
_XID = re.compile(r"NVRM: Xid .*?: (\d{1,4})\b")
_MEMORY = re.compile(r"Out of memory|oom-kill|NVRM: .*NV_ERR_NO_MEMORY")
_PANIC = re.compile(r"Kernel panic|\bOops\b|BUG: |soft lockup|hard LOCKUP|blocked for more than")
_VALUES: Mapping[str, tuple[Callable[[Sample], float | None], str]] = {
    "memory": (lambda sample: None if sample.memory_available is None else sample.memory_available / GIB, "GiB"),
    "power": (lambda sample: sample.gpus[0].power if sample.gpus else None, "W"),
    "clock": (lambda sample: sample.gpus[0].clock if sample.gpus else None, "MHz"),
    "temperature": (lambda sample: sample.gpus[0].temperature if sample.gpus else None, "\N{DEGREE SIGN}C"),
}


def lines(found: Record) -> list[str]:
    """Return the report of a record."""
    result = [f"{found.node} fell silent at {_clock(found.silent)}, says {found.recorder}: {_verdict(found)}"]
    if found.returned is not None:
        result.append(f"it was heard again after {spans.span(max(0.0, found.returned - found.silent))}")
    if found.samples:
        when, last = found.samples[-1]
        result.append(f"last sample, {max(0.0, found.silent - when):.1f} s before: {values(last)}")
        result += _moved(found)
    result += [f"{_KERNELS[0]}{line}" for line in found.kernel[-_KERNEL:]]
    result += [f"{_KERNELS[1]}{line}" for line in found.netconsole[-_KERNEL:]]
    return [*result, f"next step: {'; '.join(steps(found))}"]


def is_logged(line: str) -> bool:
    """Return whether a line of lines() is one of the kernel."""
    return line.startswith(_KERNELS)


def short(found: Record, now: float) -> str:
    """Return a record as one line."""
    last = f"; last {values(found.samples[-1][1])}" if found.samples else "; without a sample"
    ago = spans.span(max(0.0, now - found.silent))
    return (
        f"{found.node} fell silent {ago} ago, {_clock(found.silent)}: {_verdict(found)}{last}. Next: {steps(found)[0]}"
    )


def values(sample: Sample) -> str:
    """Return the values of a sample that its node reports."""
    available = _VALUES["memory"][0](sample)
    total = f" of {sample.memory_total / GIB:.1f}" if sample.memory_total else ""
    parts = [] if available is None else [f"{available:.1f}{total} GiB available"]
    parts += [f"swap {sample.swap_used / GIB:.1f} GiB"] if sample.swap_used else []
    parts += [f"memory pressure {sample.pressure:g} %"] if sample.pressure else []
    for name, (value, unit) in _VALUES.items():
        number = value(sample)
        parts += [f"GPU {number:.0f} {unit}"] if name != "memory" and number is not None else []
    down = [rail.interface for rail in sample.rails if rail.carrier is False]
    parts += [f"no carrier on {', '.join(down)}"] if down else []
    if sample.engine and sample.engine.running is not None:
        parts.append(f"{sample.engine.running:.0f} requests running")
    return ", ".join(parts) or "no value"


def steps(found: Record) -> list[str]:
    """Return the next steps that the record gives evidence for, at least one."""
    return list(dict.fromkeys(_steps(found))) or [
        "the record shows no reason: use the power supply of NVIDIA at its own outlet, and limit the clock with "
        "host_guard_gpu_clock: 2000 (docs/reliability.md#host-protection)"
    ]


def _steps(found: Record) -> Iterator[str]:
    if found.verdict == record.CABLE:
        yield "check the QSFP cable and playbooks/verify.yml, and journalctl -k of the node"
    elif found.verdict == record.RECORDER:
        yield f"read journalctl -u gb10-flight-recorder on {found.node}"
    else:
        logged = "\n".join([*found.kernel, *found.netconsole])
        recent = [sample for when, sample in found.samples if found.silent - when <= _SPANS[1]]
        yield from _of_memory(logged, recent)
        if xids := list(dict.fromkeys(_XID.findall(logged))):
            yield f"the GPU's driver reported Xid {', '.join(xids)}: look it up in NVIDIA's list of Xid errors"
        if any((gpu.temperature or 0) >= _HOT for each in recent for gpu in each.gpus):
            yield "the GPU was hot: clear its air inlet, and set host_guard_gpu_clock: 2100"
        if adapter.FAILED in adapter.faults(logged):
            yield (
                "the network adapter failed in hardware: switch the node off, disconnect its power supply, "
                "and ask NVIDIA's support if it returns (docs/verification.md#adapter-failed)"
            )
        elif _PANIC.search(logged):
            yield "the kernel failed: compare it with docs/rules.md, and set host_guard_panic: 10, so that it reboots"


def _of_memory(logged: str, recent: Sequence[Sample]) -> Iterator[str]:
    lowest = min((each.memory_available for each in recent if each.memory_available is not None), default=None)
    if (lowest is not None and lowest < _LOW) or _MEMORY.search(logged):
        least = "" if lowest is None else f" (least {lowest / GIB:.1f} GiB)"
        yield (
            f"memory ran out{least}: lower the context (gb10_max_model_len), or raise vllm_serve_memory_floor, so that "
            "the guard acts earlier"
        )


def _moved(found: Record) -> Iterator[str]:
    """Yield how the values moved before the end."""
    end, last = found.samples[-1]
    for seconds in _SPANS:
        # The oldest one within the span, with half a sample of tolerance.
        first = next((sample for when, sample in found.samples if end - when <= seconds + 1), last)
        moved = [
            f"{name} {before:.0f} -> {after:.0f} {unit}"
            if name != "memory"
            else f"{name} {before:.1f} -> {after:.1f} {unit}"
            for name, (value, unit) in _VALUES.items()
            if (before := value(first)) is not None and (after := value(last)) is not None
        ]
        if moved:
            yield f"in the last {seconds} s: {', '.join(moved)}"


def _verdict(found: Record) -> str:
    return record.VERDICTS.get(found.verdict, "the reason is unknown")


def _clock(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S} UTC"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collector's metrics: values of a GB10 that the node exporter lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Counts, Sample
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu

#: Metric -> (type, text). Values without a sample are unknown: no metric has a constant in their place.
METRICS: Mapping[str, tuple[str, str]] = {
    "gb10_gpu_temperature_celsius": ("gauge", "Temperature of the GPU."),
    "gb10_gpu_power_watts": ("gauge", "Power of the GPU."),
    "gb10_gpu_sm_clock_hertz": ("gauge", "Clock of the GPU's multiprocessors."),
    "gb10_gpu_utilization_ratio": ("gauge", "Share of the time in which a kernel ran."),
    "gb10_gpu_clock_reason": ("gauge", "Whether NVML reports this reason for a lower clock."),
    "gb10_gpu_readable": ("gauge", "Whether nvidia-smi answered."),
    "gb10_kernel_errors_total": ("counter", "Errors of the driver in the kernel's log since boot."),
    "gb10_service_active": ("gauge", "Whether the service runs."),
    "gb10_service_failed": ("gauge", "Whether systemd starts the service no more."),
    "gb10_service_restarts_total": ("counter", "Automatic restarts of the service by systemd."),
    "gb10_watchdog_armed": ("gauge", "Whether the watchdog on the head watches the engine."),
    "gb10_watchdog_stalled_seconds": ("gauge", "Seconds without progress while requests run."),
    "gb10_watchdog_restarts": ("gauge", "Restarts by the watchdog in the last hour."),
    "gb10_watchdog_restarts_limit": ("gauge", "Permitted restarts by the watchdog in an hour."),
    "gb10_start_seconds": ("gauge", "Seconds of each part of the last start that answered."),
    "gb10_resting": ("gauge", "Whether the model rests until the next request."),
    "gb10_link_planned_mtu_bytes": ("gauge", "MTU of the plan for an interface of the fabric."),
    "gb10_certificate_expiry_timestamp_seconds": ("gauge", "First expiry in the API's certificates."),
    "gb10_golden_timestamp_seconds": ("gauge", "Day of the last golden answers."),
    "gb10_version_info": ("gauge", "Installed version of a component, always 1."),
}
#: Source: NVML's nvmlClocksEventReasons. 0x1 is an idle GPU.
REASONS: Mapping[int, str] = {
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
_MOST_LABEL = 100


def of_gpus(gpus: Sequence[Gpu]) -> Iterator[Sample]:
    """Yield the values of the GPUs that nvidia-smi reported."""
    yield Sample("gb10_gpu_readable", float(bool(gpus)))
    for gpu in gpus:
        labels = {"gpu": gpu.index}
        values = {
            "gb10_gpu_temperature_celsius": (gpu.temperature, 1.0),
            "gb10_gpu_power_watts": (gpu.power, 1.0),
            "gb10_gpu_sm_clock_hertz": (gpu.clock, 1e6),
            "gb10_gpu_utilization_ratio": (gpu.utilization, 0.01),
        }
        yield from (
            Sample(name, value * factor, labels) for name, (value, factor) in values.items() if value is not None
        )
        if gpu.reasons is not None:
            for bit, reason in REASONS.items():
                yield Sample("gb10_gpu_clock_reason", float(bool(gpu.reasons & bit)), {**labels, "reason": reason})
        yield from version("driver", gpu.driver)


def of_kernel(counts: Counts) -> Iterator[Sample]:
    """Yield the errors in the kernel's log."""
    for kind, count in counts.found.items():
        yield Sample("gb10_kernel_errors_total", count, {"kind": kind})


def of_units(units: Sequence[tuple[str, str, int]]) -> Iterator[Sample]:
    """Yield the state of services, from parse.units()."""
    for unit, state, restarts in units:
        labels = {"unit": unit}
        yield Sample("gb10_service_active", float(state in ("active", "reloading")), labels)
        yield Sample("gb10_service_failed", float(state == "failed"), labels)
        yield Sample("gb10_service_restarts_total", restarts, labels)


def of_watchdog(status: Mapping[str, Any], limit: int) -> Iterator[Sample]:
    """Yield the watchdog's state on the head. ``limit``: its restarts in an hour, 0 unless it restarts."""
    if not status.get("head"):
        return
    fields = {
        "armed": "watchdog_armed",
        "stalled": "watchdog_stalled_seconds",
        "restarts": "watchdog_restarts",
        "rests": "resting",
    }
    for field, name in fields.items():
        if isinstance(value := status.get(field), int | float):
            yield Sample(f"gb10_{name}", float(value))
    for part, seconds in status.get("start", {}).items():
        yield Sample("gb10_start_seconds", seconds, {"part": part})
    if limit:
        yield Sample("gb10_watchdog_restarts_limit", limit)


def of_settings(settings: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the values that the last run of the role wrote."""
    for interface, mtu in settings["links"].items():
        yield Sample("gb10_link_planned_mtu_bytes", mtu, {"device": interface})
    for name in ("certificate_expiry", "golden"):
        if settings[name]:
            yield Sample(f"gb10_{name}_timestamp_seconds", settings[name])


def version(component: str, text: str) -> Iterator[Sample]:
    """Yield a version, nothing if it is unknown."""
    if text:
        yield Sample("gb10_version_info", 1, {"component": component, "version": text[:_MOST_LABEL]})


def text(samples: Sequence[Sample]) -> str:
    """Return samples in Prometheus's text format, sorted by metric, because it must not repeat one."""
    lines = []
    for name, (kind, described) in METRICS.items():
        if found := [sample for sample in samples if sample.name == name]:
            lines += [f"# HELP {name} {described}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(sample.labels)} {sample.value:.15g}" for sample in found]
    return "\n".join([*lines, ""])


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels with the escapes of the format."""
    escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    listed = ",".join(f'{name}="{value.translate(escaped)}"' for name, value in labels.items())
    return f"{{{listed}}}" if listed else ""

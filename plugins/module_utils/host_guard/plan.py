# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Protection of a host: a limit of the GPU's clock, swappiness, and a reboot of a frozen host.

It decides the files and kernel settings, and the steps from a host's present state to them. Each sequence of steps may
be killed anywhere: the steps from the state that it left lead to the same result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

UNIT_FILE = f"{paths.UNIT_FOLDER}/{paths.GPU_CLOCK_UNIT}"
SYSCTL_FILE = "/etc/sysctl.d/60-gb10-host.conf"
MANAGER_FILE = "/etc/systemd/system.conf.d/60-gb10-host.conf"
#: The kernel settings from before the first change, as {name: value}.
FORMER_FILE = "/etc/gb10/host-former.json"
#: apt reads this folder's files in the order of their names, and unattended-upgrades adds up their lists.
APT_FILE = "/etc/apt/apt.conf.d/60-gb10-host"
#: The settings of the DGX Dashboard, whose administrator upgrades DGX OS by its own timer, and those before the change,
#: as {"text": TEXT}, with null for no file. Source: nvidia-spark-ota-check 1.0.16, self_update.py.
DASHBOARD_UNIT, DASHBOARD_FILE = "dgx-dashboard-admin.service", "/opt/nvidia/dgx-dashboard/settings.json"
DASHBOARD_FORMER = "/etc/gb10/host-dashboard.json"
FILES = (UNIT_FILE, SYSCTL_FILE, MANAGER_FILE, FORMER_FILE, APT_FILE, DASHBOARD_FILE, DASHBOARD_FORMER)
#: A hung task or a soft lockup does not panic: a slow disk, or a driver that frees much memory, causes both, and they
#: end by themselves. The hardware watchdog reboots a host on which systemd does not run any more.
KERNEL = ("vm.swappiness", "kernel.panic", "kernel.panic_on_oops")
#: Properties of systemd, in microseconds.
MANAGER = ("RuntimeWatchdogUSec", "RebootWatchdogUSec")
#: Seconds for a shutdown under the hardware watchdog; systemd's own default.
_REBOOT = 600
_MICRO = 1_000_000
_MANAGED = "#\n# Ansible managed\n#\n"
#: systemd reads this file, and drops our settings. The file is removed after that, so that a killed run is noticed.
_NEUTRAL = f"{_MANAGED}[Manager]\n"
_KEPT = """\
// Ansible managed: no kernel, driver or release of DGX OS comes by itself.
Unattended-Upgrade::Package-Blacklist { "linux-"; "nvidia-"; "libnvidia-"; "dgx-"; };
"""
_MOST = 1 << 16
_CLOCK = f"""\
{_MANAGED}[Unit]
Description=Limit of the GPU's clock on the GB10 cluster
After=nvidia-persistenced.service
Before={" ".join(paths.UNITS)}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/env nvidia-smi --lock-gpu-clocks=0,%d
ExecStop=/usr/bin/env nvidia-smi --reset-gpu-clocks
TimeoutSec=60

[Install]
WantedBy=multi-user.target
"""
#: Variable without its prefix -> the value that turns it off, the smallest and the largest other one, and the unit.
_RANGES: Mapping[str, tuple[int, int, int, str]] = {
    "gpu_clock": (0, 300, 3003, "MHz"),
    "swappiness": (-1, 0, 200, ""),
    "hardware_watchdog": (0, 15, 3600, "s"),
    "panic": (0, 1, 3600, "s"),
}


@dataclass(frozen=True)
class Protection:
    """The variables of the role host_guard, by default all off."""

    gpu_clock: int = 0
    swappiness: int = -1
    hardware_watchdog: int = 0
    panic: int = 0
    keep_kernel: bool = False


@dataclass(frozen=True)
class HostState:
    """A host: the texts of FILES that exist, KERNEL's values, and the recorded ``former`` ones.

    ``device``: whether it has a hardware watchdog. ``manager``: MANAGER's values, {} if they were not read.
    ``limited``: whether the unit of the clock is active and starts at boot. ``dashboard``: whether the DGX Dashboard's
    administrator runs.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)
    device: bool = False
    manager: Mapping[str, int] = field(default_factory=dict)
    limited: bool = False
    dashboard: bool = False


@dataclass(frozen=True)
class HostPlan:
    """The protection of a node. ``due``: whether the node differs from it."""

    protection: Protection = Protection()
    due: bool = False


@dataclass(frozen=True)
class Step:
    """One change. ``name``: the path, the kernel setting or the unit; ``after`` is None for a removed file."""

    kind: Literal["file", "value", "manager", "limit", "unlimit", "reload"]
    name: str
    before: str = ""
    after: str | None = ""


def of_settings(settings: Mapping[str, Any]) -> Protection:
    """Return the protection of the roles' variables, which have the types of their specification."""
    return Protection(**{name: settings[f"host_guard_{name}"] for name in (*_RANGES, "keep_kernel")})


def check(path: str, name: str, given: Protection, found: HostState | None) -> list[Problem]:
    """Return the problems of a node. ``path``: of the node; ``found``: None if it was not read."""
    problems = []
    for each, (off, least, most, unit) in _RANGES.items():
        value, variable = getattr(given, each), f"host_guard_{each}"
        if value != off and not least <= value <= most:
            expected = f"{off} (off), or {least} to {most} {unit}".rstrip()
            problems.append(Problem(f"{path}.{variable}", f"{value} on {name}", expected, f"correct {variable}"))
    if given.hardware_watchdog and found and not found.device:
        problems.append(
            Problem(
                f"{path}.host_guard_hardware_watchdog",
                f"{name} has no /dev/watchdog0",
                "a hardware watchdog",
                "load the module of its watchdog, or set host_guard_hardware_watchdog: 0",
            )
        )
    return problems


def planned(given: Protection, found: HostState | None) -> HostPlan:
    """Return the plan of a node. ``found``: None if it was not read."""
    return HostPlan(given, bool(steps(given, found or HostState())))


def about(planned: HostPlan) -> list[str]:
    """Return the protection for people, [] without one."""
    given = planned.protection
    parts = {
        f"GPU clock at most {given.gpu_clock} MHz": given.gpu_clock,
        f"swappiness {given.swappiness}": given.swappiness >= 0,
        f"reboot after {given.hardware_watchdog} s without systemd": given.hardware_watchdog,
        f"reboot {given.panic} s after a panic or an oops": given.panic,
        "kernel and driver change only by os_update.yml": given.keep_kernel,
    }
    shown = [text for text, wanted in parts.items() if wanted]
    return shown or (["off; its former state is restored"] if planned.due else [])


def steps(given: Protection, found: HostState) -> list[Step]:
    """Return the steps from a host's state to its protection, in order, [] if nothing differs."""
    kernel = _kernel(_kernel_values(given), found)
    return [*kernel, *_manager(given, found), *_clock(given, found), *_updates(given, found)]


def diff(planned: Sequence[Step]) -> list[dict[str, str]]:
    """Return the differences of the steps that a reader of the run needs."""
    return [
        {
            "before_header": step.name,
            "after_header": step.name,
            "before": step.before,
            "after": step.after or "",
        }
        for step in planned
        if step.before != (step.after or "")
    ]


def overridden(left: Sequence[Step]) -> Problem:
    """Return the problem of a host that still differs after all steps."""
    return Problem(
        "host_guard",
        f"{', '.join(step.name for step in left)} differ again after the change",
        "the planned values",
        "remove the same settings from other files of /etc/sysctl.d and /etc/systemd/system.conf.d; systemctl status",
    )


def without_updates(settings: str | None) -> str | None:
    """Return the Dashboard's settings without its updates, the same text if they are off. Raises ValueError."""
    found = bounded_json.load(settings, _MOST) if settings else {}
    update = found.get("update", {}) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(update, Mapping):
        raise ValueError(f"{DASHBOARD_FILE} has another form than {{update: {{enabled}}}}")
    off = {**found, "update": {**update, "enabled": False}}
    return settings if update.get("enabled") is False else f"{json.dumps(off, indent=2)}\n"


def former_text(recorded: str) -> str | None:
    """Return the settings in a record of DASHBOARD_FORMER, None if there were none. Raises ValueError."""
    found = bounded_json.load(recorded, 2 * _MOST)
    text = found.get("text") if isinstance(found, Mapping) else None
    return text if isinstance(text, str) else None


def record(settings: str | None) -> str:
    """Return the record of settings."""
    return f"{json.dumps({'text': settings})}\n"


def _updates(given: Protection, found: HostState) -> Iterator[Step]:
    yield from _file(APT_FILE, found.files.get(APT_FILE), _KEPT if given.keep_kernel else None)
    present, recorded = found.files.get(DASHBOARD_FILE), found.files.get(DASHBOARD_FORMER)
    if given.keep_kernel and found.dashboard and (off := without_updates(present)) != present:
        if recorded is None:
            yield from _file(DASHBOARD_FORMER, None, record(present))
        yield from _file(DASHBOARD_FILE, present, off)
    elif not given.keep_kernel and recorded is not None:
        former = former_text(recorded)
        # Settings that the owner changed since then stay.
        if present == without_updates(former):
            yield from _file(DASHBOARD_FILE, present, former)
        yield from _file(DASHBOARD_FORMER, recorded, None)


def _kernel_values(given: Protection) -> dict[str, str]:
    swap = {KERNEL[0]: str(given.swappiness)} if given.swappiness >= 0 else {}
    return {**swap, **({KERNEL[1]: str(given.panic), KERNEL[2]: "1"} if given.panic else {})}


def _kernel(wanted: Mapping[str, str], found: HostState) -> Iterator[Step]:
    """Record the former values first, and forget them last."""
    ours = dict(re.findall(r"^(\S+) = (\S+)$", found.files.get(SYSCTL_FILE, ""), re.MULTILINE))
    recorded = {**{name: found.values[name] for name in wanted if name in found.values}, **found.former}
    yield from _file(FORMER_FILE, _former(found.former), _former(recorded))
    values = dict(found.values)
    for name, value in found.former.items():
        # A value that an administrator changed since then stays.
        if name not in wanted and name in ours and values.get(name) == ours[name] != value:
            yield _value(name, ours[name], value)
    lines = "".join(f"{name} = {value}\n" for name, value in wanted.items())
    yield from _file(SYSCTL_FILE, found.files.get(SYSCTL_FILE), f"{_MANAGED}{lines}" if lines else None)
    for name, value in wanted.items():
        if values.get(name) != value:
            yield _value(name, values.get(name, ""), value)
    left = {name: value for name, value in recorded.items() if name in wanted}
    yield from _file(FORMER_FILE, _former(recorded), _former(left))


def _former(values: Mapping[str, str]) -> str | None:
    return f"{json.dumps(values, indent=1, sort_keys=True)}\n" if values else None


def _value(name: str, before: str, after: str) -> Step:
    return Step("value", name, f"{before}\n", f"{after}\n")


def _file(path: str, before: str | None, after: str | None) -> Iterator[Step]:
    if before != after:
        yield Step("file", path, before or "", after)


def _manager(given: Protection, found: HostState) -> Iterator[Step]:
    seconds, present = given.hardware_watchdog, found.files.get(MANAGER_FILE)
    if not seconds:
        if present is not None:
            yield from _file(MANAGER_FILE, present, _NEUTRAL)
            yield Step("manager", "systemd")
            yield Step("file", MANAGER_FILE, _NEUTRAL, None)
        return
    wanted = f"{_NEUTRAL}RuntimeWatchdogSec={seconds}\nRebootWatchdogSec={_REBOOT}\n"
    yield from _file(MANAGER_FILE, present, wanted)
    values = dict(zip(MANAGER, (seconds * _MICRO, _REBOOT * _MICRO), strict=True))
    if present != wanted or found.manager != values:
        yield Step("manager", "systemd", _shown(found.manager), _shown(values))


def _shown(values: Mapping[str, int]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _clock(given: Protection, found: HostState) -> Iterator[Step]:
    present, unit = found.files.get(UNIT_FILE), paths.GPU_CLOCK_UNIT
    if given.gpu_clock:
        wanted = _CLOCK % given.gpu_clock
        yield from _file(UNIT_FILE, present, wanted)
        if present != wanted or not found.limited:
            yield Step("limit", unit, "", "started\n")
    elif present is not None:
        # Its stop resets the clock.
        yield Step("unlimit", unit, "started\n" if found.limited else "", "")
        yield Step("file", UNIT_FILE, present, None)
        yield Step("reload", unit)

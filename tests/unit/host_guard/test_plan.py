"""The protection of a host: its problems, its steps, and their result after a run that was killed anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostState, Protection, Step

ALL = Protection(gpu_clock=2100, swappiness=0, hardware_watchdog=60, panic=10)
OFF = Protection()
VALUES = {"vm.swappiness": "60", "kernel.panic": "0", "kernel.panic_on_oops": "0"}
FRESH = HostState(values=VALUES, device=True)


def done(found: HostState, step: Step) -> HostState:
    """Return the host's state after a step, as io_host would read it."""
    if step.kind == "file":
        files = {name: text for name, text in found.files.items() if name != step.name}
        files |= {} if step.after is None else {step.name: step.after}
        found = replace(found, files=files, manager=found.manager if plan.MANAGER_FILE in files else {})
        if step.name == plan.FORMER_FILE:
            found = replace(found, former=plan.json.loads(step.after) if step.after else {})
    elif step.kind == "value":
        found = replace(found, values={**found.values, step.name: (step.after or "").strip()})
    elif step.kind == "manager":
        set_here = dict(plan.re.findall(r"^(\w+)Sec=(\d+)$", found.files[plan.MANAGER_FILE], plan.re.MULTILINE))
        found = replace(found, manager={f"{name}USec": int(value) * 10**6 for name, value in set_here.items()})
    elif step.kind in ("limit", "unlimit"):
        found = replace(found, limited=step.kind == "limit")
    return found


def after(given: Protection, found: HostState, killed_after: int | None = None) -> HostState:
    for step in plan.steps(given, found)[:killed_after]:
        found = done(found, step)
    return found


PROTECTED = after(ALL, FRESH)


def test_the_files_of_all_parts() -> None:
    assert PROTECTED.files[plan.SYSCTL_FILE].endswith(
        "#\nvm.swappiness = 0\nkernel.panic = 10\nkernel.panic_on_oops = 1\n"
    )
    assert PROTECTED.files[plan.MANAGER_FILE].endswith("[Manager]\nRuntimeWatchdogSec=60\nRebootWatchdogSec=600\n")
    unit = PROTECTED.files[plan.UNIT_FILE]
    assert "\nAfter=nvidia-persistenced.service\n" in unit and "nvidia-smi --lock-gpu-clocks=0,2100\n" in unit
    assert (PROTECTED.former, PROTECTED.limited) == (VALUES, True)
    assert PROTECTED.values == {"vm.swappiness": "0", "kernel.panic": "10", "kernel.panic_on_oops": "1"}


@pytest.mark.parametrize(
    ("given", "before", "expected"),
    [
        (ALL, FRESH, PROTECTED),
        (OFF, PROTECTED, FRESH),
        (replace(ALL, gpu_clock=2000, panic=20), PROTECTED, after(replace(ALL, gpu_clock=2000, panic=20), FRESH)),
        (Protection(swappiness=0), PROTECTED, after(Protection(swappiness=0), FRESH)),
        (OFF, FRESH, FRESH),
    ],
    ids=["all", "none", "other values", "one part", "never used"],
)
def test_a_run_converges_from_each_state_that_a_killed_one_leaves(
    given: Protection, before: HostState, expected: HostState
) -> None:
    for count in range(len(plan.steps(given, before)) + 1):
        found = after(given, after(given, before, count))
        assert found == expected, count
        assert plan.steps(given, found) == []


def test_the_first_value_is_the_one_that_returns() -> None:
    twice = after(replace(ALL, swappiness=10), PROTECTED)
    assert (twice.former["vm.swappiness"], twice.values["vm.swappiness"]) == ("60", "10")
    # Killed right after the record: the value is still the host's own.
    assert after(ALL, FRESH, 1).former == VALUES


def test_a_value_of_an_administrator_stays() -> None:
    changed = replace(PROTECTED, values={**PROTECTED.values, "vm.swappiness": "33"})
    assert after(OFF, changed).values == {**VALUES, "vm.swappiness": "33"}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"limited": False}, ["limit"]),
        ({"manager": {}}, ["manager"]),
        ({"values": {**PROTECTED.values, "kernel.panic": "0"}}, ["value"]),
    ],
    ids=["the unit failed", "systemd has other values", "another program changed a value"],
)
def test_what_differs_without_a_changed_file(changes: dict[str, Any], kinds: list[str]) -> None:
    found = replace(PROTECTED, **changes)
    assert [step.kind for step in plan.steps(ALL, found)] == kinds
    assert "the change" in str(plan.overridden(plan.steps(ALL, found)))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"gpu_clock": 299}, "gpu_clock: 299 on spark1. Expected: 0 (off), or 300 to 3003 MHz."),
        ({"gpu_clock": 3004}, "gpu_clock: 3004 on spark1."),
        ({"swappiness": 201}, "swappiness: 201 on spark1. Expected: -1 (off), or 0 to 200."),
        ({"hardware_watchdog": 14}, "hardware_watchdog: 14 on spark1. Expected: 0 (off), or 15 to 3600 s."),
        ({"panic": -1}, "panic: -1 on spark1."),
    ],
)
def test_values_out_of_range(changes: dict[str, int], place: str) -> None:
    (problem,) = plan.check("nodes[0]", "spark1", Protection(**changes), FRESH)
    assert str(problem).startswith(f"nodes[0].host_guard_{place}")


def test_a_hardware_watchdog_needs_its_device() -> None:
    given = Protection(hardware_watchdog=60)
    (problem,) = plan.check("nodes[0]", "spark1", given, HostState())
    assert "spark1 has no /dev/watchdog0" in str(problem)
    assert [plan.check("nodes[0]", "spark1", given, found) for found in (FRESH, None)] == [[], []]


def test_the_text_of_a_plan() -> None:
    assert plan.about(plan.planned(ALL, FRESH)) == [
        "GPU clock at most 2100 MHz",
        "swappiness 0",
        "reboot after 60 s without systemd",
        "reboot 10 s after a panic or an oops",
    ]
    assert plan.about(plan.planned(OFF, FRESH)) == plan.about(plan.planned(OFF, None)) == []
    assert plan.about(plan.planned(OFF, PROTECTED)) == ["off; its former state is restored"]

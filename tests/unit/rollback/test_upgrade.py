"""The announcement of an upgrade: differences, rules and refusals; and the order of its role."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from launches import LAUNCH, NODES, PLAN, node, record, upgraded, verified, with_arguments
from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import upgrade
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import Record, RecordError

PATCHED = {
    "vllm_patch": {"runtime": "/a", "environment": {"P": "1"}, "flags": ["--x"], "files": {"a.py": "1"}, "mounts": []}
}
OLD = record(plan=copy.deepcopy(PLAN))


def running(*found: Record, **changes: Any) -> list[dict[str, Any]]:
    """Return the nodes whose last record is the current one."""
    return [node(name, list(found or (OLD,)), launch=LAUNCH, **changes) for name in NODES]


def announce(plan: dict[str, Any], nodes: list[dict[str, Any]] | None = None, prepared: bool = False) -> dict[str, Any]:
    return upgrade.announce(verified(nodes or running()), load.plan(plan), prepared)


def test_the_differences_of_another_stack_are_announced() -> None:
    found = announce(upgraded())
    assert found["same_runtime"] is False
    assert (
        found["lines"][0]
        == f"upgrade from {OLD.id[:12]} ({PLAN['model']}, stack {PLAN['stack']['name']}) to {PLAN['model']}, stack new"
    )
    assert f"  stack vllm: {PLAN['stack']['vllm']} -> 9.9.9" in found["lines"]
    assert any(line.startswith("  runtime digest: ") for line in found["lines"])
    assert not any("runtime_mark" in line or " files /etc" in line or ": /etc" in line for line in found["lines"])


def test_the_running_plan_has_no_difference() -> None:
    found = announce(copy.deepcopy(PLAN))
    assert (found["same_runtime"], found["lines"][1]) == (True, "  no difference")
    changed = announce(with_arguments("--a"))["lines"]
    assert "  serve args: + --a" in changed


def test_patches_are_assumed_until_they_are_prepared() -> None:
    old = copy.deepcopy(PLAN)
    for each in old["nodes"]:
        each["additions"] = PATCHED
    nodes, plan = running(record(plan=old)), upgraded()
    for each in plan["nodes"]:
        each["additions"] = {}
    assert not any("vllm_patch" in line or "environment" in line for line in announce(plan, nodes)["lines"])
    prepared = announce(plan, nodes, prepared=True)["lines"]
    assert "  spark1 environment P: 1 -> none" in prepared


def test_the_rules_whose_findings_change_are_announced() -> None:
    before = ["warning gone, a: x 1. Why", "info stays, b: x 1. Why"]
    plan = upgraded()
    plan["serve"]["findings"] = ["info stays, b: x 2. Why", "warning new, c: y.\nWhy"]
    nodes = running(dataclasses.replace(OLD, findings=before))
    lines = announce(plan, nodes)["lines"]
    assert [line for line in lines if "rule" in line] == [
        "  rule, no longer: warning gone, a: x 1. Why",
        "  rule, new: warning new, c: y. Why",
    ]
    unknown = [
        "the rules' findings of the running launch were not recorded",
        "  rule: info stays, b: x 2. Why",
        "  rule: warning new, c: y. Why",
    ]
    assert announce(plan)["lines"][-3:] == unknown


@pytest.mark.parametrize("length", [rollback_record._LONGEST, rollback_record._LONGEST + 1])
def test_a_finding_of_any_reason_fits_a_record(length: int) -> None:
    plan = copy.deepcopy(PLAN)
    plan["serve"]["findings"] = [f"info waived: a\x00\tb\n{'c' * length}"]
    (line,) = rollback_record.findings(load.plan(plan))
    made = dataclasses.replace(OLD, findings=(line,))
    assert (
        rollback_record.stored(json.loads(rollback_record.text(made)), made.id) == made
        and len(line) <= rollback_record._LONGEST
    )


def refused(plan: dict[str, Any], nodes: list[dict[str, Any]] | None = None) -> list[str]:
    with pytest.raises(RecordError) as error:
        announce(plan, nodes)
    return str(error.value).splitlines()


def test_an_upgrade_that_cannot_be_prepared_is_refused() -> None:
    assert "no launch is recorded" in refused(upgraded(), [node(name, [], launch=LAUNCH) for name in NODES])[0]
    alone = upgraded()
    alone["nodes"] = alone["nodes"][:1]
    assert "is of the nodes spark1, spark2. Expected: spark1. Fix: run site.yml" in refused(alone)[0]
    wheels = copy.deepcopy(PLAN)
    for each in wheels["nodes"]:
        each["runtime_mark"] += "wheel\n"
    assert [line.split(" serves")[0] for line in refused(wheels)] == [f"gb10_runtime_wheels: {name}" for name in NODES]


def test_nodes_that_differ_after_a_killed_run_do_not_prevent_the_upgrade() -> None:
    new = record("new\n", time="2026-11-23 07:29:43", plan=with_arguments("--new"))
    nodes = [node("spark1", [OLD, new], launch=LAUNCH), node("spark2", [OLD], launch=LAUNCH)]
    assert announce(upgraded(), nodes)["lines"][0].startswith(f"upgrade from {new.id[:12]} ")


def test_the_preparation_does_not_touch_the_running_runtime() -> None:
    prepare = load_yaml(read("roles/upgrade/tasks/prepare.yml"))
    by_name = {task["name"]: task for task in prepare}
    runtime, patched = (
        by_name["Install the runtime next to the running one"],
        by_name["Prepare NCCL and vLLM's files of the new runtime"],
    )
    for task in (runtime, patched):
        assert (task["when"], task["vars"]) == ("not __upgrade_planned.same_runtime", {"common_overrides_save": False})
    assert runtime["ansible.builtin.include_role"]["tasks_from"] == "prepare"
    assert "runtime.link" not in read("roles/vllm_runtime/tasks/prepare.yml") + read(
        "roles/vllm_runtime/tasks/install.yml"
    )
    assert "runtime.link" in read("roles/vllm_runtime/tasks/runtime.yml")
    called = {
        task["ansible.builtin.include_role"]["name"]
        for task in [*prepare, *patched["block"]]
        if "ansible.builtin.include_role" in task
    }
    assert called == {
        f"gb10.cluster.{name}" for name in ("vllm_runtime", "model_store", "nccl_sm121_build", "vllm_patch")
    }
    assert by_name["Switch to the prepared launch"]["when"] == "upgrade_confirmed | bool"


def test_the_switch_stops_the_old_server_between_the_launch_inputs_and_ray() -> None:
    tasks = load_yaml(read("roles/upgrade/tasks/switch.yml"))
    calls = [task["ansible.builtin.include_role"] for task in tasks if "ansible.builtin.include_role" in task]
    order = [(call["name"].removeprefix("gb10.cluster."), call.get("tasks_from", "main")) for call in calls]
    assert order == [
        ("vllm_runtime", "main"),
        ("nccl_sm121_build", "main"),
        ("vllm_patch", "main"),
        ("vllm_serve", "stop_old"),
        ("ray_cluster", "main"),
        ("vllm_serve", "start_new"),
        ("nccl_sm121_build", "verify"),
        ("vllm_watchdog", "main"),
        ("vllm_fallback", "main"),
        ("gb10", "clients"),
    ]
    stop = load_yaml(read("roles/vllm_serve/tasks/stop_old.yml"))
    assert [task.get("ansible.builtin.import_tasks", task.get("ansible.builtin.include_tasks")) for task in stop] == [
        "inputs.yml",
        "memory.yml",
    ]

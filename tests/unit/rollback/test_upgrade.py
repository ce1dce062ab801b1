"""The announcement of an upgrade: differences, rules and refusals; and its role until the switch."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import NODES, PLAN, files, node, record, with_arguments
from repository import load_yaml, read
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record, upgrade
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import Record

LAUNCH = {"files": {}, "secret_files": [], "driver": "580.95", "kernel": "6.17.0"}
PATCHED = {
    "vllm_patch": {"runtime": "/a", "environment": {"P": "1"}, "flags": ["--x"], "files": {"a.py": "1"}, "mounts": []}
}
OLD = record(plan=copy.deepcopy(PLAN))


def running(*found: Record, **changes: Any) -> list[dict[str, Any]]:
    """Return the nodes whose last record is the current one."""
    nodes = [node(name, list(found or (OLD,)), launch=LAUNCH, **changes) for name in NODES]
    for each in nodes:
        for listed, made in zip(each["records"], found or (OLD,), strict=True):
            listed["findings"] = made.findings
    return nodes


def upgraded(**stack: str) -> dict[str, Any]:
    """Return the plan with another runtime."""
    plan = copy.deepcopy(PLAN)
    plan["stack"] |= {"name": "new", "vllm": "9.9.9"} | stack
    plan["runtime"] |= {
        "digest": "f" * 64,
        "name": "/opt/gb10/runtime/ffffffffffff",
        "path": "/opt/gb10/runtime/ffffffffffff",
    }
    for each in plan["nodes"]:
        each["runtime_mark"] = "new\n"
    return plan


def announce(plan: dict[str, Any], nodes: list[dict[str, Any]] | None = None, prepared: bool = False) -> dict[str, Any]:
    return upgrade.announce(nodes or running(), load.plan(plan), prepared)


def test_the_differences_of_another_stack_are_announced() -> None:
    found = announce(upgraded())
    assert (found["problems"], found["same_runtime"]) == ([], False)
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
    made = dataclasses.replace(OLD, findings=[line])
    assert (
        rollback_record.parse(json.loads(rollback_record.text(made)), made.id) == made
        and len(line) <= rollback_record._LONGEST
    )


def test_an_upgrade_that_cannot_be_prepared_is_refused() -> None:
    assert (
        "no launch is recorded"
        in announce(upgraded(), [node(name, [], launch=LAUNCH) for name in NODES])["problems"][0]
    )
    alone = upgraded()
    alone["nodes"] = alone["nodes"][:1]
    assert "is of the nodes spark1, spark2. Expected: spark1. Fix: run site.yml" in announce(alone)["problems"][0]
    wheels = copy.deepcopy(PLAN)
    for each in wheels["nodes"]:
        each["runtime_mark"] += "wheel\n"
    assert [line.split(" serves")[0] for line in announce(wheels)["problems"]] == [
        f"gb10_runtime_wheels: {name}" for name in NODES
    ]


def test_nodes_that_differ_after_a_killed_run_do_not_prevent_the_upgrade() -> None:
    new = record("new\n", time="2026-11-23 07:29:43", plan=with_arguments("--new"))
    nodes = [node("spark1", [OLD, new], launch=LAUNCH), node("spark2", [OLD], launch=LAUNCH)]
    assert announce(upgraded(), nodes)["lines"][0].startswith(f"upgrade from {new.id[:12]} ")


class Pair:
    """Two nodes that recorded a launch, in folders of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NODES:
            made = dataclasses.replace(record(node=name), files=files("unit\n"))
            io_record.save(io_record.read(str(folder / name)), made, 20, {}, write=True)

    def play(self, plan: dict[str, Any], *arguments: str) -> Run:
        local = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        hosts = {
            name: {"records": str(self.folder / name), "gb10_plan": {**plan, "node": each}}
            for name, each in zip(NODES, plan["nodes"], strict=True)
        }
        inventory, playbook = self.folder / "hosts.json", self.folder / "play.yml"
        inventory.write_text(json.dumps({"gb10_cluster": {"hosts": hosts, "vars": local}}), encoding="utf-8")
        play = {
            "hosts": "gb10_cluster",
            "gather_facts": False,
            "any_errors_fatal": True,
            "module_defaults": {"gb10.cluster.launch_record_info": {"folder": "{{ records }}"}},
            "tasks": [{"ansible.builtin.include_role": {"name": "gb10.cluster.upgrade"}}],
        }
        playbook.write_text(json.dumps([play]), encoding="utf-8")
        return run(str(playbook), ["--inventory", str(inventory), *arguments])


def test_check_mode_announces_the_upgrade_and_prepares_nothing(tmp_path: Path) -> None:
    done = Pair(tmp_path).play(upgraded(), "--check").assert_unchanged()
    shown = done.shown("Announce the upgrade")
    assert shown[0].endswith("stack new") and any(line.startswith("stack vllm: ") for line in shown)
    assert "Keep the plan for the switch" not in done.output


def test_a_refused_upgrade_changes_nothing(tmp_path: Path) -> None:
    plan = upgraded()
    for each in plan["nodes"]:
        each["name"] += "0"
    pair = Pair(tmp_path)
    hosts = {**plan, "nodes": [{**each, "name": name} for each, name in zip(plan["nodes"], NODES, strict=True)]}
    hosts["runtime"] = {**PLAN["runtime"]}
    refused = pair.play(hosts)
    assert refused.status != 0 and "The upgrade is not possible; nothing was changed:" in refused.output
    assert set(refused.changed.values()) == {0} and "Keep the plan" not in refused.output


def test_a_prepared_runtime_saves_no_overrides_and_keeps_the_link(tmp_path: Path) -> None:
    """The variable of the preparation reaches the internal role through the role that calls it."""
    plan = upgraded()
    overrides = {"environment": {"VLLM_USE_FLASHINFER_MOE_FP8": "0"}, "flags": [], "files": {}, "mounts": []}
    call = {"name": "gb10.cluster.common", "tasks_from": "overrides", "rolespec_validate": False}
    role = tmp_path / "roles/caller/tasks/main.yml"
    role.parent.mkdir(parents=True)
    given = {"common_overrides_role": "vllm_patch", "common_overrides": overrides}
    role.write_text(json.dumps([{"ansible.builtin.include_role": call, "vars": given}]), encoding="utf-8")
    end = {"ansible.builtin.debug": {"msg": "added: {{ gb10_plan.node.additions.vllm_patch.environment | to_json }}"}}
    tasks = [{"ansible.builtin.include_role": {"name": "caller"}, "vars": {"common_overrides_save": False}}, end]
    hosts = {
        "spark1": {
            "gb10_plan": {**plan, "nodes": plan["nodes"][:1], "node": plan["nodes"][0]},
            "ansible_connection": "local",
        }
    }
    inventory, playbook = tmp_path / "hosts.json", tmp_path / "play.yml"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    done = run(
        str(playbook), ["--inventory", str(inventory)], {"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")}
    ).assert_unchanged()
    assert 'added: {"VLLM_USE_FLASHINFER_MOE_FP8": "0"}' in done.output.replace('\\"', '"')


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
        ("gb10", "clients"),
    ]
    stop = load_yaml(read("roles/vllm_serve/tasks/stop_old.yml"))
    assert [task.get("ansible.builtin.import_tasks", task.get("ansible.builtin.include_tasks")) for task in stop] == [
        "inputs.yml",
        "memory.yml",
    ]


@pytest.mark.parametrize(
    ("invocation", "pid", "shown"),
    [("b", 7, "stop: 12.5 s, from the stop"), ("a", 7, "stop: none"), ("b", None, "stop: none")],
)
def test_the_length_of_the_stop_is_shown(tmp_path: Path, invocation: str, pid: int | None, shown: str) -> None:
    (end,) = [
        task
        for task in load_yaml(read("roles/upgrade/tasks/switch.yml"))
        if task["name"] == "Show the end of the upgrade"
    ]
    given = {
        **load_yaml(read("roles/upgrade/vars/main.yml")),
        "gb10_plan": {**upgraded(), "node": {"head": True}},
        "__upgrade_before": {"service": {"pid": pid, "invocation": "a"}},
        "__upgrade_after": {"service": {"invocation": invocation, "stopped": 100.04}},
        "vllm_serve_smoke": {"smoke": {"answered": 112.52}},
    }
    playbook = tmp_path / "play.yml"
    playbook.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": [end]}]), encoding="utf-8"
    )
    output = run(str(playbook), ["-i", "localhost,", "-c", "local"]).assert_unchanged().output
    lines = [line.strip() for line in output.splitlines()[-3:]]
    assert lines[1].startswith(shown) and lines[2].endswith("gb10_stack: new")

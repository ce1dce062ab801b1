# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles history, rollback and upgrade on two nodes: their announcements, and refusals that change nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launches import NODES, PLAN, record, runtime, upgraded
from repository import load_yaml, read
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import Record

LOCAL = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
REFUSAL = "Show the refusal"
REASON = "{{ ansible_failed_result.msg.splitlines() }}"
#: A task with run_once fails on all nodes. The next play needs them again.
RESCUE: list[dict[str, Any]] = [
    {"name": REFUSAL, "gb10.cluster.show": {"lines": REASON}, "run_once": True},
    {"ansible.builtin.meta": "clear_host_errors"},
]
Play = dict[str, Any]


def play(name: str, tasks: list[dict[str, Any]], **variables: Any) -> Play:
    """Return a play that shows the reason if a task fails."""
    return {
        "name": name,
        "hosts": "gb10_cluster",
        "gather_facts": False,
        "any_errors_fatal": True,
        "vars": {"rollback_nodes": list(NODES), **variables},
        "module_defaults": {
            f"gb10.cluster.{name}": {"folder": "{{ records }}"} for name in ("launch_record", "launch_record_info")
        },
        "tasks": [{"block": tasks, "rescue": RESCUE}],
    }


def role(role_name: str, play_name: str, **variables: Any) -> Play:
    return play(play_name, [{"ansible.builtin.include_role": {"name": f"gb10.cluster.{role_name}"}}], **variables)


def of_each(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variable gb10_plan of each node."""
    plans = {node["name"]: {**plan, "node": node} for node in plan["nodes"]}
    return {"plans": plans, "gb10_plan": "{{ plans[inventory_hostname] }}"}


class Pair:
    """Two nodes that recorded two launches, the second with another argument."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = [self.launch("--a", 1), self.launch("--b", 2)]

    def launch(self, argument: str, hour: int) -> Record:
        for name in NODES:
            plan = runtime(self.folder, argument)
            made = record(f"{argument}\n", name, f"2026-11-22 0{hour}:00:00", plan=plan)
            io_record.save(io_record.read(self.of(name)), made, 20, {}, write=True)
        return made

    def of(self, name: str) -> str:
        return str(self.folder / name / "records")

    def run(self, plays: list[Play], *arguments: str) -> dict[str, Run]:
        """Run plays that change nothing, and return the output of each by its name."""
        hosts = {name: {"records": self.of(name)} for name in NODES}
        inventory, playbook = self.folder / "hosts.json", self.folder / "play.yml"
        inventory.write_text(json.dumps({"gb10_cluster": {"hosts": hosts, "vars": LOCAL}}), encoding="utf-8")
        playbook.write_text(json.dumps(plays), encoding="utf-8")
        environment = {"ANSIBLE_ROLES_PATH": str(self.folder / "roles")}
        done = run(str(playbook), ["--inventory", str(inventory), *arguments], environment).assert_unchanged()
        parts = [part.partition("]") for part in done.output.split("PLAY [")[1:]]
        return {name: Run(done.status, text) for name, _bracket, text in parts}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


def failed_rollback(name: str, unrestored: list[str]) -> Play:
    end = load_yaml(read("roles/rollback/tasks/return.yml"))[-1]
    target = {"id": "a" * 64, "former": "b" * 64}
    failure = {"__rollback_failure": "no answer", "_rollback_unrestored": unrestored}
    return play(name, [end], __rollback_target=target, **failure)


def end_of_upgrade(name: str, invocation: str, pid: int | None) -> Play:
    tasks = load_yaml(read("roles/upgrade/tasks/switch.yml"))
    (end,) = [task for task in tasks if task["name"] == "Show the end of the upgrade"]
    given = {
        **load_yaml(read("roles/upgrade/vars/main.yml")),
        "gb10_plan": {**upgraded(), "node": {"head": True}},
        "__upgrade_before": {"service": {"pid": pid, "invocation": "a"}},
        "__upgrade_after": {"service": {"invocation": invocation, "stopped": 100.04}},
        "vllm_serve_smoke": {"answered": 112.52},
    }
    return {**play(name, [end], **given), "hosts": "spark1"}


def overrides_of_a_prepared_runtime(folder: Path) -> Play:
    """Return a play whose variable reaches the internal role through the role that calls it."""
    overrides = {"environment": {"VLLM_USE_FLASHINFER_MOE_FP8": "0"}, "flags": [], "files": {}, "mounts": []}
    call = {"name": "gb10.cluster.common", "tasks_from": "overrides", "rolespec_validate": False}
    given = {"common_overrides_role": "vllm_patch", "common_overrides": overrides}
    caller = folder / "roles/caller/tasks/main.yml"
    caller.parent.mkdir(parents=True)
    caller.write_text(json.dumps([{"ansible.builtin.include_role": call, "vars": given}]), encoding="utf-8")
    added = "{{ gb10_plan.node.additions.vllm_patch.environment | to_json }}"
    tasks = [
        {"ansible.builtin.include_role": {"name": "caller"}, "vars": {"common_overrides_save": False}},
        {"name": "Show what was added", "gb10.cluster.show": {"lines": [added]}},
    ]
    alone = {**upgraded(), "nodes": upgraded()["nodes"][:1]}
    return {**play("overrides", tasks, gb10_plan={**alone, "node": alone["nodes"][0]}), "hosts": "spark1"}


@pytest.fixture(scope="module")
def shown(pair: Pair) -> dict[str, Run]:
    """The output of all plays that need neither check mode nor a limit."""
    lost = [
        {"ansible.builtin.file": {"path": path, "state": "absent"}, "changed_when": False, "run_once": True}
        for path in (f"{pair.of('spark2')}/{pair.old.id}.json", f"{pair.folder}/model/config.json")
    ]
    # Other wheels in the folder of the running launch.
    runtime_now = {**PLAN["runtime"], "path": f"{pair.folder}/runtime"}
    other_wheels = of_each({**upgraded(), "runtime": runtime_now})
    return pair.run(
        [
            failed_rollback("failed, then restored", []),
            failed_rollback("failed twice", ["No space left on device"]),
            role("history", "list"),
            role("history", "difference", history_from=pair.new.id[:6], history_to=pair.old.id),
            role("history", "one ID", history_from=pair.old.id),
            role("history", "unknown ID", history_from="ffff0000ffff", history_to=pair.old.id),
            role("rollback", "unconfirmed"),
            role("rollback", "rollback to an unknown ID", rollback_to="ffffffffffff", rollback_confirmed=True),
            role("upgrade", "refused upgrade", **other_wheels),
            end_of_upgrade("restarted", "b", 7),
            end_of_upgrade("not restarted", "a", 7),
            end_of_upgrade("nothing ran", "b", None),
            overrides_of_a_prepared_runtime(pair.folder),
            play("lost", lost),
            role("rollback", "lost record and model", rollback_confirmed=True),
        ]
    )


@pytest.mark.slow
def test_the_history_lists_both_launches_and_their_difference(pair: Pair, shown: dict[str, Run]) -> None:
    old, new = pair.old.id[:12], pair.new.id[:12]
    listed = shown["list"].shown("Show the launch records")
    assert listed[0].startswith(f"{new}  2026-11-22 02:00:00  {pair.folder}/model, stack current (current)")
    assert listed[1].startswith(f"since {old}: serve args: - --a; serve args: + --b;")
    assert listed[2] == "on all nodes; a rollback needs no download"
    difference = shown["difference"].shown("Show the launch records")
    assert difference[:3] == [f"from {new} to {old}:", "serve args: - --b", "serve args: + --a"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one ID", "Only one of history_from and history_to is set."),
        ("unknown ID", "no record with the ID 'ffff0000ffff'. Expected: one of "),
        (
            "unconfirmed",
            "Nothing was rolled back. Expected: the answer yes on a terminal, or rollback_confirmed: true.",
        ),
    ],
)
def test_a_refusal_has_its_reason(shown: dict[str, Run], name: str, reason: str) -> None:
    assert shown[name].shown(REFUSAL)[0].startswith(reason)


def test_every_problem_of_a_rollback_is_refused_together(pair: Pair, shown: dict[str, Run]) -> None:
    heading = "The rollback is not possible; nothing was changed:"
    model = f"{pair.folder}/model is missing or changed. Fix: gb10_model: {pair.folder}/model"
    assert shown["lost record and model"].shown(REFUSAL) == [
        heading,
        f"spark2: the record {pair.old.id[:12]} is missing",
        f"spark1: {model}",
    ]
    unknown = shown["rollback to an unknown ID"].shown(REFUSAL)
    assert (unknown[0], unknown[1].partition(". ")[0]) == (heading, "no record with the ID 'ffffffffffff'")
    assert {io_record.current_id(pair.of(name)) for name in NODES} == {pair.new.id}


def test_a_failed_rollback_reports_whether_the_former_launch_serves(shown: dict[str, Run]) -> None:
    failed = "The rollback to aaaaaaaaaaaa failed: no answer. The former record bbbbbbbbbbbb"
    restored, twice = (shown[name].shown(REFUSAL) for name in ("failed, then restored", "failed twice"))
    assert restored == [f"{failed} was restored. It answers again."]
    assert twice == [f"{failed} does not serve again: No space left on device. Fix: run site.yml."]


def test_a_refused_upgrade_prepares_nothing(shown: dict[str, Run]) -> None:
    assert shown["refused upgrade"].shown(REFUSAL)[0] == "The upgrade is not possible; nothing was changed:"
    assert "Keep the plan" not in shown["refused upgrade"].output


def test_the_length_of_the_stop_is_at_the_end_of_the_run(shown: dict[str, Run]) -> None:
    *_plays, last = shown.values()
    answers = last.output.partition("PLAY RECAP")[2].splitlines()[-9:]
    stops, advice = answers[1::3], answers[2::3]
    measured = "  stop: 12.5 s, from the stop of the old server to the first answer"
    assert stops == [measured, "  stop: none", "  stop: none"]
    assert all(line.endswith("gb10_stack: new") for line in advice)


def test_a_prepared_runtime_saves_no_overrides(shown: dict[str, Run]) -> None:
    assert shown["overrides"].shown("Show what was added") == ['{"VLLM_USE_FLASHINFER_MOE_FP8": "0"}']


@pytest.mark.slow
def test_check_mode_announces_a_rollback_and_an_upgrade(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    done = pair.run([role("rollback", "rollback"), role("upgrade", "upgrade", **of_each(upgraded()))], "--check")
    shown = done["rollback"].shown("Announce the rollback")
    assert shown[0] == f"rollback from {pair.new.id[:12]} ({tmp_path}/model) to {pair.old.id[:12]} ({tmp_path}/model)"
    assert {"vLLM and Ray stop on all nodes, and start again", "serve args: - --b", "serve args: + --a"} <= set(shown)
    announced = done["upgrade"].shown("Announce the upgrade")
    assert announced[0].endswith("stack new") and any(line.startswith("stack vllm: ") for line in announced)
    assert "Keep the plan for the switch" not in done["upgrade"].output


@pytest.mark.slow
def test_nodes_that_are_left_out_are_a_warning_of_the_history_and_stop_a_rollback(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    plays = [role("history", "history", history_nodes=list(NODES)), role("rollback", "rollback")]
    done = pair.run(plays, "--limit", "spark1")
    warning, first, *_more = done["history"].shown("Show the launch records")
    assert (warning, first[:12]) == ("warning: not read: spark2", pair.new.id[:12])
    said = "This run leaves out spark2. Expected: every node of the cluster."
    assert done["rollback"].shown(REFUSAL)[0].startswith(said)

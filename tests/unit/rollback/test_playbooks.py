"""The roles history and rollback on this machine, as two nodes with records in folders, until the confirmation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launches import NODES, record, runtime
from repository import load_yaml, read
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import Record

SHORT = 12


class Pair:
    """Two nodes that recorded two launches, the second with another argument."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, list[Record]] = {
            name: [self.launch(name, "--a", 1), self.launch(name, "--b", 2)] for name in NODES
        }
        for name, found in self.records.items():
            for each in found:
                io_record.save(io_record.read(self.of(name)), each, 20, {}, write=True)
        self.old, self.new = self.records["spark1"]

    def launch(self, node: str, argument: str, hour: int) -> Record:
        return record(f"{argument}\n", node, f"2026-11-22 0{hour}:00:00", plan=runtime(self.folder, argument))

    def of(self, name: str) -> str:
        return str(self.folder / name / "records")

    def play(self, role: str, *arguments: str) -> Run:
        hosts = {name: {"records": self.of(name)} for name in NODES}
        local = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        inventory, playbook = self.folder / "hosts.json", self.folder / "play.yml"
        inventory.write_text(json.dumps({"gb10_cluster": {"hosts": hosts, "vars": local}}), encoding="utf-8")
        play = {
            "hosts": "gb10_cluster",
            "gather_facts": False,
            "any_errors_fatal": True,
            "vars": {"rollback_nodes": list(NODES)},
            "module_defaults": {
                f"gb10.cluster.{name}": {"folder": "{{ records }}"} for name in ("launch_record", "launch_record_info")
            },
            "tasks": [{"ansible.builtin.include_role": {"name": f"gb10.cluster.{role}"}}],
        }
        playbook.write_text(json.dumps([play]), encoding="utf-8")
        return run(str(playbook), ["--inventory", str(inventory), *arguments])


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_the_history_lists_both_launches_and_their_difference(pair: Pair) -> None:
    shown = pair.play("history").assert_unchanged().shown("Show the launch records")
    assert shown[0].startswith(
        f"{pair.new.id[:SHORT]}  2026-11-22 02:00:00  {pair.folder}/model, stack current (current)"
    )
    assert shown[1].startswith(f"since {pair.old.id[:SHORT]}: serve args: - --a; serve args: + --b;")
    assert shown[2] == "on all nodes; a rollback needs no download"
    given = ["-e", f"history_from={pair.new.id[:6]}", "-e", f"history_to={pair.old.id}"]
    difference = pair.play("history", *given).assert_unchanged().shown("Show the launch records")
    assert difference[:3] == [
        f"from {pair.new.id[:SHORT]} to {pair.old.id[:SHORT]}:",
        "serve args: - --b",
        "serve args: + --a",
    ]


def test_a_node_that_is_not_read_is_a_warning(pair: Pair) -> None:
    given = ["--limit", "spark1", "-e", json.dumps({"history_nodes": list(NODES)})]
    shown = pair.play("history", *given).assert_unchanged().shown("Show the launch records")
    assert shown[0] == "warning: not read: spark2" and shown[1].startswith(pair.new.id[:SHORT])


def test_one_id_alone_is_refused(pair: Pair) -> None:
    refused = pair.play("history", "-e", f"history_from={pair.old.id}")
    assert refused.status != 0 and "Only one of history_from and history_to is set." in refused.output


def test_an_unknown_id_is_a_plain_error(pair: Pair) -> None:
    refused = pair.play("history", "-e", "history_from=ffff0000ffff", "-e", f"history_to={pair.old.id}")
    assert refused.status != 0 and "no record with the ID" in refused.output
    assert "Finalization" not in refused.output


def test_check_mode_announces_the_rollback(pair: Pair) -> None:
    shown = pair.play("rollback", "--check").assert_unchanged().shown("Announce the rollback")
    assert shown[0].startswith(f"rollback from {pair.new.id[:SHORT]} (") and f" to {pair.old.id[:SHORT]} (" in shown[0]
    assert {"vLLM and Ray stop on all nodes, and start again", "serve args: - --b", "serve args: + --a"} <= set(shown)


def test_without_a_confirmation_nothing_is_rolled_back(pair: Pair) -> None:
    refused = pair.play("rollback")
    assert refused.status != 0
    assert (
        "Nothing was rolled back. Expected: the answer yes on a terminal, or rollback_confirmed: true."
        in refused.output
    )
    assert "Restore the services" not in refused.output and set(refused.changed.values()) == {0}


def test_every_problem_is_refused_together_before_any_change(pair: Pair) -> None:
    Path(pair.of("spark2"), f"{pair.old.id}.json").unlink()
    (pair.folder / "model/config.json").unlink()
    refused = pair.play("rollback", "-e", "rollback_confirmed=true")
    said = refused.output.replace("\\n", "\n")
    assert refused.status != 0 and "The rollback is not possible; nothing was changed:" in said
    assert f"spark2: the record {pair.old.id[:SHORT]} is missing" in said
    assert f"spark1: {pair.folder}/model is missing or changed. Fix: gb10_model: {pair.folder}/model" in said
    assert set(refused.changed.values()) == {0}


def test_an_unknown_id_changes_nothing(pair: Pair) -> None:
    refused = pair.play("rollback", "-e", "rollback_to=ffffffffffff", "-e", "rollback_confirmed=true")
    assert refused.status != 0 and "no record with the ID 'ffffffffffff'. Expected: one of " in refused.output
    assert set(refused.changed.values()) == {0}
    assert {io_record.current_id(pair.of(name)) for name in NODES} == {pair.new.id}


def test_a_node_that_is_left_out_is_refused(pair: Pair) -> None:
    refused = pair.play("rollback", "--limit", "spark1")
    assert refused.status != 0 and "This run leaves out spark2. Expected: every node of the cluster." in refused.output


@pytest.mark.parametrize(
    ("problem", "end"),
    [
        ("", "The former record bbbbbbbbbbbb was restored. It answers again."),
        (
            "No space left on device",
            "The former record bbbbbbbbbbbb does not serve again: No space left on device. Fix: run site.yml.",
        ),
    ],
)
def test_a_failed_rollback_reports_whether_the_former_launch_serves(tmp_path: Path, problem: str, end: str) -> None:
    last = load_yaml(read("roles/rollback/tasks/return.yml"))[-1]
    given = {
        "__rollback_target": {"id": "a" * 64, "former": "b" * 64},
        "__rollback_failure": "no answer",
        "_rollback_unrestored": [problem] if problem else [],
    }
    playbook = tmp_path / "play.yml"
    playbook.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": [last]}]), encoding="utf-8"
    )
    failed = run(str(playbook), ["-i", "localhost,", "-c", "local"])
    assert failed.status != 0 and f"The rollback to aaaaaaaaaaaa failed: no answer. {end}\n" in failed.output

"""The actions of launch_record and launch_history: the record of a plan, and the decision after a failed launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from decisions import task
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.action import launch_history, launch_record
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

LAUNCH = {"files": {}, "secret_files": [], "driver": "580.1", "kernel": "6.17"}
NODES = ("spark1", "spark2")
PLAN = {"nodes": [{"name": name} for name in NODES], "head": {"name": "spark1", "address": "10.110.0.1"}}


class Play:
    """An action on the first node, with the module behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Any, arguments: dict[str, Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self.task = object.__new__(action.ActionModule)
        self.task._task = task(arguments)
        self.task._templar = SimpleNamespace(template=lambda value: value)
        monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
        monkeypatch.setattr(self.task, "arguments", lambda **_options: arguments, raising=False)
        monkeypatch.setattr(self.task, "_execute_module", self.execute, raising=False)

    def execute(self, module_args: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return a change by the module."""
        self.calls.append(module_args)
        return {"changed": True}

    def run(self, hosts: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.task.run(
            None, {"gb10_plan": fact(PLAN), "hostvars": hosts, "ansible_play_hosts": NODES}
        )
        return found


def hosts(current: str = "", settled: bool = True, **first: Any) -> dict[str, Any]:
    """Return the variables of all nodes; ``first``: further ones of the first node."""
    installed = {"launch": LAUNCH, "current": current, "settled": settled}
    return {name: {"gb10_installed": installed, **(first if name == "spark1" else {})} for name in NODES}


CONTENT = record.content(load.plan(fact(PLAN)), dict.fromkeys(NODES, LAUNCH))
ID = record.digest(CONTENT)


def test_a_recorded_launch_needs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, launch_record, {"launches": "gb10_installed"})
    assert play.run(hosts(ID)) == {"changed": False, "id": ID}
    assert play.calls == []


@pytest.mark.parametrize(
    ("current", "settled"), [("f" * 64, True), ("", True), (ID, False)], ids=["another", "none", "not settled"]
)
def test_another_record_is_written(monkeypatch: pytest.MonkeyPatch, current: str, settled: bool) -> None:
    play = Play(monkeypatch, launch_record, {"launches": "gb10_installed", "keep": 5})
    play.run(hosts(current, settled, golden_outcome={"outcome": "10 of 10 answers are equal"}))
    (given,) = play.calls
    assert given.pop("time")
    assert given == {
        "keep": 5,
        "content": CONTENT,
        "node": "spark1",
        "golden": "10 of 10 answers are equal",
        "findings": record.findings(load.plan(fact(PLAN))),
    }


def test_a_selected_record_reaches_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, launch_record, {"state": "selected", "id": ID})
    assert play.run({}) == {"changed": True}
    assert play.calls == [{"state": "selected", "id": ID}]


def test_a_failed_launch_is_decided_from_the_errors_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"purpose": "failure", "nodes": list(NODES), "records": "read"}
    play = Play(monkeypatch, launch_history, arguments)
    start = {"id": "a" * 64, "model": "tiny"}
    found = {name: {"read": {"start": start, "differs": ["/etc/gb10/cluster.env"]}} for name in NODES}
    found["spark2"]["gb10_launch_problem"] = "no memory"
    verdict = play.run(found)
    assert (verdict["why"], verdict["start"], verdict["why_not"]) == ("spark2: no memory", start, "")
    assert "failed" not in verdict, "Ansible would fail the task"

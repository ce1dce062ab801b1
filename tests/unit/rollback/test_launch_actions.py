"""The actions of launch_record and launch_history: the record of a plan, and the decision after a failed launch."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import decide
from launches import LAUNCH, NODES
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

PLAN = fact({"nodes": [{"name": name} for name in NODES], "head": {"name": "spark1", "address": "10.110.0.1"}})
CONTENT = record.content(load.plan(PLAN), dict.fromkeys(NODES, LAUNCH))
ID = record.digest(CONTENT)


def hosts(current: str = "", settled: bool = True) -> dict[str, Any]:
    """Return the variables of all nodes, whose current record has this ID."""
    installed = {"launch": LAUNCH, "current": current, "settled": settled}
    golden = {"golden_outcome": {"outcome": "10 of 10 answers are equal"}}
    return {"spark1": {"__launch": installed, **golden}, "spark2": {"__launch": installed}}


def test_a_recorded_launch_needs_no_connection() -> None:
    result, calls = decide("launch_record", {"launches": "__launch"}, PLAN, hosts(ID))
    assert (result, calls) == ({"changed": False, "id": ID}, [])


@pytest.mark.parametrize(
    ("current", "settled"), [("f" * 64, True), ("", True), (ID, False)], ids=["another", "none", "not settled"]
)
def test_another_record_is_written(current: str, settled: bool) -> None:
    arguments = {"launches": "__launch", "keep": 5}
    _result, (given,) = decide("launch_record", arguments, PLAN, hosts(current, settled))
    assert given.pop("time")
    assert given == {
        "keep": 5,
        "content": CONTENT,
        "node": "spark1",
        "golden": "10 of 10 answers are equal",
        "findings": record.findings(load.plan(PLAN)),
    }


def test_a_selected_record_reaches_the_module() -> None:
    arguments = {"state": "selected", "id": ID}
    assert decide("launch_record", arguments, PLAN, result={"changed": True}) == ({"changed": True}, [arguments])


def test_a_failed_launch_is_decided_from_the_errors_of_all_nodes() -> None:
    start = {"id": "a" * 64, "model": "tiny"}
    found = {name: {"read": {"start": start, "differs": ["/etc/gb10/cluster.env"]}} for name in NODES}
    found["spark2"]["gb10_launch_problem"] = "no memory"  # type: ignore[assignment]
    arguments = {"purpose": "failure", "nodes": list(NODES), "records": "read", "allowed": True}
    verdict, _calls = decide("launch_history", arguments, PLAN, found)
    assert (verdict["why"], verdict["start"]) == ("spark2: no memory", start)
    assert "Restored tiny. It answers again." in verdict["end"]
    assert decide("launch_history", {**arguments, "allowed": False}, PLAN, found)[0]["start"] == {}
    assert "failed" not in verdict, "Ansible would fail the task"

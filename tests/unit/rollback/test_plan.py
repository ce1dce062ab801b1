"""Rollback to the last model that answered: the start, the decision and the final message."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from cluster_nodes import node_plan
from launches import PLAN
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan as rollback_plan
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

GOOD = record.start(typed(PLAN))


def test_a_start_is_the_same_on_every_node() -> None:
    assert {"model", "served_model_name", "url", "server_name", "needs"} < GOOD.keys()
    assert {record.start(load.plan(node_plan(PLAN, name)))["id"] for name in ("spark1", "spark2")} == {GOOD["id"]}


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(model="other"),
        lambda plan: plan.update(executor="mp"),
        lambda plan: plan["nodes"][1]["environment"].update(A="1"),
        lambda plan: plan["nodes"][1]["additions"].update(
            vllm_patch={"runtime": "", "environment": {}, "flags": [], "files": {"a": "b"}}
        ),
    ],
    ids=["model", "executor", "environment", "additions"],
)
def test_a_start_from_anything_else_is_another(change: Any) -> None:
    plan = copy.deepcopy(PLAN)
    change(plan)
    assert record.start(typed(plan))["id"] != GOOD["id"]


def node(
    name: str, problem: str = "", start: dict[str, Any] | None = None, differs: tuple[str, ...] = ("unit",)
) -> dict[str, Any]:
    return {
        "name": name,
        "problem": problem,
        "record": {"start": GOOD if start is None else start, "differs": list(differs)},
    }


BAD = "gb10-vllm.service failed to start: ValueError: bad."


def test_back_to_the_last_good_start() -> None:
    failed = [node("spark1", BAD), node("spark2", differs=())]
    verdict = rollback_plan.judge(failed, "broken", True)
    assert (verdict["why"], verdict["start"]) == (f"spark1: {BAD}", GOOD)
    begin = f"broken could not be started:\nspark1: {BAD}\n"
    assert verdict["end"] == (
        f"{begin}Restored {GOOD['model']}. It answers again. The next run with broken retries it."
    )
    assert verdict["lost"] == f"{begin}The rollback to {GOOD['model']} failed: "
    refused = rollback_plan.judge(failed, "broken", False)
    assert (refused["start"], refused["end"]) == ({}, f"{begin}No rollback: vllm_serve_rollback is false.")
    again = rollback_plan.judge(failed, GOOD["model"], True)
    assert "with its previous configuration. It answers again" in again["end"]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("spark1", BAD, {}), node("spark2", "", {})], "no model has answered on this cluster before"),
        ([node("spark1", BAD), node("spark2", "", {})], "spark2 has no record of the last good launch"),
        (
            [node("spark1", BAD), node("spark2", "", {**GOOD, "id": "other"})],
            "the nodes have records of different launches, for example after a killed run",
        ),
        ([node("spark1", BAD, differs=()), node("spark2", differs=())], "the failed launch is the last good one"),
    ],
)
def test_there_is_no_way_back(nodes: list[dict[str, Any]], why: str) -> None:
    for allowed in (True, False):
        verdict = rollback_plan.judge(nodes, "broken", allowed)
        assert verdict["start"] == {} and verdict["end"].endswith(f"\nNo rollback: {why}.")


def test_all_problems_are_said() -> None:
    assert (
        rollback_plan.judge([node("spark1", BAD), node("spark2", "no memory")], "x", True)["why"]
        == f"spark1: {BAD}\nspark2: no memory"
    )
    assert rollback_plan.judge([node("spark1"), node("spark2")], "x", True)["why"] == ""


@pytest.mark.parametrize("order", [1, -1])
def test_one_node_cannot_change_the_launch_that_all_return_to(order: int) -> None:
    other = {**GOOD, "url": "http://198.51.100.9:8000"}
    verdict = rollback_plan.judge([node("spark1", BAD), node("spark2", start=other)][::order], "x", True)
    assert verdict["start"] == {} and "records of different launches" in verdict["end"]

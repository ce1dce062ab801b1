"""Rollback to the last model that answered: the record, the decision and the final message."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from filters import FILTERS
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan as rollback

PLAN = json.loads((Path(__file__).parents[1] / "data" / "plan_two_spark.json").read_text(encoding="utf-8"))
GOOD = rollback.start(PLAN)


def test_a_start_is_the_same_on_every_node() -> None:
    assert {"model", "served_model_name", "url", "server_name", "needs"} < GOOD.keys()
    assert {FILTERS["last_good_record"](FILTERS["node_plan"](PLAN, name))["id"] for name in ("spark1", "spark2")} == {GOOD["id"]}


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(model="other"),
        lambda plan: plan.update(executor="mp"),
        lambda plan: plan["nodes"][1]["environment"].update(A="1"),
        lambda plan: plan["nodes"][1]["additions"].update(vllm_patch={"runtime": "", "environment": {}, "flags": [], "files": {"a": "b"}}),
    ],
    ids=["model", "executor", "environment", "additions"],
)
def test_a_start_from_anything_else_is_another(change: Any) -> None:
    plan = copy.deepcopy(PLAN)
    change(plan)
    assert rollback.start(plan)["id"] != GOOD["id"]


def node(name: str, problem: str = "", start: dict[str, Any] | None = None, differs: tuple[str, ...] = ("unit",)) -> dict[str, Any]:
    return {"name": name, "problem": problem, "record": {"start": GOOD if start is None else start, "differs": list(differs)}}


BAD = "gb10-vllm.service failed to start: ValueError: bad."


def test_back_to_the_last_good_start() -> None:
    verdict = rollback.judge([node("spark1", BAD), node("spark2", differs=())])
    assert verdict == {"failed": f"spark1: {BAD}", "start": GOOD, "why_not": ""}
    said = rollback.message(verdict, "broken", True, "")
    assert said.startswith(f"broken could not be started:\nspark1: {BAD}\nRestored {GOOD['model']}. It answers again.")
    assert "It does not answer either: no token" in rollback.message(verdict, "broken", True, "no token")
    assert "vllm_serve_rollback is false" in rollback.message(verdict, "broken", False, "")
    assert "with its previous configuration. It answers again" in rollback.message(verdict, GOOD["model"], True, "")


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
    verdict = rollback.judge(nodes)
    assert (verdict["start"], verdict["why_not"]) == ({}, why)
    assert rollback.message(verdict, "broken", True, "").endswith(f"No rollback: {why}.")


def test_all_problems_are_said() -> None:
    assert rollback.judge([node("spark1", BAD), node("spark2", "no memory")])["failed"] == f"spark1: {BAD}\nspark2: no memory"
    assert rollback.judge([node("spark1"), node("spark2")])["failed"] == ""


ENV, RAY, VLLM = io_record.FILES[:3]
ADDED = "/etc/gb10/overrides.d/vllm_patch.json"


def put(root: Path, path: str, text: str) -> None:
    file = Path(f"{root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o644)


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    root, path = str(tmp_path), str(tmp_path / "etc/gb10/last_good.json")
    for name in (ENV, RAY, VLLM):
        put(tmp_path, name, f"old {name}")
    old = io_record.present(root)
    io_record.write(path, {"start": GOOD, "files": old})
    assert (tmp_path / "etc/gb10/last_good.json").stat().st_mode & 0o777 == 0o600
    # Another executor and another model: one file is removed, one changed, one new.
    Path(f"{root}{RAY}").unlink()
    put(tmp_path, VLLM, "new")
    put(tmp_path, ADDED, "{}")
    record = io_record.read(path)
    assert io_record.units(record["files"]) == ["gb10-ray.service", "gb10-vllm.service"]
    differs = io_record.differences(record, io_record.present(root))
    assert differs == sorted([ADDED, RAY, VLLM])
    io_record.restore(record, differs, root)
    assert io_record.present(root) == old
    assert io_record.differences(record, io_record.present(root)) == []


def test_the_modules_record_and_compare(tmp_path: Path) -> None:
    path = str(tmp_path / "good.json")
    nothing = run_module("last_good_config_info", {"path": path})
    assert (nothing["changed"], nothing["start"], nothing["units"]) == (False, {}, [])
    given = {"path": path, "start": GOOD}
    assert run_module("last_good_config", given, check=True)["changed"]
    assert not Path(path).exists()
    assert run_module("last_good_config", given)["changed"]
    assert not run_module("last_good_config", given)["changed"]
    answer = run_module("last_good_config", {"path": path, "state": "restored"})
    assert (answer["changed"], answer["start"], answer["differs"]) == (False, GOOD, [])
    found = run_module("last_good_config_info", {"path": path}, check=True)
    assert (found["changed"], found["start"], found["differs"]) == (False, GOOD, [])


def test_last_good_config_without_launch_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    assert "start" in run_module("last_good_config", {"path": str(path)})["msg"]
    assert not path.exists()


def test_the_modules_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    assert "no launch to restore" in run_module("last_good_config", {"path": str(path), "state": "restored"})["msg"]
    path.write_text("[", encoding="utf-8")
    assert f"{path} is not JSON" in run_module("last_good_config_info", {"path": str(path)})["msg"]
    assert f"{path} is not JSON" in run_module("last_good_config", {"path": str(path), "start": GOOD})["msg"]
    path.write_text('{"start": 1}', encoding="utf-8")
    assert "is not a launch record" in run_module("last_good_config_info", {"path": str(path)})["msg"]

"""The results of vllm_patch on all nodes, compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from decisions import task
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.action import vllm_patch
from ansible_collections.gb10.cluster.plugins.module_utils.patch.checks import check


def result(**changes: Any) -> dict[str, Any]:
    equal = {"patches": [], "capability": "12.1", "vllm_version": "0.33.0", "package_dir": "/opt/vllm"}
    options = {"state": "present"}
    return {**equal, "flags": [], "environment": {}, "files": {"a.py": "1"}, "options": options, **changes}


def paths(*results: dict[str, Any]) -> list[str]:
    return [problem.path for problem in check({f"spark{number}": each for number, each in enumerate(results, 1)})]


def test_equal_nodes_have_no_problem() -> None:
    assert paths(result(), result(), result(files={"a.py": "1", "b.py": "2"})) == []


def test_another_release_is_one_problem() -> None:
    assert paths(result(), result(vllm_version="0.32.0", files={"a.py": "2"})) == ["spark2.vllm_version"]


def test_each_difference_of_one_release_is_named() -> None:
    other = result(flags=["--x"], environment={"X": "1"}, files={"a.py": "2"})
    assert paths(result(), other) == ["spark2.flags", "spark2.environment", "spark2.a.py"]


def test_another_gpu_and_a_skipped_node_are_not_compared() -> None:
    assert paths(result(), result(capability="9.0", vllm_version="0.32.0"), {"skipped": True}) == []


def test_an_impossible_patch_is_named() -> None:
    entry = {"name": "w8a8", "status": "unsupported", "reason": "another shape"}
    assert paths(result(patches=[{**entry, "status": "applied"}]), result(patches=[entry])) == ["spark2.w8a8"]


COPY = {
    "image_id": "12",
    "package_dir": "/opt/gb10/images/1/site-packages/vllm",
    "config_folder": "/opt/gb10/images/1/config/gb10_moe_configs",
    "toolkit": {"path": "/opt/gb10/images/1/toolkit/ptxas", "runs_as": "/usr/local/cuda/bin/ptxas"},
    "mounts": [{"source": "/a", "target": "/b", "read_only": True}],
}


def act(
    monkeypatch: pytest.MonkeyPatch,
    plan: dict[str, Any],
    arguments: dict[str, Any],
    copy: dict[str, Any] | None = None,
    **nodes: Any,
) -> tuple[dict[str, Any], list[Any]]:
    """Run the action with these registered results. Return its result and the module's arguments."""
    calls: list[Any] = []

    def module(module_args: dict[str, Any], **_variables: Any) -> dict[str, Any]:
        calls.append(module_args)
        return {"changed": True}

    action = object.__new__(vllm_patch.ActionModule)
    action._task, action._templar = task(arguments), SimpleNamespace(template=lambda value: value)
    monkeypatch.setattr(action, "_execute_module", module, raising=False)
    hosts = {name: {"compared": found, "__vllm_patch_copy": copy or {}} for name, found in nodes.items()}
    return action.decide({"gb10_plan": plan, "hostvars": hosts}), calls


@pytest.mark.parametrize("arguments", [{"python": "/venv/bin/python"}, {"package_dir": "/venv/vllm"}])
def test_the_action_leaves_the_users_place(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    assert act(monkeypatch, {}, arguments)[1] == [arguments]


@pytest.mark.parametrize(
    ("state", "copy", "files", "mounts", "news"),
    [
        ("present", {"skipped": True}, {"a.py": "1"}, [], True),
        ("present", COPY, {"a.py": "1"}, COPY["mounts"], True),
        ("absent", COPY, {}, [], False),
    ],
)
def test_the_overrides_of_a_result(
    monkeypatch: pytest.MonkeyPatch, state: str, copy: Any, files: dict[str, str], mounts: Any, news: bool
) -> None:
    found = result(flags=["--x"], environment={"X": "1"}, options={"state": state})
    answer, calls = act(monkeypatch, fact({}), {"compared": "compared"}, copy, spark1=found, spark2=found)
    overrides = {"environment": {"X": "1"}, "flags": ["--x"], "files": files, "mounts": mounts}
    assert answer == {"changed": False, "report": "", "overrides": overrides, "news": news, "recorded": False}
    assert calls == []


@pytest.mark.parametrize(("of_spark2", "everywhere"), [(True, True), (False, False)])
def test_recorded_overrides_are_no_news(monkeypatch: pytest.MonkeyPatch, of_spark2: bool, everywhere: bool) -> None:
    plan = fact({})
    entry = {"environment": {}, "flags": [], "files": {"a.py": "1"}, "mounts": [], "runtime": plan["runtime"]["name"]}
    nodes = [{**node, "additions": {"vllm_patch": entry}} for node in plan["nodes"]]
    plan |= {"nodes": nodes if of_spark2 else [nodes[0], {**nodes[1], "additions": {}}], "node": nodes[0]}
    answer = act(monkeypatch, plan, {"compared": "compared"}, spark1=result(), spark2=result())[0]
    assert (answer["news"], answer["recorded"]) == (False, everywhere)


def test_a_fresh_node_in_check_mode_has_nothing_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fact({})
    plan |= {"nodes": [{**node, "additions": {}} for node in plan["nodes"]], "node": {**plan["node"], "additions": {}}}
    skipped = {"skipped": True}
    answer = act(monkeypatch, plan, {"compared": "compared"}, spark1=skipped, spark2=skipped)[0]
    assert (answer["recorded"], answer["news"]) == (True, False)
    assert answer["overrides"] == {"environment": {}, "flags": [], "files": {}, "mounts": []}


def test_the_action_reports_a_difference_between_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"spark1": result(), "spark2": result(vllm_version="0.32.0")}
    report = act(monkeypatch, fact({}), {"compared": "compared"}, **nodes)[0]["report"]
    assert "spark2.vllm_version" in report and "one release on all nodes" in report

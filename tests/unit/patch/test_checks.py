"""The results of vllm_patch on all nodes, compared."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import SETTINGS
from decisions import decide
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.patch.checks import check


def result(**changes: Any) -> dict[str, Any]:
    equal = {"patches": [], "capability": "12.1", "vllm_version": "0.33.0", "package_dir": "/opt/vllm"}
    return {**equal, "flags": [], "environment": {}, "files": {"a.py": "1"}, **changes}


ENTRY = {"name": "w8a8", "status": "unsupported", "reason": "another shape"}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([result(), result(patches=[{**ENTRY, "status": "applied"}]), result(files={"b.py": "2"})], {}),
        (
            [result(), result(vllm_version="0.32.0", files={"a.py": "2"})],
            {"spark2.vllm_version": "vLLM 0.32.0 on spark2, and 0.33.0 on spark1"},
        ),
        (
            [result(), result(flags=["--x"], environment={"X": "1"}, files={"a.py": "2"})],
            {
                "spark2.flags": "['--x'] on spark2, and [] on spark1",
                "spark2.environment": "{'X': '1'} on spark2, and {} on spark1",
                "spark2.a.py": "it would differ from the file on spark1",
            },
        ),
        ([result(), result(capability="9.0", vllm_version="0.32.0", files={"a.py": "2"}), {"skipped": True}], {}),
        ([result(patches=[ENTRY])] * 2, {"spark1.w8a8": "another shape", "spark2.w8a8": "another shape"}),
    ],
    ids=["equal", "another release", "each difference", "another GPU and a skipped node", "an impossible patch"],
)
def test_differences_of_nodes_with_the_same_gpu_are_problems(
    results: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    problems = check({f"spark{number}": each for number, each in enumerate(results, 1)})
    assert {problem.path: problem.found for problem in problems} == expected
    assert all("vllm_patch_patches" in problem.fix for problem in problems if "w8a8" in problem.path)


COPY = {
    "image_id": "12",
    "package_dir": "/opt/gb10/images/1/site-packages/vllm",
    "config_folder": "/opt/gb10/images/1/config/gb10_moe_configs",
    "toolkit": {"path": "/opt/gb10/images/1/toolkit/ptxas", "runs_as": "/usr/local/cuda/bin/ptxas"},
    "mounts": [{"source": "/a", "target": "/b", "read_only": True}],
}


def act(
    plan: dict[str, Any], copy: dict[str, Any] | None = None, state: str = "present", **nodes: dict[str, Any]
) -> dict[str, Any]:
    """Return the action's decision about these registered results."""
    hosts = {name: {"compared": found, "__vllm_patch_copy": copy or {}} for name, found in nodes.items()}
    variables = {"gb10_inputs": {"settings": {**SETTINGS, "vllm_patch_state": state}}}
    answer, calls = decide("vllm_patch", {"compared": "compared"}, plan, hosts, variables=variables)
    assert calls == []
    return answer


@pytest.mark.parametrize("arguments", [{"python": "/venv/bin/python"}, {"package_dir": "/venv/vllm"}])
def test_the_action_leaves_the_users_place(arguments: dict[str, Any]) -> None:
    assert decide("vllm_patch", arguments, {})[1] == [arguments]


@pytest.mark.parametrize(
    ("capability", "quantization", "given"),
    [
        ("", "auto", {"quantization": "fp8"}),
        ("12.0", "other", {"quantization": "other", "capability": "12.0"}),
    ],
)
def test_the_planned_module_gets_the_roles_variables(capability: str, quantization: str, given: dict[str, str]) -> None:
    """Without a capability, the module reads that of the GPU."""
    changed = {"vllm_patch_capability": capability, "vllm_patch_quantization": quantization}
    variables = {"gb10_inputs": {"settings": {**SETTINGS, **changed}}}
    (arguments,) = decide("vllm_patch", {"planned": True}, fact({"quantization": "fp8"}), variables=variables)[1]
    options = {name: arguments[name] for name in ("capability", "quantization") if name in arguments}
    assert (options, arguments["state"], arguments["patches"]) == (given, "present", SETTINGS["vllm_patch_patches"])


@pytest.mark.parametrize(
    ("state", "copy", "files", "mounts", "news"),
    [
        ("present", {"skipped": True}, {"a.py": "1"}, [], True),
        ("present", COPY, {"a.py": "1"}, COPY["mounts"], True),
        ("absent", COPY, {}, [], False),
    ],
)
def test_the_overrides_of_a_result(state: str, copy: Any, files: dict[str, str], mounts: Any, news: bool) -> None:
    found = result(flags=["--x"], environment={"X": "1"})
    overrides = {"environment": {"X": "1"}, "flags": ["--x"], "files": files, "mounts": mounts}
    expected = {"changed": False, "report": "", "overrides": overrides, "news": news, "recorded": False}
    assert act(fact({}), copy, state, spark1=found, spark2=found) == expected


@pytest.mark.parametrize("everywhere", [True, False])
def test_recorded_overrides_are_no_news(everywhere: bool) -> None:
    plan = fact({})
    entry = {"environment": {}, "flags": [], "files": {"a.py": "1"}, "mounts": [], "runtime": plan["runtime"]["name"]}
    first, second = ({**node, "additions": {"vllm_patch": entry}} for node in plan["nodes"])
    plan |= {"nodes": [first, second if everywhere else {**second, "additions": {}}], "node": first}
    answer = act(plan, spark1=result(), spark2=result())
    assert (answer["news"], answer["recorded"]) == (False, everywhere)


def test_a_fresh_node_in_check_mode_has_nothing_to_record() -> None:
    plan = fact({})
    plan |= {"nodes": [{**node, "additions": {}} for node in plan["nodes"]], "node": {**plan["node"], "additions": {}}}
    answer = act(plan, spark1={"skipped": True}, spark2={"skipped": True})
    assert (answer["recorded"], answer["news"]) == (True, False)
    assert answer["overrides"] == {"environment": {}, "flags": [], "files": {}, "mounts": []}


def test_the_action_reports_a_difference_between_nodes() -> None:
    report = act(fact({}), spark1=result(), spark2=result(vllm_version="0.32.0"))["report"]
    assert ("spark2.vllm_version" in report, "one release on all nodes" in report) == (True, True)

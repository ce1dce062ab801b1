"""The results of vllm_patch on all nodes, compared."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.patch.checks import check


def result(**changes: Any) -> dict[str, Any]:
    equal = {"patches": [], "capability": "12.1", "vllm_version": "0.33.0", "package_dir": "/opt/vllm"}
    return {**equal, "flags": [], "environment": {}, "files": {"a.py": "1"}, **changes}


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

"""GPU kernels in a verification: missing code, failed probes, the planned backends, and the runtime to probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_libraries import code, elf, fat
from verified_nodes import pair

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PROBED
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import io_facts, kernels, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

NONE = {"native": 0, "same_major": 0, "ptx": 0, "none": 53}


def found(nodes: list[dict[str, Any]]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for finding in report.findings(report.cluster(nodes), GROUPS, {}):
        result.setdefault(finding.check.id, []).append(f"{finding.place}: {finding.found}")
    return result


def probed(state: str, cause: str = "", error: float | None = None) -> list[dict[str, Any]]:
    """Return the results of a probe in which only fp8_vllm did not pass."""
    line = {"cause": "", "error": 0.0, "bound": 0.02, "seconds": 0.1, "message": "x"}
    changed = {"state": state, "cause": cause, "error": error}
    return [
        {"name": name, **line, "state": "passed", **(changed if name == "fp8_vllm" else {})}
        for name in gpu_probe.CHECKS
    ]


def test_the_planned_backend_needs_code_on_every_node() -> None:
    nodes = pair()
    # With Ray, only the head has vLLM's unit.
    nodes[0]["facts"]["kernels"]["chosen"] = {"--attention-backend": "FLASHMLA"}
    text = "vllm/_flashmla_C, which --attention-backend FLASHMLA needs, has no code for 12.1 (programs: 53)"
    assert found(nodes) == {"kernel-missing": [f"spark1: {text}", f"spark2: {text}"]}


def test_a_node_with_another_build() -> None:
    nodes = pair()
    nodes[1]["facts"]["kernels"]["extensions"]["vllm/_C_stable_libtorch"] = NONE
    assert found(nodes) == {
        "kernel-missing": [
            "spark2: vllm/_C_stable_libtorch, which each model needs, has no code for 12.1 (programs: 53)"
        ]
    }
    lines = report.report(nodes, GROUPS, "never", {})["lines"]
    assert [line for line in lines if line.startswith("programs")] == [
        f"programs with GPU code for 12.1 on spark{number}:" for number in (1, 2)
    ]


def test_another_group_does_not_show_the_counts() -> None:
    answer = report.report(pair(), ["fabric"], "never", {})
    assert (len(answer["lines"]), len(answer["json_lines"])) == (1, 1)


@pytest.mark.parametrize(
    ("results", "ids"),
    [
        (probed("passed", error=0.01), set()),
        (probed("unsupported"), set()),
        (probed("skipped", "memory"), set()),
        (probed("failed", "wrong_result", 0.25), {"gpu-probe-failed"}),
        (probed("failed", "no_kernel"), {"gpu-probe-failed"}),
    ],
)
def test_a_failed_probe_is_an_error(results: list[dict[str, Any]], ids: set[str]) -> None:
    nodes = pair()
    nodes[1]["probe"] = results
    assert found(nodes).keys() == ids
    answer = report.report(nodes, GROUPS, "error", {})
    assert answer["failed"] is bool(ids)
    states = f"cuda passed, bf16 passed, fp8_torch passed, vllm passed, fp8_vllm {results[4]['state']}, fp4_vllm passed"
    assert f"GPU probe on spark2: {states}" in answer["lines"]
    assert [json.loads(line)["results"][4] for line in answer["json_lines"] if json.loads(line)["kind"] == "probe"] == [
        results[4]
    ]


def test_a_kernel_that_vllm_patch_turned_off_may_fail() -> None:
    nodes = pair()
    nodes[1]["probe"] = probed("failed", "wrong_result", 0.25)
    disabled = nodes[0]["facts"]["evidence"]["planned"]["disabled"]
    disabled[:] = PROBED["fp8_vllm"]
    assert "gpu-probe-failed" not in found(nodes)
    disabled.pop()
    assert "gpu-probe-failed" in found(nodes)


def test_the_text_tells_a_wrong_result_from_missing_code() -> None:
    nodes = pair()
    nodes[0]["probe"], nodes[1]["probe"] = probed("failed", "wrong_result", 0.25), probed("failed", "no_kernel")
    assert found(nodes)["gpu-probe-failed"] == [
        "spark1: an FP8 matrix product of vLLM: wrong result (deviation 0.25, bound 0.02): x",
        "spark2: an FP8 matrix product of vLLM: no code for this GPU: x",
    ]


def unit(*words: str) -> str:
    return f"[Service]\nUser=gb10\nExecStart={systemd.exec_line(words)}\nRestart=always\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["/opt/vllm", "serve", "/m", "--attention-backend=FLASHMLA", "--api-key=x"],
            {"--attention-backend": "FLASHMLA"},
        ),
        (
            ["docker", "run", "--entrypoint=vllm", "image", "serve", "/m", "--moe-backend", "marlin"],
            {"--moe-backend": "marlin"},
        ),
        (
            ["vllm", "serve", "/m", '--attention-config={"backend": "FLASH_ATTN"}'],
            {"--attention-backend": "FLASH_ATTN"},
        ),
        (
            ["vllm", "serve", "/m", '--kernel-config={"moe_backend": "cutlass"}', "--port=80"],
            {"--moe-backend": "cutlass"},
        ),
        (["vllm", "serve", "/m", "--quantization=$$(id); x"], {}),
        (["ray", "start"], {}),
    ],
)
def test_the_backends_of_vllms_unit(words: list[str], expected: dict[str, str]) -> None:
    assert kernels.chosen(unit(*words), "0.32.0") == expected


def test_without_a_unit_or_a_release_no_backend_is_known() -> None:
    assert kernels.chosen("", "0.32.0") == {}
    assert kernels.chosen(unit("vllm", "serve", "/m", "--moe-backend=marlin"), "") == {}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            {"runtime": "/opt/gb10/runtime/0123/lib/python3.12/site-packages"},
            {"python": "/opt/gb10/runtime/0123/bin/python"},
        ),
        (
            {
                "runtime": "/proc/812/root/usr/lib/python3/site-packages",
                "images": [{"name": "vllm", "engine": "docker"}],
            },
            "vllm",
        ),
        (
            {"runtime": "", "images": [{"name": "a", "engine": "docker"}, {"name": "gb10-vllm", "engine": "docker"}]},
            "gb10-vllm",
        ),
        ({"runtime": "", "images": [{"name": "a", "engine": "docker"}, {"name": "b", "engine": "docker"}]}, {}),
        ({"runtime": None, "images": None}, {}),
        ({"runtime": ""}, {}),
    ],
)
def test_the_runtime_to_probe(facts: dict[str, Any], expected: Any) -> None:
    wanted = {"container": ["docker", "exec", expected, "python3"]} if isinstance(expected, str) else expected
    assert kernels.probe(facts) == wanted


def test_the_facts_of_a_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/_C.abi3.so").write_bytes(elf([(".nv_fatbin", fat(code("cubin", "120f")))]))
    (tmp_path / "gb10-vllm.service").write_text(unit("vllm", "serve", "/m", "--moe-backend=marlin"), encoding="utf-8")
    monkeypatch.setattr(io_facts.paths, "UNIT_FOLDER", str(tmp_path))
    assert io_facts._kernels(str(tmp_path), "12.1", {"vllm": "0.32.0"}) == {
        "capability": "12.1",
        "extensions": {"vllm/_C": {"native": 0, "same_major": 1, "ptx": 0, "none": 0}},
        "chosen": {"--moe-backend": "marlin"},
    }
    assert io_facts._kernels(str(tmp_path), "", {}) is io_facts._kernels("", "12.1", {}) is None
    assert io_facts._capability({"gpus": [{"capability": "12.1"}, {"capability": "9.0"}]}) == "12.1"
    assert (
        io_facts._capability({"gpus": []})
        == io_facts._capability(None)
        == io_facts._capability({"gpus": [{"capability": None}]})
        == ""
    )

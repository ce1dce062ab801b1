"""GPU kernels in a verification: missing code, failed probes, the planned backends, and the runtime to probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_libraries import code, elf, fat
from verified_nodes import cluster, findings, pair

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PROBED
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import io_facts, kernels, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

NONE = {"native": 0, "same_major": 0, "ptx": 0, "none": 53}


def probed(state: str, cause: str = "", error: float | None = None) -> list[dict[str, Any]]:
    """Return the results of a probe in which only fp8_vllm did not pass."""
    line = {"cause": "", "error": 0.0, "bound": 0.02, "seconds": 0.1, "message": "x"}
    changed = {"state": state, "cause": cause, "error": error}
    return [
        {"name": name, **line, "state": "passed", **(changed if name == "fp8_vllm" else {})}
        for name in gpu_probe.CHECKS
    ]


@pytest.mark.parametrize(
    ("place", "key", "value", "text", "names"),
    [
        (
            "chosen",
            "--attention-backend",
            "FLASHMLA",
            "vllm/_flashmla_C, which --attention-backend FLASHMLA needs",
            (1, 2),
        ),
        ("extensions", "vllm/_C_stable_libtorch", NONE, "vllm/_C_stable_libtorch, which each model needs", (2,)),
    ],
    ids=["the planned backend", "another build on one node"],
)
def test_missing_code_is_an_error(place: str, key: str, value: Any, text: str, names: tuple[int, ...]) -> None:
    """With Ray, only the head has vLLM's unit."""
    nodes = pair()
    nodes[0 if place == "chosen" else 1]["facts"]["kernels"][place] |= {key: value}
    expected = [f"spark{number}: {text}, has no code for 12.1 (programs: 53)" for number in names]
    assert findings(nodes) == {"kernel-missing": expected}
    titles = [
        line for line in report.report(cluster(nodes), GROUPS, "never", {})["lines"] if line.startswith("programs")
    ]
    groups = ["spark1, spark2"] if place == "chosen" else ["spark1", "spark2"]
    assert titles == [f"programs with GPU code for 12.1 on {group}:" for group in groups]


def test_another_group_does_not_show_the_counts() -> None:
    answer = report.report(cluster(pair()), ["fabric"], "never", {})
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
    assert findings(nodes).keys() == ids
    answer = report.report(cluster(nodes), GROUPS, "error", {})
    assert answer["failed"] is bool(ids)
    before, after = "cuda passed, bf16 passed, fp8_torch passed, vllm passed", "fp4_vllm passed, clock passed"
    states = f"{before}, fp8_vllm {results[4]['state']}, {after}"
    assert f"GPU probe on spark2: {states}" in answer["lines"]
    assert [json.loads(line)["results"][4] for line in answer["json_lines"] if json.loads(line)["kind"] == "probe"] == [
        results[4]
    ]


def test_a_stuck_clock_is_no_failed_kernel() -> None:
    nodes = pair()
    stuck = {"state": "failed", "cause": "clock", "error": None, "message": "at most 612 MHz in a second of load"}
    nodes[1]["probe"] = [*probed("passed")[:-1], {**probed("passed")[-1], **stuck}]
    assert findings(nodes) == {"gpu-clock-stuck": ["spark2: at most 612 MHz in a second of load"]}


def test_a_kernel_that_vllm_patch_turned_off_may_fail() -> None:
    """The text tells a wrong result from missing code."""
    nodes = pair()
    nodes[0]["probe"], nodes[1]["probe"] = probed("failed", "wrong_result", 0.25), probed("failed", "no_kernel")
    disabled = nodes[0]["facts"]["evidence"]["planned"]["disabled"]
    disabled[:] = PROBED["fp8_vllm"]
    assert "gpu-probe-failed" not in findings(nodes)
    disabled.pop()
    assert findings(nodes)["gpu-probe-failed"] == [
        "spark1: an FP8 matrix product of vLLM: wrong result (deviation 0.25, bound 0.02): x",
        "spark2: an FP8 matrix product of vLLM: no code for this GPU: x",
    ]


def unit(*words: str) -> str:
    return f"[Service]\nUser=gb10\nExecStart={systemd.exec_line(words)}\nRestart=always\n"


SERVE = ["vllm", "serve", "/m"]
MARLIN = {"--moe-backend": "marlin"}


@pytest.mark.parametrize(
    ("words", "release", "expected"),
    [
        ([*SERVE, "--attention-backend=FLASHMLA", "--api-key=x"], "0.32.0", {"--attention-backend": "FLASHMLA"}),
        (["docker", "run", "--entrypoint=vllm", "image", *SERVE[1:], "--moe-backend", "marlin"], "0.32.0", MARLIN),
        ([*SERVE, '--attention-config={"backend": "FLASH_ATTN"}'], "0.32.0", {"--attention-backend": "FLASH_ATTN"}),
        ([*SERVE, '--kernel-config={"moe_backend": "marlin"}', "--port=80"], "0.32.0", MARLIN),
        ([*SERVE, "--quantization=$$(id); x"], "0.32.0", {}),
        (["ray", "start"], "0.32.0", {}),
        ([*SERVE, "--moe-backend=marlin"], "", {}),
        ([], "0.32.0", {}),
    ],
)
def test_the_backends_of_vllms_unit(words: list[str], release: str, expected: dict[str, str]) -> None:
    assert kernels.chosen(unit(*words) if words else "", release) == expected


def docker(*names: str) -> dict[str, Any]:
    return {"runtime": "", "images": [{"name": name, "engine": "docker"} for name in names]}


def inside(name: str) -> dict[str, Any]:
    return {"container": ["docker", "exec", name, "python3"]}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            {"runtime": "/opt/gb10/runtime/0123/lib/python3.12/site-packages"},
            {"python": "/opt/gb10/runtime/0123/bin/python"},
        ),
        ({**docker("vllm"), "runtime": "/proc/812/root/usr/lib/python3/site-packages"}, inside("vllm")),
        (docker("a", "gb10-vllm"), inside("gb10-vllm")),
        # The server's container, also if the one of another engine is listed after it.
        ({"images": [*docker("gb10-ray")["images"], {"name": "gb10-vllm", "engine": "podman"}]}, inside("gb10-ray")),
        (docker("a", "b"), {}),
        ({"runtime": None, "images": None}, {}),
        ({"runtime": ""}, {}),
    ],
)
def test_the_runtime_to_probe(facts: dict[str, Any], expected: dict[str, Any]) -> None:
    assert kernels.probe(facts) == expected


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
    assert [
        io_facts._capability(gpu)
        for gpu in (
            {"gpus": [{"capability": "12.1"}, {"capability": "9.0"}]},
            {"gpus": []},
            None,
            {"gpus": [{"capability": None}]},
        )
    ] == ["12.1", "", "", ""]

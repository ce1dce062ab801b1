"""Tests of module vllm_lint, run as on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

SMI = """case "$*" in
--query-gpu=name,compute_cap,*) echo "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1";;
"") echo "| CUDA Version: 13.0 |";;
*) exit 2;;
esac"""
QUIET = [
    *("--host", "127.0.0.1", "--gpu-memory-utilization", "0.8", "--kv-cache-memory-bytes", "24G"),
    "--no-enable-flashinfer-autotune",
]


def lint(folder: Path, argv: list[str], check: bool = False, **options: Any) -> dict[str, Any]:
    return run_module(
        "vllm_lint", {"argv": argv, "release": "0.32.0", **options}, program(folder, "nvidia-smi", SMI), check
    )


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_it_tells_what_is_wrong_and_changes_nothing(tmp_path: Path, check: bool) -> None:
    answer = lint(
        tmp_path,
        [*QUIET, "--gpu-memory-utilization=0.95", "--enforce-eager"],
        check,
        environment={"NCCL_NET_GDR_LEVEL": 5},
    )
    assert answer["changed"] is False
    found = [
        (finding["severity"], finding["rule"], finding["path"], finding["found"]) for finding in answer["findings"]
    ]
    assert ("error", "memory-utilization-ceiling", "argv.--gpu-memory-utilization", "0.95") in found
    assert [rule for _severity, rule, _path, _found in found if not rule.startswith("kernel")] == [
        "memory-utilization-ceiling",
        "enforce-eager",
        "gpudirect-rdma",
    ]
    assert len(answer["report"]) == len(found)


def test_it_fails_at_the_severity_that_was_asked_for(tmp_path: Path) -> None:
    assert "failed" not in lint(tmp_path, [*QUIET, "--enforce-eager"], fail_on="error")
    answer = lint(tmp_path, [*QUIET, "--enforce-eager"], fail_on="warning")
    assert answer["msg"].startswith("warning enforce-eager, argv.--enforce-eager: ")
    waived = lint(
        tmp_path,
        [*QUIET, "--enforce-eager"],
        fail_on="warning",
        waivers={"enforce-eager": "this image hangs with graphs"},
    )
    assert (waived["findings"][0]["waived"], waived.get("failed")) == ("this image hangs with graphs", None)


def test_wrong_waivers_and_arguments_are_named(tmp_path: Path) -> None:
    assert "unknown rule 'no-such-rule'" in lint(tmp_path, QUIET, waivers={"no-such-rule": "because"})["msg"]
    assert "waiver without a reason" in lint(tmp_path, QUIET, waivers={"enforce-eager": None})["msg"]
    assert (
        f"argv[{len(QUIET)}]: vLLM 0.32.0 has no option --no-such-option"
        in lint(tmp_path, [*QUIET, "--no-such-option"])["msg"]
    )


def test_the_release_is_asked_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "lib/python3.12/site-packages/vllm"
    (package / "model_executor").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "_version.py").write_text("__version__ = version = '0.19.0'\n", encoding="utf-8")
    python = program(tmp_path / "bin", "python", "exit 1") / "python"
    answer = lint(tmp_path, QUIET, release=None, python=str(python))
    assert answer["release"] == "0.19.0"
    assert "page-cache-counted" in [finding["rule"] for finding in answer["findings"]]
    (package / "_version.py").unlink()
    assert "has no readable release" in lint(tmp_path, QUIET, release=None, python=str(python))["msg"]
    assert "release: release and python are not set" in lint(tmp_path, QUIET, release=None)["msg"]


def test_the_model_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}', encoding="utf-8"
    )
    answer = lint(tmp_path, [*QUIET, "--attention-backend", "FLASHINFER"], model=str(tmp_path))
    assert "flashinfer-fp8" in [finding["rule"] for finding in answer["findings"]]
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "is not JSON" in lint(tmp_path, QUIET, model=str(tmp_path))["msg"]

"""Tests of module vllm_lint, run as on a node."""

from __future__ import annotations

import json
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


EAGER = [*QUIET, "--enforce-eager"]
WAIVED = {"fail_on": "warning", "waivers": {"enforce-eager": "this image hangs with graphs"}}
MESSAGES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "a finding of the severity": (EAGER, {"fail_on": "warning"}, "warning enforce-eager, argv.--enforce-eager: "),
    "an unknown rule": (QUIET, {"waivers": {"no-such-rule": "because"}}, "unknown rule 'no-such-rule'"),
    "a waiver without a reason": (QUIET, {"waivers": {"enforce-eager": None}}, "waiver without a reason"),
    "an unknown option": (
        [*QUIET, "--no-such-option"],
        {},
        f"argv[{len(QUIET)}]: vLLM 0.32.0 has no option --no-such-option",
    ),
    "no release": (QUIET, {"release": None}, "release: release and python are not set"),
}


@pytest.mark.parametrize(("argv", "options", "text"), MESSAGES.values(), ids=MESSAGES)
def test_it_fails_with_the_reason(tmp_path: Path, argv: list[str], options: dict[str, Any], text: str) -> None:
    answer = lint(tmp_path, argv, **options)
    assert answer["failed"] and text in answer["msg"]


@pytest.mark.parametrize(
    ("options", "waived"), [({"fail_on": "error"}, ""), (WAIVED, WAIVED["waivers"]["enforce-eager"])]
)
def test_it_does_not_fail_for_less_or_for_a_waived_finding(
    tmp_path: Path, options: dict[str, Any], waived: str
) -> None:
    answer = lint(tmp_path, EAGER, **options)
    (finding,) = (each for each in answer["findings"] if each["rule"] == "enforce-eager")
    assert (finding["waived"], "failed" in answer) == (waived, False)


def test_the_release_is_asked_of_the_package_and_the_model_is_read_where_it_lies(tmp_path: Path) -> None:
    package = tmp_path / "lib/python3.12/site-packages/vllm"
    (package / "model_executor").mkdir(parents=True)
    (package / "__init__.py").touch()
    version, config = package / "_version.py", tmp_path / "config.json"
    version.write_text("__version__ = version = '0.19.0'\n", encoding="utf-8")
    config.write_text(json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}))
    python = program(tmp_path / "bin", "python", "exit 1") / "python"
    given = {"release": None, "python": str(python), "model": str(tmp_path)}
    answer = lint(tmp_path, [*QUIET, "--attention-backend", "FLASHINFER"], **given)
    assert answer["release"] == "0.19.0"
    assert {"page-cache-counted", "flashinfer-fp8"} <= {finding["rule"] for finding in answer["findings"]}
    config.write_text("{", encoding="utf-8")
    assert "is not JSON" in lint(tmp_path, QUIET, **given)["msg"]
    version.unlink()
    assert "has no readable release" in lint(tmp_path, QUIET, release=None, python=str(python))["msg"]

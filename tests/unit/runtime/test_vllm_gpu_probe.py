"""The step vllm_gpu_probe with programs in PATH in place of the GPU, systemd and a container engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from decisions import decide
from run_module import program, run_module
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe, layers

SMI = (
    'case "$*" in --query-gpu=name,compute_cap,*) echo "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1";; *) echo "| '
    'CUDA Version: 13.0 |";; esac'
)
RESULT = {
    "state": "passed",
    "cause": "",
    "error": 0.003,
    "bound": 0.02,
    "seconds": 0.1,
    "message": "NVIDIA GB10 (12.1)",
}
PYTHON = "/opt/gb10/runtime/current/bin/python"


def printed(**changes: Any) -> str:
    """Return the program's output with changes of the result of fp8_vllm."""
    return "\n".join(
        json.dumps({"name": name, **RESULT, **(changes if name == "fp8_vllm" else {})}) for name in gpu_probe.CHECKS
    )


def planted(tmp_path: Path, script: str) -> Path:
    """Return a folder with a GPU, and with a program in place of systemd and the engine."""
    program(tmp_path, "nvidia-smi", SMI)
    for name in ("systemd-run", "podman"):
        program(tmp_path, name, f"printf '%s\n' \"$@\" >{tmp_path}/argv\n{script}")
    return tmp_path


def run(tmp_path: Path, script: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
    return run_module("vllm_gpu_probe", arguments or {"python": PYTHON}, planted(tmp_path, script), check)


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_passed_checks(tmp_path: Path, check: bool) -> None:
    answer = run(tmp_path, f"cat <<'X'\nINFO loading\n{printed()}\nX", check)
    assert (answer["changed"], answer["reason"], len(answer["checks"])) == (False, "", 7)
    assert answer["report"][0] == "a kernel of PyTorch: passed (deviation 0.003, bound 0.02): NVIDIA GB10 (12.1)"
    argv = (tmp_path / "argv").read_text()
    for word in (
        "--property=DynamicUser=yes",
        "--property=PrivateNetwork=yes",
        "--property=RuntimeMaxSec=210",
        "--setenv=HOME=/tmp",
        PYTHON,
    ):
        assert f"\n{word}\n" in argv
    # systemd-run would replace variables.
    assert "import torch" not in argv and "$" not in argv and argv.endswith("\n180\n")


def test_a_stuck_clock_before_a_start_is_a_warning(tmp_path: Path) -> None:
    stuck = {
        "name": "clock",
        **RESULT,
        "state": "failed",
        "cause": "clock",
        "error": None,
        "message": "at most 612 MHz",
    }
    script = f"cat <<'X'\n{printed().splitlines()[0]}\n{json.dumps(stuck)}\nX\nexit 1"
    answer = run(tmp_path, script, python=PYTHON, checks=["cuda", "clock"])
    assert (tmp_path / "argv").read_text().endswith("\n180\ncuda\nclock\n")
    assert [each["name"] for each in answer["checks"]] == ["cuda", "clock"]
    (warning,) = map(str, answer["warnings"])
    assert "gpu-clock-stuck: a second of load: the clock is stuck: at most 612 MHz" in warning
    assert "disconnect its power supply" in warning


def test_a_wrong_kernel_fails_the_module(tmp_path: Path) -> None:
    script = f"cat <<'X'\n{printed(state='failed', cause='wrong_result', error=0.25)}\nX\nexit 1"
    answer = run(tmp_path, script, python=PYTHON, required=["fp8_vllm"])
    assert answer["failed"] is True
    assert "fp8_vllm: an FP8 matrix product of vLLM: wrong result (deviation 0.25, bound 0.02)" in answer["msg"]
    reported = run(tmp_path, script, python=PYTHON, required=[])
    assert (reported.get("failed"), reported.get("warnings")) == (None, None)
    assert [each["state"] for each in reported["checks"]] == ["passed"] * 4 + ["failed", "passed", "passed"]


def test_a_kernel_that_the_model_does_not_require_is_a_warning_and_recorded(tmp_path: Path) -> None:
    script = f"cat <<'X'\n{printed(state='failed', cause='wrong_result', error=0.25)}\nX\nexit 1"
    record = tmp_path / "gpu-probe.json"
    # In this process, Ansible would print the warning.
    answer = run_module("vllm_gpu_probe", {"python": PYTHON, "record": str(record)}, planted(tmp_path, script))
    assert "fp8_vllm: an FP8 matrix product of vLLM: wrong result" in str(answer["warnings"][0])
    assert gpu_probe.recorded(record.read_text(encoding="utf-8")) == {"fp8_vllm": answer["report"][4]}
    assert gpu_probe.recorded("{") == gpu_probe.recorded("") == {}


@pytest.mark.parametrize(("quantization", "more"), [("fp8", ["fp8_torch"]), ("other", []), ("unknown", [])])
def test_a_model_requires_the_kernels_that_it_uses(quantization: str, more: list[str]) -> None:
    assert gpu_probe.required(quantization) == ["cuda", "bf16", "vllm", *more]


def test_skipped_checks_do_not_fail(tmp_path: Path) -> None:
    answer = run(tmp_path, f"cat <<'X'\n{printed(state='skipped', cause='memory', error=None)}\nX")
    assert answer["report"][4] == "an FP8 matrix product of vLLM: too little free memory: NVIDIA GB10 (12.1)"


def test_a_program_that_does_not_start(tmp_path: Path) -> None:
    answer = run(tmp_path, "echo 'Failed to start transient service unit' >&2; exit 1")
    assert "the program ended: exit status 1: Failed to start transient service unit" in answer["msg"]


def test_a_hanging_program(tmp_path: Path) -> None:
    answer = run(tmp_path, f"echo '{printed().splitlines()[0]}'; sleep 1.2; exit 142", python=PYTHON, seconds=1)
    assert (
        "bf16: a bfloat16 matrix product of PyTorch: the program ended: the time limit was reached: no message"
        in answer["msg"]
    )


def test_a_container(tmp_path: Path) -> None:
    answer = run(tmp_path, f"cat <<'X'\n{printed()}\nX", container=["podman", "run", "--network=none", "image"])
    argv = (tmp_path / "argv").read_text()
    assert len(answer["checks"]) == 7
    assert argv.startswith("run\n--network=none\nimage\n-c\n") and argv.endswith("\n180\n")


@pytest.mark.parametrize(("quantization", "failed"), [("", False), ("other", False), ("fp8", True)])
def test_the_checks_of_the_model_are_required_too(tmp_path: Path, quantization: str, failed: bool) -> None:
    wrong = {**RESULT, "name": "fp8_torch", "state": "failed", "cause": "wrong_result"}
    lines = [line for line in printed().splitlines() if "fp8_torch" not in line]
    script = "cat <<'X'\n" + "\n".join([json.dumps(wrong), *lines]) + "\nX"
    answer = run(tmp_path, script, python=PYTHON, quantization=quantization)
    assert bool(answer.get("failed")) is failed


def test_an_image_is_queried_without_a_gpu_and_network() -> None:
    build = {"name": "x", "image": "gb10:2", "base": "vllm:1", "base_name": "vllm:1"}
    runtime = {"kind": "container", "engine": "docker", "engine_args": ["--pull=never"], "image": "gb10:2"}
    plan = fact({"runtime": {**runtime, "builds": [build]}})

    def query(image: str) -> dict[str, Any]:
        answer, calls = decide("image_query", {"image": image, "python": "python3"}, plan)
        assert calls == []
        return answer

    below, answer = query("vllm:1"), query("b" * 64)
    assert below["releases_argv"][-4:] == ["--entrypoint=python3", "vllm:1", "-c", layers.RELEASES]
    assert answer["argv"][-2:] == ["--entrypoint=python3", "b" * 64]
    assert {"--network=none", "--pull=never", "--env=NVIDIA_VISIBLE_DEVICES=void"} <= set(answer["argv"])
    assert answer["releases_argv"] == [*answer["argv"], "-c", layers.RELEASES]
    # After a boot, the devices may not exist yet.
    assert set(answer["gpu_argv"]) - set(answer["argv"]) == {"--gpus=all"}
    for image in ("--privileged", "vllm:2", "sha256:" + "b" * 64, ""):
        assert query(image)["failed"] and "neither the ID of an image" in query(image)["msg"]


def test_the_program_of_the_releases() -> None:
    """It runs in the image, with distributions of this interpreter here."""
    done = subprocess.run([sys.executable, "-c", layers.RELEASES], capture_output=True, text=True, check=True)
    python = "cp{}{}".format(*sys.version_info)
    assert json.loads(done.stdout) == {"vllm": "none", "torch": "none", "python": python}


def test_without_a_gpu_nothing_runs(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    program(tmp_path, "systemd-run", f"touch {tmp_path}/ran")
    answer = run_module("vllm_gpu_probe", {"python": PYTHON}, tmp_path)
    assert (answer["checks"], answer["reason"]) == ([], "nvidia-smi failed with status 9: NVIDIA-SMI has failed")
    assert not (tmp_path / "ran").exists()

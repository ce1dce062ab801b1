"""The GPU probe without a GPU: causes of exceptions, wrong results, NVFP4's layout, and output that ends early.

tests/gpu/probe.py runs it on a GPU.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe, io_gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_gpu_probe import (
    BOUND,
    MemoryShortageError,
    Runtime,
    StuckClockError,
    UnsupportedError,
    WrongResultError,
)

#: An H200, vLLM 0.24.0, 2026-11-23. The last line: an H100, 2026-11-26.
RECORDED = """\
WARNING 11-23 00:18:05 [cuda.py:230] Failed to import from vllm._qutlass_C
{"name": "cuda", "state": "passed", "cause": "", "error": 4.469172754692971e-08, "bound": 0.02, "seconds": 2.85, "message": "NVIDIA H200 (9.0)"}
{"name": "bf16", "state": "passed", "cause": "", "error": 0.0029, "bound": 0.02, "seconds": 0.07, "message": "largest deviation with 256 rows"}
{"name": "fp8_torch", "state": "passed", "cause": "", "error": 0.0039, "bound": 0.02, "seconds": 0.01, "message": "largest deviation with 256 rows"}
{"name": "vllm", "state": "passed", "cause": "", "error": 0.0, "bound": 0.02, "seconds": 5.52, "message": "vLLM 0.24.0"}
{"name": "fp8_vllm", "state": "passed", "cause": "", "error": 0.0039, "bound": 0.02, "seconds": 0.03, "message": "largest deviation with 256 rows"}
{"name": "fp4_vllm", "state": "unsupported", "cause": "", "error": null, "bound": 0.02, "seconds": 0.0, "message": "no kernel for 9.0"}
{"name": "clock", "state": "passed", "cause": "", "error": 0.0, "bound": 0.02, "seconds": 1.11, "message": "up to 1980 MHz"}
"""


def returns(error: float) -> io_gpu_probe.Check:
    return lambda _runtime: (error, "measured")


def raises(error: Exception) -> io_gpu_probe.Check:
    def check(_runtime: Runtime) -> tuple[float, str]:
        raise error

    return check


class Torch:
    """A PyTorch whose GPU context works, or not."""

    def __init__(self, usable: bool) -> None:
        self.cuda = self
        self.usable = usable

    def synchronize(self) -> None:
        if not self.usable:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def ones(self, *_args: Any, **_options: Any) -> Torch:
        return self

    def cpu(self) -> None:
        """Copy nothing."""


def states(checks: dict[str, io_gpu_probe.Check], usable: bool = True) -> list[tuple[str, str, str]]:
    runtime = Runtime(torch=Torch(usable))
    return [(each["name"], each["state"], each["cause"]) for each in io_gpu_probe.results(runtime, checks)]


@pytest.mark.parametrize(
    ("name", "torch", "capability"),
    [
        ("fp8_torch", SimpleNamespace(_scaled_mm=None), (8, 6)),
        ("fp8_torch", SimpleNamespace(), (12, 1)),
        ("fp8_vllm", None, (8, 6)),
        ("fp4_vllm", None, (9, 0)),
    ],
)
def test_a_gpu_or_build_without_a_kernel_is_unsupported(name: str, torch: Any, capability: tuple[int, int]) -> None:
    ops = SimpleNamespace(
        cutlass_scaled_mm_supports_fp8=lambda number: number >= 89,
        cutlass_scaled_mm_supports_fp4=lambda number: number >= 100,
    )
    with pytest.raises(UnsupportedError):
        io_gpu_probe.CHECKS[name](Runtime(torch, ops, capability))


@pytest.mark.parametrize(
    ("check", "state", "cause"),
    [
        (returns(0.0), "passed", ""),
        (returns(BOUND), "passed", ""),
        (returns(BOUND * 1.01), "failed", "wrong_result"),
        (returns(math.nan), "failed", "wrong_result"),
        (returns(math.inf), "failed", "wrong_result"),
        (raises(WrongResultError("the quantization of 16 rows returned other values")), "failed", "wrong_result"),
        (raises(UnsupportedError("no FP4 on 9.0")), "unsupported", ""),
        (raises(StuckClockError("at most 612 MHz in a second of load")), "failed", "clock"),
        (raises(MemoryShortageError("5 MiB of memory are available")), "skipped", "memory"),
        (
            raises(
                RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors")
            ),
            "failed",
            "no_kernel",
        ),
        (
            raises(RuntimeError("cutlass_gemm_caller, /workspace/csrc/cutlass_gemm_caller.cuh:61, Error Internal")),
            "failed",
            "no_kernel",
        ),
        (
            raises(NotImplementedError("No compiled nvfp4 mm kernel for SM 121. Recompile with CUDA >= 12.8")),
            "failed",
            "no_kernel",
        ),
        (raises(RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")), "skipped", "memory"),
        (
            raises(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
            "skipped",
            "memory",
        ),
        (raises(RuntimeError("Found no NVIDIA driver on your system.")), "skipped", "no_gpu"),
        (raises(RuntimeError("No CUDA GPUs are available")), "failed", "error"),
        (raises(ModuleNotFoundError("No module named 'vllm'")), "failed", "import"),
        (raises(ImportError("libcudart.so.13: cannot open shared object file")), "failed", "import"),
        (raises(AttributeError("'_OpNamespace' '_C' object has no attribute 'cutlass_scaled_mm'")), "failed", "import"),
        (raises(RuntimeError("CUDA error: an illegal memory access was encountered")), "failed", "error"),
    ],
)
def test_states_and_causes(check: io_gpu_probe.Check, state: str, cause: str) -> None:
    assert states({"bf16": check}) == [("bf16", state, cause)]
    (result,) = io_gpu_probe.results(Runtime(torch=Torch(True)), {"bf16": check})
    # NaN and infinity are not JSON.
    assert gpu_probe._parsed(json.dumps(result)) == result


@pytest.mark.parametrize(
    ("name", "error", "usable", "expected"),
    [
        ("cuda", "Found no NVIDIA driver", True, [("cuda", "skipped", "no_gpu"), ("bf16", "skipped", "")]),
        (
            "fp8_torch",
            "no kernel image is available",
            True,
            [("fp8_torch", "failed", "no_kernel"), ("bf16", "passed", "")],
        ),
        (
            "fp8_torch",
            "an illegal memory access was encountered",
            False,
            [("fp8_torch", "failed", "error"), ("bf16", "skipped", "")],
        ),
    ],
    ids=["without a GPU", "a missing kernel", "an unusable context"],
)
def test_the_other_checks_run_if_they_can(
    name: str, error: str, usable: bool, expected: list[tuple[str, str, str]]
) -> None:
    assert states({name: raises(RuntimeError(error)), "bf16": returns(0.0)}, usable) == expected


@pytest.mark.parametrize(
    ("byte", "value"),
    [(0x00, 0.0), (0x01, 2**-9), (0x08, 2**-6), (0x38, 1.0), (0x3C, 1.5), (0x7E, 448.0), (0xFE, -448.0), (0xB8, -1.0)],
)
def test_e4m3(byte: int, value: float) -> None:
    assert io_gpu_probe.e4m3(byte) == value
    assert math.isnan(io_gpu_probe.e4m3(0x7F))


def test_the_layout_of_nvfp4() -> None:
    rows, columns = 256, 128
    codes = [[(3 * row + column) % 16 for column in range(columns)] for row in range(rows)]
    # 0x20 to 0x5f are different scales from 0.0625 to 15.
    scales = [[0x20 + (5 * row + 7 * block) % 64 for block in range(columns // 16)] for row in range(rows)]
    packed = [low | high << 4 for row in codes for low, high in zip(row[::2], row[1::2], strict=True)]
    # The order of vLLM's kernels: by tiles of rows, tiles of columns, then 32 x 4 x 4.
    swizzled = [
        scales[top + 32 * outer + inner][left + column]
        for top in range(0, rows, 128)
        for left in range(0, columns // 16, 4)
        for inner in range(32)
        for outer in range(4)
        for column in range(4)
    ]
    signed = [*io_gpu_probe._E2M1, *(-value for value in io_gpu_probe._E2M1)]
    expected = [
        signed[code] * io_gpu_probe.e4m3(scales[row][column // 16])
        for row, line in enumerate(codes)
        for column, code in enumerate(line)
    ]
    assert io_gpu_probe.fp4_values(packed, swizzled, rows, columns) == expected
    # The last rows of a tile may be padding.
    assert io_gpu_probe.fp4_values(packed, swizzled, 130, columns) == expected[: 130 * columns]


def test_recorded_output() -> None:
    found = gpu_probe.results(RECORDED, "", 0)
    assert [each["name"] for each in found] == list(gpu_probe.CHECKS)
    assert [each["state"] for each in found] == [*["passed"] * 5, "unsupported", "passed"]
    assert gpu_probe.problems(found) == []
    assert (
        gpu_probe.described(found[4])
        == "an FP8 matrix product of vLLM: passed (deviation 0.0039, bound 0.02): largest deviation with 256 rows"
    )


def test_the_first_check_without_a_result_failed() -> None:
    printed = "\n".join(RECORDED.splitlines()[:4])
    found = gpu_probe.results(printed, "x\nFatal Python error: Segmentation fault\n\n", -11)
    assert [(each["state"], each["cause"]) for each in found[3:]] == [
        ("failed", "ended"),
        *[("skipped", "")] * 3,
    ]
    text = "the loading of vLLM's kernels: the program ended: exit status -11: Fatal Python error: Segmentation fault"
    fix = "read dmesg for errors of the GPU (Xid), and restart the node if the GPU hangs"
    assert gpu_probe.problems(found) == [Problem("vllm", text, "the CPU's result", fix)]


def test_a_wrong_result_and_a_missing_kernel_have_different_fixes() -> None:
    failed = {"state": "failed", "bound": 0.02, "seconds": 1, "message": "x"}
    lines = [
        {"name": "fp8_torch", "cause": "no_kernel", "error": None, **failed},
        {"name": "fp8_vllm", "cause": "wrong_result", "error": 0.25, **failed},
    ]
    found = gpu_probe.results("\n".join(map(json.dumps, lines)), "", 1)
    fixes = [gpu_probe.CAUSES[cause][1] for cause in ("no_kernel", "wrong_result")]
    torch, vllm = "an FP8 matrix product of PyTorch", "an FP8 matrix product of vLLM"
    assert [each for each in gpu_probe.problems(found) if each.path.startswith("fp8")] == [
        Problem("fp8_torch", f"{torch}: no code for this GPU: x", "the CPU's result", fixes[0]),
        Problem("fp8_vllm", f"{vllm}: wrong result (deviation 0.25, bound 0.02): x", "the CPU's result", fixes[1]),
    ]


class Loaded:
    """A PyTorch with a GPU of this clock in MHz under load, and its NVML."""

    def __init__(self, clocks: list[int], status: int = 0) -> None:
        self.cuda, self.uuid, self.clocks, self.status = self, "1-2", clocks, status

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_options: self

    def __call__(self) -> Loaded:
        return self

    def nvmlInit_v2(self) -> int:  # NVML's name
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, _device: Any) -> int:
        assert uuid == b"GPU-1-2"
        return self.status

    def nvmlDeviceGetClockInfo(self, _device: Any, _kind: int, found: Any) -> int:
        found._obj.value = self.clocks.pop(0) if len(self.clocks) > 1 else self.clocks[0]
        return 0


@pytest.mark.parametrize(
    ("clocks", "status", "expected"),
    [
        ([345, 2400, 900], 0, ("passed", "", "up to 2400 MHz")),
        ([345, 612, 850], 0, ("failed", "clock", "at most 850 MHz in a second of load")),
        ([2400], 6, ("unsupported", "", "NVML does not report the clock of the GPU 1-2: error 6")),
    ],
)
def test_the_clock_under_load(
    monkeypatch: pytest.MonkeyPatch, clocks: list[int], status: int, expected: tuple[str, str, str]
) -> None:
    gpu = Loaded(clocks, status)
    monkeypatch.setattr(io_gpu_probe.ctypes, "CDLL", lambda _name: gpu)
    monkeypatch.setattr(io_gpu_probe, "_LOAD_SECONDS", 0.05)
    (found,) = io_gpu_probe.results(Runtime(torch=gpu), {"clock": io_gpu_probe._clock})
    assert (found["state"], found["cause"], found["message"]) == expected


def test_a_stuck_clock_has_the_only_cure_and_is_not_recorded_for_vllm_patch() -> None:
    line = {"name": "clock", "state": "failed", "cause": "clock", "error": None, "message": "at most 612 MHz"}
    found = gpu_probe.results(RECORDED.rpartition('{"name"')[0] + json.dumps(line), "", 1)
    (problem,) = gpu_probe.problems(found)
    assert problem.path == "gpu-clock-stuck"
    assert problem.found == "a second of load: the clock is stuck: at most 612 MHz"
    assert "disconnect its power supply" in problem.fix
    assert gpu_probe.recorded(gpu_probe.record(found)) == {}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"name": "other", "state": "passed", "cause": ""}',
        '{"name": "cuda", "state": "fine", "cause": ""}',
        '{"name": "cuda", "state": "failed", "cause": ""}',
        '{"name": "cuda", "state": "failed", "cause": "bad luck"}',
        '{"name": ["cuda"], "state": "passed", "cause": ""}',
        '{"name": "cuda", "state": {}, "cause": []}',
        '{"name": "cuda", "error": NaN, "state": "passed", "cause": ""}',
    ],
)
def test_other_output_is_no_result(line: str) -> None:
    assert gpu_probe.results(line, "", 0)[0]["cause"] == "ended"


def test_text_of_an_image_is_bounded_and_printable() -> None:
    printed = json.dumps(
        {"name": "cuda", "state": "passed", "cause": "", "error": True, "message": "\x1b[31m" + "x" * 999}
    )
    result = gpu_probe.results(printed, "", 0)[0]
    assert (result["error"], len(result["message"]), result["message"][:5]) == (None, 300, "?[31m")


def test_both_files_have_the_same_checks() -> None:
    assert list(gpu_probe.CHECKS) == list(io_gpu_probe.CHECKS)
    causes = {cause for _parts, (_state, cause) in io_gpu_probe._OUTCOMES} | {
        "error",
        "wrong_result",
        "memory",
        "ended",
        "clock",
    }
    assert causes == gpu_probe.CAUSES.keys()


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S: a PyTorch of this environment would be used.
    command = [sys.executable, "-S", "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_program_runs_alone() -> None:
    done = run(io_gpu_probe.program(), "60")
    first, *others = gpu_probe.results(done.stdout, done.stderr, done.returncode)
    chosen = run(io_gpu_probe.program(), "60", "clock", "cuda").stdout
    assert [json.loads(line)["name"] for line in chosen.splitlines()] == ["cuda", "clock"]
    assert (done.returncode, first["cause"], first["message"]) in [
        (1, "import", "ModuleNotFoundError: No module named 'torch'"),
        (0, "memory", first["message"]),
    ]
    assert {each["state"] for each in others} == {"skipped"}


def test_the_kernel_ends_a_hanging_check() -> None:
    hanging = io_gpu_probe.program().replace(
        "def main()", "CHECKS = {'cuda': lambda _runtime: time.sleep(50)}\n\n\ndef main()"
    )
    done = run(hanging, "1")
    assert (done.stdout, done.returncode) == ("", -signal.SIGALRM & 255)


def test_a_line_and_a_message_have_their_limits() -> None:
    line = {
        "name": "cuda",
        "state": "passed",
        "cause": "",
        "message": "x" * 299 + "\n",
        "error": 0.5,
        "bound": 2,
        "seconds": 3,
    }
    text = json.dumps(line)
    (found,) = gpu_probe.results(text.ljust(4096), "", 0, names=["cuda"])
    assert found == {**line, "error": 0.5, "message": "x" * 299 + "?"}
    assert gpu_probe.results(text.ljust(4097), "", 0, names=["cuda"])[0]["cause"] == "ended"
    named = gpu_probe.results("", "error\n \n", 3, names=["bf16", "cuda"])
    assert [(each["name"], each["message"], each["bound"], each["error"]) for each in named] == [
        ("cuda", "exit status 3: error", 0.0, None),
        ("bf16", "the program ended during cuda", 0.0, None),
    ]
    assert gpu_probe.results("", "", 3, timed_out=True)[0]["message"] == "the time limit was reached: no message"


def test_a_record_has_the_failed_kernels_as_lines_and_is_bounded() -> None:
    failed = {"name": "bf16", "state": "failed", "cause": "error", "error": 0.12345, "bound": 0.02, "message": ""}
    text = gpu_probe.record([failed, {**failed, "name": "cuda", "state": "skipped"}])
    words = "a bfloat16 matrix product of PyTorch: it failed (deviation 0.123, bound 0.02)"
    assert text == f'{{\n "bf16": "{words}"\n}}\n' and gpu_probe.recorded(text) == {"bf16": words}
    assert (
        gpu_probe.recorded(text.ljust(7 * 4096)) == {"bf16": words}
        and gpu_probe.recorded(text.ljust(7 * 4096 + 1)) == {}
    )
    assert gpu_probe.recorded("[]") == gpu_probe.recorded('{"other": "x"}') == {}

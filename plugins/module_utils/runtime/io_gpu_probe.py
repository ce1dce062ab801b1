# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs small GPU kernels of a runtime's PyTorch and vLLM, and compares their results with the CPU's.

This file is also a program, ``python io_gpu_probe.py [SECONDS [CHECK ...]]``: the runtime's Python runs it, so it
imports nothing from this collection. Without a named check it runs all. Each result is one line on stdout, a JSON
object with these keys:

- name: the check, a key of CHECKS
- state: passed, failed, unsupported or skipped
- cause: "", no_kernel, wrong_result, import, memory, no_gpu, clock or error
- error: the largest deviation from the reference, as a part of the reference's largest value; null without a number
- bound: the largest accepted error
- seconds: the duration of the check
- message: one line

The exit status is 1 if a check failed. With too little free memory the checks are skipped, because a model may be
running. On an H200, the program without the second of load took 9 s, 0.7 GiB of the GPU's memory, and 1.1 GiB of the
host's, mostly mapped libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A single wrong element deviates by more; bfloat16 rounds by 0.004 at most.
BOUND = 0.02
#: FP4 rounds by a sixth of a block's largest value at most.
_FP4_BOUND = 0.2
#: Free memory in bytes that the process needs: of the host, and on a GPU with its own memory.
_HOST_BYTES, _GPU_BYTES = 2 << 30, 256 << 20
#: Rows, which select a kernel; then columns and the common dimension. Equal sizes would multiply a matrix with itself.
_ROWS, _COLUMNS, _INNER = (1, 16, 64, 320), 256, 256
_MESSAGE = 300
#: The load before the clock is read: seconds, and the size of its matrices, some milliseconds for each product. A stuck
#: GB10 stays at 500 to 850 MHz. Its clock under load is above 2000 MHz.
_LOAD_SECONDS, _LOAD_SIZE, _LOAD_PRODUCTS = 1.0, 4096, 10
_CLOCK_MHZ = 1000
#: Source: nvml.h, NVML_CLOCK_SM.
_NVML, _NVML_SM = "libnvidia-ml.so.1", 1
#: The largest values of E2M1 and E4M3, the values of E2M1 without sign, and the elements that share a scale in NVFP4.
_E2M1_MAX, _E4M3_MAX = 6.0, 448.0
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BLOCK = 16
#: Parts of messages, with the outcome. A missing kernel: CUDA's messages; vLLM's for a GPU that its build leaves out;
#: CUTLASS's, which hides CUDA's (seen on an H200 with a vLLM 0.24.0 whose code was changed to 12.0).
_OUTCOMES = (
    (("no kernel image", "NoKernelImageForDevice", "No compiled ", "Error Internal"), ("failed", "no_kernel")),
    (("out of memory", "ALLOC_FAILED"), ("skipped", "memory")),
    (("Found no NVIDIA driver",), ("skipped", "no_gpu")),
    # PyTorch raises AttributeError for an operator of a library that was not loaded.
    (("ImportError", "ModuleNotFoundError", "_OpNamespace"), ("failed", "import")),
)
#: vLLM's extension with the quantization kernels; it was renamed. Source: vLLM 0.18.1 and 0.24.0, platforms/cuda.py.
_EXTENSIONS = ("vllm._C_stable_libtorch", "vllm._C")


class WrongResultError(Exception):
    """A kernel returned other values than the reference."""

    outcome = "failed", "wrong_result"


class UnsupportedError(Exception):
    """This GPU or this release has no such kernel by design."""

    outcome = "unsupported", ""


class StuckClockError(Exception):
    """The GPU's clock stays low under load."""

    outcome = "failed", "clock"


class MemoryShortageError(Exception):
    """Too little memory is free, for example because a model is running."""

    outcome = "skipped", "memory"


@dataclass
class Runtime:
    """The modules torch and vllm._custom_ops, and the GPU's compute capability, as far as they are loaded."""

    torch: Any = None
    ops: Any = None
    capability: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return ".".join(map(str, self.capability))

    @property
    def number(self) -> int:
        """The capability in the form of vLLM's kernels: 121 for 12.1."""
        return self.capability[0] * 10 + self.capability[1]


#: A check returns its error and a message, or raises.
Check = Callable[[Runtime], tuple[float, str]]


def program() -> str:
    """Return the source of this file, for `python -c`."""
    return inspect.getsource(sys.modules[__name__])


def results(runtime: Runtime, checks: Mapping[str, Check]) -> Iterator[dict[str, Any]]:
    """Yield the result of each check. After a failure in ESSENTIAL, or of the GPU itself, the others are skipped."""
    blocked = ""
    for name, check in checks.items():
        begin = time.monotonic()
        error: float | None = None
        if blocked:
            state, cause, message = "skipped", "", blocked
        else:
            try:
                error, message = check(runtime)
                state, cause = ("passed", "") if error <= BOUND else ("failed", "wrong_result")
            except Exception as raised:  # noqa: BLE001  # Each exception is a result.
                state, cause, message = classified(raised)
            if state != "passed":
                blocked = _blocked(name, state, runtime)
        yield {
            "name": name,
            "state": state,
            "cause": cause,
            "error": error if error is not None and math.isfinite(error) else None,
            "bound": BOUND,
            "seconds": round(time.monotonic() - begin, 2),
            "message": message[:_MESSAGE],
        }


def classified(raised: BaseException) -> tuple[str, str, str]:
    """Return the state, the cause and the message of an exception."""
    line = next(iter(str(raised).strip().splitlines()), "")
    if isinstance(raised, WrongResultError | UnsupportedError | StuckClockError | MemoryShortageError):
        return *raised.outcome, line
    text = f"{type(raised).__name__}: {line}"
    outcomes = (outcome for parts, outcome in _OUTCOMES if any(part in text for part in parts))
    return *next(outcomes, ("failed", "error")), text


def _blocked(name: str, state: str, runtime: Runtime) -> str:
    """Return why the remaining checks cannot run after a check that did not pass, "" if they can."""
    if name in ESSENTIAL:
        return f"the check {name} did not pass"
    if state == "failed":
        try:
            runtime.torch.cuda.synchronize()
            runtime.torch.ones(1, device="cuda").cpu()
        except Exception:  # noqa: BLE001  # CUDA keeps some errors until the process ends.
            return f"the GPU context is unusable after the check {name}"
    return ""


def _cuda(runtime: Runtime) -> tuple[float, str]:
    """Load PyTorch, and run one of its kernels."""
    free = _available()
    if free is not None and free < _HOST_BYTES:
        raise MemoryShortageError(f"{free >> 20} MiB of memory are available, {_HOST_BYTES >> 20} MiB are needed")
    torch = runtime.torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        raise ImportError(f"PyTorch {torch.__version__} was built without CUDA")
    torch.cuda.init()
    device = torch.cuda.get_device_properties(0)
    # With unified memory the driver does not count the page cache as free.
    of_gpu: int = torch.cuda.mem_get_info()[0]
    if not getattr(device, "is_integrated", False) and of_gpu < _GPU_BYTES:
        raise MemoryShortageError(f"{of_gpu >> 20} MiB of GPU memory are free, {_GPU_BYTES >> 20} MiB are needed")
    runtime.capability = torch.cuda.get_device_capability(0)
    given = _random(torch, 1000, 1000)
    error = _deviation(given.cuda() * 2.5 + 1.0, given.double() * 2.5 + 1.0)
    return error, f"{device.name} ({runtime}), PyTorch {torch.__version__}"


def _bf16(runtime: Runtime) -> tuple[float, str]:
    """Multiply matrices in bfloat16 with cuBLAS."""
    torch = runtime.torch
    weights = _random(torch, _INNER, _COLUMNS).bfloat16()

    def product(rows: Any) -> tuple[Any, Any]:
        given = rows.bfloat16()
        return given.cuda() @ weights.cuda(), given.double() @ weights.double()

    return _worst(torch, product)


def _fp8_torch(runtime: Runtime) -> tuple[float, str]:
    """Multiply matrices in FP8 with PyTorch, which vLLM uses without CUTLASS."""
    torch = runtime.torch
    if runtime.capability < (8, 9) or not hasattr(torch, "_scaled_mm"):
        raise UnsupportedError("PyTorch multiplies FP8 from compute capability 8.9 on")
    weights = _fp8(torch, _random(torch, _COLUMNS, _INNER))
    scales = torch.tensor(0.5, device="cuda"), torch.tensor(0.25, device="cuda")

    def product(rows: Any) -> tuple[Any, Any]:
        given = _fp8(torch, rows)
        found = torch._scaled_mm(given, weights.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16)
        return found, _double(given) @ _double(weights).t() * 0.125

    return _worst(torch, product)


def _vllm(runtime: Runtime) -> tuple[float, str]:
    """Load vLLM's kernels."""
    names = [name for name in _EXTENSIONS if importlib.util.find_spec(name)]
    if not names:
        raise ImportError(f"vLLM has neither {' nor '.join(_EXTENSIONS)}")
    for name in names:
        importlib.import_module(name)
    runtime.ops = importlib.import_module("vllm._custom_ops")
    return 0.0, f"vLLM {importlib.import_module('vllm').__version__}"


def _fp8_vllm(runtime: Runtime) -> tuple[float, str]:
    """Multiply matrices in FP8 with vLLM's CUTLASS kernel, with a scale for each row and each column."""
    torch, ops = runtime.torch, runtime.ops
    if not ops.cutlass_scaled_mm_supports_fp8(runtime.number):
        raise UnsupportedError(f"this vLLM has no CUTLASS kernel for FP8 on {runtime}")
    weights = _fp8(torch, _random(torch, _COLUMNS, _INNER))
    of_columns = torch.linspace(0.1, 2.0, _COLUMNS, device="cuda").reshape(1, -1)

    def product(rows: Any) -> tuple[Any, Any]:
        given = _fp8(torch, rows)
        of_rows = torch.linspace(0.5, 1.5, len(rows), device="cuda").reshape(-1, 1)
        found = ops.cutlass_scaled_mm(given, weights.t(), of_rows, of_columns, torch.bfloat16)
        return found, _double(given) @ _double(weights).t() * (_double(of_rows) * _double(of_columns))

    return _worst(torch, product)


def _fp4_vllm(runtime: Runtime) -> tuple[float, str]:
    """Quantize to NVFP4 and multiply with vLLM's kernels; the reference is the product of the dequantized values."""
    torch, ops = runtime.torch, runtime.ops
    if not ops.cutlass_scaled_mm_supports_fp4(runtime.number):
        raise UnsupportedError(f"this vLLM has no CUTLASS kernel for NVFP4 on {runtime}")

    def quantized(values: Any) -> tuple[Any, Any, Any, Any]:
        scale = (_E4M3_MAX * _E2M1_MAX / values.abs().max()).float().cuda()
        packed, scales = ops.scaled_fp4_quant(values.bfloat16().cuda(), scale)
        size = (len(values), values.shape[1])
        read = torch.tensor(fp4_values(_bytes(torch, packed), _bytes(torch, scales), *size), dtype=torch.float64)
        restored = read.reshape(size) / _double(scale)
        error = float((restored - values.double()).abs().max() / values.abs().max())
        if math.isnan(error) or error > _FP4_BOUND:
            raise WrongResultError(f"the quantization of {size[0]} rows returned other values")
        return packed, scales, scale, restored

    weights, of_weights, scale_of_weights, reference = quantized(_random(torch, _COLUMNS, _INNER))

    def product(rows: Any) -> tuple[Any, Any]:
        given, scales, scale, restored = quantized(rows)
        factor = 1 / (scale * scale_of_weights)
        found = ops.cutlass_scaled_fp4_mm(given, weights, scales, of_weights, factor, torch.bfloat16)
        return found, restored @ reference.t()

    return _worst(torch, product)


def _clock(runtime: Runtime) -> tuple[float, str]:
    """Load the GPU for a second. Its clock must reach _CLOCK_MHZ."""
    torch, highest = runtime.torch, 0
    read = _clock_reader(str(getattr(torch.cuda.get_device_properties(0), "uuid", "")))
    factor = _random(torch, _LOAD_SIZE, _LOAD_SIZE).bfloat16().cuda()
    end = time.monotonic() + _LOAD_SECONDS
    while time.monotonic() < end:
        for _product in range(_LOAD_PRODUCTS):
            torch.mm(factor, factor)
        highest = max(highest, read())
        torch.cuda.synchronize()
    if highest < _CLOCK_MHZ:
        raise StuckClockError(f"at most {highest} MHz in a second of load")
    return 0.0, f"up to {highest} MHz"


def _clock_reader(uuid: str) -> Callable[[], int]:
    """Return a function that returns the SM's clock of a GPU in MHz. vLLM needs NVML too."""
    device, found = ctypes.c_void_p(), ctypes.c_uint()
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError as error:
        raise UnsupportedError(str(error)) from error

    def must(status: int) -> None:
        if status:
            raise UnsupportedError(f"NVML does not report the clock of the GPU {uuid}: error {status}")

    def read() -> int:
        must(nvml.nvmlDeviceGetClockInfo(device, _NVML_SM, ctypes.byref(found)))
        return found.value

    must(nvml.nvmlInit_v2())
    # CUDA may number the GPUs in another order.
    must(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}".encode(), ctypes.byref(device)))
    return read


CHECKS: Mapping[str, Check] = {
    "cuda": _cuda,
    "bf16": _bf16,
    "fp8_torch": _fp8_torch,
    "vllm": _vllm,
    "fp8_vllm": _fp8_vllm,
    "fp4_vllm": _fp4_vllm,
    "clock": _clock,
}
#: Without these, the later checks cannot run.
ESSENTIAL = ("cuda", "vllm")


def fp4_values(packed: Sequence[int], scales: Sequence[int], rows: int, columns: int) -> list[float]:
    """Return the values of an NVFP4 matrix by rows, without its global scale.

    ``packed`` has two E2M1 values per byte, the first in the low bits. ``scales`` are E4M3 bytes in tiles of 128 rows
    and 4 columns. Source: vLLM 0.24 to 0.33, _custom_ops.py, scaled_fp4_quant; PTX ISA, "tcgen05: scale factor layout".
    """
    tiles = -(-columns // (4 * _BLOCK))
    found = []
    for row in range(rows):
        for column in range(columns):
            pair = packed[(row * columns + column) // 2]
            code = pair >> 4 if column % 2 else pair & 15
            tile = row // 128 * tiles + column // (4 * _BLOCK)
            scale = scales[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column // _BLOCK % 4]
            found.append(math.copysign(_E2M1[code & 7], 0.5 - (code >> 3)) * e4m3(scale))
    return found


def e4m3(byte: int) -> float:
    """Return the value of an FP8 number (E4M3, without infinities). Source: OCP, "8-bit Floating Point" 1.0."""
    exponent, fraction = byte >> 3 & 15, byte & 7
    if byte & 127 == 127:
        return math.nan
    size = (fraction / 8 + bool(exponent)) * 2.0 ** (max(exponent, 1) - 7)
    return -size if byte & 128 else size


def _worst(torch: Any, product: Callable[[Any], tuple[Any, Any]]) -> tuple[float, str]:
    """Return the largest error of products with different numbers of rows, each as (found, expected)."""
    found = [(_deviation(*product(_random(torch, rows, _INNER))), rows) for rows in _ROWS]
    # A comparison with NaN is never true.
    error, rows = next((pair for pair in found if math.isnan(pair[0])), max(found))
    return error, f"largest deviation with {rows} rows"


def _deviation(found: Any, expected: Any) -> float:
    return float((_double(found) - expected).abs().max() / expected.abs().max())


def _double(tensor: Any) -> Any:
    """Return a tensor on the CPU with 64 bits. FP8 has no direct conversion."""
    return tensor.cpu().float().double()


def _fp8(torch: Any, tensor: Any) -> Any:
    return tensor.to(torch.float8_e4m3fn).cuda()


def _bytes(torch: Any, tensor: Any) -> list[int]:
    read: list[int] = tensor.view(torch.uint8).cpu().flatten().tolist()
    return read


def _random(torch: Any, rows: int, columns: int) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


def _available() -> int | None:
    """Return MemAvailable in bytes, None if it is unknown."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def main() -> None:
    """Print the results. The kernel ends the checks after the given seconds, also inside a hanging driver call."""
    # As the first process of a container, this one would survive the alarm.
    if child := os.fork():
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    signal.alarm(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    failed, names = False, sys.argv[2:] or CHECKS
    for result in results(Runtime(), {name: check for name, check in CHECKS.items() if name in names}):
        failed |= result["state"] == "failed"
        sys.stdout.write(f"{json.dumps(result)}\n")
        sys.stdout.flush()
    raise SystemExit(failed)


if __name__ == "__main__":
    main()

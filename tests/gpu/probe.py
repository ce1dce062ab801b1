# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the GPU probe on a real GPU: as shipped, and with wrong kernels, which it has to report.

    python tests/gpu/probe.py

PYTHON is that of an environment with a CUDA build of PyTorch and, for its checks, vLLM. Each planted fault replaces a
kernel in this process: a result that is 5 % too large, and one wrong element. The exit status is 1 if a kernel as
shipped fails, or a fault is not reported as a wrong result. Kernels that the GPU does not support are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

PROGRAM = Path(__file__).parents[2] / "plugins/module_utils/runtime/io_gpu_probe.py"
#: The kernel of each check: its module and its name.
KERNELS = {
    "fp8_torch": ("torch", "_scaled_mm"),
    "fp8_vllm": ("vllm._custom_ops", "cutlass_scaled_mm"),
    "fp4_vllm": ("vllm._custom_ops", "cutlass_scaled_fp4_mm"),
}


def too_large(product: Any) -> Any:
    return product * 1.05


def one_element(product: Any) -> Any:
    product[-1, -1] += product.abs().max() / 4
    return product


def load() -> Any:
    spec = importlib.util.spec_from_file_location("io_gpu_probe", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def planted(probe: Any, runtime: Any, check: str, fault: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the result of a check while its kernel has a fault."""
    module, name = KERNELS[check]
    kernel = getattr(importlib.import_module(module), name)
    with mock.patch(f"{module}.{name}", lambda *args, **options: fault(kernel(*args, **options))):
        (result,) = probe.results(runtime, {check: probe.CHECKS[check]})
    return {**result, "fault": fault.__name__}


def main() -> None:
    probe = load()
    runtime = probe.Runtime()
    shipped = {result["name"]: result for result in probe.results(runtime, probe.CHECKS)}
    passed = [check for check in KERNELS if shipped[check]["state"] == "passed"]
    faults = [planted(probe, runtime, check, fault) for check in passed for fault in (too_large, one_element)]
    sys.stdout.writelines(f"{json.dumps(result)}\n" for result in (*shipped.values(), *faults))
    sys.exit(
        any(each["state"] == "failed" for each in shipped.values())
        or any(each["cause"] != "wrong_result" for each in faults)
    )


if __name__ == "__main__":
    main()

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The results of the program io_gpu_probe.py. An image may print anything, so its output is untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

PASSED, FAILED, UNSUPPORTED, SKIPPED = "passed", "failed", "unsupported", "skipped"
#: The checks of the program io_gpu_probe.py, in order, with descriptions for people. The program imports nothing of
#: this collection, and a pure file no program, so a unit test compares the names.
CHECKS: Mapping[str, str] = {
    "cuda": "a kernel of PyTorch",
    "bf16": "a bfloat16 matrix product of PyTorch",
    "fp8_torch": "an FP8 matrix product of PyTorch",
    "vllm": "the loading of vLLM's kernels",
    "fp8_vllm": "an FP8 matrix product of vLLM",
    "fp4_vllm": "an NVFP4 matrix product of vLLM",
    "clock": "a second of load",
}
#: The cause of a GPU that stays at a low clock. It is not a kernel, which another one could replace.
STUCK = "clock"
_STATES = (PASSED, FAILED, UNSUPPORTED, SKIPPED)
#: Why a check failed or was skipped: its cause in words, and the fix.
CAUSES: Mapping[str, tuple[str, str]] = {
    "no_kernel": (
        "no code for this GPU",
        "install a build with code for it; docs/troubleshooting.md#kernel-image-missing",
    ),
    "wrong_result": ("wrong result", "use another build or backend; compare the golden answers before you serve"),
    "import": ("it cannot be loaded", "reinstall the runtime with the versions of its lock"),
    "error": ("it failed", "read the message, and dmesg for errors of the GPU (Xid)"),
    "ended": ("the program ended", "read dmesg for errors of the GPU (Xid), and restart the node if the GPU hangs"),
    "memory": ("too little free memory", "stop the model, then repeat"),
    "no_gpu": ("no GPU", "install the driver"),
    STUCK: (
        "the clock is stuck",
        "shut the node down, disconnect its power supply for a minute, and start it (the only known cure, unless "
        "host_guard_gpu_clock is below 1000); docs/verification.md#gpu-clock-stuck",
    ),
}
_MOST, _MESSAGE = 4096, 300
#: Checks of kernels that every model needs.
ESSENTIAL = ("cuda", "bf16", "vllm")


def results(
    stdout: str, stderr: str, status: int, timed_out: bool = False, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return {name, state, cause, error, bound, seconds, message} of each check; invalid lines are ignored.

    ``error`` is the largest deviation as a part of the reference's largest value, None without a number. The first
    check without a result failed, because the program ended during it; those after it are skipped. ``names``: the
    checks that were to run, () for all.
    """
    wanted = [name for name in CHECKS if not names or name in names]
    found = {result["name"]: result for result in filter(None, map(_parsed, stdout.splitlines()))}
    missing = [name for name in wanted if name not in found]
    for name in missing:
        last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "no message")
        first = name == missing[0]
        end = "the time limit was reached" if timed_out else f"exit status {status}"
        message = f"{end}: {last.strip()}" if first else f"the program ended during {missing[0]}"
        found[name] = _result(name, FAILED if first else SKIPPED, "ended" if first else "", message)
    return [found[name] for name in wanted]


def required(quantization: str) -> list[str]:
    """Return the checks that stop a run for a model; ``quantization``: see model/quantization.py.

    vLLM's own products are not among them: VLLM_DISABLED_KERNELS replaces them, PyTorch's FP8 and Marlin's NVFP4.
    """
    return [*ESSENTIAL, *(["fp8_torch"] if quantization == "fp8" else [])]


def record(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the record for vllm_patch: the failed kernels, with descriptions."""
    failed = [each for each in found if each["state"] == FAILED and each["cause"] != STUCK]
    return json.dumps({each["name"]: described(each) for each in failed}, indent=1) + "\n"


def recorded(text: str) -> dict[str, str]:
    """Return the failed checks in a record, {} without one."""
    try:
        found = bounded_json.load(text, _MOST * len(CHECKS)) if text else {}
    except ValueError:
        return {}
    return {name: str(found[name]) for name in CHECKS if name in found} if isinstance(found, Mapping) else {}


def problems(found: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return a problem for each failed check."""
    failed = [result for result in found if result["state"] == FAILED]
    return [
        Problem("gpu-clock-stuck", described(result), "1000 MHz or more", CAUSES[STUCK][1])
        if result["cause"] == STUCK
        else Problem(result["name"], described(result), "the CPU's result", CAUSES[result["cause"]][1])
        for result in failed
    ]


def described(result: Mapping[str, Any]) -> str:
    """Return a result as text, such as "an FP8 matrix product of vLLM: wrong result (0.25, bound 0.02)"."""
    error = "" if result["error"] is None else f" (deviation {result['error']:.3g}, bound {result['bound']:.3g})"
    state = CAUSES[result["cause"]][0] if result["cause"] else result["state"]
    message = f": {result['message']}" if result["message"] else ""
    return f"{CHECKS[result['name']]}: {state}{error}{message}"


def _parsed(line: str) -> dict[str, Any] | None:
    """Return the result in a line, None if it has none."""
    if not line.startswith('{"name"'):
        return None
    try:
        read = bounded_json.load(line, _MOST)
    except ValueError:
        return None
    name, state, cause = (str(read.get(key)) for key in ("name", "state", "cause"))
    if name not in CHECKS or state not in _STATES or cause not in ({*CAUSES} if state == FAILED else {"", *CAUSES}):
        return None
    numbers = [_number(read.get(key)) for key in ("error", "bound", "seconds")]
    return _result(name, state, cause, str(read.get("message")), *numbers)


def _result(
    name: str,
    state: str,
    cause: str,
    message: str,
    error: float | None = None,
    bound: float | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "cause": cause,
        "error": error,
        "bound": bound or 0.0,
        "seconds": seconds or 0.0,
        "message": re.sub(r"[^ -~]", "?", message)[:_MESSAGE],
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

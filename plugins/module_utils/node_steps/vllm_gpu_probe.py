# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run small GPU kernels of a runtime, and compare their results with the CPU's.

Runs a kernel of PyTorch, and matrix products in bfloat16, FP8 and NVFP4 of PyTorch and vLLM. Each result is compared
with the same product of the CPU.
Finds a build without code for the GPU, and kernels with wrong results, in seconds and without a model. Finds a GPU
whose clock stays low under load.
Does nothing on a host without a GPU. With less than 2 GiB of free memory the checks are skipped, because a model may be
running.
With ``python``, the program runs as a temporary user without network, confined like a rank.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe, io_gpu_probe

#: Seconds for the start and the removal of a unit or a container.
_OVERHEAD = 30


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs: ``python`` or ``container``, and the others.

    ``python``: The Python interpreter of an environment with vLLM.
    ``container``: A command whose further arguments are those of the Python interpreter in a container, such as that of
    the step image_query.
    ``seconds``: The time limit of the program.
    ``environment``: The environment of a rank, for ``python``.
    ``checks``: The checks to run; all of them if empty.
    ``required``: The checks whose failure is an error. The failure of another one is a warning; with an empty list it
    only returns the results.
    ``quantization``: The quantization of the model, whose checks are required too. ``vllm_patch`` replaces the kernels
    of the others.
    ``record``: The file for the failed checks, which ``vllm_patch`` reads.
    """

    python: str | None = field(default=None, metadata={"type": "path"})
    container: Sequence[str] = ()
    seconds: int = 180
    environment: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[str] = field(default=(), metadata={"choices": list(gpu_probe.CHECKS)})
    required: Sequence[str] = tuple(gpu_probe.ESSENTIAL)
    quantization: str = ""
    record: str | None = field(default=None, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {checks, report, reason}, also with a failure.

    ``checks``: {name, state, cause, error, bound, seconds, message} of each, empty without a GPU. ``state`` is
    ``passed``, ``failed``, ``unsupported`` or ``skipped``. ``error`` is the largest deviation as a part of the
    reference's largest value, null without a number, and ``bound`` the largest accepted one.
    ``report``: The results as text.
    ``reason``: Why nothing was run, "" if the program was run.
    """
    if bool(given.python) == bool(given.container):
        raise ValueError("one of the following is required: python, container")
    gpu = node_io_facts.gpu(runner(module))
    if not gpu["gpus"]:
        reason = gpu["reason"] or "nvidia-smi lists no GPU"
        return {"changed": False, "checks": [], "report": [], "reason": reason}
    results = _results(module, given)
    found = gpu_probe.problems(results)
    report = [gpu_probe.described(each) for each in results]
    answer: dict[str, Any] = {"checks": results, "report": report, "reason": ""}
    of_model = gpu_probe.required(given.quantization) if given.quantization else []
    stopping = [problem for problem in found if problem.path in (*given.required, *of_model)]
    if stopping:
        return {"failed": True, "msg": problems.report(stopping), **answer}
    for problem in found if given.required else []:
        module.warn(str(problem))
    changed = False
    if given.record:
        text = gpu_probe.record(results)
        changed = io_file.differs(given.record, text)
        if changed and not module.check_mode:
            io_file.install(given.record, text)
    return {"changed": changed, **answer}


def _results(module: AnsibleModule, given: Inputs) -> list[dict[str, Any]]:
    """Run the program, and return the results of its checks."""
    seconds, checks = given.seconds, list(given.checks)
    variables = [f"--setenv={name}={value}" for name, value in given.environment.items()]
    prefix = given.container or [*confinement.anonymous(seconds + _OVERHEAD), *variables, str(given.python)]
    begin = time.monotonic()
    run_all = parallel_runner(module, seconds + 2 * _OVERHEAD)
    ((status, stdout, stderr),) = run_all([[*prefix, "-c", io_gpu_probe.program(), str(seconds), *checks]])
    late = time.monotonic() - begin >= seconds
    return gpu_probe.results(stdout, stderr, status, late, checks)

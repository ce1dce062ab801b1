#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_gpu_probe
short_description: Run small GPU kernels of a runtime, and compare their results with the CPU's
version_added: 0.1.0
description:
  - Runs a kernel of PyTorch, and matrix products in bfloat16, FP8 and NVFP4 of PyTorch and vLLM. Each result is
    compared with the same product of the CPU.
  - Finds a build without code for the GPU, and kernels with wrong results, in seconds and without a model. Finds a GPU
    whose clock stays low under load.
  - Does nothing on a host without a GPU. With less than 2 GiB of free memory the checks are skipped, because a model
    may be running.
  - With O(python), the program runs as a temporary user without network, confined like a rank.
options:
  python:
    description: The Python interpreter of an environment with vLLM.
    type: path
  container:
    description:
      - A command whose further arguments are those of the Python interpreter in a container, such as that of
        the step C(image_query).
    type: list
    elements: str
  seconds:
    description: The time limit of the program.
    type: int
    default: 180
  environment:
    description: The environment of a rank, for O(python).
    type: dict
    default: {}
  checks:
    description: The checks to run, by their names in RV(checks); all of them if empty.
    type: list
    elements: str
    choices: [cuda, bf16, fp8_torch, vllm, fp8_vllm, fp4_vllm, clock]
    default: []
  required:
    description: The checks whose failure is an error. The failure of another one is a warning; with an empty list the
      module only returns the results.
    type: list
    elements: str
    default: [cuda, bf16, vllm]
  quantization:
    description: The quantization of the model, whose checks are O(required) too. M(gb10.cluster.vllm_patch) replaces
      the kernels of the others.
    type: str
    default: ""
  record:
    description: The file for the failed checks, which M(gb10.cluster.vllm_patch) reads.
    type: path
seealso:
  - module: gb10.cluster.gpu_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Verify the GPU kernels of the runtime
  gb10.cluster.vllm_gpu_probe:
    python: /opt/gb10/runtime/current/bin/python
  become: true
"""

RETURN = r"""
checks:
  description: One entry for each check, empty without a GPU.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: C(cuda), C(bf16), C(fp8_torch), C(vllm), C(fp8_vllm), C(fp4_vllm) or C(clock).
      type: str
    state:
      description: C(passed), C(failed), C(unsupported) or C(skipped).
      type: str
    cause:
      description: C(no_kernel), C(wrong_result), C(import), C(error), C(ended), C(memory), C(no_gpu), C(clock) or
        empty.
      type: str
    error:
      description: The largest deviation as a part of the reference's largest value, null without a number.
      type: float
    bound:
      description: The largest accepted error.
      type: float
    seconds:
      description: The duration of the check.
      type: float
    message:
      description: The GPU and the releases, or the first line of the error.
      type: str
report:
  description: The results as text.
  returned: always
  type: list
  elements: str
reason:
  description: The reason why nothing was run, empty if the program was run.
  returned: always
  type: str
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe, io_gpu_probe

#: Seconds for the start and the removal of a unit or a container.
_OVERHEAD = 30


def main() -> None:
    """Run the program and return its results."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path"},
            "container": {"type": "list", "elements": "str"},
            "seconds": {"type": "int", "default": 180},
            "environment": {"type": "dict", "default": {}},
            "checks": {"type": "list", "elements": "str", "default": [], "choices": list(gpu_probe.CHECKS)},
            "required": {"type": "list", "elements": "str", "default": list(gpu_probe.ESSENTIAL)},
            "quantization": {"type": "str", "default": ""},
            "record": {"type": "path"},
        },
        mutually_exclusive=[("python", "container")],
        required_one_of=[("python", "container")],
        supports_check_mode=True,
    )
    params = module.params
    gpu = node_io_facts.gpu(runner(module))
    if not gpu["gpus"]:
        module.exit_json(changed=False, checks=[], report=[], reason=gpu["reason"] or "nvidia-smi lists no GPU")
    seconds = params["seconds"]
    variables = [f"--setenv={name}={value}" for name, value in params["environment"].items()]
    prefix = params["container"] or [*confinement.anonymous(seconds + _OVERHEAD), *variables, params["python"]]
    begin = time.monotonic()
    run_all = parallel_runner(module, seconds + 2 * _OVERHEAD)
    ((status, stdout, stderr),) = run_all([[*prefix, "-c", io_gpu_probe.program(), str(seconds), *params["checks"]]])
    late = time.monotonic() - begin >= seconds
    results = gpu_probe.results(stdout, stderr, status, late, params["checks"])
    found = gpu_probe.problems(results)
    answer: dict[str, Any] = {
        "checks": results,
        "report": [gpu_probe.described(each) for each in results],
        "reason": "",
    }
    of_model = gpu_probe.required(params["quantization"]) if params["quantization"] else []
    stopping = [problem for problem in found if problem.path in (*params["required"], *of_model)]
    if stopping:
        module.fail_json(msg=problems.report(stopping), **answer)
    for problem in found if params["required"] else []:
        module.warn(str(problem))
    changed = False
    if params["record"]:
        text = gpu_probe.record(results)
        changed = io_file.differs(params["record"], text)
        if changed and not module.check_mode:
            io_file.install(params["record"], text)
    module.exit_json(changed=changed, **answer)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: flashinfer_kernels
short_description: Compile the kernels of FlashInfer that a model needs, before it is loaded
version_added: 0.1.0
description:
  - Starts vLLM with random weights and few layers in a separate unit, and stores each module that FlashInfer
    compiled in the runtime. Ranks then load them without a compiler.
  - The unit runs as a temporary user without network. The module stores its results as root, read-only for the ranks.
  - With O(archive), it stores the modules of an equal node instead.
  - The action plugin waits for the unit and shows its progress. An interrupted compilation continues in the next run.
options:
  planned:
    description: Whether O(python), O(name), O(argv) and O(environment) are those of the fact C(gb10_plan). For the
      action plugin.
    type: bool
    default: false
  python:
    description: The Python interpreter of the environment with vLLM. Required without O(planned).
    type: path
  name:
    description: The identity of the kernels. Required without O(planned).
    type: str
  argv:
    description: The model and the arguments of C(vllm serve).
    type: list
    elements: str
    default: []
  environment:
    description: The environment of a rank.
    type: dict
    default: {}
  seconds:
    description: The time limit of the compilation.
    type: int
    default: 7200
  archive:
    description: The file with the modules of an equal node.
    type: path
  pack:
    description: The file to write for equal nodes.
    type: path
seealso:
  - module: gb10.cluster.vllm_gpu_probe
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Compile the kernels of FlashInfer
  gb10.cluster.flashinfer_kernels:
    python: /opt/gb10/runtime/current/bin/python
    name: 0123456789abcdef
    argv: [/srv/models/tiny, --attention-backend=FLASHINFER]
    environment:
      PATH: /opt/gb10/runtime/current/bin:/usr/local/cuda/bin:/usr/bin:/bin
      CUDA_HOME: /usr/local/cuda
  become: true
"""

RETURN = r"""
state:
  description: C(ready); C(running) while the unit compiles; C(missing) in check mode; C(none) if the node needs none.
  returned: always
  type: str
line:
  description: The progress as text.
  returned: always
  type: str
shared:
  description: Whether the head compiles the same kernels.
  returned: with O(planned)
  type: bool
modules:
  description: SHA-256 of each stored module.
  returned: when ready
  type: dict
packed_sha256:
  description: SHA-256 of O(pack).
  returned: with O(pack), when ready
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_kernels, io_start, plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory


def advance(module: AnsibleModule, run: Run, folder: str) -> tuple[bool, dict[str, str] | None, str]:
    """Do the next step. Return (changed, the stored modules or None, the progress). Raises ProblemsError, OSError."""
    params, name = module.params, module.params["name"]
    if (modules := io_kernels.stored(folder, name)) is not None:
        return False, modules, f"{len(modules)} modules are stored"
    if module.check_mode:
        return True, None, "FlashInfer's kernels would be compiled"
    jobs = toolchain.jobs(available_memory(io_file.read("/proc/meminfo")), len(os.sched_getaffinity(0)))
    if params["archive"]:
        modules = io_kernels.unpack(folder, name, params["archive"], jobs)
        return True, modules, f"{len(modules)} modules were stored"
    found = io_kernels.progress(run, name)
    if found.state == "failed":
        reason = io_kernels.cause(run)
        io_kernels.stop(run)
        fix = "resolve the error, or set gb10_flashinfer: false; finished objects are reused"
        raise ProblemsError(
            [Problem("unit", f"vLLM ended before every kernel had run:\n{reason}", "a start with random weights", fix)]
        )
    if found.state == "finished":
        modules = io_kernels.collect(folder, name, jobs)
        io_kernels.stop(run)
        io_kernels.remove_cache()
        return True, modules, f"{len(modules)} modules were stored"
    if found.state == "none":
        words, environment = params["argv"], {str(key): str(value) for key, value in params["environment"].items()}
        io_kernels.start(
            run, plan.unit_argv(params["python"], io_start.program(), name, words, environment, jobs, params["seconds"])
        )
    return True, None, f"{found.modules} modules and {found.objects} objects are compiled, {jobs} at a time"


def main() -> None:
    """Do the next step, and return the state."""
    module = AnsibleModule(
        argument_spec={
            "planned": {"type": "bool", "default": False},
            "python": {"type": "path"},
            "name": {"type": "str"},
            "argv": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "seconds": {"type": "int", "default": 7200},
            "archive": {"type": "path"},
            "pack": {"type": "path"},
        },
        required_if=[("planned", False, ["python", "name"])],
        supports_check_mode=True,
    )
    params = module.params
    try:
        folder = io_kernels.store(params["python"])
        if not folder:
            # Without FlashInfer vLLM uses its own kernels.
            module.exit_json(changed=False, state="ready", line="the runtime has no FlashInfer", modules={})
        changed, modules, line = advance(module, runner(module), folder)
        state = "ready" if modules is not None else "missing" if module.check_mode else "running"
        answer = {"state": state, "line": line, "modules": modules or {}}
        if params["pack"] and modules is not None and not module.check_mode:
            answer["packed_sha256"] = io_kernels.pack(folder, params["name"], params["pack"])
        diff = {"before": "" if changed else f"{params['name']}\n", "after": f"{params['name']}\n"}
        module.exit_json(changed=changed, diff=diff, **answer)
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_build
short_description: Build vLLM from source in a sandboxed unit, and continue an interrupted build
version_added: 0.1.0
description:
  - Checks the requirements of the build, applies the patches to a copy of the source, and starts a transient unit that
    compiles the wheel. Returns at once; M(gb10.cluster.vllm_build_wait) waits for the unit.
  - All missing requirements are reported together, before anything changes.
  - A unit that already builds the same wheel continues. After an interruption, finished objects are reused.
options:
  store:
    description: The store of builds on this host.
    type: path
    required: true
  item:
    description: A build of the fact C(gb10_plan). All other options except O(source) then follow from the plan, the
      variables of the role C(vllm_build) and the locks. For the action plugin.
    type: dict
  name:
    description: The name of the build.
    type: str
    required: true
  version:
    description: The version of the wheel, without the suffix of the device.
    type: str
    required: true
  device:
    description: The device of the build.
    type: str
    choices: [cuda, cpu]
    required: true
  capabilities:
    description: The compute capabilities to build for.
    type: list
    elements: str
    required: true
  architectures:
    description: C(TORCH_CUDA_ARCH_LIST).
    type: str
    default: ''
  torch:
    description: The release of torch in O(python)'s environment.
    type: str
    required: true
  cuda:
    description: The CUDA release of that torch, empty for O(device=cpu).
    type: str
    default: ''
  driver:
    description: The newest CUDA release that the drivers of all ranks support, such as V(13.0); empty if unknown.
    type: str
    default: ''
  source:
    description: The source of vLLM on this host, which stays unchanged. Without it, only the requirements are checked.
    type: path
  commit:
    description: The required commit of O(source), 40 hexadecimal digits; empty for an archive.
    type: str
    default: ''
  identity:
    description: The exact identity of O(source), for the stamp.
    type: str
    required: true
  patches:
    description: Patch files on this host, in this order.
    type: list
    elements: path
    default: []
  python:
    description: The interpreter of the build environment.
    type: path
    required: true
  program:
    description: The program of the unit.
    type: path
    required: true
  cuda_home:
    description: The folder of the CUDA toolkit. By default the usual folders are searched.
    type: path
  jobs:
    description: Number of parallel compilers, 0 to compute it from cores and free memory.
    type: int
    default: 0
  nvcc_threads:
    description: Number of architectures that one nvcc compiles at the same time, 0 for 1.
    type: int
    default: 0
  ccache:
    description: Whether to cache compiler output with C(ccache).
    type: bool
    default: true
  network:
    description: Whether the unit may use the network, to download the sources of dependencies.
    type: bool
    default: true
  while_serving:
    description: Whether to build while one of O(units) runs.
    type: bool
    default: false
  units:
    description: The units that hold a model.
    type: list
    elements: str
    default: []
  timeout:
    description: Maximum seconds of the build.
    type: int
    default: 86400
  environment:
    description: Additional variables of the build.
    type: dict
    default: {}
seealso:
  - module: gb10.cluster.vllm_build_wait
  - module: gb10.cluster.vllm_build_wheel
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Start the build of vLLM for DGX Sparks
  gb10.cluster.vllm_build:
    store: /opt/gb10/build
    name: 0.33.0-0123456789ab
    version: 0.33.0+gb10.01234567
    device: cuda
    capabilities: ["12.1"]
    architectures: 12.1a
    torch: 2.14.0
    cuda: "13.0"
    source: /opt/gb10/build/source/v0.33.0
    commit: 0123456789abcdef0123456789abcdef01234567
    identity: commit 0123456789abcdef0123456789abcdef01234567
    python: /opt/gb10/build/environment/bin/python
    program: /opt/gb10/build/io_run.py
  become: true
"""

RETURN = r"""
folder:
  description: The build environment.
  returned: with O(item)
  type: str
requirements:
  description: The requirements file of the build environment.
  returned: with O(item)
  type: str
program:
  description: The program of the unit, to install before the build starts.
  returned: with O(item)
  type: str
jobs:
  description: Number of parallel compilers.
  returned: success
  type: int
log:
  description: The log of the unit.
  returned: success
  type: str
stamp:
  description: The inputs of the build, for O(gb10.cluster.vllm_build_wheel#module:stamp).
  returned: success
  type: dict
"""

import os
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_git
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import plan as vllm_build_plan

NAMES = ("jobs", "nvcc_threads", "ccache", "network", "while_serving", "timeout")


def target_of(params: dict[str, Any]) -> vllm_build_plan.Target:
    """Return the target. Raises ProblemsError for a wrong capability."""
    gpus = tuple(
        ComputeCapability.parse(text, f"capabilities[{index}]") for index, text in enumerate(params["capabilities"])
    )
    texts = (params[name] for name in ("architectures", "torch", "cuda", "driver"))
    return vllm_build_plan.Target(params["name"], params["version"], params["device"], gpus, *texts)


def check(
    module: AnsibleModule,
    run: Run,
    target: vllm_build_plan.Target,
    settings: vllm_build_plan.BuildSettings,
    host: vllm_build_plan.Host,
    toolkit: Toolkit,
) -> None:
    """Raise ProblemsError with every reason why the build cannot start."""
    source, commit = module.params["source"], module.params["commit"]
    project, lists = io_build.requirements(run, source, module.params["patches"]) if source else ("", "")
    torch, gcc = vllm_build_plan.required_torch(project), vllm_build_plan.required_gcc(lists)
    problems = vllm_build_plan.problems(target, settings, host, toolkit, torch, gcc)
    if source and commit:
        problems += io_git.moved(
            "vllm_build_commit", source, io_git.commit(run, source, f"remove {source}, then run again"), commit
        )
    # Check mode installs no packages.
    refuse([problem for problem in problems if not (module.check_mode and problem.path == "programs")])


def start(
    params: dict[str, Any],
    run: Run,
    target: vllm_build_plan.Target,
    settings: vllm_build_plan.BuildSettings,
    host: vllm_build_plan.Host,
    toolkit: Toolkit,
    log: str,
) -> None:
    """Prepare the source and start the unit. Raises ProblemsError, OSError."""
    tree = io_build.prepare(run, params["store"], target.name, params["source"], params["patches"], target.capabilities)
    variables = vllm_build_plan.environment(
        target, settings, vllm_build_plan.jobs(settings, host, target.device), params["python"], toolkit
    )
    program = ["/usr/bin/python3", "-I", "-B", params["program"], f"--name={target.name}", f"--source={tree}"]
    program += [f"--state={vllm_build_plan.STATE}", f"--python={params['python']}"]
    io_build.start(run, vllm_build_plan.unit(target, settings, host, variables, program, log), log)


def main() -> None:
    """Check, prepare the source, and start the unit."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "item": {"type": "dict"},
            "name": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "required": True},
            "capabilities": {"type": "list", "elements": "str", "required": True},
            "architectures": {"type": "str", "default": ""},
            "torch": {"type": "str", "required": True},
            "cuda": {"type": "str", "default": ""},
            "driver": {"type": "str", "default": ""},
            "source": {"type": "path"},
            "commit": {"type": "str", "default": ""},
            "identity": {"type": "str", "required": True},
            "patches": {"type": "list", "elements": "path", "default": []},
            "python": {"type": "path", "required": True},
            "program": {"type": "path", "required": True},
            "cuda_home": {"type": "path"},
            "jobs": {"type": "int", "default": 0},
            "nvcc_threads": {"type": "int", "default": 0},
            "ccache": {"type": "bool", "default": True},
            "network": {"type": "bool", "default": True},
            "while_serving": {"type": "bool", "default": False},
            "units": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 86400},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    texts = {name: str(value) for name, value in params["environment"].items()}
    settings = vllm_build_plan.BuildSettings(**{name: params[name] for name in NAMES}, environment=texts)
    log = f"{params['store']}/build.log"
    try:
        target = target_of(params)
        toolkit = io_toolkit.find(run, params["cuda_home"]) if target.device == vllm_build_plan.CUDA else Toolkit(None)
        host = io_build.host(run, params["units"])
        there = any(stamp["name"] == target.name for stamp in io_store.stamps(params["store"]))
        needed = not there and not io_build.running(run, target.name)
        if needed:
            check(module, run, target, settings, host, toolkit)
        if needed and params["source"] and not module.check_mode:
            start(params, run, target, settings, host, toolkit, log)
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    jobs = vllm_build_plan.jobs(settings, host, target.device)
    stamp = {
        "version": target.version,
        "source": params["identity"],
        "patches": [os.path.basename(path) for path in params["patches"]],
        "architectures": target.architectures,
        "device": target.device,
        "torch": target.torch,
        "cuda": toolkit.release,
        "compiler": host.compiler,
        "machine": os.uname().machine,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "jobs": jobs,
    }
    module.exit_json(
        changed=needed and bool(params["source"]),
        jobs=jobs,
        log=log,
        stamp=stamp,
        diff={"before": f"{target.name}\n" if there else "", "after": f"{target.name}\n"},
    )


if __name__ == "__main__":
    main()

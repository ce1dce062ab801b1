#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_build
short_description: Build vLLM from source in a sandboxed unit, and store its wheel
version_added: 0.1.0
description:
  - Checks the requirements of the build, applies the patches to a copy of the source, and starts a transient unit that
    compiles the wheel. All missing requirements are reported together, before anything changes.
  - The action plugin waits for the unit and shows its last line. The build continues when this run is interrupted.
  - Verifies that the wheel has vLLM's files alone and code for each GPU, and writes it to the store in one form.
  - With O(file), adds a wheel that another host sent, and verifies its hash and its form.
  - Removes the oldest builds after a new one, but not that of O(runtime).
options:
  planned:
    description: Whether the options of the build follow from the plan, the variables of the role C(vllm_build) and the
      locks. For the action plugin.
    type: bool
    default: false
  store:
    description: The store of builds on this host.
    type: path
  name:
    description: The name of the build.
    type: str
  file:
    description: A wheel on this host.
    type: path
  stamp:
    description: The stamp of O(file).
    type: dict
  device:
    description: The device of the build.
    type: str
    choices: [cuda, cpu]
    default: cuda
  capabilities:
    description: The compute capabilities to build for.
    type: list
    elements: str
    default: []
  torch:
    description: The release of torch in O(folder).
    type: str
    default: ''
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
    default: ''
  patches:
    description: Patch files on this host, in this order.
    type: list
    elements: path
    default: []
  folder:
    description: The build environment, with uv. Without it and O(file), a missing build is only reported.
    type: path
  wait:
    description: Whether to read a started build, and to store its wheel once it is finished.
    type: bool
    default: false
  keep:
    description: Number of builds to keep.
    type: int
    default: 3
  runtime:
    description: The environment in use. The build whose wheel it has is kept.
    type: path
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
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Build vLLM as planned
  gb10.cluster.vllm_build:
    planned: true
    source: /opt/gb10/build/source/0123456789ab
  become: true

- name: Add the wheel that the head sent
  gb10.cluster.vllm_build:
    store: /opt/gb10/build
    name: 0.33.0-0123456789ab
    file: /opt/gb10/build/.transfer/vllm.whl
    stamp: "{{ stamp_of_head }}"
  become: true
"""

RETURN = r"""
state:
  description: The state of the build, C(missing), C(running) or C(ready).
  returned: success
  type: str
line:
  description: The progress of a running build.
  returned: success
  type: str
stamp:
  description: The stamp of the stored build, null if it is missing.
  returned: success
  type: dict
removed:
  description: The removed older builds.
  returned: success
  type: list
  elements: str
folder:
  description: The build environment.
  returned: with O(planned)
  type: str
requirements:
  description: The requirements file of the build environment.
  returned: with O(planned)
  type: str
"""

import os
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_git
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import (
    io_build,
    io_store,
    parse,
    plan,
    schema,
)

#: Most characters of a line of the log.
_WIDTH = 200


def toolkit_of(params: dict[str, Any], run: Run) -> Toolkit:
    """Return the CUDA toolkit of a build for GPUs. Raises ProblemsError if O(cuda_home) has none."""
    return io_toolkit.find(run, params["cuda_home"]) if params["device"] == schema.CUDA else Toolkit(None)


def start(params: dict[str, Any], run: Run, gpus: list[ComputeCapability], log: str, check: bool) -> None:
    """Check the requirements, and with a source start the unit. Raises ProblemsError with every problem, OSError."""
    store, source, commit = params["store"], params["source"], params["commit"]
    toolkit = toolkit_of(params, run)
    host = io_build.host(run, params["units"])
    problems = plan.problems(params, host, toolkit)
    if source and commit:
        found = io_git.commit(run, source, f"remove {source}, then run again")
        problems += io_git.moved("vllm_build_commit", source, found, commit)
    # Check mode installs no packages.
    refuse([problem for problem in problems if not (check and problem.path == "programs")])
    if source and not check:
        refuse(plan.source_problems(params, host, *io_build.prepare(run, store, source, params["patches"], gpus)))
        variables = plan.environment(params, plan.jobs(params, host), toolkit)
        io_build.start(run, plan.unit(params, host, variables, log), log)


def step(params: dict[str, Any], run: Run, check: bool) -> dict[str, Any]:
    """Do the next step of a build, and return {changed, state}, with {line} while it runs, and {stamp} of its wheel.

    Raises ProblemsError, OSError.
    """
    state, result = io_build.state(run, params["name"])
    gpus = [ComputeCapability.parse(text, f"capabilities[{i}]") for i, text in enumerate(params["capabilities"])]
    log = f"{params['store']}/build.log"
    if state == "running" or (state == "finished" and not params["wait"]):
        line = io_build.end_of(run, log).rstrip().rpartition("\n")[2]
        return {"state": "running", "line": line[:_WIDTH] or "it begins"}
    if not params["wait"]:
        start(params, run, gpus, log, check)
        started = bool(params["source"])
        return {"changed": started, "state": "running" if started else "missing", "line": "it begins"}
    if state != "finished":
        reason = parse.cause(result, io_build.end_of(run, log))
        fix = f"see {log}, then run again; ccache has the finished objects, and the runtime is unchanged"
        raise ProblemsError([Problem("unit", f"the build of vLLM ended: {reason}", "a finished build", fix)])
    stamp = {
        "name": params["name"],
        "version": plan.version(params["name"]),
        "source": params["identity"],
        "patches": [os.path.basename(path) for path in params["patches"]],
        "architectures": plan.architectures(params["capabilities"]),
        "device": params["device"],
        "torch": params["torch"],
        "cuda": toolkit_of(params, run).release,
        "compiler": run(["g++", "-dumpfullversion"])[1].strip(),
        "machine": os.uname().machine,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    }
    return {"changed": True, "state": "ready", "stamp": io_build.add(run, params["store"], stamp, gpus)}


def receive(store: str, name: str, stamp: dict[str, Any], path: str) -> dict[str, Any]:
    """Store a wheel that another host sent, and return its stamp. Raises ProblemsError, OSError."""
    if parse.build(stamp).get("name") != name:
        expected, fix = f"name, wheel and sha256 of {name}", "remove the build on the host that built it, and run again"
        raise ProblemsError([Problem("stamp", "a value is missing or has another form", expected, fix)])
    with open(path, "rb") as file:
        return io_store.add(store, stamp, file.fileno(), [])


def main() -> None:
    """Do the next step, and remove old builds after a new one."""
    module = AnsibleModule(
        argument_spec={
            "planned": {"type": "bool", "default": False},
            "store": {"type": "path"},
            "name": {"type": "str"},
            "file": {"type": "path"},
            "stamp": {"type": "dict"},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
            "capabilities": {"type": "list", "elements": "str", "default": []},
            "torch": {"type": "str", "default": ""},
            "cuda": {"type": "str", "default": ""},
            "driver": {"type": "str", "default": ""},
            "source": {"type": "path"},
            "commit": {"type": "str", "default": ""},
            "identity": {"type": "str", "default": ""},
            "patches": {"type": "list", "elements": "path", "default": []},
            "folder": {"type": "path"},
            "wait": {"type": "bool", "default": False},
            "keep": {"type": "int", "default": 3},
            "runtime": {"type": "path"},
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
        required_if=[("planned", False, ["store", "name"])],
        required_together=[("file", "stamp")],
        supports_check_mode=True,
    )
    params = module.params
    store, name = params["store"], params["name"]
    try:
        there = next((stamp for stamp in io_store.stamps(store) if stamp["name"] == name), None)
        answer: dict[str, Any] = {"changed": False, "state": "missing", "line": "", "stamp": None}
        if there and params["stamp"] in (None, there):
            answer |= {"state": "ready", "stamp": there}
        elif params["file"]:
            stamp = None if module.check_mode else receive(store, name, params["stamp"], params["file"])
            answer |= {"changed": True, "state": "ready", "stamp": stamp}
        elif params["folder"]:
            answer |= step(params, runner(module), module.check_mode)
        stored = answer["changed"] and answer["stamp"]
        removed = io_store.remove_old(store, name, params["runtime"], params["keep"]) if stored else []
    except (ProblemsError, OutsideError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    diff = {"before": "" if answer["changed"] else f"{name}\n", "after": f"{name}\n"}
    module.exit_json(**answer, removed=removed, diff=diff)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_info
short_description: Read the facts of a libnccl, and find the one that running processes use
version_added: 0.1.0
description:
  - Reads release, CUDA, machine, compiler and the GPU code of a libnccl from the file itself, without GPU, driver or
    CUDA.
  - Reads the mapped libnccl of each process from C(/proc). Only the mappings are evidence. The search path, PyTorch's
    reported version and vLLM's log can each differ. A mapped file is recognized as a libnccl by its exported functions,
    not by its name.
  - If a process has mapped several, returns the one that PyTorch calls; see RV(processes[].used).
  - With O(requires), returns the differences in RV(problems), and does not fail.
options:
  path:
    description: The library, or a folder with C(libnccl.so.2) in it or in its C(lib). Links are followed. If processes
      are read too, a missing file is one of RV(problems), not an error.
    type: path
  runtime:
    description: A Python environment, instead of O(path). The library of NVIDIA's wheel is read, also if a link of
      M(gb10.cluster.nccl_select) replaced it. RV(library) is null without a wheel.
    type: path
  unit:
    description: A systemd unit. Each of its processes is read, including child processes. Requires root.
    type: str
  pids:
    description: Further processes. Processes of other users require root.
    type: list
    elements: int
  libraries:
    description: The variable of each node with the registered result of this module for O(runtime). If set, the action
      plugin returns the choice of NCCL for the fact C(gb10_plan), and the node is not touched.
    type: str
    default: ""
  requires:
    description: Requirements. Needs O(path), which is then also the required library of the processes.
    type: dict
    suboptions:
      capabilities:
        description: Compute capabilities of GPUs for which the library must have native code; see RV(library.native).
        type: list
        elements: str
        default: []
      sha256:
        description: Required SHA-256 of the library, such as that on the build host.
        type: str
      alone:
        description: Whether no other libnccl may be mapped. With C(LD_PRELOAD) the wheel's is mapped too, so leave this
          V(false); the process must still use O(path).
        type: bool
        default: false
seealso:
  - module: gb10.cluster.nccl_build
  - module: gb10.cluster.nccl_select
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Check whether a library has code for DGX Sparks
  gb10.cluster.nccl_info:
    path: /opt/gb10/nccl/current
    requires:
      capabilities: ["12.1"]

- name: Verify the library that the ranks of this node use
  gb10.cluster.nccl_info:
    path: /opt/gb10/nccl/current
    unit: gb10-ray.service
    requires: {}
  become: true
  register: ranks
  failed_when: ranks.problems | length > 0

- name: Read the NCCL library of the runtime
  gb10.cluster.nccl_info:
    runtime: /opt/gb10/runtime/current
  become: true
  register: brought

- name: Decide whether to build NCCL
  gb10.cluster.nccl_info:
    libraries: brought
  register: choice
"""

RETURN = r"""
build:
  description: Whether NCCL is built.
  returned: with O(libraries)
  type: bool
final:
  description: Whether the libraries decide it. If not, only the release of the runtime does.
  returned: with O(libraries)
  type: bool
why:
  description: The reasons.
  returned: with O(libraries)
  type: list
  elements: str
library:
  description: The library at O(path) or in O(runtime), null if there is none.
  returned: always
  type: dict
  contains:
    path:
      description: The path of the library.
      type: str
    real_path:
      description: The path with links resolved, as in C(/proc).
      type: str
    sha256:
      description: SHA-256 of the file.
      type: str
    version:
      description: NCCL's release, null if the file has none.
      type: str
      sample: 2.30.7
    cuda:
      description: CUDA release of the build, null if the file has none.
      type: str
      sample: "13.0"
    machine:
      description: Machine of the library, as in uname.
      type: str
      sample: aarch64
    gcc:
      description: The GCC releases that compiled its object files, including those of CUDA's static libraries.
      type: list
      elements: str
      sample: ["8.3.1", "8.5.0"]
    programs:
      description: Number of fat binaries that the driver loads. Input of a device link does not count.
      type: int
    code:
      description: The code in them. C(kind) is cubin, ptx or lto. The suffix C(f) of an architecture means its family,
        C(a) only that GPU.
      type: list
      elements: dict
      sample:
        - {"kind": "cubin", "architecture": "sm_121", "count": 28}
        - {"kind": "cubin", "architecture": "sm_100f", "count": 10}
    native:
      description: Capabilities of the GPUs for which each program has native code. Programs for only one family of
        GPUs, which NCCL always builds, do not count.
      type: list
      elements: str
      sample: ["12.1"]
    runs:
      description: Capabilities of the GPUs that can run each program, natively, with code of an older GPU of their
        generation, or from PTX.
      type: list
      elements: str
      sample: ["12.0", "12.1"]
processes:
  description: The processes of O(unit) and O(pids).
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: The process ID.
      type: int
    name:
      description: The kernel's name of the process. Arguments are not read, because they may contain secrets.
      type: str
    libraries:
      description: Each mapped libnccl. The path is that inside the process's root; C(deleted) is true if the name was
        deleted or reused; C(sha256) is that of the mapped file, null if it could not be read.
      type: list
      elements: dict
      sample:
        - {"path": "/opt/gb10/nccl/2.30.7-0123456789ab/lib/libnccl.so.2.30.7", "device": "fd:01", "inode": 9,
           "deleted": false, "sha256": "…"}
    used:
      description: The path of the library that PyTorch calls. Of several, the first preloaded one, else the first in
        the search path of PyTorch's own library (RPATH, then C(LD_LIBRARY_PATH), then RUNPATH). Null if there is none
        or it is unknown.
      type: str
    undecided:
      description: Why the used library is unknown, empty if it is known.
      type: str
    unreadable:
      description: Why the mappings of the process are unknown, empty if they are known.
      type: str
problems:
  description: Differences from O(requires), each a sentence with node, process and file.
  returned: always
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library, process_maps
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

_REQUIRES = {
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "sha256": {"type": "str"},
    "alone": {"type": "bool", "default": False},
}


def main() -> None:
    """Read the library and the processes, and compare them with the requirements."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "runtime": {"type": "path"},
            "unit": {"type": "str"},
            "pids": {"type": "list", "elements": "int"},
            "libraries": {"type": "str", "default": ""},
            "requires": {"type": "dict", "options": _REQUIRES},
        },
        required_one_of=[("path", "runtime", "unit", "pids")],
        mutually_exclusive=[("path", "runtime")],
        required_by={"requires": ("path",)},
        supports_check_mode=True,
    )
    params, library, facts = module.params, None, None
    problems: list[Problem] = []
    try:
        of_unit = io_library.pids(runner(module), params["unit"]) if params["unit"] else []
        processes = io_library.processes(of_unit, params["pids"] or [])
        try:
            runtime, path = params["runtime"], params["path"]
            if path := io_library.bundled(runtime) if runtime else path and io_library.find(path):
                library = io_library.library(path)
                facts = {
                    "path": path,
                    "real_path": os.path.realpath(path),
                    "sha256": io_file.sha256(path),
                    **library.facts(),
                }
        except ProblemsError as error:
            if not processes:
                raise
            # Running processes continue to use a deleted file; only their next start fails.
            problems += error.problems
        if params["requires"] is not None:
            problems += differences(params, library, facts, processes)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        library=facts,
        processes=[process.facts() for process in processes],
        problems=[str(problem) for problem in problems],
    )


def differences(
    params: dict[str, Any],
    library: nccl_library.Library | None,
    facts: dict[str, Any] | None,
    processes: list[process_maps.Process],
) -> list[Problem]:
    """Return the differences from the requirements. ``library`` and ``facts`` are None without a readable library."""
    wanted, node = params["requires"], os.uname()
    gpus = [ComputeCapability.parse(text, "requires.capabilities") for text in wanted["capabilities"]]
    path, sha256, problems = params["path"], wanted["sha256"], []
    if library and facts:
        path, sha256 = facts["real_path"], facts["sha256"]
        problems += nccl_library.problems(library, path, gpus, node.machine)
        if wanted["sha256"] not in (None, sha256):
            problems.append(Problem(path, f"its sha256 is {sha256}", wanted["sha256"], "copy or build the file again"))
    if processes:
        problems += process_maps.differences(node.nodename, processes, path, sha256, wanted["alone"])
    return problems


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_info
short_description: Read what a libnccl holds, and which one running processes use
version_added: 0.1.0
description:
  - Reads release, CUDA, machine, compiler and the GPU code of a libnccl from the file itself, without GPU, driver or CUDA.
  - Reads from C(/proc) which libnccl each process has mapped, which is the one proof of what it uses. The search path, a version that PyTorch
    tells, and vLLM's log each say something else. A mapped file is known as a libnccl by its exported functions, whatever its name is.
  - Of several that a process has mapped, it tells which one PyTorch calls; see RV(processes.used).
  - With O(requires) says what is wrong. It does not fail for that; see RV(problems).
options:
  path:
    description: The library, or a folder with C(libnccl.so.2) in it or in its C(lib). Links are followed. Where processes are asked for too, a
      file that is gone is one of RV(problems) rather than an error.
    type: path
  runtime:
    description: An environment of Python, in place of O(path). What NVIDIA's wheel brought there is read, be it in its place or kept beside a
      link that M(gb10.cluster.nccl_prefer) made. RV(library) is null where there is none.
    type: path
  unit:
    description: A systemd unit, each process of which is read, those that others of them started too. Needs root.
    type: str
  pids:
    description: Further processes. Those of other users need root.
    type: list
    elements: int
  requires:
    description: What has to be so. Needs O(path), which is then also the file that the processes have to use.
    type: dict
    suboptions:
      capabilities:
        description: Compute capabilities of GPUs for which the library has to hold code of their own; see RV(library.native).
        type: list
        elements: str
        default: []
      sha256:
        description: What the library's hash has to be, for instance the one where it was built.
        type: str
      alone:
        description: Whether a process may have no other libnccl mapped beside it. With C(LD_PRELOAD) the wheel's is there too, and it is
          enough that O(path) is the one that is used.
        type: bool
        default: false
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read what a library was built for
  gb10.cluster.nccl_info:
    path: /opt/gb10/nccl/current
    requires:
      capabilities: ["12.1"]

- name: See which library the ranks of this node use
  gb10.cluster.nccl_info:
    path: /opt/gb10/nccl/current
    unit: gb10-ray.service
    requires: {}
  become: true
  register: ranks
  failed_when: ranks.problems | length > 0
"""

RETURN = r"""
library:
  description: The library at O(path) or in O(runtime), null without.
  returned: always
  type: dict
  contains:
    path:
      description: Where it was found.
      type: str
    real_path:
      description: The file itself, links resolved, as C(/proc) names it.
      type: str
    sha256:
      description: Hash of the file.
      type: str
    version:
      description: NCCL's release, null if the file names none.
      type: str
      sample: 2.30.7
    cuda:
      description: Release of CUDA that it was built with, null if the file names none.
      type: str
      sample: "13.0"
    machine:
      description: For which machines it is, as uname says it.
      type: str
      sample: aarch64
    gcc:
      description: The releases of GCC that its object files were compiled with, those of CUDA's static libraries in it too.
      type: list
      elements: str
      sample: ["8.3.1", "8.5.0"]
    programs:
      description: How many fat binaries the driver loads from it. Those that were only there to be linked do not count.
      type: int
    code:
      description: The code in them. C(kind) is cubin, ptx or lto; an C(f) behind the architecture stands for its family, C(a) for that GPU alone.
      type: list
      elements: dict
      sample: [{"kind": "cubin", "architecture": "sm_121", "count": 28}, {"kind": "cubin", "architecture": "sm_100f", "count": 10}]
    native:
      description: Capabilities of the GPUs for which each program has code of their own. Programs for one family of GPUs alone, of which NCCL
        builds some in any case, do not count.
      type: list
      elements: str
      sample: ["12.1"]
    runs:
      description: Capabilities of the GPUs that can run each program, as their own code, an older GPU's of their generation, or from PTX.
      type: list
      elements: str
      sample: ["12.0", "12.1"]
processes:
  description: Each process that was asked for.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: The process.
      type: int
    name:
      description: What the kernel calls it. Arguments are not read, because they may hold secrets.
      type: str
    libraries:
      description: Each libnccl that it has mapped. The path is as the process sees it; C(deleted) is whether that name is gone or another file's
        by now; C(sha256) is of the very file that is mapped, null if it could not be read.
      type: list
      elements: dict
      sample: [{"path": "/opt/gb10/nccl/2.30.7-0123456789ab/lib/libnccl.so.2.30.7", "device": "fd:01", "inode": 9, "deleted": false, "sha256": "…"}]
    used:
      description: The path of the one that PyTorch calls. Of several it is the first that was preloaded, else the first in the folders that
        PyTorch's own library names (RPATH, then C(LD_LIBRARY_PATH), then RUNPATH). Null without any, and where it cannot be told.
      type: str
    undecided:
      description: Why it cannot be told which one is used, empty if it can.
      type: str
    unreadable:
      description: Why it is not known what the process has mapped, empty if it is.
      type: str
problems:
  description: What differs from O(requires), a sentence each that names node, process and file.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library as io_nccl
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import process_maps
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

_REQUIRES = {
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "sha256": {"type": "str"},
    "alone": {"type": "bool", "default": False},
}


def main() -> None:
    """Read, compare with what is required, and return both."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "runtime": {"type": "path"},
            "unit": {"type": "str"},
            "pids": {"type": "list", "elements": "int"},
            "requires": {"type": "dict", "options": _REQUIRES},
        },
        required_one_of=[("path", "runtime", "unit", "pids")],
        mutually_exclusive=[("path", "runtime")],
        required_by={"requires": ("path",)},
        supports_check_mode=True,
    )
    params, facts, problems = module.params, None, []
    wanted, node = params["requires"], os.uname()
    try:
        of_unit = io_nccl.pids(runner(module), params["unit"]) if params["unit"] else []
        processes = io_nccl.processes(of_unit, params["pids"] or [])
        try:
            if path := io_nccl.bundled(params["runtime"]) if params["runtime"] else params["path"] and io_nccl.find(params["path"]):
                library, sha256 = io_nccl.library(path), io_file.sha256(path)
                facts = {"path": path, "real_path": os.path.realpath(path), "sha256": sha256, **library.facts()}
        except ProblemsError as error:
            if not processes:
                raise
            # Processes that run go on with a file that is gone; their next start is what fails.
            problems += error.problems
        if wanted is not None:
            gpus = [ComputeCapability.parse(text, "requires.capabilities") for text in wanted["capabilities"]]
            meant, expected = (facts["real_path"], sha256) if facts else (params["path"], wanted["sha256"])
            if facts:
                problems += nccl_library.problems(library, meant, gpus, node.machine)
            if facts and wanted["sha256"] not in (None, sha256):
                problems.append(Problem(meant, f"its sha256 is {sha256}", wanted["sha256"], "copy or build the file again"))
            if processes:
                problems += process_maps.differences(node.nodename, processes, meant, expected, wanted["alone"])
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False, library=facts, processes=[process.facts() for process in processes], problems=[str(problem) for problem in problems]
    )


if __name__ == "__main__":
    main()

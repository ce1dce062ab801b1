#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_patch
short_description: Make an installed vLLM do the right thing on a GB10
version_added: 0.1.0
description:
  - Knows for each release of vLLM what compute capability 12.1 needs, a patch, a flag, an environment variable or nothing. Files are
    changed only where nothing else helps.
  - What is inserted acts on one capability only, asked at run time. The original of each file is kept beside it and comes back with O(state=absent).
  - vLLM is not imported, and neither interpreters nor assemblers are run, not even to ask them. Tested on the Python sources of
    vLLM 0.13.0 to 0.33.0 and, for capability 9.0, with vLLM 0.24.0 on an H200; not on a GB10.
options:
  package_dir:
    description: The folder of the package C(vllm).
    type: path
  python:
    description: The interpreter of the environment that vLLM is installed in. It is not run; the folder is found beside it.
    type: path
  capability:
    description: The compute capability to patch for. By default that of the host's GPU; nothing is needed if that is not 12.1.
    type: str
  patches:
    description: The patches to see to. By default all; those that do not apply say so.
    type: list
    elements: str
    choices: [w8a8, w8a8_torch, fp8_moe_oracle, moe_config, triton_ptxas, cmake_archs]
  state:
    description: Whether the patches should be in effect, or what vLLM shipped.
    type: str
    choices: [present, absent]
    default: present
  mechanism:
    description: Whether a flag, a variable or a folder is preferred where one does the same, or files are patched whatever else would do.
    type: str
    choices: [auto, source]
    default: auto
  quantization:
    description:
      - What the model is quantised to that vLLM is to serve. Where a flag would do and counts for other kinds of experts too, it is given for
        V(fp8), nothing is done for V(other), and with V(unknown) the function is patched, which acts on FP8 alone.
    type: str
    choices: [fp8, other, unknown]
    default: fp8
  config_folder:
    description: Where the tables of V(moe_config) are put. By default the folder C(gb10_moe_configs) beside the package.
    type: path
  toolkit:
    description: The assembler of the CUDA toolkit that V(triton_ptxas) may name, such as that inside an image.
    type: dict
    suboptions:
      path:
        description: Where this host has it; what it knows is read from the file. It may be missing; then there is none.
        type: path
        default: /usr/local/cuda/bin/ptxas
      runs_as:
        description: Where vLLM will find it, if that is elsewhere, as in a container.
        type: path
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: See to the vLLM of this environment
  gb10.cluster.vllm_patch:
    python: /opt/gb10/runtime/current/bin/python
  register: patch
  become: true

- name: Give back what vLLM shipped
  gb10.cluster.vllm_patch:
    package_dir: /opt/gb10/runtime/current/lib/python3.12/site-packages/vllm
    state: absent
  become: true
"""

RETURN = r"""
package_dir:
  description: The package's folder, without symbolic links.
  returned: success
  type: str
vllm_version:
  description: The package's version, null if it says none.
  returned: success
  type: str
capability:
  description: The compute capability that was patched for; null if none had to be known.
  returned: success
  type: str
  sample: "12.1"
cuda_build:
  description: The CUDA release that this vLLM was built for, null if that cannot be told.
  returned: success
  type: int
patches:
  description: One entry a patch.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The patch.
      type: str
    status:
      description: One of applied, already_applied, not_needed, use_flag, unsupported and removed.
      type: str
    file:
      description: The first of the files, relative to the package; empty if there is none.
      type: str
    files:
      description: The files that it is about.
      type: list
      elements: str
    reason:
      description: Why the status is what it is.
      type: str
    source:
      description: Where that is known from.
      type: str
written:
  description: The files that were written or removed, or would be.
  returned: success
  type: list
  elements: str
files:
  description: The SHA-256 of each file that the patches are about, as it is after the run; empty for one that is not there.
  returned: success
  type: dict
flags:
  description: What C(vllm serve) has to be given in addition.
  returned: success
  type: list
  elements: str
environment:
  description: The variables that vLLM has to be started with in addition.
  returned: success
  type: dict
"""

import difflib
import gc
import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model.config import FP8, OTHER, UNKNOWN
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import plan as vllm_patches
from ansible_collections.gb10.cluster.plugins.module_utils.patch.io_tree import Tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import GB10, Request
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PATCHES, PTXAS
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package as io_vllm_package
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import TOOLKIT


def capability_of(run: io_command.Run, given: str | None, state: str) -> ComputeCapability:
    """Return the capability to patch for; to remove a patch none has to be known. Raises ProblemsError."""
    if given is not None or state == "absent":
        return ComputeCapability.parse(given) if given is not None else GB10
    gpu = io_node.gpu(run)
    found = next((gpu["capability"] for gpu in gpu["gpus"] if gpu["capability"]), None)
    if found is None:
        reason = gpu["reason"] or "the GPU does not say its own"
        raise ProblemsError([Problem("capability", f"none given, and {reason}", 'one such as "12.1"', "give capability")])
    return ComputeCapability.parse(found)


def main() -> None:
    """Find the package, plan, write."""
    gc.disable()  # a short run whose many objects, syntax trees, stay to its end: looking for garbage takes an eighth of its time
    module = AnsibleModule(
        argument_spec={
            "package_dir": {"type": "path"},
            "python": {"type": "path"},
            "capability": {"type": "str"},
            "patches": {"type": "list", "elements": "str", "choices": list(PATCHES)},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mechanism": {"type": "str", "choices": ["auto", "source"], "default": "auto"},
            "quantization": {"type": "str", "choices": [FP8, OTHER, UNKNOWN], "default": FP8},
            "config_folder": {"type": "path"},
            "toolkit": {"type": "dict", "options": {"path": {"type": "path", "default": TOOLKIT}, "runs_as": {"type": "path"}}},
        },
        required_one_of=[("package_dir", "python")],
        mutually_exclusive=[("package_dir", "python")],
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    try:
        capability = capability_of(run, params["capability"], params["state"])
        package = io_vllm_package.find(params["package_dir"], params["python"])
        folder = os.path.abspath(params["config_folder"] or os.path.join(os.path.dirname(package.path), "gb10_moe_configs"))
        with io_vllm_package.locked(package):
            tree = Tree(package.path, folder)
            request = Request(
                names=list(PATCHES) if params["patches"] is None else params["patches"],
                capability=capability,
                version=package.version,
                cuda=package.cuda,
                mechanism=params["mechanism"],
                asked=params["capability"] is not None,
                folder=folder,
                bundled={name: io_vllm_package.assembler(tree.original(f"{PTXAS}/{name}")) for name in ("ptxas", "ptxas-blackwell")},
                toolkit=io_vllm_package.assembler(**(params["toolkit"] or {"path": TOOLKIT})),
                quantization=params["quantization"],
            )
            plan = (vllm_patches.present if params["state"] == "present" else vllm_patches.absent)(request, tree)
            changes = tree.changes(plan.files)
            texts = [tree.texts(path, wanted) for path, wanted in changes.items()]
            tree.check(changes)
            digests = tree.digests(sorted({path for patch in plan.patches for path in patch["files"]}), changes)
            if not module.check_mode:
                tree.write(changes)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    diff = [line for path, before, after in texts for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)]
    module.exit_json(
        changed=bool(changes),
        package_dir=package.path,
        vllm_version=package.version,
        capability=str(capability) if params["capability"] or params["state"] == "present" else None,
        cuda_build=package.cuda,
        patches=plan.patches,
        written=sorted(changes),
        files=digests,
        flags=plan.flags,
        environment=plan.environment,
        diff={"prepared": "".join(diff)},
    )


if __name__ == "__main__":
    main()

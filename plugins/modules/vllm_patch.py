#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_patch
short_description: Patch an installed vLLM for a GB10
version_added: 0.1.0
description:
  - Selects for each release of vLLM the requirement of compute capability 12.1, which is a patch, a flag, an
    environment variable or none. Files are changed only if nothing else helps.
  - Inserted code affects only one capability, checked at run time. The original of each file is kept in its folder, and
    O(state=absent) restores it.
  - Neither imports vLLM nor runs interpreters or assemblers. Tested on the Python sources of vLLM 0.13.0 to 0.33.0 and,
    for capability 9.0, with vLLM 0.24.0 on an H200; not on a GB10.
options:
  package_dir:
    description: The folder of the package C(vllm).
    type: path
  compared:
    description: The variable of each node with the registered result of this module. If set, the action plugin compares
      them, and the node is not touched.
    type: str
    default: ""
  python:
    description: The interpreter of vLLM's environment. It is not run; its location determines the package's folder.
    type: path
  capability:
    description: The compute capability to patch for. By default that of the host's GPU; then no patch is needed unless
      it is 12.1.
    type: str
  patches:
    description: The patches to apply or remove. By default all; the status shows those that do not apply.
    type: list
    elements: str
    choices: [w8a8, w8a8_torch, fp8_moe_oracle, moe_config, triton_ptxas]
  state:
    description: Whether to apply the patches, or to restore the shipped files.
    type: str
    choices: [present, absent]
    default: present
  mechanism:
    description: Whether to prefer an equivalent flag, variable or folder (V(auto)), or always to patch files
      (V(source)).
    type: str
    choices: [auto, source]
    default: auto
  quantization:
    description:
      - The quantization of the served model. It matters if a flag is sufficient but also applies to other kinds of
        experts. Then V(fp8) sets the flag, V(other) does nothing, and V(unknown) patches the function, which affects
        only FP8.
    type: str
    choices: [fp8, other, unknown]
    default: fp8
  config_folder:
    description: The folder for the tables of V(moe_config). By default C(gb10_moe_configs) next to the package.
    type: path
  probe:
    description: The record of the step C(vllm_gpu_probe), if it exists. Kernels that failed there are turned off.
    type: path
    default: ""
  toolkit:
    description: The assembler of the CUDA toolkit for V(triton_ptxas), such as one inside an image.
    type: dict
    suboptions:
      path:
        description: Its path on this host. The supported targets are read from the file. The file may be missing.
        type: path
        default: /usr/local/cuda/bin/ptxas
      runs_as:
        description: Its path for vLLM, if different, as in a container.
        type: path
  planned:
    description: Whether the action plugin takes the other options from C(gb10_plan) and the settings of C(gb10_inputs).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.container_image
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Patch the vLLM of this environment
  gb10.cluster.vllm_patch:
    python: /opt/gb10/runtime/current/bin/python
  register: patch
  become: true

- name: Restore the shipped files of vLLM
  gb10.cluster.vllm_patch:
    package_dir: /opt/gb10/runtime/current/lib/python3.12/site-packages/vllm
    state: absent
  become: true

- name: Decide from the results of all nodes
  gb10.cluster.vllm_patch:
    compared: patch
  register: decision
"""

RETURN = r"""
report:
  description: The problems of all nodes, empty if there are none.
  returned: with O(compared)
  type: str
overrides:
  description: The launch overrides of this node's patches, C(environment), C(flags), C(files) and C(mounts).
  returned: with O(compared)
  type: dict
recorded:
  description: Whether every node has recorded its overrides.
  returned: with O(compared)
  type: bool
news:
  description: Whether the files of the overrides differ from those in the fact C(gb10_plan).
  returned: with O(compared)
  type: bool
package_dir:
  description: The package's folder, without symbolic links.
  returned: success
  type: str
vllm_version:
  description: The package's version, null if unknown.
  returned: success
  type: str
capability:
  description: The compute capability to patch for; null if none was needed.
  returned: success
  type: str
  sample: "12.1"
cuda_build:
  description: The CUDA release that this vLLM was built for, null if unknown.
  returned: success
  type: int
patches:
  description: One entry for each patch.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the patch.
      type: str
    status:
      description: One of applied, already_applied, not_needed, use_flag, unsupported and removed.
      type: str
    file:
      description: The first of RV(patches[].files), relative to the package; empty if there is none.
      type: str
    files:
      description: The files that the patch affects.
      type: list
      elements: str
    reason:
      description: The reason for the status.
      type: str
    source:
      description: The source of the reason.
      type: str
written:
  description: The files that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
files:
  description: The SHA-256 of each affected file after the run; empty for a missing file.
  returned: success
  type: dict
flags:
  description: Additional arguments of C(vllm serve).
  returned: success
  type: list
  elements: str
environment:
  description: Additional environment variables of vLLM.
  returned: success
  type: dict
"""

import gc

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_apply


def main() -> None:
    """Find the package, plan the patches, and write the files."""
    gc.disable()  # Syntax trees stay in use until the end of this short run. Collection takes an eighth of its time.
    module = AnsibleModule(
        argument_spec={
            **io_apply.ARGUMENTS,
            "compared": {"type": "str", "default": ""},
            "planned": {"type": "bool", "default": False},
        },
        required_if=[("planned", False, ["package_dir", "python"], True)],
        mutually_exclusive=[("package_dir", "python")],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**io_apply.outcome(runner(module), module.params, module.check_mode))
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_info
short_description: Read the GPUs of a host
version_added: 0.1.0
description:
  - Reads name, compute capability, driver and CUDA version from C(nvidia-smi) and the host's memory from
    C(/proc/meminfo).
  - A value that cannot be read is null, with a reason next to it. The module guesses nothing.
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the GPU
  gb10.cluster.gpu_info:
  register: gpu
"""

RETURN = r"""
gpus:
  description: One entry per GPU, in the order of nvidia-smi.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The driver's name of the GPU.
      type: str
      sample: NVIDIA GB10
    uuid:
      description: The driver's identifier of the GPU.
      type: str
    capability:
      description: Compute capability, null if unknown.
      type: str
      sample: "12.1"
    sm:
      description: The architecture's name for compilers, null if unknown.
      type: str
      sample: sm_121
    memory_bytes:
      description: The GPU's own memory in bytes, null where it shares the host's.
      type: int
    reasons:
      description: The reason for each null value.
      type: dict
driver_version:
  description: Version of the driver, null if unknown.
  returned: always
  type: str
  sample: "580.142"
cuda_version:
  description: Newest CUDA version that the driver supports, null if unknown.
  returned: always
  type: str
  sample: "13.0"
memory_bytes:
  description: The host's MemTotal in bytes.
  returned: always
  type: int
unified_memory:
  description: Whether the GPUs share the host's memory, null without a GPU.
  returned: always
  type: bool
reason:
  description: The reason for missing values, empty if none is missing.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **node_io_facts.gpu(runner(module)))


if __name__ == "__main__":
    main()

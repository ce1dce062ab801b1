#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: memory_wait
short_description: Wait for free memory before starting a server, and fail if there is too little
version_added: 0.1.0
description:
  - Drops the page cache and waits until enough memory is available. The memory of a stopped server returns with a
    delay.
  - On timeout, reports the available memory, the needed memory, and the largest processes.
options:
  node:
    description: The node's name, for the message.
    type: str
    required: true
  needed:
    description: Bytes that must be available, or 0 if unknown. With 0 the module does not wait.
    type: int
    required: true
  timeout:
    description: Maximum wait in seconds.
    type: int
    default: 120
  drop_caches:
    description: Whether to drop the page cache.
    type: bool
    default: true
  required:
    description:
      - Whether to fail if there is too little memory.
      - If V(false), only RV(problem) reports it, so that a play can report all nodes together.
    type: bool
    default: true
seealso:
  - module: gb10.cluster.vllm_wait
author:
  - gb10.cluster maintainers (@gb10-cluster)
attributes:
  check_mode:
    support: full
    description: In check mode the module neither drops the page cache nor waits.
  diff_mode:
    support: none
    description: The module makes no persistent change.
"""

EXAMPLES = r"""
- name: Wait for 100 GiB of free memory
  gb10.cluster.memory_wait:
    node: spark1
    needed: 107374182400
  become: true
"""

RETURN = r"""
available:
  description: Available bytes at the end.
  returned: success
  type: int
waited:
  description: Seconds that the module waited.
  returned: success
  type: float
problem:
  description: The error message, empty if there is enough memory.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim, reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse


def main() -> None:
    """Drop the cache, wait, and report."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "needed": {"type": "int", "required": True},
            "timeout": {"type": "int", "default": 120},
            "drop_caches": {"type": "bool", "default": True},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params, run = module.params, runner(module)
    try:
        if params["drop_caches"] and not module.check_mode:
            io_reclaim.drop_caches()
        available, waited = io_reclaim.wait(params["needed"], 0 if module.check_mode else params["timeout"])
        total = node_parse.total_memory(read("/proc/meminfo"))
        short = available < params["needed"]
        held = (io_reclaim.processes(), io_reclaim.gpu_processes(run)) if short else ([], [])
        problem = reclaim.refusal(params["node"], params["needed"], available, total, waited, *held)
    except OSError as error:
        module.fail_json(
            msg=f"Cannot drop the page cache: {error}. Fix: if the kernel does not allow it, set drop_caches: false."
        )
    except ValueError as error:
        module.fail_json(msg=str(error))
    if problem and params["required"] and not module.check_mode:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, available=available, waited=round(waited, 1), problem=str(problem or ""))


if __name__ == "__main__":
    main()

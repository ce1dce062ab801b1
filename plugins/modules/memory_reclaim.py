#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: memory_reclaim
short_description: Get a node's memory back before a server is started, and refuse with numbers if it does not come
version_added: 0.1.0
description:
  - Gives up the page cache and waits until as much memory is available as the server needs. What a stopped one held comes back late.
  - If it does not come back, says how much there is, how much is needed, and which processes hold most.
options:
  node:
    description: The node's name, for the message.
    type: str
    required: true
  needed:
    description: Bytes that must be available, 0 if that is not known. Then nothing is waited for.
    type: int
    required: true
  timeout:
    description: For how many seconds to wait.
    type: int
    default: 120
  drop_caches:
    description: Whether to give up the page cache.
    type: bool
    default: true
  required:
    description: Whether too little memory is a failure. If not, C(problem) tells, so that all nodes can be judged together.
    type: bool
    default: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
attributes:
  check_mode:
    support: full
    description: Neither gives up the page cache nor waits in check mode.
  diff_mode:
    support: none
    description: Changes nothing that stays.
"""

EXAMPLES = r"""
- name: Wait for 100 GiB
  gb10.cluster.memory_reclaim:
    node: spark1
    needed: 107374182400
  become: true
"""

RETURN = r"""
available:
  description: Bytes that are available now.
  returned: success
  type: int
waited:
  description: For how many seconds it waited.
  returned: success
  type: float
problem:
  description: What is wrong, empty if nothing is.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim as io_memory
from ansible_collections.gb10.cluster.plugins.module_utils.memory import reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_text


def main() -> None:
    """Give up the cache, wait, judge."""
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
            io_memory.drop_caches()
        available, waited = io_memory.wait(params["needed"], 0 if module.check_mode else params["timeout"])
        total = node_text.total_memory(read("/proc/meminfo"))
        short = available < params["needed"]
        held = (io_memory.processes(), io_memory.gpu_processes(run)) if short else ([], [])
        problem = reclaim.refusal(params["node"], params["needed"], available, total, waited, *held)
    except OSError as error:
        module.fail_json(msg=f"The page cache cannot be given up: {error}. Where the kernel does not allow it, set drop_caches: false.")
    except ValueError as error:
        module.fail_json(msg=str(error))
    if problem and params["required"] and not module.check_mode:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, available=available, waited=round(waited, 1), problem=str(problem or ""))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_step
short_description: Run a step of this collection's roles on a node
version_added: 0.1.0
description:
  - Internal. The roles call it. A release may change each step and its inputs without notice.
  - A step is a file in C(plugins/module_utils/node_steps). Its docstrings document the inputs and the result.
  - Neither a log nor the result has an input, because some are secret.
options:
  name:
    description: The step, the name of its file.
    type: str
    required: true
  inputs:
    description: The inputs of the step, typed as its class C(Inputs).
    type: dict
    default: {}
seealso:
  - module: gb10.cluster.step
author:
  - gb10.cluster maintainers (@gb10-cluster)
attributes:
  check_mode:
    support: full
    description: In check mode a step changes nothing.
  diff_mode:
    support: full
    description: A step that changes the node returns the difference.
"""

EXAMPLES = r"""
- name: Wait for 100 GiB of free memory
  gb10.cluster.node_step:
    name: memory_wait
    inputs:
      node: spark1
      needed: 107374182400
  become: true
"""

RETURN = r"""
changed:
  description: Whether the step changed the node. The other values are those of the step.
  returned: success
  type: bool
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import node_steps
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError


def main() -> None:
    """Run the step."""
    # Services of other users read what root installs, and a hardened host has the umask 077.
    os.umask(0o022)
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            # Ansible returns the arguments of a call that it refuses.
            "inputs": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
        no_log=True,
    )
    # It also returns the parameters that are left. A result may have a value that is an input, too.
    name, inputs = module.params["name"], module.params.pop("inputs")
    module.no_log_values.clear()
    try:
        step = io_steps.entry(node_steps.__name__, name)
        given, secrets = io_steps.inputs(step.Inputs, inputs)
    except ValueError as error:
        module.fail_json(msg=f"node_step {name}: {error}")
    module.no_log_values.update(secrets)
    try:
        result = step.run(module, given)
    except (ProblemsError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: os_update_info
short_description: Read the updates of DGX OS on a node
version_added: 0.1.0
description:
  - Reads the level of DGX OS, pending packages, kernels with their modules, the boot loader, and what updates the node
    by itself.
  - Needs root, as NVIDIA's checker does.
options:
  packages:
    description: Whether to query apt and NVIDIA's checker, which takes seconds.
    type: bool
    default: true
seealso:
  - module: gb10.cluster.os_update
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the updates of the node
  gb10.cluster.os_update_info:
  become: true
  register: updates
"""

RETURN = r"""
state:
  description: The state of the updates, for the module os_update_plan.
  returned: success
  type: dict
stage:
  description:
    - What comes next. V(upgrade), V(boot) and V(verify) are an update under way.
    - With V(fell back), the new kernel did not start and the former one runs.
  returned: success
  type: str
lines:
  description: The state as text.
  returned: success
  type: list
  elements: str
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, plan


def main() -> None:
    """Read the node."""
    module = AnsibleModule(argument_spec={"packages": {"type": "bool", "default": True}}, supports_check_mode=True)
    try:
        found = io_state.read(runner(module), module.params["packages"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(state=asdict(found), stage=plan.stage(found), lines=plan.about(found))


if __name__ == "__main__":
    main()

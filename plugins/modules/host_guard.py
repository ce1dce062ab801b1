#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_guard
short_description: Limit the GPU's clock, set kernel settings, and reboot a frozen host; or restore the former state
version_added: 0.1.0
description:
  - Writes a unit that limits the GPU's clock, a file of kernel settings, and settings of systemd's hardware watchdog.
    Applies them at once.
  - The kernel settings from before the first change are recorded. A part that is off is removed, and its former value
    restored.
options:
  gpu_clock:
    description: The largest clock of the GPU in MHz; 0 for no limit.
    type: int
    default: 0
  swappiness:
    description: C(vm.swappiness); -1 for the host's own.
    type: int
    default: -1
  hardware_watchdog:
    description: Seconds without a sign of systemd until the hardware watchdog reboots the host; 0 for never.
    type: int
    default: 0
  panic:
    description: Seconds from a panic or an oops of the kernel to a reboot; 0 for the host's own settings.
    type: int
    default: 0
  keep_kernel:
    description: Whether unattended-upgrades and the DGX Dashboard leave kernel, driver and DGX OS as they are.
    type: bool
    default: false
seealso:
  - module: gb10.cluster.gpu_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Limit the GPU's clock, and reboot a frozen host
  gb10.cluster.host_guard:
    gpu_clock: 2100
    hardware_watchdog: 60
    panic: 10
  become: true
"""

RETURN = r"""
changed_items:
  description: The files, kernel settings and units that were changed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import io_host, plan


def main() -> None:
    """Compare the host with its protection, and change what differs."""
    module = AnsibleModule(
        argument_spec={
            "gpu_clock": {"type": "int", "default": 0},
            "swappiness": {"type": "int", "default": -1},
            "hardware_watchdog": {"type": "int", "default": 0},
            "panic": {"type": "int", "default": 0},
            "keep_kernel": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given, run = plan.Protection(**module.params), runner(module)
    left: list[plan.Step] = []
    try:
        found = io_host.read(run)
        refused = plan.check("module", "this host", given, found)
        if refused:
            module.fail_json(msg=problems.report(refused))
        steps = plan.steps(given, found)
        if steps and not module.check_mode:
            io_host.apply(run, steps)
            left = plan.steps(given, io_host.read(run))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    if left:
        module.fail_json(msg=str(plan.overridden(left)))
    names = list(dict.fromkeys(step.name for step in steps))
    module.exit_json(changed=bool(steps), changed_items=names, diff=plan.diff(steps))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: netplan_apply
short_description: Configure the fabric with netplan and automatic rollback
version_added: 0.1.0
description:
  - Compares the fabric's netplan file and the devices with the plan. If they differ, C(netplan generate) first checks
    the new files in a scratch root together with the host's other files. The module does not write files that netplan
    rejects.
  - Before a change, the module saves the present files and devices, and starts a systemd timer that restores them, also
    after a reboot. The step C(netplan_confirm) stops the timer.
  - If the change cuts the host off, the module waits until the timer has restored the old configuration, and reports it
    in RV(problem).
options:
  state:
    description: Whether to configure the fabric, or to restore the state before its first configuration.
    type: str
    choices: [present, absent]
    default: present
  content:
    description: The netplan document as YAML text.
    type: str
  files:
    description: Other files of the fabric, path to text. A file with an empty text is removed. With O(state=absent),
      by default all that the fabric may have.
    type: dict
    default: {}
  takeover:
    description:
      - Whether to remove the fabric's interfaces from other netplan files.
      - O(state=absent) restores these files. In a file that was changed since, it restores only the removed interfaces.
    type: bool
    default: false
  timeout:
    description: Seconds after C(netplan apply) until the host must match the plan.
    type: int
    default: 30
  confirm_timeout:
    description: Seconds until the timer restores the old configuration, unless the change was confirmed.
    type: int
    default: 120
  identifier:
    description: Identifier of this change; random by default.
    type: str
  probe:
    description: Whether to verify every path with a full packet if nothing differs, as the step C(fabric_probe)
      does.
    type: bool
    default: false
  planned:
    description: Whether the action plugin takes the other options from C(gb10_plan) and the settings of C(gb10_inputs).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.fabric_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.rails
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Configure the fabric with automatic rollback
  gb10.cluster.netplan_apply:
    content: "{{ gb10_plan.node.netplan | to_nice_yaml }}"
    files: "{{ gb10_plan.node.files }}"
    rails: "{{ gb10_plan.node.rails }}"
    mtu: "{{ gb10_plan.mtu }}"
  become: true
"""

RETURN = r"""
differences:
  description: The differences before the change, one sentence each.
  returned: always
  type: list
  elements: str
pending:
  description: The change that waits for confirmation, empty if none.
  returned: always
  type: str
verified:
  description: With O(probe), whether nothing differs and every path carries a full packet.
  returned: success
  type: bool
problem:
  description: The reason why the change failed and the old configuration was restored, empty if it did not fail.
  returned: always
  type: str
"""

import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare, io_netplan, io_rollback, netplan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.io_rollback import NetplanError


def change(
    run: io_rollback.Run, params: dict[str, Any], target: dict[str, Any], differences: Callable[[], list[str]]
) -> tuple[str, str]:
    """Start the timer, apply the change and wait. Returns (identifier, ""), or ("", reason) after a rollback."""
    identifier = params["identifier"] or secrets.token_hex(8)
    # A rollback also restores the devices that the plan configures.
    links = {*target["links"], *netplan.hearing([rail["interface"] for rail in params["rails"]])}
    before = io_rollback.capture(run, target["files"], links)
    io_rollback.arm(run, identifier, before, params["confirm_timeout"], params["state"] == "absent", target)
    try:
        io_rollback.put(run, target)
        deadline = time.monotonic() + params["timeout"]
        while (left := differences()) and time.monotonic() < deadline:
            time.sleep(0.3)
        if not left:
            return identifier, ""
        problem = f"{params['timeout']} s after netplan apply the host still differs from the plan: {'; '.join(left)}"
    except (NetplanError, OSError) as error:
        problem = str(error)
    try:
        io_rollback.restore(run, "restored because it failed")
    except NetplanError as error:
        raise NetplanError(f"{problem}. The rollback failed too; the host's timer tries it again: {error}") from error
    return "", f"{problem}. The old configuration is restored"


def main() -> None:
    """Compare, check in a scratch root, change."""
    module = AnsibleModule(
        argument_spec={**io_compare.ARGUMENTS, "planned": {"type": "bool", "default": False}},
        required_if=[("planned", False, ["content"])],
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    pending, problem = "", ""
    try:
        compared = io_compare.compare(run, params)
        found = compared.differences
        if compared.refused:
            module.fail_json(msg=f"Nothing was changed: {compared.refused}", differences=found, pending="", problem="")
        if found and not module.check_mode:
            os.umask(0o022)
            target = compared.target
            pending, problem = change(run, params, target, lambda: io_netplan.differences(run, params, target))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error), differences=[], pending="", problem="")
    module.exit_json(
        changed=bool(found) and not problem,
        differences=found,
        pending=pending,
        problem=problem,
        verified=compared.verified,
        diff=compared.diff,
    )


if __name__ == "__main__":
    main()

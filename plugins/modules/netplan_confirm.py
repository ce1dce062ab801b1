#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: netplan_confirm
short_description: Confirm a change of the network configuration, or roll it back at once
version_added: 0.1.0
description:
  - Ends a change by M(gb10.cluster.netplan_apply). Without confirmation, a timer restores the old configuration.
  - With O(changes), confirms the change only if no node of the fact C(gb10_plan) has a problem, and otherwise rolls it
    back. The action plugin of this module decides that.
options:
  changes:
    description: The variables of each node with the registered results of M(gb10.cluster.netplan_apply). O(state) and
      O(identifier) follow from them.
    type: list
    elements: str
    default: []
  probe:
    description: The variable of each node with the registered result of M(gb10.cluster.fabric_probe), for O(changes).
    type: str
    default: ""
  state:
    description: Whether to keep the change, to roll it back, or only to read its state.
    type: str
    choices: [confirmed, restored, read]
    default: confirmed
  identifier:
    description: The change, from RV(gb10.cluster.netplan_apply#module:pending).
    type: str
    default: ""
seealso:
  - module: gb10.cluster.netplan_apply
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Keep the change
  gb10.cluster.netplan_confirm:
    identifier: "{{ change.pending }}"
  become: true

- name: Keep the change on all nodes, or roll it back on all
  gb10.cluster.netplan_confirm:
    changes: [change]
    probe: probe
  become: true
  register: verdict
"""

RETURN = r"""
report:
  description: The problems of all nodes, empty if there are none.
  returned: with O(changes)
  type: str
pending:
  description: The change that still waits for confirmation, empty if none.
  returned: always
  type: str
last:
  description: The result of the last change, empty before the first one.
  returned: always
  type: dict
  sample: {"id": "5c3a6e0f1b2d4a79", "how": "restored by the timer", "time": "2026-11-21 09:30:00"}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback


def main() -> None:
    """Confirm, restore or read."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["confirmed", "restored", "read"], "default": "confirmed"},
            "identifier": {"type": "str", "default": ""},
            "changes": {"type": "list", "elements": "str", "default": []},
            "probe": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    run, state, identifier = runner(module), module.params["state"], module.params["identifier"]
    try:
        waiting = (io_rollback.read(io_rollback.PENDING) or {"id": ""})["id"]
        changed = state != "read" and waiting == identifier
        if changed and not module.check_mode:
            changed = (
                io_rollback.confirm(run, identifier)
                if state == "confirmed"
                else io_rollback.restore(run, "restored at once")
            )
        last = io_rollback.read(io_rollback.LAST) or {}
        waiting = (io_rollback.read(io_rollback.PENDING) or {"id": ""})["id"]
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    if state == "confirmed" and not changed and (last.get("id"), last.get("how")) != (identifier, "confirmed"):
        how = f"{last['how']} at {last['time']}" if last.get("id") == identifier else "unknown here"
        message = f"The change {identifier} cannot be confirmed, because it is {how}."
        module.fail_json(msg=message, pending=waiting, last=last)
    module.exit_json(
        changed=changed,
        pending=waiting,
        last=last,
        diff={"before": "", "after": f"{state} {identifier}\n" if changed else ""},
    )


if __name__ == "__main__":
    main()

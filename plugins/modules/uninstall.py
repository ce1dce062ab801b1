#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: uninstall
short_description: Remove this collection from a node, or list the items to remove
version_added: 0.1.0
description:
  - Removes the services, containers, files, users and firewall rules of this collection, and no others. It decides from
    the node's own state, and a second run completes an interrupted one.
  - Removes neither the network configuration, which M(gb10.cluster.netplan_apply) restores, nor its saved state until
    then. Run the module again after that.
  - Keeps links and other content of an administrator, folders with mounts in them, images that were on the node before,
    and a user without a record that this collection created it. RV(lines) has the reason for each.
options:
  state:
    description: Whether to only stop the services, or to remove everything.
    type: str
    choices: [absent, stopped]
    default: absent
  install_dir:
    description: The folder with the runtimes. Another folder that an installed service uses is found by itself.
    type: path
    default: /opt/gb10
  user:
    description: The name of the service user. Without a record of its creation it is kept, and listed.
    type: str
    default: gb10
  models:
    description: Whether to remove the stored models too.
    type: bool
    default: false
seealso:
  - module: gb10.cluster.netplan_apply
  - module: gb10.cluster.peer_firewall
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: List the items to remove
  gb10.cluster.uninstall:
  become: true
  check_mode: true
  register: found

- name: Remove this collection from the node, except models
  gb10.cluster.uninstall:
  become: true
"""

RETURN = r"""
lines:
  description: The steps as text, one line each, with kept items last. In check mode with sizes.
  returned: success
  type: list
  elements: str
  sample:
    - "remove /opt/gb10/runtime (tree, 5.2 GB): environments with vLLM and Ray"
    - "keep /opt/gb10/models (tree, 60.1 GB): models; -e reset_models=true removes them"
due:
  description: Whether there is anything to remove or to restore, also in check mode.
  returned: success
  type: bool
network:
  description: Whether the node has a network configuration to restore.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.io_nftables import FirewallError
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, plan, report


def main() -> None:
    """Read the node, decide, and remove."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["absent", "stopped"], "default": "absent"},
            "install_dir": {"type": "path", "default": "/opt/gb10"},
            "user": {"type": "str", "default": "gb10"},
            "models": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    verbs = ("stop",) if params["state"] == "stopped" else ("stop", "remove", "empty")
    try:
        steps = plan.decide(io_node.read(run, params["install_dir"], params["user"]), params["models"])
        due = [step for step in steps if step.verb in verbs]
        sizes = io_node.sizes(run, steps) if module.check_mode else {}
        if not module.check_mode:
            io_node.apply(run, due)
    except (io_node.UninstallError, FirewallError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    network = any(step.kind == "network" for step in steps)
    diff = {"before": "".join(f"{line}\n" for line in report.lines(due, sizes)) if due else "", "after": ""}
    module.exit_json(
        changed=bool(due), due=bool(due) or network, network=network, lines=report.lines(steps, sizes), diff=diff
    )


if __name__ == "__main__":
    main()

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: overlay
author: gb10.cluster maintainers
short_description: Move the hosts of other inventories to simulated hosts
description:
  - Sets variables of all hosts of the group C(gb10_cluster) that the inventories before this one define.
  - Also sets C(lab_number), the place of the host in that group, beginning with 1.
  - A host's own variables have priority over those of its groups, so group variables cannot replace its address.
options:
  plugin:
    description: The plugin's name.
    type: str
    required: true
    choices: [gb10.lab.overlay]
  variables:
    description: The host variables. Ansible renders a template when it uses the variable.
    type: dict
    required: true
seealso:
  - plugin: ansible.builtin.constructed
    plugin_type: inventory
"""

EXAMPLES = r"""
# ansible-playbook site.yml -i inventories/two-spark -i hosts_overlay.yml
plugin: gb10.lab.overlay
variables:
  ansible_host: "10.88.0.{{ 10 + lab_number }}"
"""

import os
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin


class InventoryModule(BaseInventoryPlugin):
    """Set host variables. Unlike ansible.builtin.constructed, this leaves templates for later, which may use groups."""

    NAME = "gb10.lab.overlay"

    def verify_file(self, path: str) -> bool:
        """Whether the file is the lab's."""
        return path.endswith("hosts_overlay.yml") and os.path.isfile(path)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        # get_option() would return texts that Ansible no longer renders.
        variables = self._read_config_data(path)["variables"]
        if cluster := inventory.groups.get("gb10_cluster"):
            # Not from the index in the group: for a delegated task, inventory_hostname is the name of another host.
            for number, host in enumerate(cluster.get_hosts(), 1):
                inventory.set_variable(host.name, "lab_number", number)
                for name, value in variables.items():
                    inventory.set_variable(host.name, name, value)

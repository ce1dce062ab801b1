#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: access_report
short_description: Judge the access of the controller to all nodes
version_added: 0.1.0
description:
  - Reads the results that tasks of the role access registered on the nodes.
  - Fails with the problems of all nodes, each with the fix for its cause.
  - Runs on the controller. The action plugin of this name does the work.
options:
  nodes:
    description: The names of the nodes.
    type: list
    elements: str
    required: true
  purpose:
    description:
      - V(host_keys) finds machines that give no host key, or another one than known_hosts has.
      - V(logins) finds nodes without a login by key or without sudo.
      - V(inventory) returns an inventory of the nodes, and finds nothing.
    type: str
    choices: [host_keys, logins, inventory]
    required: true
seealso:
  - module: gb10.cluster.host_key_info
  - module: gb10.cluster.login_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Judge the access to all nodes
  gb10.cluster.access_report:
    nodes: "{{ ansible_play_hosts_all }}"
    purpose: logins
  run_once: true
  register: access
"""

RETURN = r"""
unknown:
  description: The C(name), C(key) and C(line) for a person of each host key that known_hosts does not have.
  returned: with O(purpose=host_keys)
  type: list
  elements: dict
lines:
  description: A line for each node, and what to append to commands.
  returned: with O(purpose=logins)
  type: list
  elements: str
text:
  description: The file hosts.yml of the inventory.
  returned: with O(purpose=inventory)
  type: str
options:
  description: What to append to commands, empty if sudo needs no password on any node.
  returned: with O(purpose=inventory)
  type: str
"""

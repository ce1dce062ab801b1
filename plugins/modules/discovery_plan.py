#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: discovery_plan
short_description: Derive cables, topology and an inventory from the answers of machines
version_added: 0.1.0
description:
  - Derives the topology (none, direct, ring or switch) from the neighbors on every machine's QSFP ports.
  - As long as a machine on a cable was not queried, returns these machines and what their query needs, instead of the
    inventory.
  - Validates each machine, which is untrusted.
  - Runs on the controller. The action plugin of this name does the work.
requirements:
  - netaddr on the controller
options:
  machines:
    description: The known machines, the given ones first, as RV(gb10.cluster.fabric_neighbors_info#module:machine).
    type: list
    elements: dict
    required: true
  answers:
    description: Results of M(gb10.cluster.fabric_neighbors_info), whose machines are added.
    type: list
    elements: dict
    default: []
  folder:
    description: The folder of ssh's files for the pending machines.
    type: path
    required: true
  partial:
    description: Whether to omit a machine that could not be queried, with a note, instead of a problem.
    type: bool
    default: false
  model:
    description: The value of C(gb10_model) in the inventory; empty for a line to fill in.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.fabric_neighbors_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Derive the inventory, or list the machines that were seen but not queried yet
  gb10.cluster.discovery_plan:
    machines: "{{ machines }}"
    folder: /tmp/discover
  register: found
"""

RETURN = r"""
machines:
  description: The machines with those of the answers, validated.
  returned: success
  type: list
  elements: dict
pending:
  description: The machines on cables that were not queried yet, as O(machines).
  returned: success
  type: list
  elements: dict
ssh_config:
  description: The configuration of ssh for the machines on cables.
  returned: if a machine is pending
  type: str
known_hosts:
  description: Their host keys.
  returned: if a machine is pending
  type: str
trusted:
  description: A line for each host key that was read over a cable, with the cable and the fingerprint. Of the pending
    machines, or with an explanation of those in the inventory.
  returned: success
  type: list
  elements: str
topology:
  description: The topology, empty without a proposal.
  returned: if no machine is pending
  type: str
summary:
  description: The machines and their cables, one line each.
  returned: if no machine is pending
  type: list
  elements: str
notes:
  description: Findings that do not prevent the inventory.
  returned: if no machine is pending
  type: list
  elements: str
problems:
  description: Findings that prevent the inventory.
  returned: if no machine is pending
  type: list
  elements: str
report:
  description: All problems as one message.
  returned: if no machine is pending
  type: str
files:
  description: The inventory, as text for each file below its folder.
  returned: if no machine is pending
  type: dict
"""

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: os_update_plan
short_description: Announce an update of DGX OS, or refuse it with every reason
version_added: 0.1.0
description:
  - Decides from the results of M(gb10.cluster.os_update_info) on all nodes.
  - An action plugin on the controller implements it; the module only contains this documentation.
options:
  units:
    description: The nodes that serve one model together, by their cluster.
    type: dict
    required: true
  gateways:
    description: The hosts with a gateway.
    type: list
    elements: str
    default: []
  reports:
    description: The name of the variable with each gateway's result of M(gb10.cluster.gateway_info).
    type: str
    default: ""
  results:
    description: The name of the variable with each node's result.
    type: str
    required: true
  expected:
    description: What may come next on nodes whose update is under way. Anything else is a problem.
    type: list
    elements: str
    choices: [current, upgrade, boot, verify, fell back]
    default: [current, upgrade, boot, verify, fell back]
  without_way_back:
    description: Whether an update is accepted that has no way back.
    type: bool
    default: false
  again:
    description: Whether to boot a kernel once more that did not start.
    type: bool
    default: false
  firmware:
    description: Whether offered firmware is a reason for an update.
    type: bool
    default: false
  kernel_options:
    description: The options that the update adds to the kernel's command line.
    type: list
    elements: str
    choices: [kho=off]
    default: []
  refuse:
    description: Whether the task fails with the reasons. Otherwise RV(problem) has them.
    type: bool
    default: true
seealso:
  - module: gb10.cluster.os_update_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Announce the update
  gb10.cluster.os_update_plan:
    units:
      chat: [spark-1, spark-2]
    results: updates
  run_once: true
"""

RETURN = r"""
lines:
  description: The announcement.
  returned: success
  type: list
  elements: str
problem:
  description: Every reason why the update does not go on, empty without one.
  returned: success
  type: str
begins:
  description: Whether packages change next, and no step of the update was done on a node.
  returned: success
  type: bool
serves:
  description: Whether a node's services start at boot now.
  returned: success
  type: bool
served:
  description: Whether the nodes served before the update, so that they serve again after it.
  returned: success
  type: bool
waiting:
  description: The nodes whose driver waits for a reboot, so that their GPU cannot be used.
  returned: success
  type: list
  elements: str
stages:
  description: The next stage of each node, as M(gb10.cluster.os_update_info) returns it.
  returned: success
  type: dict
"""

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_status
short_description: Read the status of a node, also of one that does not answer, or turn that of all nodes into text
version_added: 0.1.0
description:
  - Calls M(gb10.cluster.cluster_status_info) with the address and key of C(gb10_inputs). An unreachable node stays in
    the play.
  - The action plugin of this name does the work. The role gb10 registers its result as C(__gb10_status).
options:
  nodes:
    description: The nodes of the cluster. With them, the action returns the text and connects to no node.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.cluster_inputs
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the status of the node
  gb10.cluster.cluster_status:
  become: true
  register: __gb10_status
"""

RETURN = r"""
node:
  description: The status, how clients reach the node, and C(unreachable), the reason why it could not be read.
  returned: without O(nodes)
  type: dict
lines:
  description: The status of the cluster for people.
  returned: with O(nodes)
  type: list
  elements: str
"""

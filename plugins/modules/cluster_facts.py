#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_facts
short_description: Read a node for the plan, or its saved facts
version_added: 0.1.0
description:
  - Calls M(gb10.cluster.node_info) with options that follow from C(gb10_inputs). With
    C(gb10_plan_offline), it reads the saved facts on the controller, or nothing for typical facts.
  - A node that cannot be read stays in the play, so that the plan lists it with all other problems.
  - Refuses a run that leaves out a node of the cluster.
  - The action plugin of this name does the work. The role gb10 registers its result as C(__gb10_facts).
seealso:
  - module: gb10.cluster.cluster_inputs
  - module: gb10.cluster.cluster_plan
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the state of the node
  gb10.cluster.cluster_facts:
  become: true
  register: __gb10_facts
"""

RETURN = r"""
node:
  description: The planner's input about the node without its settings.
  returned: success
  type: dict
"""

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
  - Calls M(gb10.cluster.node_info) with options that follow from C(gb10_inputs) of all nodes. With
    C(gb10_plan_offline), it reads the saved facts on the controller, or nothing for typical facts.
  - A node that cannot be read stays in the play, so that the plan lists it with all other problems.
  - Refuses a run that leaves out a node of the cluster.
  - The action plugin of this name does the work. The role gb10 registers its result as C(__gb10_facts).
options:
  builds:
    description: Whether to read only the builds of vLLM, on which the name of the environment depends. The role
      registers them as C(__gb10_built).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.cluster_inputs
  - module: gb10.cluster.cluster_plan
  - module: gb10.cluster.vllm_build_info
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
  returned: without O(builds)
  type: dict
builds:
  description: The result of M(gb10.cluster.vllm_build_info).
  returned: with O(builds)
  type: dict
reason:
  description: Why the builds could not be read, empty if they were.
  returned: with O(builds)
  type: str
"""

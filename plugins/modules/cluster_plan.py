#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_plan
short_description: Plan a cluster from the inventory and the facts of its nodes
version_added: 0.1.0
description:
  - Merges the results of the steps C(cluster_inputs) and C(cluster_facts) of all nodes, and returns the
    plan or every problem at once. Changes nothing.
  - Prints the warnings of the plan.
  - Runs on the first reachable node of the cluster. If no node has the model, the head reads its size from Hugging Face
    Hub with the step C(hub_model_info).
  - The action plugin of this name does the work.
options:
  models:
    description: Whether to plan once for each model of the catalog, and to return a table instead of a plan.
    type: bool
    default: false
  clusters:
    description:
      - The nodes of each cluster of the run, by name. With several, the task fails if one has no plan, or if two
        conflict.
      - No plan is made then.
    type: dict
    default: {}
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Plan the cluster
  gb10.cluster.cluster_plan:
  register: result
"""

RETURN = r"""
msg:
  description: The printed warnings.
  returned: success
  type: list
  elements: str
plan:
  description: The plan as plain data, without the part of one node; empty with problems.
  returned: without O(models)
  type: dict
problems:
  description: The problems, each with its place, the value, the expected value and the fix.
  returned: always
  type: list
  elements: str
report:
  description: The problems as one text.
  returned: always
  type: str
notices:
  description: The warnings about the plan, one each.
  returned: without O(models)
  type: list
  elements: str
lines:
  description: The plan, or the table of models, as text for people.
  returned: always
  type: list
  elements: str
hub:
  description: C(hub_model) with the answer of Hugging Face Hub, empty without a query.
  returned: always
  type: dict
"""

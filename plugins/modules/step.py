#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: step
short_description: Run a decision of this collection's roles on the controller
version_added: 0.1.0
description:
  - Internal. The roles call it. A release may change each step and its inputs without notice.
  - A step is a file in C(plugins/plugin_utils/steps). Its docstrings document the inputs and the result.
  - Runs on the controller. The action plugin of this name does the work. Some steps read the node with a module.
options:
  name:
    description: The step, the name of its file.
    type: str
    required: true
  inputs:
    description: The inputs of the step, typed as its class C(Inputs).
    type: dict
    default: {}
seealso:
  - module: gb10.cluster.cluster_plan
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: List the launch records of all nodes
  gb10.cluster.step:
    name: launch_history
    inputs:
      nodes: [spark1, spark2]
      records: __history_records
  register: history
"""

RETURN = r"""
changed:
  description: Whether a module that the step called changed the node. The other values are those of the step.
  returned: always
  type: bool
"""

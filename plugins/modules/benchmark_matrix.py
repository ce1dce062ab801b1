#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: benchmark_matrix
short_description: Keep the results of benchmarks of several models
version_added: 0.1.0
description:
  - Each step returns the matrix of the step before with its own results. The role P(gb10.cluster.benchmark_all#role)
    registers it, and writes RV(record) on the controller.
  - Reads the facts C(gb10_plan) and C(gb10_inputs) of the role gb10.
  - Runs on the controller. The action plugin of this name does the work. Only O(step=find) reads the node.
options:
  step:
    description:
      - V(find) finds the complete copies of models on the node, and V(list) the models of O(models) or of these copies.
      - V(plan) adds a model with its plan or the reason why it has none. V(begin) refuses models without a plan, and
        continues an interrupted run.
      - V(add) adds the result of a model, and V(finish) ends the run.
      - V(return) fails if the first model does not serve again.
    type: str
    choices: [find, list, plan, begin, add, finish, return]
    required: true
  matrix:
    description: The registered result of the step before.
    type: dict
    default: {}
  models:
    description: The models to measure, for O(step=list); empty for those with a complete copy.
    type: list
    elements: str
    default: []
  name:
    description: The model, for O(step=plan) and O(step=add).
    type: str
    default: ""
  part:
    description: The part of the run whose failure counts for this step. Each node has C(part) and C(reason) of its last
      failure in the fact C(__benchmark_all_failed).
    type: str
    default: ""
  path:
    description: The file on the controller with the earlier record, for O(step=begin). It need not exist.
    type: path
    default: ""
  restart:
    description: Whether to measure models again that have a result of an interrupted run, for O(step=begin).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.benchmark_report
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: List the models to measure
  gb10.cluster.benchmark_matrix:
    step: list
    models: [gpt-oss-20b, gpt-oss-120b]
  run_once: true
  register: matrix
"""

RETURN = r"""
copies:
  description: The folders of complete copies on the node, after O(step=find).
  returned: success
  type: list
  elements: str
models:
  description: The names of the models, from O(step=list) on.
  returned: success
  type: list
  elements: str
served:
  description: The model that is served before the benchmarks.
  returned: success
  type: str
left_out:
  description: A line for each stored model that the planner refuses.
  returned: success
  type: list
  elements: str
due:
  description: The models to measure, each with C(name) and C(minutes), from O(step=begin) on.
  returned: success
  type: list
  elements: dict
record:
  description: The document of the run, from O(step=begin) on.
  returned: success
  type: dict
lines:
  description: The announcement after O(step=begin), the table after O(step=finish).
  returned: success
  type: list
  elements: str
failed_models:
  description: The models that failed, after O(step=finish).
  returned: success
  type: list
  elements: str
"""

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: field_report
short_description: Make a report about a cluster without names, addresses and keys
version_added: 0.1.0
description:
  - Combines the fact C(gb10_plan), which may be empty, the results of the checks and the evidence of each node, and the
    last results on the controller. Fails if identifying text is left.
  - Each node has registered C(verify_node), C(verify_probe) and the result of M(gb10.cluster.field_report_info) as
    C(__field_report_evidence).
  - Runs on the controller, and writes no file. The action plugin of this name does the work.
options:
  purpose:
    description:
      - V(report) returns the report.
      - V(measure) returns the steps of a measurement, and fails if it could not return to the present state. This needs
        the result of M(gb10.cluster.cluster_status_info) of each node as C(__field_report_status).
    type: str
    choices: [report, measure]
    default: report
  nodes:
    description: The nodes in their order, for a cluster without a plan.
    type: list
    elements: str
    required: true
  problems:
    description: What failed before the report, each with C(task) and C(text).
    type: list
    elements: dict
    default: []
  names:
    description: Other names of the site, each with the word that replaces it.
    type: dict
    default: {}
  model:
    description: The model of the inventory.
    type: str
    default: ""
  served:
    description: The name of the served model in the inventory.
    type: str
    default: ""
  records:
    description: The folder on the controller with the last golden result, NCCL's bandwidth and the benchmarks.
    type: path
    default: ""
seealso:
  - module: gb10.cluster.field_report_info
  - module: gb10.cluster.cluster_verify_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Make the report
  gb10.cluster.field_report:
    nodes: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: report
"""

RETURN = r"""
document:
  description: The report.
  returned: success, with O(purpose=report)
  type: dict
lines:
  description: The tasks whose errors the report has, in one line; empty without an error.
  returned: success, with O(purpose=report)
  type: list
  elements: str
serves:
  description: Whether a service of any node runs.
  returned: success, with O(purpose=measure)
  type: bool
steps:
  description: The steps of the measurement.
  returned: success, with O(purpose=measure)
  type: list
  elements: str
"""

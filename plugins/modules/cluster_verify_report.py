#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_verify_report
short_description: Report the findings of a verification and the differences between nodes
version_added: 0.1.0
description:
  - Compares what M(gb10.cluster.cluster_verify_info) and M(gb10.cluster.cluster_verify_probe) returned on each node,
    registered as C(verify_node) and C(verify_probe), with the checks. A node without these results is a finding.
  - The tags of the run select the groups of checks.
  - Runs on the controller, and writes no file. The action plugin of this name does the work.
options:
  nodes:
    description: The nodes of the cluster.
    type: list
    elements: str
    required: true
  fail_on:
    description: The least severity for RV(problem).
    type: str
    choices: [error, warning, never]
    required: true
  waivers:
    description: The reasons by ID of the findings that do not count.
    type: dict
    default: {}
  page:
    description: Whether to return the report as an HTML page too.
    type: bool
    default: false
  cluster:
    description: The cluster's name on the page; empty for the name of the inventory's folder.
    type: str
    default: ""
  quick:
    description: Whether slow checks were left out.
    type: bool
    default: false
  groups:
    description: Groups of checks; empty for those that the tags of the run select.
    type: list
    elements: str
    default: []
  records:
    description: The folder on the controller with golden results and benchmarks for the page.
    type: path
    default: ""
seealso:
  - module: gb10.cluster.cluster_verify_info
  - module: gb10.cluster.cluster_verify_probe
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Report the findings
  gb10.cluster.cluster_verify_report:
    nodes: "{{ ansible_play_hosts_all }}"
    fail_on: error
  run_once: true
  register: report
"""

RETURN = r"""
lines:
  description: The findings and the differences as text.
  returned: success
  type: list
  elements: str
json_lines:
  description: A JSON document for each finding and difference, after a summary.
  returned: success
  type: list
  elements: str
worst:
  description: The worst severity of a finding that counts, empty without one.
  returned: success
  type: str
problem:
  description: Why the verification fails, empty if it does not.
  returned: success
  type: str
page:
  description: The HTML page.
  returned: success, with O(page=true)
  type: str
"""

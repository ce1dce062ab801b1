#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: benchmark_report
short_description: Report a benchmark, and compare it with earlier ones
version_added: 0.1.0
description:
  - Makes the document of a benchmark of the fact C(gb10_plan), and compares it with the last good one of the same model
    and distribution.
  - A failed request, and a speed below the accepted one, are findings, not errors of the task.
  - Runs on the controller, and writes no file. The action plugin of this name does the work.
options:
  directory:
    description: The folder on the controller with earlier documents.
    type: path
    required: true
  bandwidth_file:
    description: The file on the controller with the last bandwidth of NCCL. It need not exist.
    type: path
    required: true
  mode:
    description: The mode of the runs.
    type: str
    required: true
  date:
    description: RV(gb10.cluster.benchmark_runs#module:date).
    type: str
    required: true
  seed:
    description: RV(gb10.cluster.benchmark_runs#module:seed).
    type: int
    required: true
  tolerance:
    description: The accepted loss of speed; V(0.1) is ten percent.
    type: float
    required: true
  status:
    description: The variable of each node with the registered result of M(gb10.cluster.cluster_status_info).
    type: str
    required: true
  rtts:
    description: The round-trip times that M(gb10.cluster.fabric_probe) returned.
    type: list
    elements: dict
    default: []
  measured:
    description: The registered results of a loop with M(gb10.cluster.vllm_benchmark) over the runs.
    type: list
    elements: dict
    required: true
seealso:
  - module: gb10.cluster.benchmark_runs
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Compare the benchmark with the last good one
  gb10.cluster.benchmark_report:
    directory: inventories/mine/.gb10/benchmarks
    bandwidth_file: inventories/mine/.gb10/nccl_bandwidth.json
    mode: quick
    date: "{{ chosen.date }}"
    seed: "{{ chosen.seed }}"
    tolerance: 0.1
    status: node_status
    measured: "{{ measured.results }}"
  register: report
"""

RETURN = r"""
document:
  description: The document, with its findings.
  returned: success
  type: dict
file:
  description: The name of the document's file.
  returned: success
  type: str
path:
  description: The path of that file in O(directory).
  returned: success
  type: str
lines:
  description: The document as text, and notes on files that were ignored.
  returned: success
  type: list
  elements: str
best:
  description: The best speeds in one sentence.
  returned: success
  type: str
findings:
  description: Failed requests, and runs that are slower than before.
  returned: success
  type: list
  elements: str
"""

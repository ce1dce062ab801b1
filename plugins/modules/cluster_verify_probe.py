#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_verify_probe
short_description: Run the slow checks of a node that need the facts of all nodes
version_added: 0.1.0
description:
  - Runs M(gb10.cluster.vllm_gpu_probe) with the node's runtime, and M(gb10.cluster.fabric_probe) on its rails to the
    other nodes.
  - Both depend on the results of M(gb10.cluster.cluster_verify_info), which each node has registered as C(verify_node).
  - Leaves out a check whose group is not selected by the tags of the run, and a node that was not read.
  - An action plugin on the controller implements it; the module only contains this documentation.
options:
  nodes:
    description: The nodes of the cluster.
    type: list
    elements: str
    required: true
  gpu:
    description: Whether to run small kernels on the GPU.
    type: bool
    default: true
  timeout:
    description: Seconds for retries on a rail without reply.
    type: int
    required: true
seealso:
  - module: gb10.cluster.cluster_verify_info
  - module: gb10.cluster.cluster_verify_report
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Run the slow checks of the node
  gb10.cluster.cluster_verify_probe:
    nodes: "{{ ansible_play_hosts_all }}"
    timeout: 2
  become: true
  register: verify_probe
"""

RETURN = r"""
paths:
  description: RV(gb10.cluster.fabric_probe#module:unverified), empty if it did not run.
  returned: always
  type: list
  elements: dict
probe:
  description: RV(gb10.cluster.vllm_gpu_probe#module:checks), empty if it did not run.
  returned: always
  type: list
  elements: dict
"""

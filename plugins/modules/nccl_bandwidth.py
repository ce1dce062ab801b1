#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_bandwidth
short_description: Plan the bandwidth measurements between the nodes, and evaluate their results
version_added: 0.1.0
description:
  - Returns the measurements between the nodes of the fact C(gb10_plan), over all devices together and over each. Every
    node has the same ones. The variables of the entry point C(bandwidth) of the role C(nccl_sm121_build) define them.
  - With O(measured), compares the largest messages with the expected bandwidth.
  - Runs on the controller. The action plugin of this name does the work.
options:
  measured:
    description: The output of each measurement by its name.
    type: dict
seealso:
  - module: gb10.cluster.nccl_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Plan the measurements of the bandwidth
  gb10.cluster.nccl_bandwidth:
  register: bandwidth
"""

RETURN = r"""
runs:
  description: The measurements in order. C(argv) starts this node's rank, which reads its program from stdin.
  returned: without O(measured)
  type: list
  elements: dict
  contains:
    name:
      description: C(together), or a device of the head.
      type: str
    argv:
      description: The command.
      type: list
      elements: str
unit:
  description: The unit of the rank.
  returned: without O(measured)
  type: str
lines:
  description: A line for each message.
  returned: with O(measured)
  type: list
  elements: str
expected:
  description: The required bandwidth, 0 if it is unknown.
  returned: with O(measured)
  type: float
findings:
  description: The collectives that are too slow.
  returned: with O(measured)
  type: list
  elements: str
record:
  description: The measurement as a document with its date.
  returned: with O(measured)
  type: dict
"""

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: launch_history
short_description: List the launch records of all nodes, and announce a rollback or an upgrade
version_added: 0.1.0
description:
  - Compares the records that M(gb10.cluster.launch_record_info) read on each node. A record counts only if its content
    has the digest of its ID.
  - Fails with every reason why a rollback or an upgrade is not possible, and for an ID that names no record or several.
  - Runs on the controller. The action plugin of this name does the work.
options:
  nodes:
    description: The nodes of the cluster. Those that the run does not reach are left out, with a warning in the list.
    type: list
    elements: str
    required: true
  records:
    description: The variable of each node with the registered result of M(gb10.cluster.launch_record_info).
    type: str
    required: true
  purpose:
    description:
      - V(list) lists the records, newest first, or shows the difference between O(older) and O(newer).
      - V(failure) decides whether the nodes can return to the last working launch after the errors in
        C(gb10_launch_problem).
      - V(rollback) selects the record O(target), and announces the return to it.
      - V(upgrade) announces the differences between the running launch and the fact C(gb10_plan).
    type: str
    choices: [list, failure, rollback, upgrade]
    default: list
  older:
    description: The first digits of the older record's ID; empty for the list.
    type: str
    default: ""
  newer:
    description: The first digits of the newer record's ID; empty for the list.
    type: str
    default: ""
  target:
    description: The first digits of the ID to return to; empty for the record before the current one.
    type: str
    default: ""
  prepared:
    description: Whether the plan has the patches and NCCL of its runtime. If not, the running ones are assumed.
    type: bool
    default: false
seealso:
  - module: gb10.cluster.launch_record_info
  - module: gb10.cluster.launch_record
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the launch records of the node
  gb10.cluster.launch_record_info:
  become: true
  register: node_records

- name: List the launch records of all nodes
  gb10.cluster.launch_history:
    nodes: "{{ ansible_play_hosts_all }}"
    records: node_records
  register: history
  run_once: true
"""

RETURN = r"""
lines:
  description: The list, the difference or the announcement.
  returned: success, without O(purpose=failure)
  type: list
  elements: str
id:
  description: The ID of the record to return to.
  returned: success, with O(purpose=rollback)
  type: str
start:
  description: That record's data to verify the launch. After a failure, that of the launch to return to, or empty.
  returned: success, with O(purpose=rollback) or O(purpose=failure)
  type: dict
plan:
  description: That record's part of a plan.
  returned: success, with O(purpose=rollback)
  type: dict
former:
  description: The ID of the current record.
  returned: success, with O(purpose=rollback)
  type: str
former_start:
  description: The current record's data to verify the launch.
  returned: success, with O(purpose=rollback)
  type: dict
due:
  description: Whether the rollback would change anything.
  returned: success, with O(purpose=rollback)
  type: bool
why:
  description: The errors of the failed launch.
  returned: success, with O(purpose=failure)
  type: str
why_not:
  description: Why the nodes cannot return to a launch, empty if they can.
  returned: success, with O(purpose=failure)
  type: str
same_runtime:
  description: Whether the running launch uses the runtime of the plan.
  returned: success, with O(purpose=upgrade)
  type: bool
"""

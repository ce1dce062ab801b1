#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_watch
short_description: Watch a running cluster on the terminal until the user ends it
version_added: 0.1.0
description:
  - Asks each node again and again for its newest sample, and draws the speed of the model and a line for each node.
  - A terminal is drawn in place, and C(q) or Ctrl-C ends it. Without a terminal, the frames follow each other until the
    run is ended.
  - Needs a task on all nodes of one cluster, with a fork for each.
  - The action plugin of this name does the work.
options:
  nodes:
    description: The nodes of the cluster, the head first. The first one draws.
    type: list
    elements: str
    required: true
  interval:
    description: Seconds between two frames, 1 to 600.
    type: int
    required: true
seealso:
  - module: gb10.cluster.cluster_status_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Watch the nodes
  gb10.cluster.cluster_watch:
    nodes: "{{ gb10_nodes }}"
    interval: 5
  become: true
"""

RETURN = r"""
lines:
  description: A summary of the session, on the first node.
  returned: success
  type: list
  elements: str
"""

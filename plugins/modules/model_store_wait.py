#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store_wait
short_description: Wait until a node has its model, and show the progress
version_added: 0.1.0
description:
  - Polls M(gb10.cluster.model_store_info) on the host and shows the transferred bytes and the transfer rate.
  - Does not fail, so that a play can report the errors of all nodes together.
  - RV(reason) has the error, also for an unreachable node.
  - This is an action plugin that runs on the controller; the module file contains only its documentation.
options:
  folder:
    description: The model's folder.
    type: path
    required: true
  unit:
    description: The unit that copies the model to this node.
    type: str
    required: true
  status:
    description: The unit's status file.
    type: path
    required: true
  timeout:
    description: Maximum wait in seconds.
    type: int
    required: true
seealso:
  - module: gb10.cluster.model_store_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Wait until the node has the model
  gb10.cluster.model_store_wait:
    folder: /opt/gb10/models/openai--gpt-oss-120b/main
    unit: gb10-model.service
    status: /run/gb10-model/status.json
    timeout: 43200
  become: true
  register: waited
"""

RETURN = r"""
reason:
  description: Why the node does not have the model, empty if it does.
  returned: always
  type: str
"""

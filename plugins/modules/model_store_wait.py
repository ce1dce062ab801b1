#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store_wait
short_description: Wait until a node has its model, with progress
version_added: 0.1.0
description:
  - Polls M(gb10.cluster.model_store_info) on the host and shows how many bytes are there, and how fast they come.
  - Does not fail, so that what went wrong on every node can be told together; RV(reason) says it. A node that cannot be reached is such a reason.
  - It is an action that runs on the controller; the module itself only holds this documentation.
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
    description: The file that it tells in how far it is.
    type: path
    required: true
  timeout:
    description: Seconds until the model must be there.
    type: int
    required: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Wait for the model
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
  description: Why the model is not there, empty if it is.
  returned: always
  type: str
"""

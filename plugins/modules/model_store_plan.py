#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store_plan
short_description: Decide which nodes lack a model, and how they get it
version_added: 0.1.0
description:
  - Compares the stored files of all nodes of the fact C(gb10_plan). The head downloads its missing files, and the
    model goes from node to node.
  - Returns the commands of the temporary units for this node.
  - Runs on the controller. The action plugin of this name does the work.
options:
  model:
    description: A model of the fact, C(store) or one of C(drafts).
    type: dict
    required: true
  stored:
    description: The variable of each node with the registered result of M(gb10.cluster.model_store_info).
    type: str
    required: true
  listed:
    description: The head's variable with the registered output of the command in RV(argv), C(list). Empty if the head
      has the model, or before the command.
    type: str
    default: ""
  fetched:
    description: The head's variable with the registered result of M(gb10.cluster.model_store_info) after its download;
      empty before.
    type: str
    default: ""
  verify:
    description: Whether nodes that have the model read all of it again.
    type: bool
    required: true
  min_free_bytes:
    description: Bytes that must stay free on each node.
    type: int
    required: true
  max_connections:
    description: The number of files to transfer at once.
    type: int
    required: true
  port:
    description: The port for sending the model to the next node.
    type: int
    required: true
  timeout:
    description: Maximum seconds of a unit.
    type: int
    required: true
  exclude:
    description: Patterns of files to skip.
    type: list
    elements: str
    required: true
  env:
    description: Environment variables of the download.
    type: dict
    required: true
  token:
    description: Whether the file of RV(files) has a token of Hugging Face Hub.
    type: bool
    required: true
seealso:
  - module: gb10.cluster.model_store_info
  - module: gb10.cluster.model_store_wait
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read which files of the model the node has
  gb10.cluster.model_store_info:
    folder: "{{ gb10_plan.store.folder }}"
  become: true
  register: node_files

- name: Determine which nodes lack the model
  gb10.cluster.model_store_plan:
    model: "{{ gb10_plan.store }}"
    stored: node_files
    verify: false
    min_free_bytes: 10000000000
    max_connections: 4
    port: 8472
    timeout: 43200
    exclude: []
    env: {}
    token: false
  register: copy
"""

RETURN = r"""
fetches:
  description: Whether the head downloads or verifies the model.
  returned: success
  type: bool
receivers:
  description: The other nodes that receive the model.
  returned: success
  type: list
  elements: str
link:
  description: The part of this node in the copy from node to node, C(upstream), C(upstream_address), C(listen) and
    C(receiver); empty without a part.
  returned: success
  type: dict
report:
  description: The problems of all nodes, empty if there are none.
  returned: success
  type: str
argv:
  description: The commands of this node's units, C(list), C(fetch) and, with RV(link), C(relay).
  returned: success
  type: dict
units:
  description: The units that download and copy, C(fetch) and C(relay).
  returned: success
  type: dict
files:
  description: The temporary files of a copy, C(token), C(listing), C(manifest) and C(status), and their C(folder).
  returned: success
  type: dict
program:
  description: The file of M(gb10.cluster.root_files) that installs the program of the units.
  returned: success
  type: dict
library:
  description: The environment with huggingface_hub for container runtimes.
  returned: success
  type: str
"""

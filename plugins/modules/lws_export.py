#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: lws_export
short_description: Convert the plan to a LeaderWorkerSet of Kubernetes
version_added: 0.1.0
description:
  - Returns the objects of Kubernetes that run the fact C(gb10_plan), as YAML without secrets. Writes no file.
  - Each pod has the arguments and variables of the unit on its node. See docs/kubernetes.md.
  - Fails with every problem of a plan that cannot be exported.
  - Runs on the controller. The action plugin of this name does the work.
options:
  path:
    description: The file that a later task writes, for RV(lines).
    type: path
    required: true
  name:
    description: The name of the LeaderWorkerSet, and the start of the names of the other objects.
    type: str
    required: true
  namespace:
    description: The namespace. Empty for the one that kubectl uses.
    type: str
    default: ""
  nodes:
    description: The label kubernetes.io/hostname of the Kubernetes node, by the name in the inventory, where they
      differ.
    type: dict
    default: {}
  runtime_class:
    description: The RuntimeClass of NVIDIA's container runtime. Empty if it is the default runtime.
    type: str
    default: ""
  rdma_resource:
    description: The resource of a device plugin for RDMA. Empty to mount /dev/infiniband.
    type: str
    default: ""
  entrypoint:
    description: What happens to the entry point of the image.
    type: str
    choices: [auto, keep, replace]
    default: auto
  start_seconds:
    description: Seconds from the start of the server to its first token.
    type: int
    required: true
seealso:
  - module: gb10.cluster.cluster_inputs
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Convert the plan to objects of Kubernetes
  gb10.cluster.lws_export:
    path: /srv/kubernetes.yaml
    name: gb10-vllm
    runtime_class: nvidia
    start_seconds: 2400
  register: export
"""

RETURN = r"""
path:
  description: The option O(path) as an absolute path.
  returned: success
  type: str
folder:
  description: The folder of RV(path).
  returned: success
  type: str
text:
  description: The objects as YAML.
  returned: success
  type: str
lines:
  description: RV(path), the objects, the Secrets that they need, and warnings.
  returned: success
  type: list
  elements: str
"""

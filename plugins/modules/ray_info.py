#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ray_info
short_description: Read the nodes of a Ray cluster, and optionally wait for them
version_added: 0.1.0
description:
  - Runs on the head and queries Ray's State API for nodes and actors.
options:
  expect:
    description: >-
      Name and address of every node. With it, waits until Ray has exactly these nodes, each with its GPUs, and verifies
      that Ray rejects a request without the token.
    type: dict
    default: {}
  gpus:
    description: GPUs that each node must provide.
    type: int
    default: 1
  timeout:
    description: Maximum seconds to wait.
    type: int
    default: 0
  dashboard_port:
    description: Port of Ray's dashboard on loopback.
    type: int
    default: 8265
  token_path:
    description: File on the head that contains the cluster's token.
    type: path
    default: /etc/gb10/ray.token
seealso:
  - module: gb10.cluster.vllm_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Wait for both nodes
  gb10.cluster.ray_info:
    expect:
      spark1: 10.110.0.1
      spark2: 10.110.0.2
    timeout: 180
  become: true
"""

RETURN = r"""
nodes:
  description: Every node in Ray, including dead ones.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: The node's address.
      type: str
    state:
      description: C(ALIVE) or C(DEAD).
      type: str
    resources:
      description: The node's resources.
      type: dict
actors:
  description: Every living actor, with its node.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: The node's address.
      type: str
    name:
      description: The actor's class.
      type: str
    pid:
      description: The actor's process.
      type: int
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray, io_ray_members


def main() -> None:
    """Wait if `expect` is set, then read."""
    module = AnsibleModule(
        argument_spec=io_ray_members.ARGUMENTS,
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **io_ray_members.read(module.params))
    except io_ray.RayError as error:
        module.fail_json(msg=f"Ray is not complete: {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_host_ip
short_description: Write a node's fabric address to the environment file of its ranks
version_added: 0.1.0
description:
  - Writes the environment file of Ray and vLLM, with the node's fabric address as C(VLLM_HOST_IP).
  - Compares the planned address with the addresses of the interface now, with those that other nodes have now, and with
    the one under which a running Ray registered this node. A difference causes C(Every node should have a unique IP
    address), or a placement group that waits for half an hour.
  - Ray is not compared if the file changes, because its service restarts then.
options:
  node:
    description: The node's name in the inventory.
    type: str
  address:
    description: The node's fabric address.
    type: str
  interface:
    description: The interface that must have this address.
    type: str
  others:
    description: The interfaces of other nodes now, as M(gb10.cluster.node_info) returns them.
    type: dict
    default: {}
  ray_unit:
    description: The service that runs Ray on this node, empty without Ray.
    type: str
    default: ""
  nodes:
    description: Every node of the cluster and its fabric address.
    type: dict
  environment:
    description: The other variables of the file.
    type: dict
    default: {}
  planned:
    description: Whether the action plugin takes the other options from C(gb10_plan). Otherwise the first three
      and O(nodes) are required.
    type: bool
    default: false
  path:
    description: The file. The module creates its directory if needed.
    type: path
    default: /etc/gb10/cluster.env
seealso:
  - module: gb10.cluster.fabric_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Write the fabric address
  gb10.cluster.vllm_host_ip:
    node: spark1
    address: 10.110.0.1
    interface: enp1s0f1np1
    nodes:
      spark1: 10.110.0.1
      spark2: 10.110.0.2
  become: true
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import add_folder, read_file, write_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.systemd import environment_file
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.host_ip import check
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray_node
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: Readable by all: it holds no secret, and users source it.
MODE = 0o644


def main() -> None:
    """Check the address, then write the file."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str"},
            "address": {"type": "str"},
            "interface": {"type": "str"},
            "others": {"type": "dict", "default": {}},
            "ray_unit": {"type": "str", "default": ""},
            "nodes": {"type": "dict"},
            "environment": {"type": "dict", "default": {}},
            "planned": {"type": "bool", "default": False},
            "path": {"type": "path", "default": "/etc/gb10/cluster.env"},
        },
        required_if=[("planned", False, ["node", "address", "interface", "nodes"])],
        supports_check_mode=True,
    )
    params = module.params
    path = params["path"]
    try:
        before, mode = read_file(path)
        variables = {name: str(value) for name, value in params["environment"].items()}
        content = environment_file({**variables, "VLLM_HOST_IP": params["address"]})
        changed = (before, mode) != (content, MODE)
        problems = check(
            params["node"],
            params["address"],
            params["interface"],
            params["nodes"],
            node_io_facts.interfaces(runner(module)),
            params["others"],
            io_ray_node.address(params["ray_unit"]) if params["ray_unit"] and not changed else "",
        )
        # In check mode on a new host, the interface has no address yet, which is not an error.
        if problems and not module.check_mode:
            raise ProblemsError(problems)
        for problem in problems:
            module.warn(str(problem))
        if changed and not module.check_mode:
            add_folder(os.path.dirname(path))
            write_file(path, content, MODE)
    except (ProblemsError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=changed,
        path=path,
        diff={"before": before or "", "after": content, "before_header": path, "after_header": path},
    )


if __name__ == "__main__":
    main()

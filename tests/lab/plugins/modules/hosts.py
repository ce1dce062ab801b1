#!/usr/bin/python

# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts
short_description: Simulate DGX Sparks on one Linux machine
description:
  - Creates or destroys a lab of Debian hosts. systemd-nspawn boots each in its own network namespace, and the cabling
    is that of DGX Sparks.
  - Running nodes with unchanged inputs are not touched; others are booted, rebuilt or removed.
  - Needs root, and systemd-nspawn, iproute2 and OpenSSH's client on the machine.
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
options:
  state:
    description: Whether the lab is up or completely removed.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: Name of the lab, 1 to 10 lower-case letters and digits. Labs with different names are separate.
    type: str
    required: true
  directory:
    description: Folder for this lab only. O(state=absent) deletes it.
    type: path
    required: true
  prefix:
    description: First three octets of the management network. Node I(i) gets C(prefix.(11+i)), the machine C(prefix.1).
    type: str
  nodes:
    description: Host names of the nodes.
    type: list
    elements: str
  topology:
    description:
      - Fabric cabling. V(direct) joins each port of two nodes to the same port of the other, V(ring) port 0 of each of
        three nodes or more to port 1 of the next, V(switch) port 0 of all to one switch and port 1 of all to another.
      - V(auto) is V(direct) for two Sparks, and V(switch) otherwise.
      - Each topology of the fabric with QSFP ports is valid.
    type: str
    default: auto
  thors:
    description:
      - The O(nodes) that are Jetson Thors. Their one fabric interface, C(mgbe0_0), is on the switch of the Sparks' port
        0, so they need O(topology=switch).
    type: list
    elements: str
    default: []
  servers:
    description: Further hosts, after the O(nodes), with the management port alone.
    type: list
    elements: str
    default: []
  virtual:
    description:
      - Whether the nodes are virtual machines with kernels of their own, run by QEMU without hardware acceleration.
      - O(base) is then a disk in the format qcow2, and must stay there. They share no files, so O(binds) must be empty.
    type: bool
    default: false
  base:
    description: Tar file of the shared root file system. Its name must change with its content.
    type: path
  firmware:
    description: The script that boots a node and turns it off.
    type: path
  files:
    description: Files and folders to copy into every node.
    type: list
    elements: dict
    default: []
    suboptions:
      src:
        description: File or folder on this machine.
        type: path
        required: true
      dest:
        description: Absolute path inside the nodes.
        type: str
        required: true
  binds:
    description: Files, folders and devices of this machine that nodes share. Unlike O(files) they are not copied.
    type: list
    elements: dict
    default: []
    suboptions:
      src:
        description: File or folder on this machine.
        type: path
        required: true
      dest:
        description: Absolute path inside the nodes.
        type: str
        required: true
      writable:
        description: Whether the nodes may write to it. A missing folder is created.
        type: bool
        default: false
      nodes:
        description: The O(nodes) that share it. Empty for all of them.
        type: list
        elements: str
        default: []
  owner:
    description: Numeric ID of the user who runs Ansible against the nodes and may use the lab's login key.
    type: int
    default: 0
  timeout:
    description: Seconds to wait for the nodes' sshd, and for another run that changes the same lab.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
    description: Reports the nodes that would be created, booted or removed, and changes nothing.
  diff_mode:
    support: full
    description: Shows the nodes before and after, and the action for each.
"""

EXAMPLES = r"""
- name: Two Sparks joined by DAC cables
  gb10.lab.hosts:
    name: demo
    directory: /var/lib/gb10-lab/demo
    prefix: 10.88.0
    nodes: [spark1, spark2]
    base: /var/cache/gb10-lab/base-bookworm-0123456789ab.tar
    firmware: /var/cache/gb10-lab/power.sh

- name: Remove the lab
  gb10.lab.hosts:
    name: demo
    directory: /var/lib/gb10-lab/demo
    state: absent
"""

RETURN = r"""
actions:
  description: Action on each node (in check mode, the planned one) - keep, cable, boot, create, recreate or remove.
  type: dict
  returned: success
  sample: {"spark1": "keep", "spark2": "boot"}
nodes:
  description: Address, network namespace and machine name of each node.
  type: dict
  returned: when O(state=present)
  sample: {"spark1": {"address": "10.88.0.11", "netns": "demo-spark1", "machine": "demo-spark1"}}
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.lab.plugins.module_utils.io_build import LabBuilder
from ansible_collections.gb10.lab.plugins.module_utils.plan import Bind, LabError, actions, plan


def present(module: AnsibleModule, builder: LabBuilder) -> dict[str, Any]:
    params = module.params
    kinds = {name: params[name] for name in ("thors", "servers", "virtual")}
    lab = plan(params["name"], params["prefix"], params["nodes"], params["topology"], **kinds)
    binds = [Bind(**bind) for bind in params["binds"]]
    if params["virtual"] and binds:
        raise LabError("lab_binds: virtual machines share no files with this one: copy them with lab_files")
    builder.check(lab)
    if not module.check_mode:
        builder.check_sources([params["base"], params["firmware"], *(f["src"] for f in params["files"])], binds)
        builder.mark(lab)
        builder.make_keys(lab, params["owner"])
    wanted = builder.stamps(lab, params["base"], params["firmware"], params["files"], binds)
    todo = actions(lab, wanted, builder.observe())
    if not module.check_mode:
        for name, action in todo.items():
            if action in ("recreate", "remove"):
                builder.remove_node(name)
        base = Path(params["base"]) if params["virtual"] else builder.unpack_base(params["base"])
        builder.install_firmware(params["firmware"])
        for node in lab.nodes:
            if todo[node.name] in ("create", "recreate"):
                builder.create(lab, node, base, params["files"], binds, wanted[node.name])
        builder.cable(lab)
        for node in lab.nodes:
            if todo[node.name] in ("create", "recreate", "boot"):
                builder.power_on(node)
        builder.wait(lab.nodes, params["timeout"])
    nodes = {n.name: {"address": n.address, "netns": n.netns, "machine": n.machine} for n in lab.nodes}
    return {"actions": todo, "nodes": nodes}


def absent(module: AnsibleModule, builder: LabBuilder) -> dict[str, Any]:
    todo = dict.fromkeys(builder.observe(), "remove")
    there = builder.exists()
    if there and not module.check_mode:
        builder.destroy()
    return {"actions": todo, "changed": there}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "name": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "prefix": {"type": "str"},
            "nodes": {"type": "list", "elements": "str"},
            "topology": {"type": "str", "default": "auto"},
            "thors": {"type": "list", "elements": "str", "default": []},
            "servers": {"type": "list", "elements": "str", "default": []},
            "virtual": {"type": "bool", "default": False},
            "base": {"type": "path"},
            "firmware": {"type": "path"},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"src": {"type": "path", "required": True}, "dest": {"type": "str", "required": True}},
            },
            "binds": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "src": {"type": "path", "required": True},
                    "dest": {"type": "str", "required": True},
                    "writable": {"type": "bool", "default": False},
                    "nodes": {"type": "list", "elements": "str", "default": []},
                },
            },
            "owner": {"type": "int", "default": 0},
            "timeout": {"type": "int", "default": 120},
        },
        required_if=[("state", "present", ["prefix", "nodes", "base", "firmware"])],
        supports_check_mode=True,
    )
    # The nodes' folders become part of their root file systems, so ignore the caller's umask.
    os.umask(0o022)
    try:
        builder = LabBuilder(module.params["name"], module.params["directory"], module.run_command)
        with builder.exclusive(module.params["timeout"]):
            result = present(module, builder) if module.params["state"] == "present" else absent(module, builder)
    except LabError as error:
        module.fail_json(msg=str(error))
    todo = result["actions"]
    result.setdefault("changed", any(action != "keep" for action in todo.values()))
    before = "".join(f"{name}\n" for name, action in sorted(todo.items()) if action != "create")
    after = "".join(f"{name}\n" for name, action in sorted(todo.items()) if action != "remove")
    for name, action in sorted(todo.items()):
        if action in ("boot", "cable", "recreate"):
            after = after.replace(f"{name}\n", f"{name}: {action}\n")
    module.exit_json(diff={"before": before, "after": after}, **result)


if __name__ == "__main__":
    main()

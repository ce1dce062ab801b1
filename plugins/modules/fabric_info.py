#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fabric_info
short_description: Read a node's network hardware and the owners of its interfaces
version_added: 0.1.0
description:
  - Reads interfaces, PCIe links, RDMA devices and their GIDs from sysfs and C(ip -json), and finds the netplan file or
    NetworkManager profile that configures each interface.
  - Needs root for the netplan files and profiles, which other users cannot read. Lists the files that it could not
    read. Returns only names from their content.
requirements:
  - python3-yaml on the node where it has netplan files (C(netplan.io) depends on it)
options:
  root:
    description: Folder with the file system of a recorded machine, and the output of C(ip -json address show) in
      C(ip-address.json).
    type: path
    default: /
seealso:
  - module: gb10.cluster.netplan_apply
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the fabric
  gb10.cluster.fabric_info:
  become: true
  register: fabric
"""

RETURN = r"""
interfaces:
  description: The network interfaces by name. Each value has the keys below.
  returned: always
  type: dict
  contains:
    mtu:
      description: MTU in bytes.
      type: int
    mac:
      description: Hardware address, null if it has none.
      type: str
    up:
      description: Whether it was set up.
      type: bool
    carrier:
      description: Whether the link is present. Always false if the interface is not up.
      type: bool
    addresses:
      description: IPv4 addresses with prefix length.
      type: list
      elements: str
      sample: [10.110.0.1/24]
    link_local:
      description: IPv6 link-local address, empty if none.
      type: str
    driver:
      description: The kernel's driver, empty if none.
      type: str
      sample: mlx5_core
    speed:
      description: Speed of the link in Mb/s, null without carrier.
      type: int
    kind:
      description: C(physical) with a device behind it, else C(virtual).
      type: str
    pci:
      description: The PCIe link, as I(address), I(width) and I(max_width) in lanes, I(speed) and I(max_speed); null if
        it is on no PCI bus.
      type: dict
      sample: {address: "0000:01:00.1", width: 4, max_width: 4, speed: 32.0 GT/s PCIe, max_speed: 32.0 GT/s PCIe}
    hca:
      description: The RDMA device, empty if none.
      type: str
      sample: rocep1s0f1
    owners:
      description:
        - The definitions that configure it, with I(file), I(id) of the definition or profile, and I(kind). The kind is
          netplan's (C(ethernets), C(wifis), C(bonds), C(bridges), C(vlans) and so on) or C(NetworkManager).
        - I(by) is C(name), C(match), or C(member) for the bond, bridge, VRF or VLAN that uses it.
      type: list
      elements: dict
      sample: [{file: /etc/netplan/40-cx7.yaml, id: enp1s0f1np1, kind: ethernets, by: name}]
rdma:
  description: The first port of each RDMA device, by the device's name. Each value has the keys below.
  returned: always
  type: dict
  contains:
    interface:
      description: The network interface of the same device, empty if none.
      type: str
    state:
      description: State of the port.
      type: str
      sample: ACTIVE
    link_layer:
      description: C(Ethernet) or C(InfiniBand).
      type: str
    gids:
      description: The GIDs that are set, each with I(index), I(gid), I(type) (C(RoCE v1) or C(RoCE v2)) and
        I(interface).
      type: list
      elements: dict
      sample: [{index: 3, gid: "0000:0000:0000:0000:0000:ffff:0a6e:0001", type: RoCE v2, interface: enp1s0f1np1}]
netplan:
  description: The files that netplan merges, in netplan's order.
  returned: always
  type: list
  elements: str
unreadable:
  description: Files and folders that could not be read or parsed, so that owners may be missing.
  returned: always
  type: list
  elements: dict
  contains:
    file:
      description: The path.
      type: str
    reason:
      description: The reason.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    try:
        module.exit_json(changed=False, **fabric_io_facts.read(runner(module), module.params["root"]))
    except ImportError as error:
        module.fail_json(msg=missing_required_lib(f"python3-{error.name}", reason="to read netplan's files"))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()

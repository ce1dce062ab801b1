#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fabric_neighbors_info
short_description: Find the neighbors on a node's QSFP cables
version_added: 0.1.0
description:
  - Pings all nodes (ff02::1) on every QSFP interface with carrier and reads the neighbor table. On interfaces with IPv4
    addresses, it also queries the known IPv4 neighbors. Only neighbors that reply now count.
  - Adds facts from lldpctl and avahi-browse where they are installed; lldpctl needs root. Queries all interfaces at
    once.
  - Reads each neighbor's SSH host key over the cable. The key also shows whether two PCIe functions belong to one
    machine.
seealso:
  - module: gb10.cluster.fabric_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Find the neighbors on the cables
  gb10.cluster.fabric_neighbors_info:
  register: cables
"""

RETURN = r"""
hostname:
  description: The node's name, without domain.
  returned: success
  type: str
interfaces:
  description: For each network interface its mtu, mac, up, carrier and IPv4 addresses with prefix length.
  returned: success
  type: dict
management:
  description: The IPv4 address of the default route's interface, else of the SSH connection, else of RJ45 or Wi-Fi;
    empty if none.
  returned: success
  type: str
neighbors:
  description:
    - For each QSFP interface with carrier, a list of neighbors with the keys C(mac), C(address), C(source), C(name),
      C(management) and C(host_key).
    - C(address) reaches the neighbor from this node, with zone; it is empty if only LLDP reports the neighbor.
      C(source) is V(ndp), V(arp) or V(lldp). C(name) and C(management) are announced values, else empty. C(host_key) is
      the ed25519 key, else empty.
  returned: success
  type: dict
  sample:
    enp1s0f1np1:
      - mac: 4c:bb:47:00:00:03
        address: fe80::4ebb:47ff:fe00:3%enp1s0f1np1
        source: ndp
        name: spark-2f1c
        management: ""
        host_key: ssh-ed25519 AAAA...
notes:
  description: Installed programs whose data could not be read, and the reason.
  returned: success
  type: list
  elements: str
unheard:
  description: The interfaces with carrier and without results, and the reason.
  returned: success
  type: dict
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import io_neighbors
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node

#: Seconds that one command may take.
_TIMEOUT = 10


def main() -> None:
    """Return the neighbors."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        interfaces = io_node.interfaces(runner(module))
        found = io_neighbors.read(parallel_runner(module, _TIMEOUT), interfaces)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, hostname=socket.gethostname().partition(".")[0], interfaces=interfaces, **found)


if __name__ == "__main__":
    main()

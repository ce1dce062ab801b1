#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fabric_neighbours
short_description: Say who is at the other end of a node's QSFP cables
version_added: 0.1.0
description:
  - Pings all nodes (ff02::1) on every QSFP interface with carrier and reads the neighbour table; where an interface has IPv4 addresses,
    those that it has spoken to are asked too. Only what answers now counts.
  - Adds what lldpctl and avahi-browse know where they are installed; lldpctl needs root. All interfaces are asked at once.
  - Reads each neighbour's SSH host key over the cable, which also tells the twins of one machine from two machines.
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Ask who is on the cables
  gb10.cluster.fabric_neighbours:
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
  description: The IPv4 address of the default route's interface, else the one that SSH came in by, else that of RJ45 or Wi-Fi; empty if none.
  returned: success
  type: str
neighbours:
  description:
    - For each QSFP interface with carrier a list of C(mac), C(address) (how to reach it from this node, with zone; empty if only LLDP knows it),
      C(source) (V(ndp), V(arp) or V(lldp)), C(name) and C(management) (as announced, else empty), and C(host_key) (ed25519, else empty).
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
  description: What could not be read although it is installed, and why.
  returned: success
  type: list
  elements: str
unheard:
  description: The interfaces with carrier of which nothing can be said, and why.
  returned: success
  type: dict
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import io_neighbors as io_neighbours
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node

#: Seconds that one command may take.
_TIMEOUT = 10


def main() -> None:
    """Ask and return."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        interfaces = io_node.interfaces(runner(module))
        found = io_neighbours.read(parallel_runner(module, _TIMEOUT), interfaces)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, hostname=socket.gethostname().partition(".")[0], interfaces=interfaces, **found)


if __name__ == "__main__":
    main()

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
  - The answer of a machine at the other end of a cable is untrusted. The action plugin of this name returns only the
    fields that it validated.
  - Does not fail if the machine cannot be queried; RV(machine) has the reason.
requirements:
  - netaddr on the controller
options:
  machine:
    description: The machine to query, if it was found on a cable, as M(gb10.cluster.discovery_plan) returns it. The
      default is the host, with its login settings for ssh.
    type: dict
    default: {}
  direct:
    description: Whether to verify only the login, for a host with the management address of O(machine).
    type: bool
    default: false
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
machine:
  description: The machine, with its answer.
  returned: always
  type: dict
  contains:
    name:
      description: Its name in this run.
      type: str
    address:
      description: Its address; on a cable with the interface of the machine that sees it.
      type: str
    login:
      description: The C(user), C(key), C(port) and C(arguments) of ssh, and whether it is the controller (C(local)).
      type: dict
    unreachable:
      description: Why it could not be queried, else empty.
      type: str
    invalid:
      description: Each problem of its answer.
      type: list
      elements: dict
    direct:
      description: Why the controller does not reach its management address, else empty. Only for a machine on a cable.
      type: str
    observed:
      description: Its answer, empty without one or with a problem.
      type: dict
      contains:
        hostname:
          description: Its name, without domain.
          type: str
        interfaces:
          description: For each network interface its C(mac), C(up) and C(carrier).
          type: dict
        management:
          description: The IPv4 address of the default route's interface, else of the SSH connection, else of RJ45 or
            Wi-Fi; empty if none.
          type: str
        neighbors:
          description:
            - For each QSFP interface with carrier, a list of neighbors with the keys C(mac), C(address), C(name) and
              C(host_key).
            - C(address) reaches the neighbor from this machine, with zone; it is empty if only LLDP reports the
              neighbor. C(name) is an announced value, else empty. C(host_key) is the ed25519 key, else empty.
          type: dict
          sample:
            enp1s0f1np1:
              - mac: 4c:bb:47:00:00:03
                address: fe80::4ebb:47ff:fe00:3%enp1s0f1np1
                name: spark-2f1c
                host_key: ssh-ed25519 AAAA...
        notes:
          description: Installed programs whose data could not be read, and the reason.
          type: list
          elements: str
        unheard:
          description: The interfaces with carrier and without results, and the reason.
          type: dict
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import io_neighbors
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: Seconds that one command may take.
_TIMEOUT = 10


def main() -> None:
    """Return the neighbors."""
    # Only the action uses the options.
    options = {"machine": {"type": "dict", "default": {}}, "direct": {"type": "bool", "default": False}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    try:
        interfaces = node_io_facts.interfaces(runner(module))
        found = io_neighbors.read(parallel_runner(module, _TIMEOUT), interfaces)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, hostname=socket.gethostname().partition(".")[0], interfaces=interfaces, **found)


if __name__ == "__main__":
    main()

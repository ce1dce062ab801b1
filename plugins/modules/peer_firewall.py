#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: peer_firewall
short_description: Restrict cluster ports to cluster peers with an nftables table (auto-rollback)
version_added: 0.1.0
description:
  - Loads the table C(inet gb10), which rejects incoming traffic except from peers, to SSH, to the API, to open ports,
    and replies.
  - Changes no other table, no other tool's files, and no traffic that is forwarded to containers.
  - New rules are removed automatically unless they are confirmed. The action plugin of this module confirms them over a
    new SSH connection from another host. Without such a connection, as with C(ansible_connection=local), the module
    refuses new rules.
  - Services that open ports to peers and clients do not start without the table. It is loaded again if
    C(nftables.service) flushes it.
  - If ufw, firewalld or other rules control incoming traffic, the module only returns the traffic that they must allow,
    and removes its own table. If they control one address family only, the table does not filter that family.
options:
  state:
    description: Whether the table exists.
    type: str
    choices: [present, absent]
    default: present
  peers:
    description: The incoming interface and the address of each peer.
    type: list
    elements: dict
    default: []
    suboptions:
      interface:
        description: The network device.
        type: str
        required: true
      address:
        description: The IPv4 address.
        type: str
        required: true
  peer_ports:
    description: The fixed ports that peers use, by name, for the advice about another firewall.
    type: dict
    default: {}
  api_port:
    description: The port of the API, 0 without an API.
    type: int
    default: 0
  api_clients:
    description: Addresses and networks that may reach the API; empty for all.
    type: list
    elements: str
    default: []
  wake_port:
    description: The port that wakes a resting model, 0 without one. Clients of the API reach it.
    type: int
    default: 0
  open_ports:
    description: Further ports, such as C(8443/tcp) or C(60000-61000/udp).
    type: list
    elements: str
    default: []
  interfaces:
    description:
      - Trusted interfaces, such as those of the host's own containers; C(*) matches the rest of a name.
      - An entry with C(*) must not match an interface with the default route, of a hardware port, of the cluster, or
        of this run's connection.
    type: list
    elements: str
    default: []
  monitoring_ports:
    description: TCP ports of metrics, open to O(monitoring_clients) only.
    type: list
    elements: int
    default: []
  monitoring_clients:
    description: Addresses and networks that may read metrics; empty for none.
    type: list
    elements: str
    default: []
  served_ports:
    description: Ports of the ranks' services, such as V(8000) or V(20000-20999). Only O(service_user), root, and the
      members of groups that may become root can serve on them.
    type: list
    elements: str
    default: []
  service_user:
    description: The user of the ranks' services; without it, O(served_ports) has no effect.
    type: str
    default: ""
  confirm_timeout:
    description: Seconds after which new rules are removed unless they are confirmed.
    type: int
    default: 60
  confirm:
    description: Whether this call verifies that new connections work. For the action plugin and the role only.
    type: bool
    default: false
  client:
    description: The address of the SSH client of this call's connection. For the action plugin only.
    type: str
    default: ""
  witness:
    description:
      - The node that verifies new connections in place of Ansible, which runs on this host. Empty without one.
      - New rules then stay RV(pending) until a call with O(confirm=true).
    type: str
    default: ""
  planned:
    description: Whether the action plugin takes the other options from C(gb10_plan) and the settings of C(gb10_inputs).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.fabric_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Restrict access to the head
  gb10.cluster.peer_firewall:
    peers:
      - interface: enp1s0f1np1
        address: 10.110.0.2
    api_port: 8000
  become: true

- name: Remove the restrictions
  gb10.cluster.peer_firewall:
    state: absent
  become: true
"""

RETURN = r"""
active_firewall:
  description: The other firewalls that control all incoming traffic, empty without them.
  returned: always
  type: str
active_firewalls:
  description: The other firewall that controls incoming traffic, by family C(ip) or C(ip6), empty without one.
  returned: always
  type: dict
installed:
  description: Whether nft is installed.
  returned: always
  type: bool
advice:
  description: The traffic that those firewalls must allow.
  returned: always
  type: list
  elements: str
ssh_ports:
  description: The ports on which SSH servers listen, which stay open.
  returned: always
  type: list
  elements: int
matches:
  description: The interfaces that each entry of O(interfaces) matches now.
  returned: always
  type: dict
closed:
  description: The listeners that only peers can reach, without the cluster's own services.
  returned: always
  type: list
  elements: str
published:
  description: The ports that containers publish, which stay open to all hosts, because forwarded traffic is not
    filtered.
  returned: always
  type: list
  elements: str
due:
  description: Whether the host differs from the plan. The role's comparison in check mode reports it, because that task
    never counts as changed.
  returned: always
  type: bool
pending:
  description: Whether new rules wait for confirmation.
  returned: always
  type: bool
api_port:
  description: The port of the API, 0 without an API.
  returned: always
  type: int
witness:
  description: The node that verifies new connections, empty without one.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables, io_rules


def main() -> None:
    """Compare, load, confirm or remove the rules."""
    module = AnsibleModule(
        argument_spec={**io_rules.ARGUMENTS, "planned": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    try:
        host = io_rules.Host(runner(module), module.get_bin_path("nft") or "", module.check_mode)
        module.exit_json(**io_rules.outcome(host, module.params))
    except (ProblemsError, io_nftables.FirewallError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()

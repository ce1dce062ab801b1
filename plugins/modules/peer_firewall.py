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
  planned:
    description: Whether O(peers), O(peer_ports), O(api_port), O(api_clients) and O(witness) come from the fact
      C(gb10_plan) of this host. For the action plugin.
    type: bool
    default: false
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import host as firewall_host
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import published as firewall_published
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts


def main() -> None:
    """Compare, load, confirm or remove the rules."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "planned": {"type": "bool", "default": False},
            "peers": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "interface": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                },
            },
            "peer_ports": {"type": "dict", "default": {}},
            "api_port": {"type": "int", "default": 0},
            "api_clients": {"type": "list", "elements": "str", "default": []},
            "open_ports": {"type": "list", "elements": "str", "default": []},
            "interfaces": {"type": "list", "elements": "str", "default": []},
            "confirm_timeout": {"type": "int", "default": 60},
            "confirm": {"type": "bool", "default": False},
            "client": {"type": "str", "default": ""},
            "witness": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**outcome(module))
    except (ProblemsError, io_nftables.FirewallError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


def outcome(module: Any) -> dict[str, Any]:
    """Return the module's result. Raises ProblemsError, FirewallError, ValueError or OSError."""
    run, params = runner(module), module.params
    access = firewall_plan.Access(
        [(peer["interface"], peer["address"]) for peer in params["peers"]],
        params["api_port"],
        params["api_clients"],
        params["open_ports"],
        params["interfaces"],
    )
    installed, active_firewalls = io_nftables.active_firewalls(run)
    listeners, links, forwarded = node_io_facts.listeners(), io_nftables.links(run), io_nftables.published_ports(run)
    ssh = io_nftables.ssh_ports(run, listeners)
    other_host, came_by = io_nftables.entrance(run, params["client"])
    unverified = [] if other_host or params["witness"] else [firewall_host.unverified(params["client"])]
    present = params["state"] == "present"
    active_firewall = " and ".join(dict.fromkeys(active_firewalls.values())) if all(active_firewalls.values()) else ""
    wanted = present and not active_firewall
    problems = firewall_plan.check(access)
    if wanted:
        problems += firewall_host.problems(access, links, ssh, came_by)
        problems += unverified if problems else []
    refuse(problems)
    result = {
        "active_firewall": active_firewall,
        "active_firewalls": active_firewalls,
        "installed": installed,
        "advice": firewall_plan.advice(active_firewalls, access, params["peer_ports"]) if present else [],
        "ssh_ports": ssh,
        "matches": firewall_host.matches(access, links),
        "closed": firewall_host.closed(listeners, access, ssh, forwarded) if wanted else [],
        "published": [firewall_published.shown(port) for port in forwarded],
        "pending": False,
        "api_port": params["api_port"],
        "witness": params["witness"],
    }
    if not wanted:
        return {**result, **_remove(module, run, installed)}
    text = firewall_plan.ruleset(access, ssh, [family for family, other in active_firewalls.items() if other])
    load = _load if installed else _load_later
    return {**result, **load(module, run, text, unverified)}


def _remove(module: Any, run: Run, installed: bool) -> dict[str, Any]:
    """Remove the collection's rules. Returns part of the result."""
    found = io_nftables.existing_objects(run) if installed else []
    if found and not module.check_mode:
        io_nftables.remove(run)
    return _change("".join(f"{line}\n" for line in found), "", bool(found))


def _load_later(module: Any, _run: Run, text: str, unverified: list[Problem]) -> dict[str, Any]:
    """Return part of the result on a host without nft, which the role installs only outside check mode."""
    refuse(unverified)
    if not module.check_mode:
        raise io_nftables.FirewallError("nft is not installed: install the package nftables")
    return _change("", text, True)


def _load(module: Any, run: Run, text: str, unverified: list[Problem]) -> dict[str, Any]:
    """Compare the rules with those on the host, then load, confirm or save them. Returns part of the result."""
    nft = module.get_bin_path("nft", required=True)
    files = io_nftables.files(nft, text)
    before, after = io_nftables.loaded_ruleset(run), io_nftables.normalize(run, text)
    # Loaded rules without a file are left from a killed run.
    new = before != after or bool(io_nftables.pending(run)) or not io_nftables.confirmed(text)
    changed_files = io_nftables.changed_files(run, files)
    due = new or bool(changed_files)
    if new:
        refuse(unverified)
    pending = new and not module.params["confirm"] and not module.check_mode
    if pending:
        io_nftables.attempt(run, nft, text, module.params["confirm_timeout"])
    elif due and not module.check_mode:
        if before != after:
            raise io_nftables.FirewallError("the rules to confirm are no longer loaded")
        io_nftables.save(run, nft, files)
    return {**_change(before, after + "".join(f"# {line}\n" for line in changed_files), due), "pending": pending}


def _change(before: str, after: str, due: bool) -> dict[str, Any]:
    return {"changed": due, "due": due, "diff": {"before": before, "after": after}}


if __name__ == "__main__":
    main()

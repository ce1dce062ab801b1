# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check whether an address can be a node's VLLM_HOST_IP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

_REMOVE = "remove it: ip address show and /etc/netplan on {} show where {} has it from"


def check(
    node: str,
    address: str,
    interface: str,
    nodes: Mapping[str, str],
    interfaces: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Mapping[str, Mapping[str, Any]]],
    of_ray: str = "",
) -> list[Problem]:
    """Return all problems of `address` as VLLM_HOST_IP of `node`, from sources that do not depend on each other.

    `nodes` maps every node to its planned address; `interfaces` are those of `node` now, as io_node.interfaces returns
    them, and `others` those of other nodes. `of_ray` is the address that a Ray that stays registered for the node, ""
    without one. vLLM compares the addresses of its ranks with each other and with Ray's (ray_executor.py).
    """
    path = f"nodes[{node}].VLLM_HOST_IP"
    problems = [
        Problem(path, f"{address} is also the address of {other}", "a unique address", "correct gb10_fabric_addresses")
        for other, other_address in nodes.items()
        if other != node and other_address == address
    ]
    for other, found in others.items():
        # Facts from before a change of addresses do not have the planned one.
        if other != node and nodes.get(other) not in (None, address) and _carriers(nodes[other], found):
            problems += [
                Problem(path, f"{other} has {address} on {name} now", "a unique address", _REMOVE.format(other, name))
                for name in _carriers(address, found)
            ]
    if of_ray not in ("", address):
        differs = f"{address}, but Ray registered {node} with {of_ray}"
        problems.append(Problem(path, differs, "the same address", "run systemctl restart gb10-ray on this node"))
    carriers = _carriers(address, interfaces)
    if interface not in carriers:
        where = f"it is on {', '.join(carriers)}" if carriers else "no interface carries it"
        present = ", ".join(interfaces[interface]["addresses"]) if interface in interfaces else "which does not exist"
        problems.append(
            Problem(
                path,
                f"{address} is not on {interface} ({present or 'which has no address'}); {where}",
                f"{address} on {interface}",
                "rerun with --tags qsfp_netplan",
            )
        )
    return problems


def _carriers(address: str, interfaces: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the interfaces that have an address."""
    return [
        name
        for name, found in interfaces.items()
        if address in (entry.split("/")[0] for entry in found.get("addresses", ()))
    ]

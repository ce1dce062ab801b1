# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check whether an address can be a node's VLLM_HOST_IP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.common.systemd import environment_file


def check(
    node: str,
    address: str,
    interface: str,
    ray_node_ip_address: str,
    nodes: Mapping[str, str],
    interfaces: Mapping[str, Mapping[str, Any]],
) -> list[Problem]:
    """Return all problems of `address` as VLLM_HOST_IP of `node`.

    `nodes` maps every node to its address; `interfaces` are those of `node`, as io_node.interfaces returns them.
    vLLM compares the addresses of its ranks with each other and, in some releases, with Ray's (ray_executor.py), so all
    must agree.
    """
    path = f"nodes[{node}].VLLM_HOST_IP"
    problems = [
        Problem(path, f"{address} is also the address of {other}", "a unique address", "correct gb10_fabric_addresses")
        for other, other_address in nodes.items()
        if other != node and other_address == address
    ]
    if nodes.get(node) != address:
        differs = f"{address}, but the cluster's address of {node} is {nodes.get(node)}"
        problems.append(Problem(path, differs, "the same address", "rerun the play for all nodes"))
    if ray_node_ip_address != address:
        fix = "remove --node-ip-address from ray_cluster_args"
        problems.append(Problem(path, f"{address}, but Ray uses {ray_node_ip_address}", "the same address", fix))
    carriers = [
        name for name, found in interfaces.items() if address in (entry.split("/")[0] for entry in found["addresses"])
    ]
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


def text(environment: Mapping[str, Any], address: str) -> str:
    """Return the environment file of a node's ranks.

    Raises ValueError for a name or value that such a file cannot have.
    """
    return environment_file({**{name: str(value) for name, value in environment.items()}, "VLLM_HOST_IP": address})

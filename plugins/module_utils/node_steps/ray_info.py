# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the nodes of a Ray cluster on its head, and optionally wait for them.

Queries Ray's State API for nodes and actors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``expect``: Name and address of every node. With it, waits until Ray has exactly these nodes, each with its GPUs,
    and verifies that Ray rejects a request without the token.
    ``gpus``: GPUs that each node must provide.
    ``timeout``: Maximum seconds to wait.
    ``dashboard_port``: Port of Ray's dashboard on loopback.
    ``token_path``: File on the head that contains the cluster's token.
    """

    expect: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 1
    timeout: int = 0
    dashboard_port: int = 8265
    token_path: str = field(default=paths.RAY_TOKEN, metadata={"type": "path"})


def run(_module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {nodes, actors}.

    ``nodes``: Every node in Ray, including dead ones, as {address, state, resources}.
    ``actors``: Every living actor, as {address, name, pid}: its node, its class and its process.
    """
    port, token_path = given.dashboard_port, given.token_path
    try:
        if given.expect:
            rows = io_ray.wait(given.expect, given.gpus, port, token_path, given.timeout)
        else:
            rows = io_ray.listing("nodes", port, token_path)
        actors = io_ray.listing("actors", port, token_path)
    except io_ray.RayError as error:
        raise ValueError(f"Ray is not complete: {error}") from error
    addresses = {row["node_id"]: row["node_ip"] for row in rows}
    return {
        "changed": False,
        "nodes": [
            {"address": row["node_ip"], "state": row["state"], "resources": row["resources_total"]} for row in rows
        ],
        "actors": [
            {"address": addresses.get(row["node_id"], ""), "name": row["class_name"], "pid": row["pid"]}
            for row in actors
            if row["state"] == "ALIVE"
        ],
    }

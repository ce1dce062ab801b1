# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the nodes and actors of the running Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray

#: The options of the module ray_info, which documents them.
ARGUMENTS: dict[str, Any] = {
    "expect": {"type": "dict", "default": {}},
    "gpus": {"type": "int", "default": 1},
    "timeout": {"type": "int", "default": 0},
    "dashboard_port": {"type": "int", "default": 8265},
    "token_path": {"type": "path", "default": paths.RAY_TOKEN, "no_log": False},
}


def read(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of module ray_info. Raises io_ray.RayError."""
    port, token_path = params["dashboard_port"], params["token_path"]
    if params["expect"]:
        rows = io_ray.wait(params["expect"], params["gpus"], port, token_path, params["timeout"])
    else:
        rows = io_ray.listing("nodes", port, token_path)
    actors = io_ray.listing("actors", port, token_path)
    addresses = {row["node_id"]: row["node_ip"] for row in rows}
    return {
        "nodes": [
            {"address": row["node_ip"], "state": row["state"], "resources": row["resources_total"]} for row in rows
        ],
        "actors": [
            {"address": addresses.get(row["node_id"], ""), "name": row["class_name"], "pid": row["pid"]}
            for row in actors
            if row["state"] == "ALIVE"
        ],
    }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pure planners as filters, for roles and playbooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.module_utils import cluster, fabric, launch
from ansible_collections.gb10.cluster.plugins.module_utils.problems import report


def _plain(data: Any) -> Any:
    """Copy Ansible's lazy and tagged containers into plain ones, which json and dataclasses accept."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [_plain(value) for value in data]
    return data


def cluster_plan(nodes: Sequence[Any], lock_digest: str, known_variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return {plan, problems, report}; see module_utils/cluster.py for the shape of a node."""
    plan, problems = cluster.plan(_plain(nodes), str(lock_digest), _plain(known_variables))
    return {"plan": plan, "problems": [str(problem) for problem in problems], "report": report(problems)}


def node_plan(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the plan as one node sees it: the cluster's, with the node's own part under `node`."""
    for node in plan["nodes"]:
        if node["name"] == name:
            return {**_plain(plan), "node": _plain(node)}
    raise AnsibleFilterError(f"the plan has no node {name!r}")


def fabric_drift(plan: Mapping[str, Any], interfaces: Mapping[str, Any]) -> list[str]:
    """Return how the node's interfaces differ from its plan, a sentence each."""
    return fabric.drift(_plain(plan["node"]["rails"]), plan["mtu"], _plain(interfaces))


def ray_service(plan: Mapping[str, Any], object_store_memory: int, args: Sequence[str] = (), token: str = "") -> dict[str, Any]:
    """Return what the unit of Ray is written from, for the plan's node."""
    plain = _plain(plan)
    argv = launch.ray_argv(plain, object_store_memory, _plain(args))
    return launch.service(argv, {}, plain["node"]["environment"], plain["user"], plain["runtime"]["digest"], launch.digest(str(token)))


def vllm_service(plan: Mapping[str, Any], args: Sequence[str] = (), token: str = "") -> dict[str, Any]:
    """Return what the unit of vLLM is written from. Its digest covers every node's environment: each rank inherits its own."""
    plain = _plain(plan)
    argv = launch.vllm_argv(plain, _plain(args))
    environment = {"RAY_ADDRESS": f"{plain['head']['address']}:{plain['ray_port']}"}
    ranks = {node["name"]: node["environment"] for node in plain["nodes"]}
    return launch.service(argv, environment, ranks, plain["user"], plain["runtime"]["digest"], launch.digest(str(token)))


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "cluster_plan": cluster_plan,
            "fabric_drift": fabric_drift,
            "node_plan": node_plan,
            "ray_service": ray_service,
            "vllm_service": vllm_service,
        }

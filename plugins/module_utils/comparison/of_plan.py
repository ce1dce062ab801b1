# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a node that module node_info compares with the plan, each by the name of its role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch import of_plan as patch_of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


@dataclass(frozen=True)
class Compared:
    """The roles' variables that comparisons read."""

    peer_firewall_enabled: bool
    peer_firewall_open_ports: Sequence[str]
    peer_firewall_gateway_port: int
    peer_firewall_trusted_interfaces: Sequence[str]
    peer_firewall_confirm_timeout: int
    monitoring_enabled: bool
    monitoring_clients: Sequence[str]
    monitoring_port: int
    qsfp_netplan_state: str
    qsfp_netplan_apply_timeout: int
    qsfp_netplan_confirm_timeout: int
    vllm_patch_patches: Sequence[str]
    vllm_patch_state: str
    vllm_patch_mechanism: str
    vllm_patch_capability: str
    vllm_patch_image: str
    vllm_patch_quantization: str
    vllm_serve_probe_timeout: int
    vllm_serve_request_timeout: int
    vllm_serve_smoke_meaning: bool


@dataclass(frozen=True)
class Controller:
    """The controller's facts besides the plan.

    ``client``: its source address for the node, "" without SSH. ``local``: whether it runs on the node.
    ``netplan``: the text of the planned netplan file. ``copy``: the result of module vllm_image_extract, {} without it.
    ``first``: whether no role has changed the node yet. ``requests``: whether a running model may get requests.
    """

    client: str
    local: bool
    netplan: str
    copy: Mapping[str, Any]
    first: bool
    requests: bool


def options(plan: Plan, settings: Compared, controller: Controller) -> dict[str, dict[str, Any]]:
    """Return the options of each part that the plan's node has: those of the module that changes or reads it.

    Before the first change, a part is left out that does not exist, such as vLLM before its installation.
    """
    found = {name: part(plan, settings, controller) for name, part in PARTS.items()}
    return {name: each for name, each in found.items() if each}


def _firewall(plan: Plan, settings: Compared, controller: Controller) -> dict[str, Any]:
    gateway = [f"{settings.peer_firewall_gateway_port}/tcp"] if settings.peer_firewall_gateway_port else []
    others = [node.name for node in plan.nodes if node.name != plan.node.name]
    return {
        **firewall_plan.of_plan(plan),
        "state": "present" if settings.peer_firewall_enabled else "absent",
        "open_ports": [*settings.peer_firewall_open_ports, *gateway],
        "interfaces": list(settings.peer_firewall_trusted_interfaces),
        "monitoring_ports": (
            monitoring_plan.ports(plan, settings.monitoring_port) if settings.monitoring_enabled else []
        ),
        "monitoring_clients": list(settings.monitoring_clients),
        "confirm_timeout": settings.peer_firewall_confirm_timeout,
        "client": controller.client,
        # Where Ansible itself runs, no connection of this run verifies access, so another node opens one.
        "witness": others[0] if controller.local and others else "",
    }


def _network(plan: Plan, settings: Compared, controller: Controller) -> dict[str, Any]:
    if not plan.node.rails:
        return {}
    return {
        "state": settings.qsfp_netplan_state,
        "content": controller.netplan,
        "files": dict(plan.node.files),
        "rails": [asdict(rail) for rail in plan.node.rails],
        "mtu": plan.mtu,
        "takeover": plan.takeover,
        "timeout": settings.qsfp_netplan_apply_timeout,
        "confirm_timeout": settings.qsfp_netplan_confirm_timeout,
        "probe": settings.qsfp_netplan_state == "present",
    }


def _patches(plan: Plan, settings: Compared, controller: Controller) -> dict[str, Any]:
    ready = plan.node.state.runtime_ready and plan.build.state != "missing" and not settings.vllm_patch_image
    place = patch_of_plan.place(plan, controller.copy)
    if not place or (controller.first and not ready):
        return {}
    auto = settings.vllm_patch_quantization == "auto"
    return {
        **place,
        "patches": list(settings.vllm_patch_patches),
        "state": settings.vllm_patch_state,
        "mechanism": settings.vllm_patch_mechanism,
        "quantization": plan.quantization if auto else settings.vllm_patch_quantization,
        **({"capability": settings.vllm_patch_capability} if settings.vllm_patch_capability else {}),
    }


def _ray(plan: Plan, _settings: Compared, controller: Controller) -> dict[str, Any]:
    if not plan.node.head or plan.executor != "ray" or _lacks(plan, argv.RAY, controller):
        return {}
    return {"expect": {node.name: node.address for node in plan.nodes}}


def _server(plan: Plan, settings: Compared, controller: Controller) -> dict[str, Any]:
    if not plan.node.head or _lacks(plan, argv.VLLM, controller):
        return {}
    smoke = {
        "kind": plan.kind,
        "dimension": plan.serve.dimension,
        "meaning": settings.vllm_serve_smoke_meaning,
        "max_tokens": plan.serve.smoke_tokens,
        "reasoning": plan.serve.reasoning,
        "timeout": settings.vllm_serve_request_timeout,
    }
    return {
        "url": plan.api.url,
        "server_name": plan.api.server_name,
        "model": plan.served_model_name,
        "timeout": settings.vllm_serve_probe_timeout,
        "key_file": paths.API_KEY[0],
        "smoke": smoke if controller.requests else {},
    }


def _lacks(plan: Plan, service: str, controller: Controller) -> bool:
    return controller.first and f"{service}.service" not in plan.node.state.units


#: By the role that changes the part.
PARTS: Mapping[str, Callable[[Plan, Compared, Controller], dict[str, Any]]] = {
    "peer_firewall": _firewall,
    "qsfp_netplan": _network,
    "vllm_patch": _patches,
    "ray_cluster": _ray,
    "vllm_serve": _server,
}

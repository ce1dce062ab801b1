# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the settings against the facts of a node: devices, files, listeners. plan.py documents the shape of a node."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import links as fabric_links
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.rdma import degraded
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch

RAY_UNIT, VLLM_UNIT = "gb10-ray.service", "gb10-vllm.service"
#: The interface whose addresses are local to the node.
_LOOPBACK = "lo"


def check(index: int, node: Mapping[str, Any], settings: Mapping[str, Any], devices: Sequence[topology.Twin]) -> list[Problem]:
    """Return the problems of the index-th node; ``devices`` are the node's devices for the fabric."""
    path, name, observed = f"nodes[{index}]", node["name"], node["observed"]
    problems = []
    if node["unreachable"]:
        problems.append(
            Problem(
                path,
                f"{name} ({node['address']}) cannot be read: {' '.join(node['unreachable'].split())}",
                "SSH login and sudo",
                f"run 'ssh {node['address']}'; then check ansible_host, ansible_user and the key",
            )
        )
    if node["unrecorded"]:
        fix = "run playbooks/plan.yml -e gb10_plan_save_facts=true once, while the nodes are reachable"
        found = f"{name} has no recorded facts: {node['unrecorded']} does not exist"
        problems.append(Problem(path, found, "the recorded result of node_info", fix))
    if observed:
        problems += _check_node(path, node, observed, settings)
        problems += _check_devices(path, node, observed["interfaces"], settings, devices)
    return problems


def _check_node(path: str, node: Mapping[str, Any], observed: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Problem]:
    name = node["name"]
    problems = []
    if not observed["gpu"]["gpus"]:
        problems.append(
            Problem(
                f"{path}.gpu",
                f"{name} has no visible GPU: {observed['gpu']['reason']}",
                "a GPU that nvidia-smi lists",
                "install or repair the driver",
            )
        )
    model = settings["gb10_model"]
    if model.startswith("/") and observed["model"] is None and not (node["store"]["enabled"] and node["store"]["source"]):
        problems.append(
            Problem(
                f"{path}.model",
                f"{model}/config.json is missing on {name}",
                "the model at the same path on every node",
                f"copy the model to {name}",
            )
        )
    if settings["gb10_service_user"] in observed.get("login_users", ()):
        who = f"{settings['gb10_service_user']} is a login user of {name}"
        why = (
            f"{who}: it may have more rights than the services need, and logind deletes its semaphores when it logs out"
        )
        problems.append(
            Problem(
                f"{path}.gb10_service_user",
                why,
                "a dedicated system user",
                "remove gb10_service_user: the run creates the default user",
            )
        )
    ours = {RAY_UNIT, VLLM_UNIT}
    for variable, port in listeners(settings, node["group"] == "head").items():
        others = [entry for entry in observed["listeners"] if entry["port"] == port and entry["unit"] not in ours]
        if others:
            problems.append(
                Problem(
                    f"{path}.{variable}",
                    f"port {port} of {name} is in use by {others[0]['process'] or 'an unknown process'}",
                    "a free port",
                    f"stop that process or change {variable.partition('.')[0]}",
                )
            )
    return problems


def _check_devices(
    path: str, node: Mapping[str, Any], interfaces: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], devices: Sequence[topology.Twin]
) -> list[Problem]:
    """Check that the fabric's devices exist, that nothing else configures them, and that their network is free."""
    name, problems = node["name"], []
    there = ", ".join(sorted(set(interfaces) - {_LOOPBACK}))
    for interface in sorted(twin.interface for twin in devices):
        if settings["gb10_fabric_topology"] == "socket":
            where, missing, fix = f"{path}.interface", "", "correct gb10_fabric_interface"
        else:
            position = _position(node, interface)
            where, missing = f"{path}.ports[{position}]", f" for QSFP port {node['settings']['gb10_fabric_ports'][position]}"
            fix = "correct gb10_fabric_ports, or check that the ConnectX-7 driver is loaded"
        found = interfaces.get(interface)
        if found is None:
            problems.append(Problem(where, f"{name} has no interface {interface}{missing}", f"one of {there}", fix))
            continue
        if any(address.split("/")[0] == node["address"] for address in found["addresses"]) and not fabric_links.ours(found):
            carried = f"{interface} of {name} has {node['address']}, the address that Ansible connects to"
            fix = "connect to the node over another network, or use another port"
            problems.append(Problem(where, carried, "a device that only the fabric uses", fix))
        problems += _check_owners(where, name, interface, found["owners"], settings["gb10_fabric_replace_existing"])
    if devices:
        problems += [
            Problem(
                f"{path}.netplan",
                f"{entry['file']} of {name}: {entry['reason']}",
                "a readable configuration",
                "correct or remove the file",
            )
            for entry in node["observed"]["unreadable"]
        ]
        problems += _check_pool(name, interfaces, settings["gb10_fabric_cidr"], {twin.interface for twin in devices})
    return problems


def _check_pool(name: str, interfaces: Mapping[str, Mapping[str, Any]], network: str, planned: set[str]) -> list[Problem]:
    """Find addresses of the node's other interfaces in the fabric's CIDR, except addresses from an earlier plan."""
    try:
        pool = ipaddress.IPv4Network(network)
    except ValueError:  # reported with the settings
        return []
    return [
        Problem(
            "gb10_fabric_cidr",
            f"{pool} overlaps with {address} on {interface} of {name}",
            "an unused network",
            "choose another gb10_fabric_cidr",
        )
        for interface, found in interfaces.items()
        if interface not in planned and interface != _LOOPBACK and not fabric_links.ours(found)
        for address in found["addresses"]
        if ipaddress.IPv4Interface(address).network.overlaps(pool)
    ]


def _position(node: Mapping[str, Any], interface: str) -> int:
    """Return the index of the node's port that a device belongs to."""
    ports = node["settings"]["gb10_fabric_ports"]
    return next(i for i, port in enumerate(ports) if interface in (twin.interface for twin in topology.SPARK_PORTS.get(port, ())))


def _check_owners(where: str, name: str, interface: str, owners: Sequence[Mapping[str, Any]], takeover: bool) -> list[Problem]:
    """Find other configuration of a device: netplan merges files. A file can drop a name, but not a pattern."""
    problems = []
    for owner in owners:
        # NetworkManager must leave the device to networkd, or gives our profile priority. So only a profile for
        # exactly this device shows that a user configured it.
        profile = owner["kind"] == "NetworkManager"
        simple = owner["by"] == "name" and (profile or owner["kind"] == "ethernets")
        if owner["file"] == topology.NETPLAN_FILE or (simple and takeover) or (profile and not simple):
            continue
        how = {"name": "", "match": " with a pattern", "member": f" as a member of {owner['id']}"}[owner["by"]]
        fix = (
            "set gb10_fabric_replace_existing: true, which qsfp_netplan_state: absent undoes"
            if simple
            else f"remove {interface} from the file"
        )
        problems.append(
            Problem(
                where,
                f"{interface} of {name} is configured by {owner['file']}{how}",
                "only this collection's configuration of the fabric's interfaces",
                fix,
            )
        )
    return problems


def warnings(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the causes of a slow fabric, one sentence each."""
    return [f"{node['name']}: {sentence}" for node in nodes if node["observed"] for sentence in degraded(node["observed"]["interfaces"])]


def listeners(settings: Mapping[str, Any], head: bool) -> dict[str, int]:
    """Return the cluster's own listeners as {variable: port}; Ray's fixed ports are {variable.name: port}."""
    if settings["gb10_distributed_executor_backend"] == "mp":
        meet = settings["gb10_master_port"]
        return {"gb10_api_port": settings["gb10_api_port"], "gb10_master_port": meet, "gb10_master_port.ranks": meet + 1} if head else {}
    ports = {f"gb10_ray_port.{name}": port for name, port in launch.ray_ports(settings["gb10_ray_port"], head).items()}
    if head:
        ports |= {"gb10_api_port": settings["gb10_api_port"], "gb10_ray_port.dashboard": launch.RAY_DASHBOARD_PORT}
    return ports

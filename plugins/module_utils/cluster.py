# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster plan: every input of every node checked at once, then one plan that the roles write down.

A node comes in as a mapping::

    {"name": str, "address": str,          # inventory name and management address
     "group": "head" | "worker" | "",
     "settings": {"gb10_...": value},       # all public variables of the role gb10
     "variables": [str],                    # the names of all variables the inventory gives this node
     "unreachable": str,                    # why it could not be asked, or ""
     "observed": {...} | {}}                # what node_info returned, or nothing if it could not be asked
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import fabric, launch
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem

#: Settings that may differ between nodes; all others describe the cluster and must not.
PER_NODE = ("gb10_fabric_addresses", "gb10_fabric_ports")
INTEGERS = ("gb10_api_port", "gb10_fabric_mtu", "gb10_pipeline_parallel_size", "gb10_ray_port", "gb10_tensor_parallel_size")
BOOLEANS = ("gb10_allow_restart",)
EXECUTORS = ("ray",)
#: The fact that the role gb10 leaves on every node.
PLAN_FACT = "gb10_plan"
RAY_UNIT, VLLM_UNIT = "gb10-ray.service", "gb10-vllm.service"
#: An interface whose addresses are nobody's network.
_LOOPBACK = "lo"


def plan(
    nodes: Sequence[Mapping[str, Any]], lock_digest: str, known_variables: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], list[Problem]]:
    """Check the nodes and plan the cluster.

    ``lock_digest`` is the SHA-256 of the runtime's lock file, "" if there is none; ``known_variables`` maps each
    role to its public variables. Returns the plan and every problem; the plan is empty if there is any.
    """
    if not nodes:
        return {}, [Problem("nodes", "no host in the group gb10_cluster", "a head and its workers", "add hosts to the groups head and worker")]
    # The head comes first: it is rank 0, nodes[0] in messages, and host 1 of every subnet.
    nodes = sorted(({**node, "settings": _typed(node["settings"])} for node in nodes), key=lambda node: node["group"] != "head")
    settings = nodes[0]["settings"]
    fabrics, problems = fabric.plan(
        [
            fabric.FabricNode(
                node["name"],
                tuple(node["settings"]["gb10_fabric_ports"]),
                tuple(node["settings"]["gb10_fabric_addresses"]),
                node["address"],
            )
            for node in nodes
        ],
        fabric.Fabric(
            settings["gb10_fabric_topology"],
            settings["gb10_fabric_pool"],
            settings["gb10_fabric_mtu"],
            settings["gb10_fabric_transport"],
        ),
    )
    problems = [
        *_check_groups(nodes),
        *_check_variables(nodes, known_variables),
        *_check_equal(nodes),
        *_check_settings(settings, len(nodes)),
        *problems,
    ]
    if not lock_digest:
        problems.append(
            Problem(
                "gb10_runtime_lock",
                f"{settings['gb10_runtime_lock']!r} is not a readable file on the controller",
                "a requirements file with exact versions",
                "correct gb10_runtime_lock",
            )
        )
    problems += _check_observed(nodes, settings)
    if problems:
        return {}, problems
    return _plan(nodes, fabrics, settings, lock_digest), []


def _typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert what the argument specification accepted as a number or a boolean, but Ansible leaves as text (-e name=value)."""
    typed = dict(settings)
    for name in INTEGERS:
        typed[name] = int(settings[name])
    for name in BOOLEANS:
        typed[name] = settings[name] if isinstance(settings[name], bool) else str(settings[name]).lower() in ("true", "yes", "on", "1")
    typed["gb10_fabric_ports"] = [int(port) for port in settings["gb10_fabric_ports"]]
    typed["gb10_environment"] = {str(name): str(value) for name, value in settings["gb10_environment"].items()}
    return typed


def _plan(
    nodes: Sequence[Mapping[str, Any]], fabrics: Sequence[fabric.NodeFabric], settings: Mapping[str, Any], lock_digest: str
) -> dict[str, Any]:
    model = settings["gb10_model"]
    tensor, pipeline = _parallelism(settings, len(nodes))
    planned = [
        {
            "name": node["name"],
            "address": share.address,
            "interface": share.rails[0].interface if share.rails else _carrier(share.address, node["observed"].get("interfaces", {})),
            "head": node["group"] == "head",
            "rails": [
                {"interface": rail.interface, "hca": rail.hca, "address": str(rail.address), "peers": dict(rail.peers)}
                for rail in share.rails
            ],
            "netplan": share.netplan,
            "environment": launch.rank_environment(share.environment, model, settings["gb10_environment"]),
        }
        for node, share in zip(nodes, fabrics, strict=True)
    ]
    return {
        "nodes": planned,
        "head": {"name": planned[0]["name"], "address": planned[0]["address"]},
        "model": model,
        "served_model_name": settings["gb10_served_model_name"] or model.rstrip("/").rsplit("/", 1)[-1],
        "executor": settings["gb10_executor"],
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "api_host": settings["gb10_api_host"],
        "api_port": settings["gb10_api_port"],
        "ray_port": settings["gb10_ray_port"],
        "mtu": settings["gb10_fabric_mtu"],
        "user": settings["gb10_user"],
        "allow_restart": settings["gb10_allow_restart"],
        "runtime": {
            "lock": settings["gb10_runtime_lock"],
            "digest": lock_digest,
            "path": f"{settings['gb10_root']}/runtime/{lock_digest[:12]}",
            "link": f"{settings['gb10_root']}/runtime/current",
        },
    }


def _carrier(address: str, interfaces: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the interface that carries an address, "" if none does; vllm_host_ip then says so."""
    return next((name for name, found in interfaces.items() if address in (entry.split("/")[0] for entry in found["addresses"])), "")


def _parallelism(settings: Mapping[str, Any], nodes: int) -> tuple[int, int]:
    pipeline = settings["gb10_pipeline_parallel_size"]
    return settings["gb10_tensor_parallel_size"] or max(1, nodes * launch.GPUS_PER_NODE // pipeline), pipeline


def _check_groups(nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
    heads = [node["name"] for node in nodes if node["group"] == "head"]
    problems = []
    if not heads:
        problems.append(
            Problem("groups.head", "no node is the head", "exactly one host in the group head", "move one host from worker to head")
        )
    if len(heads) > 1:
        problems.append(
            Problem("groups.head", f"{len(heads)} heads: {', '.join(heads)}", "exactly one host in the group head", "move the others to worker")
        )
    problems += [
        Problem(f"nodes[{index}]", f"{node['name']} is neither in head nor in worker", "one of the two groups", "add it to worker")
        for index, node in enumerate(nodes)
        if not node["group"]
    ]
    return problems


def _check_variables(nodes: Sequence[Mapping[str, Any]], known: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Find names that look like ours and are not: Ansible itself ignores a misspelt variable."""
    prefixes = tuple(f"{role}_" for role in known)
    names = {PLAN_FACT, *(name for variables in known.values() for name in variables)}
    problems = []
    for index, node in enumerate(nodes):
        for name in sorted(node["variables"]):
            if name in names:
                continue
            # The role's own part of a name may be misspelt too; then only a very similar one is meant.
            close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6 if name.startswith(prefixes) else 0.9)
            if not close and not name.startswith(prefixes):
                continue
            problems.append(
                Problem(
                    f"nodes[{index}].{name}",
                    f"{name}, set for {node['name']}, is no variable of this collection",
                    close[0] if close else "a variable that a role's argument_specs list",
                    f"rename it to {close[0]}, or remove it" if close else "remove it",
                )
            )
    return problems


def _check_equal(nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
    first = nodes[0]
    return [
        Problem(
            f"nodes[{index}].{name}",
            f"{node['name']} has {node['settings'][name]!r}, {first['name']} has {value!r}",
            "the same on every node",
            f"set {name} for the group gb10_cluster",
        )
        for name, value in first["settings"].items()
        if name not in PER_NODE
        for index, node in enumerate(nodes)
        if node["settings"][name] != value
    ]


def _check_settings(settings: Mapping[str, Any], nodes: int) -> list[Problem]:
    problems = []
    if settings["gb10_executor"] not in EXECUTORS:
        problems.append(Problem("gb10_executor", repr(settings["gb10_executor"]), " or ".join(EXECUTORS), "correct gb10_executor"))
    if settings["gb10_pipeline_parallel_size"] < 1:
        problems.append(
            Problem("gb10_pipeline_parallel_size", str(settings["gb10_pipeline_parallel_size"]), "1 or more", "use 1 for tensor parallelism")
        )
    else:
        problems += _check_parallelism(settings, nodes)
    problems += _check_ports(settings)
    if "VLLM_HOST_IP" in settings["gb10_environment"]:
        problems.append(
            Problem("gb10_environment.VLLM_HOST_IP", "it is set", "nothing: each node has its own", "use gb10_fabric_addresses instead")
        )
    try:
        launch.environment_file(settings["gb10_environment"])
    except ValueError as error:
        problems.append(Problem("gb10_environment", str(error), "variable names and one-line values", "correct gb10_environment"))
    return problems


def _check_ports(settings: Mapping[str, Any]) -> list[Problem]:
    """Find ports that do not exist, and ports that two listeners of the head would share."""
    api, ray = settings["gb10_api_port"], settings["gb10_ray_port"]
    problems = [
        Problem(name, str(port), f"1024 to {last}", f"correct {name}")
        for name, port, last in (("gb10_api_port", api, 65535), ("gb10_ray_port", ray, 65535 - max(launch.RAY_PORTS.values())))
        if not 1024 <= port <= last
    ]
    first, last = launch.RAY_WORKER_PORTS
    fixed = {port: f"Ray's {name}" for name, port in launch.ray_ports(ray, head=True).items()}
    others = {launch.RAY_DASHBOARD_PORT: "Ray's dashboard", **dict.fromkeys(range(first, last + 1), "one of Ray's worker ports")}
    if api in fixed or api in others:
        problems.append(Problem("gb10_api_port", f"{api} is {fixed.get(api) or others[api]} too", "a port of its own", "change gb10_api_port"))
    for port in sorted(fixed.keys() & others.keys())[:1]:
        problems.append(Problem("gb10_ray_port", f"{port}, {fixed[port]}, is {others[port]} too", "ports of their own", "change gb10_ray_port"))
    return problems


def _check_parallelism(settings: Mapping[str, Any], nodes: int) -> list[Problem]:
    tensor, pipeline = _parallelism(settings, nodes)
    devices = nodes * launch.GPUS_PER_NODE
    if tensor < 1 or tensor * pipeline > devices:
        return [
            Problem(
                "gb10_tensor_parallel_size",
                f"tensor {tensor} x pipeline {pipeline} needs {tensor * pipeline} GPUs; {nodes} nodes have {devices}",
                f"a product of at most {devices}",
                "lower gb10_tensor_parallel_size or gb10_pipeline_parallel_size, or add nodes",
            )
        ]
    if tensor * pipeline < devices:
        return [
            Problem(
                "gb10_tensor_parallel_size",
                f"tensor {tensor} x pipeline {pipeline} uses {tensor * pipeline} GPUs; {nodes} nodes have {devices}",
                f"a product of {devices}, so that no node is idle",
                "raise one of the two, or leave nodes out of the inventory",
            )
        ]
    return []


def _check_observed(nodes: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for index, node in enumerate(nodes):
        path, name, observed = f"nodes[{index}]", node["name"], node["observed"]
        if node["unreachable"]:
            problems.append(
                Problem(
                    path,
                    f"{name} ({node['address']}) cannot be read: {' '.join(node['unreachable'].split())}",
                    "an SSH login and sudo",
                    f"try: ssh {node['address']}; then check ansible_host, ansible_user and the key",
                )
            )
        if observed:
            problems += _check_node(path, node, observed, settings, len(nodes))
    return problems


def _check_node(
    path: str, node: Mapping[str, Any], observed: Mapping[str, Any], settings: Mapping[str, Any], nodes: int
) -> list[Problem]:
    name = node["name"]
    problems = []
    if not observed["gpu"]["gpus"]:
        problems.append(
            Problem(f"{path}.gpu", f"{name} shows no GPU: {observed['gpu']['reason']}", "nvidia-smi that lists one", "install or repair the driver")
        )
    if fabric.resolve_topology(settings["gb10_fabric_topology"], nodes) != "none":
        problems += _check_interfaces(path, node, observed["interfaces"], settings)
    model = settings["gb10_model"]
    if model.startswith("/") and not observed["paths"].get(f"{model}/config.json"):
        problems.append(
            Problem(f"{path}.model", f"{model}/config.json is missing on {name}", "the model at the same path on every node", f"copy it to {name}")
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
                    f"stop that process or change {variable.split('.')[0]}",
                )
            )
    return problems


def _check_interfaces(
    path: str, node: Mapping[str, Any], interfaces: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[Problem]:
    problems = []
    planned: set[str] = set()
    for position, port in enumerate(node["settings"]["gb10_fabric_ports"]):
        for twin in fabric.SPARK_PORTS.get(port, ()):
            planned.add(twin.interface)
            if twin.interface not in interfaces:
                problems.append(
                    Problem(
                        f"{path}.ports[{position}]",
                        f"{node['name']} has no interface {twin.interface} for QSFP port {port}",
                        f"one of {', '.join(sorted(set(interfaces) - {_LOOPBACK}))}",
                        "correct gb10_fabric_ports, or check that the ConnectX-7 driver is loaded",
                    )
                )
    try:
        pool = ipaddress.IPv4Network(settings["gb10_fabric_pool"])
    except ValueError:  # reported with the settings
        return problems
    for name, interface in interfaces.items():
        for address in interface["addresses"]:
            if name not in planned and name != _LOOPBACK and ipaddress.IPv4Interface(address).network.overlaps(pool):
                problems.append(
                    Problem(
                        "gb10_fabric_pool",
                        f"{pool} overlaps with {address} on {name} of {node['name']}",
                        "a network that nothing else uses",
                        "choose another gb10_fabric_pool",
                    )
                )
    return problems


def listeners(settings: Mapping[str, Any], head: bool) -> dict[str, int]:
    """Return what the cluster itself will listen on, as variable -> port; for the fixed ports of Ray, variable.name -> port."""
    ports = {f"gb10_ray_port.{name}": port for name, port in launch.ray_ports(settings["gb10_ray_port"], head).items()}
    if head:
        ports |= {"gb10_api_port": settings["gb10_api_port"], "gb10_ray_port.dashboard": launch.RAY_DASHBOARD_PORT}
    return ports

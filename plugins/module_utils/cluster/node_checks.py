# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the settings against the facts of a node: devices, files, listeners."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.model import Chosen
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import (
    Facts,
    Inputs,
    ModelFiles,
    Node,
    Settings,
)
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import links as fabric_links
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.owners import repair
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.plan import FabricPlan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.rdma import degraded
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Interface, Network, Owner
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.node import toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

#: Its listener is systemd itself.
_WAKE = "gb10_wake_port"
#: The interface whose addresses are local to the node.
_LOOPBACK = "lo"
#: Reading a slow node takes a part of this time. Certificates are valid for days.
_CLOCK_SECONDS = 600


def check_nodes(
    inputs: Inputs, fabric: FabricPlan, wheels: Sequence[Sequence[Problem]], model: Chosen | None
) -> list[Problem]:
    """Return the problems of all nodes, node by node; ``wheels`` are those of each node's wheels."""
    settings = inputs.head.settings
    return [
        problem
        for index, (node, own) in enumerate(zip(inputs.nodes, wheels, strict=True))
        for problem in (*own, *_check(index, node, settings, fabric, model))
    ]


def _check(index: int, node: Node, settings: Settings, fabric: FabricPlan, model: Chosen | None) -> list[Problem]:
    """Return the problems of the index-th node. ``settings`` are those of the cluster."""
    path, name = f"nodes[{index}]", node.name
    problems = []
    if node.unreachable:
        found = f"{name} ({node.address}) cannot be read: {causes.short(node.unreachable)}"
        problems.append(
            Problem(path, found, "SSH login and sudo", causes.fix(node.unreachable, node.user, node.address))
        )
    if node.unrecorded:
        fix = (
            "run playbooks/plan.yml -e gb10_plan_save_facts=true once, or plan from typical facts with -e "
            "gb10_plan_offline=typical"
        )
        found = f"{name} has no recorded facts: {node.unrecorded} does not exist"
        problems.append(Problem(path, found, "the recorded result of node_info", fix))
    problems += host_guard_plan.check(path, name, node.protection, node.facts.host if node.facts else None)
    if node.facts:
        problems += _check_node(path, node, node.facts, settings, model)
        ports = listeners(settings, node.head, len(fabric.members))
        if settings.fallback_model and node.gateway:
            ports["gb10_fallback_port"] = settings.fallback_port
        metrics = {"monitoring_port": node.metrics_port} if node.metrics_port else {}
        problems += _check_listeners(path, node, node.facts, ports | metrics)
        problems += _check_devices(path, node, node.facts.network, settings, fabric.members[index], fabric.topology)
    return problems


def check_compilers(nodes: Sequence[Node], compiled: Sequence[str]) -> list[Problem]:
    """Return the problems of nodes that cannot compile these kernels of FlashInfer."""
    problems: list[Problem] = []
    if not compiled:
        return problems
    kernels = f"FlashInfer compiles {', '.join(compiled)}"
    for index, node in enumerate(nodes):
        facts = node.facts
        if facts and facts.toolkit and node.capability:
            problems += [
                replace(
                    problem,
                    path=f"nodes[{index}].{problem.path}",
                    found=f"{problem.found} on {node.name}, and {kernels}",
                    fix="install it, such as the package cuda-toolkit-13-0, or set gb10_flashinfer: false",
                )
                for problem in toolkit.check(facts.toolkit, [ComputeCapability.parse(node.capability)])
            ]
        if facts and not facts.host_compiler and not _installs_compiler(node.packages["vllm_runtime"]):
            found = f"{node.name} has no g++ or no headers of Python, and {kernels}"
            problems.append(
                Problem(f"nodes[{index}].vllm_runtime_packages", found, "g++ and python3-dev", "add them to the list")
            )
    return problems


def _installs_compiler(packages: Sequence[str]) -> bool:
    """Return whether the packages of the runtime have g++ and Python's headers."""
    return any(name.startswith("g++") for name in packages) and any(
        re.fullmatch(r"python3[\d.]*-dev", name) for name in packages
    )


def _check_node(path: str, node: Node, facts: Facts, settings: Settings, model: Chosen | None) -> list[Problem]:
    name, user = node.name, settings.service_user
    problems = []
    if settings.gpu_required and not facts.gpu.visible:
        found = f"{name} has no visible GPU: {facts.gpu.reason}"
        problems.append(Problem(f"{path}.gpu", found, "a GPU that nvidia-smi lists", "install or repair the driver"))
    problems += _check_model(f"{path}.model", node, facts.model, model) if model else []
    # The head's server loads adapters on each rank.
    problems += [
        Problem(
            f"{path}.gb10_vllm_extra_args.{adapters.MODULES}",
            f"{folder} on {name}: {why}",
            "the adapter at the same path on every node, in folders that only root can change",
            f"copy it to {name}, with root as the owner, readable for {user}",
        )
        for folder, why in facts.wrong_folders.items()
    ]
    if user in facts.login_users:
        found = (
            f"{user} is a login user of {name}: it may have more rights than the services need, and logind deletes its "
            "semaphores when it logs out"
        )
        fix = "remove gb10_service_user: the run creates the default user"
        problems.append(Problem(f"{path}.gb10_service_user", found, "a dedicated system user", fix))
    return problems


def _check_model(path: str, node: Node, files: ModelFiles, model: Chosen) -> list[Problem]:
    """Check a model outside the store, and the head's source of the store. The store completes its own copies."""
    name = node.name
    if model.store:
        where = model.store["source"] if node.head else ""
        expected, fix = "a complete model in model_store_source", f"complete {where} on {name}"
    else:
        where = model.entry.path
        expected, fix = "the complete model at the same path on every node", f"copy the model to {name}"
    # The facts may be about another model.
    if not where or files.path != where:
        return []
    if files.config is None and not model.store:
        return [Problem(path, f"{where}/config.json is missing on {name}", expected, fix)]
    return [Problem(path, f"vLLM cannot load {where} on {name}: {files.reason}", expected, fix)] if files.reason else []


def _check_listeners(path: str, node: Node, facts: Facts, ports: Mapping[str, int]) -> list[Problem]:
    """Find ports of the cluster that another program uses."""
    problems, own = [], (*paths.UNITS, paths.EXPORTER_UNIT, paths.FALLBACK_UNIT)
    for variable, port in ports.items():
        # systemd itself listens for a resting model.
        mine = (*own, "init.scope") if variable == _WAKE else own
        other = next((each for each in facts.listeners if each.port == port and each.unit not in mine), None)
        if other:
            found = f"port {port} of {node.name} is in use by {other.process or 'an unknown process'}"
            fix = f"stop that process or change {variable.partition('.')[0]}"
            problems.append(Problem(f"{path}.{variable}", found, "a free port", fix))
    return problems


def _check_devices(
    path: str, node: Node, network: Network, settings: Settings, member: topology.FabricNode, kind: str
) -> list[Problem]:
    """Check that the fabric's devices exist, that nothing else configures them, and that their network is free."""
    problems, used = [], {twin.interface for twin in topology.devices(member, kind)}
    for interface in sorted(used):
        ports = (member.ports or ()) if kind != "socket" else None
        problems += _check_device(path, node, network.interfaces, interface, ports, settings.fabric_replace_existing)
    if used:
        problems += [
            Problem(
                f"{path}.netplan",
                f"{entry.file} of {node.name}: {entry.reason}",
                "a valid configuration",
                repair(entry.file),
            )
            for entry in network.unreadable
        ]
        problems += _check_pool(node.name, network.interfaces, settings.fabric_cidr, used)
    return problems


def _check_device(
    path: str,
    node: Node,
    interfaces: Mapping[str, Interface],
    interface: str,
    ports: Sequence[int] | None,
    takeover: bool,
) -> list[Problem]:
    """Check one device; ``ports`` are the node's QSFP ports, None if the device does not belong to one."""
    name, found = node.name, interfaces.get(interface)
    where, of_port, fix = f"{path}.interface", "", "correct gb10_fabric_interface"
    if ports is not None:
        position, port = _port(ports, interface)
        where, of_port = f"{path}.ports[{position}]", f" for QSFP port {port}"
        fix = "correct gb10_fabric_ports, or check that the ConnectX-7 driver is loaded"
        if any(twin.interface in interfaces for twin in topology.SPARK_PORTS[port]):
            fix = fabric_links.one_function(interface, port)
    if found is None:
        there = ", ".join(sorted(set(interfaces) - {_LOOPBACK}))
        return [Problem(where, f"{name} has no interface {interface}{of_port}", f"one of {there}", fix)]
    problems = []
    if found.has(node.address) and not fabric_links.ours(found):
        carried = f"{interface} of {name} has {node.address}, the address that Ansible connects to"
        fix = "connect to the node over another network, or use another port"
        problems.append(Problem(where, carried, "a device that only the fabric uses", fix))
    return problems + _check_owners(where, name, interface, found.owners, takeover)


def _port(ports: Sequence[int], interface: str) -> tuple[int, int]:
    """Return the position of the port that a device belongs to, and its number."""
    return next(
        (position, port)
        for position, port in enumerate(ports)
        if interface in (twin.interface for twin in topology.SPARK_PORTS.get(port, ()))
    )


def _check_pool(name: str, interfaces: Mapping[str, Interface], network: str, planned: set[str]) -> list[Problem]:
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
        for address in found.addresses
        if ipaddress.IPv4Interface(address).network.overlaps(pool)
    ]


def _check_owners(where: str, name: str, interface: str, owners: Sequence[Owner], takeover: bool) -> list[Problem]:
    """Find other configuration of a device: netplan merges files. A file can drop a name, but not a pattern."""
    problems = []
    for owner in owners:
        # NetworkManager must leave the device to networkd, or gives our profile priority. So only a profile for
        # exactly this device shows that a user configured it.
        profile = owner.kind == "NetworkManager"
        simple = owner.by == "name" and (profile or owner.kind == "ethernets")
        if owner.file == topology.NETPLAN_FILE or (simple and takeover) or (profile and not simple):
            continue
        how = {"name": "", "match": " with a pattern", "member": f" as a member of {owner.id}"}[owner.by]
        fix = (
            "set gb10_fabric_replace_existing: true, which qsfp_netplan_state: absent undoes"
            if simple
            else f"remove {interface} from the file"
        )
        problems.append(
            Problem(
                where,
                f"{interface} of {name} is configured by {owner.file}{how}",
                "only this collection's configuration of the fabric's interfaces",
                fix,
            )
        )
    return problems


def warnings(nodes: Sequence[Node]) -> list[str]:
    """Return the causes of a slow fabric, and the wrong clocks, one sentence each."""
    return [
        f"{node.name}: {sentence}"
        for node in nodes
        if node.facts
        for sentence in (*_clock(node.facts.clock_ahead), *degraded(node.facts.network.interfaces))
    ]


def _clock(ahead: float) -> list[str]:
    """Return a sentence if the clock is so wrong that downloads fail. ``ahead``: seconds to the controller's clock."""
    if abs(ahead) < _CLOCK_SECONDS:
        return []
    hours = f"{abs(ahead) / 3600:.1f} hours {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return [
        (
            f"its clock is {hours}, so certificates of downloads can appear invalid. Fix: run timedatectl set-ntp "
            "true on the node"
        )
    ]


def listeners(settings: Settings, head: bool, nodes: int) -> dict[str, int]:
    """Return a node's listeners of the cluster as {variable: port}; Ray's fixed ports are {variable.name: port}."""
    api, meet = {"gb10_api_port": settings.api_port}, settings.master_port
    if spans.seconds(settings.idle_stop):
        api[_WAKE] = settings.wake_port
    if settings.distributed_executor_backend == "mp":
        meeting = {"gb10_master_port": meet, "gb10_master_port.ranks": meet + 1} if nodes > 1 else {}
        return {**api, **meeting} if head else {}
    ports = {f"gb10_ray_port.{name}": port for name, port in launch_argv.ray_ports(settings.ray_port, head).items()}
    return {**ports, **api, "gb10_ray_port.dashboard": launch_argv.RAY_DASHBOARD_PORT} if head else ports

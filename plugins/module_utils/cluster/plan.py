# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster plan: check all inputs of all nodes at once, then return one plan that the roles apply.

A node is a mapping::

    {"name": str, "address": str,          # inventory name and management address
     "group": "head" | "worker" | "",
     "settings": {"gb10_...": value},       # all public variables of the role gb10
     "variables": [str],                    # the names of all inventory variables of this node
     "nccl": str,                           # the tag of the NCCL to build, "stack" for the stack's
     "nccl_wanted": "auto" | "true" | "false",   # whether to build NCCL
     "asked": {"options": [...], "variables": [str]} | {},   # from the head's vLLM, if it is newer than the table
     "removing": bool,                      # whether to remove the fabric's configuration
     "key_problem": str,                    # the error in the API key, or ""; the key itself is never here
     "tls": {"problems": [...], "warnings": [str], "digest": str, "until": str} | {},
                                            # api_tls.facts of the head's certificate, {} without TLS
     "secrets": {"names": [str], "problems": [...]},   # secret_environment.verdict: the values are never here
     "smoke_tokens": int,                   # the smoke test's token limit, 0 for the role's default
     "store": {"enabled": bool, "source": str},   # whether models are copied to the store; their source folder,
                                            # "" for Hugging Face Hub
     "unreachable": str,                    # the reason why the node could not be read, or ""
     "unrecorded": str,                     # the missing file of recorded facts, in an offline plan, or ""
     "observed": {...} | {}}                # the result of node_info, {} if the node was not read
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import checks as cluster_checks
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import node_checks
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import links as fabric_links
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import netplan, topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import rdma as fabric_state
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides as additions
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog as catalogue
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint as serve_rules
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import WARNING
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import locks, stacks, wheels
from ansible_collections.gb10.cluster.plugins.module_utils.serve import inputs as serve_inputs
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan

INTEGERS = (
    "gb10_api_port",
    "gb10_data_parallel_size",
    "gb10_fabric_mtu",
    "gb10_max_model_len",
    "gb10_max_num_seqs",
    "gb10_pipeline_parallel_size",
    "gb10_ray_port",
    "gb10_master_port",
    "gb10_tensor_parallel_size",
)
BOOLEANS = (
    "gb10_allow_restart",
    "gb10_api_key_enabled",
    "gb10_expert_parallel",
    "gb10_fabric_pin_gid_index",
    "gb10_fabric_rdma_required",
    "gb10_fabric_replace_existing",
)


def plan(nodes: Sequence[Mapping[str, Any]], lock: str, known_variables: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], list[Problem]]:
    """Check the nodes and plan the cluster.

    ``lock`` is the text of the runtime's lock file, "" if there is none; ``known_variables`` maps each role to its public variables.
    Returns the plan and every problem; the plan is empty if there is any.
    """
    if not nodes:
        return {}, [Problem("nodes", "no host in the group gb10_cluster", "a head and its workers", "add hosts to the groups head and worker")]
    # The head comes first: it is rank 0, nodes[0] in messages, and host 1 of every subnet.
    nodes = sorted(({**node, "settings": _typed(node["settings"])} for node in nodes), key=lambda node: node["group"] != "head")
    settings = nodes[0]["settings"]
    shape = topology.Fabric(
        settings["gb10_fabric_topology"],
        settings["gb10_fabric_cidr"],
        settings["gb10_fabric_mtu"],
        settings["gb10_fabric_transport"],
        settings["gb10_fabric_renderer"],
    )
    kind = topology.resolve_topology(shape.topology, len(nodes))
    ports, unclear, why = fabric_links.choose(nodes, kind)
    nodes = [{**node, "settings": {**node["settings"], fabric_links.PORTS: some}} for node, some in zip(nodes, ports, strict=True)]
    members = [_member(node) for node in nodes]
    shares, problems = fabric.plan(members, shape)
    problems = [*cluster_checks.check(nodes, known_variables), *unclear, *problems]
    given = (settings[name] for name in ("gb10_runtime_lock", "gb10_runtime", "gb10_container_image"))
    stack, found = stacks.resolve(settings["gb10_stack"], lock, *given)
    problems += found
    if settings["gb10_distributed_executor_backend"] == "ray":
        problems += _check_ray(nodes, stack)
    # A container's lock lists the contents of the image; it is not installed.
    problems += locks.check(lock, settings["gb10_runtime_lock"]) if stack.runtime == stacks.NATIVE else []
    for index, node in enumerate(nodes):
        problems += wheels.check(node["settings"]["gb10_runtime_wheels"], lock, f"nodes[{index}].gb10_runtime_wheels")
        problems += node_checks.check(index, node, settings, topology.devices(members[index], kind))
    roce = settings["gb10_fabric_rdma_required"] and topology.resolve_transport(shape.transport, kind) == "roce"
    problems += fabric_links.check(nodes, members, kind, roce)
    digest = hashlib.sha256(lock.encode()).hexdigest()
    if problems:
        # Check the rest as far as possible, so that all problems are listed together.
        return {}, [*problems, *_also(nodes, settings, stack, problems)]
    plan, problems = _plan(nodes, shares, settings, stack, digest)
    return ({**plan, "fabric": fabric_links.explain(kind, why, plan["nodes"])} if plan else {}), problems


def _check_ray(nodes: Sequence[Mapping[str, Any]], stack: stacks.Stack) -> list[Problem]:
    """Check that the Ray of the lock, or of the image, supports token authentication."""
    if stack.runtime != stacks.CONTAINER:
        return stacks.check_ray(stack.ray, "gb10_runtime_lock")
    inside = [additions.current(node["observed"].get("additions", {}), stack.image).get(launch.IMAGE_ROLE, {}).get("versions", {}) for node in nodes]
    return stacks.check_ray(next((versions["ray"] for versions in inside if versions.get("ray")), stack.ray), "gb10_container_image")


def _also(nodes: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], stack: stacks.Stack, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of the model and its arguments after other problems were found."""
    try:
        model = catalogue.find(settings["gb10_model"], settings["gb10_models"])
    except ProblemsError as error:
        return list(error.problems)
    if any(problem.path in ("gb10_stack", "gb10_runtime_lock", "gb10_runtime", "gb10_container_image") for problem in problems):
        return []
    if any(problem.path in (*cluster_checks.PARALLELISM, "gb10_data_parallel_size") for problem in problems):
        settings = {**settings, **dict.fromkeys(cluster_checks.PARALLELISM, 0), "gb10_data_parallel_size": 1}
    known = [
        {**serve_inputs.of_node(node), "name": node["name"], "head": node["group"] == "head", "environment": {}, "additions": {}} for node in nodes
    ]
    return serve_plan.decide(serve_inputs.inputs(model, nodes, known, settings, stack, "", "")).problems


def _member(node: Mapping[str, Any]) -> topology.FabricNode:
    settings, observed = node["settings"], node["observed"]
    return topology.FabricNode(
        node["name"],
        settings["gb10_fabric_ports"],
        tuple(settings["gb10_fabric_addresses"]),
        node["address"],
        _carrier(node["address"], observed["interfaces"]) if observed else None,
        settings["gb10_fabric_interface"],
        fabric_links.hcas(observed) if observed else {},
    )


def _typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert numbers and booleans that Ansible passes as text (-e name=value)."""
    typed = dict(settings)
    for name in INTEGERS:
        typed[name] = int(settings[name])
    for name in BOOLEANS:
        typed[name] = settings[name] if isinstance(settings[name], bool) else str(settings[name]).lower() in ("true", "yes", "on", "1")
    ports = settings["gb10_fabric_ports"]
    if isinstance(ports, Sequence) and not isinstance(ports, str) and all(re.fullmatch(r"-?\d+", str(port)) for port in ports):
        typed["gb10_fabric_ports"] = [int(port) for port in ports]
    typed["gb10_serve_waivers"] = {str(rule): str(reason or "") for rule, reason in settings["gb10_serve_waivers"].items()}
    for name in ("gb10_api_clients", "gb10_container_args", "gb10_vllm_extra_args", "gb10_service_read_write_paths"):
        typed[name] = [str(word) for word in settings[name]]
    typed["gb10_extra_env"] = {str(name): str(value) for name, value in settings["gb10_extra_env"].items()}
    return typed


def _plan(
    nodes: Sequence[Mapping[str, Any]], shares: Sequence[fabric.NodeFabric], settings: Mapping[str, Any], stack: stacks.Stack, digest: str
) -> tuple[dict[str, Any], list[Problem]]:
    model = settings["gb10_model"]
    try:
        chosen = catalogue.find(model, settings["gb10_models"])
    except ProblemsError as error:
        return {}, list(error.problems)
    name = settings["gb10_served_model_name"] or chosen.reference.rstrip("/").rsplit("/", 1)[-1]
    wanted = nodes[0]["store"]
    store = model_store.plan(chosen.hub, chosen.path, chosen.revision, settings["gb10_install_dir"], wanted["enabled"], wanted["source"])
    about = catalogue.describe(chosen)
    chosen = replace(chosen, path=store["folder"]) if store else chosen
    model = chosen.reference
    runtime = _runtime(settings, stack, digest)
    macs = {
        str(rail.address.ip): node["observed"]["interfaces"][rail.interface]["mac"]
        for node, share in zip(nodes, shares, strict=True)
        for rail in share.rails
    }
    planned = [
        {
            **plain,
            "rails": [{**rail, "macs": {name: macs[ip] for name, ip in rail["peers"].items()}} for rail in plain["rails"]],
            "interface": share.interface or _carrier(share.address, node["observed"].get("interfaces", {})),
            "head": node["group"] == "head",
            "wheels": node["settings"]["gb10_runtime_wheels"],
            "capability": serve_inputs.of_node(node)["capability"],
            "files": netplan.files([rail.interface for rail in share.rails], settings["gb10_fabric_renderer"]) if share.rails else {},
            "environment": launch.own_environment(share.environment, model, settings["gb10_extra_env"]),
            "secrets": node["secrets"]["names"],
            "infiniband": node["observed"].get("infiniband", False),
            "additions": additions.current(node["observed"].get("additions", {}), runtime["name"]),
            **_installed(node, digest),
        }
        for node, share, plain in zip(nodes, shares, map(fabric.plain, shares), strict=True)
    ]
    problems: list[Problem] = []
    # A fresh host has no index before it has an address; then the role qsfp_netplan pins the index.
    for index, (entry, node) in enumerate(zip(planned, nodes, strict=True)):
        if settings["gb10_fabric_pin_gid_index"] and not fabric.drift(entry["rails"], settings["gb10_fabric_mtu"], node["observed"]["interfaces"]):
            environment, found = fabric_state.pinned(entry, node["observed"])
            entry["environment"] = {**environment, **settings["gb10_extra_env"]}
            problems += [replace(problem, path=f"nodes[{index}].{problem.path}") for problem in found]
    kind = topology.resolve_topology(settings["gb10_fabric_topology"], len(nodes))
    known = [{**entry, **serve_inputs.of_node(node)} for entry, node in zip(planned, nodes, strict=True)]
    carried = serve_inputs.transport(planned)
    inputs = serve_inputs.inputs(chosen, nodes, known, settings, stack, kind, carried)
    decision = serve_plan.decide(inputs)
    problems += decision.problems
    for entry in planned:
        entry["environment"] = {**decision.environment, **entry["environment"]}
    plan = {
        "nodes": planned,
        "head": {"name": planned[0]["name"], "address": planned[0]["address"]},
        "model": model,
        "quantization": model_config.quantization(inputs.config),
        "served_model_name": name,
        "store": store,
        "executor": settings["gb10_distributed_executor_backend"],
        "ranks_unit": node_checks.RAY_UNIT if settings["gb10_distributed_executor_backend"] == "ray" else node_checks.VLLM_UNIT,
        "tensor_parallel_size": decision.tensor,
        "pipeline_parallel_size": decision.pipeline,
        "data_parallel_size": settings["gb10_data_parallel_size"],
        "api_host": settings["gb10_api_host"],
        "api_port": settings["gb10_api_port"],
        "api_key": settings["gb10_api_key_enabled"],
        "api_clients": settings["gb10_api_clients"],
        "api": api_access.place(
            settings["gb10_api_host"], settings["gb10_api_port"], settings["gb10_api_name"], nodes[0]["address"], bool(nodes[0]["tls"])
        ),
        "api_tls": {name: nodes[0]["tls"][name] for name in ("digest", "until")} if nodes[0]["tls"] else {},
        "ray_port": settings["gb10_ray_port"],
        "rendezvous_port": settings["gb10_master_port"],
        "mtu": settings["gb10_fabric_mtu"],
        "takeover": settings["gb10_fabric_replace_existing"],
        "pin_gid_index": settings["gb10_fabric_pin_gid_index"],
        "root": settings["gb10_install_dir"],
        "user": settings["gb10_service_user"],
        "home": launch.home(settings["gb10_service_user"]),
        "writable": settings["gb10_service_read_write_paths"],
        "allow_restart": settings["gb10_allow_restart"],
        "runtime": runtime,
        "nccl": serve_inputs.nccl(nodes, known, stack, kind, carried),
        "stack": {name: getattr(stack, name) for name in ("name", "vllm", "nccl", "device", "cuda")},
        "serve": {
            "args": decision.args,
            "own": settings["gb10_vllm_extra_args"],
            "files": decision.files,
            "smoke_tokens": decision.smoke_tokens,
            "reasoning": chosen.reasoning,
            "nccl": inputs.nccl,
            "why": decision.why,
            "model": about,
            "memory": memory_plan.explain(decision.memory) if decision.memory else [],
            "needs": memory_plan.needs(decision.memory) if decision.memory else {},
            "findings": serve_rules.report(decision.findings),
            "warnings": [
                *serve_inputs.unread(chosen, nodes, serve_inputs.read(chosen, nodes, settings["gb10_install_dir"])),
                *serve_rules.report(finding for finding in serve_rules.stopping(decision.findings, WARNING)),
            ],
        },
    }
    return ({}, problems) if problems else (plan, [])


def _installed(node: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return the text of the runtime's last file, which completes it, and the state of the node that lets roles skip finished work."""
    mark = "".join(f"{line}\n" for line in (digest, *(wheel["sha256"] for wheel in node["settings"]["gb10_runtime_wheels"])))
    state = node["observed"].get("state", {})
    return {"runtime_mark": mark, "state": {**state, "runtime_ready": state.get("runtime_mark") == hashlib.sha256(mark.encode()).hexdigest()}}


def _runtime(settings: Mapping[str, Any], stack: stacks.Stack, digest: str) -> dict[str, Any]:
    """Return the ranks' runtime. Overrides belong to ``name``. Only a native environment has a path and a lock."""
    container = {"engine": settings["gb10_container_engine"], "engine_args": settings["gb10_container_args"]}
    if stack.runtime == stacks.CONTAINER:
        return {"kind": stack.runtime, "name": stack.image, "image": stack.image, **container}
    path = f"{settings['gb10_install_dir']}/runtime/{digest[:12]}"
    own = {"lock": settings["gb10_runtime_lock"], "digest": digest, "path": path, "link": f"{settings['gb10_install_dir']}/runtime/current"}
    return {"kind": stack.runtime, "name": path, "image": "", **own, **container}


def _carrier(address: str, interfaces: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the interface that has an address, "" if there is none, which vllm_host_ip then reports."""
    return next((name for name, found in interfaces.items() if address in (entry.split("/")[0] for entry in found["addresses"])), "")

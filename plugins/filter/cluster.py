# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters for roles and playbooks that call the pure planners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, report


class _Core:
    """A module of the core, imported on the first access to one of its names.

    Ansible loads this file again in nearly every task's process, and compiles its imports: a fifth of a run's time.
    """

    def __init__(self, topic: str, folder: str = "module_utils") -> None:
        self._path = f"ansible_collections.gb10.cluster.plugins.{folder}.{topic}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._path), name)


additions = _Core("launch.overrides")
api_access = _Core("api.access")
catalogue = _Core("model.catalog")
certificate = _Core("certificate", "plugin_utils")
cluster = _Core("cluster.plan")
cluster_inputs = _Core("cluster.parse")
discovery = _Core("discovery.plan")
discovery_answers = _Core("discovery.answer")
discovery_files = _Core("discovery.render")
fabric = _Core("fabric.plan")
fabric_report = _Core("fabric.report")
fabric_schema = _Core("fabric.schema")
fabric_state = _Core("fabric.rdma")
firewall = _Core("firewall.plan")
image_copies = _Core("runtime.image_copy")
launch = _Core("launch.argv")
memory_planner = _Core("memory.plan")
memory_schema = _Core("memory.schema")
model_shape = _Core("model.shape")
model_store = _Core("model_store.plan")
nccl_bandwidth = _Core("nccl.bandwidth")
nccl_choices = _Core("nccl.choice")
patch_report = _Core("patch.checks")
plan_lines = _Core("cluster.report")
secrets = _Core("common.secret_environment")
serve_rules = _Core("rules.lint")
serve_situation = _Core("rules.context")
stacks = _Core("runtime.stacks")
status_lines = _Core("health.status")
systemd = _Core("common.systemd")
topology = _Core("fabric.topology")
vllm_release = _Core("vllm_release.checks")
way_back = _Core("rollback.plan")


def _plain(data: Any) -> Any:
    """Copy Ansible's lazy and tagged containers to plain ones, which json and dataclasses accept."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [_plain(value) for value in data]
    return data


def cluster_plan(nodes: Sequence[Any], lock: str, known_variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return {plan, problems, report, warnings}; see module_utils/cluster/parse.py for the shape of a node."""
    inputs = cluster_inputs.parse(_plain(nodes), str(lock))
    plan, problems = cluster.plan(inputs, _plain(known_variables))
    return {
        "plan": plan.facts() if plan else {},
        "problems": [str(problem) for problem in problems],
        "report": report(problems),
        "warnings": cluster.warnings(inputs, plan),
    }


def node_plan(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the plan of one node: the cluster's plan, with the node's own part under `node`."""
    for node in plan["nodes"]:
        if node["name"] == name:
            return {**_plain(plan), "node": _plain(node)}
    raise AnsibleFilterError(f"the plan has no node {name!r}")


def fabric_plan(nodes: Sequence[Any], settings: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return {nodes, problems, report} for FabricNode's and Fabric's fields; see module_utils/fabric/topology.py."""
    given = [{key: tuple(value) if isinstance(value, list) else value for key, value in node.items()} for node in _plain(nodes)]
    try:
        arguments = [topology.FabricNode(**node) for node in given], topology.Fabric(**_plain(settings))
    except TypeError as error:
        raise AnsibleFilterError(f"fabric_plan: {error}") from error
    shares, problems = fabric.plan(*arguments)
    return {"nodes": [fabric.plain(share) for share in shares], "problems": [str(problem) for problem in problems], "report": report(problems)}


def fabric_outcome(outcomes: Sequence[Any], mtu: int) -> str:
    """Return a report of the fabric's problems on all nodes, "" without any; see module_utils/fabric/report.py."""
    return fabric_report.report(_plain(outcomes), mtu)


def pinned_gid_index(plan: Mapping[str, Any], fabric_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a node with its RDMA devices' current NCCL_IB_GID_INDEX in the environment."""
    result = _plain(plan)
    node, rails = result["node"], [(rail["hca"], rail["address"]) for rail in result["node"]["rails"]]
    environment, problems = fabric_state.pinned(rails, fabric_schema.rdma_devices(_plain(fabric_facts)["rdma"]))
    if problems:
        raise AnsibleFilterError("; ".join(map(str, problems)))
    return {**result, "node": {**node, "environment": {**node["environment"], **environment}}}


def with_additions(plan: Mapping[str, Any], role: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with a role's overrides, by the node's name; see module_utils/launch/overrides.py."""
    return additions.added(_plain(plan), str(role), _plain(results))


def rank_environment(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of every process of a planned node."""
    return additions.rank_environment(_plain(node))


def patch_problems(results: Mapping[str, Any]) -> str:
    """Return the problems in the nodes' results of vllm_patch, by the node's name, "" if there are none."""
    problems = patch_report.check(_plain(results))
    return report(problems) if problems else ""


def nccl_choice(plan: Mapping[str, Any], libraries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the NCCL choice after installation; ``libraries`` are nccl_info's results by node, null if missing."""
    given, found = _plain(plan), {name: library or {} for name, library in _plain(libraries).items()}
    nodes = [nccl_choices.Node(node["name"], node["capability"] or "", found.get(node["name"])) for node in given["nodes"]]
    facts: dict[str, Any] = nccl_choices.choose(given["nccl"]["wanted"], nccl_choices.Cluster(**given["nccl"]["cluster"]), nodes).facts()
    return facts


def bandwidth_runs(plan: Mapping[str, Any], backend: str, port: int) -> list[dict[str, Any]]:
    """Return the runs that measure the bandwidth between nodes, as {name, environment} for the plan's node."""
    return nccl_bandwidth.runs(_plain(plan), str(backend), int(port))


def bandwidth_report(results: Mapping[str, Any], plan: Mapping[str, Any], backend: str, expected: float) -> dict[str, Any]:
    """Return {lines, expected, findings}: the measurements by the run's name, and those that are too slow."""
    measured, least = _plain(results), nccl_bandwidth.expected(_plain(plan), str(backend), float(expected))
    return {"lines": nccl_bandwidth.lines(measured), "expected": least, "findings": list(map(str, nccl_bandwidth.findings(measured, least)))}


def ray_exec(plan: Mapping[str, Any], object_store_memory: int, args: Sequence[str] = (), owner: str = "") -> str:
    """Return the ExecStart= of Ray on the plan's node; ``owner`` is the UID:GID that a container runs as."""
    given = _plain(plan)
    return systemd.exec_line(launch.contained(given, launch.RAY, launch.ray_argv(given, object_store_memory, _plain(args)), str(owner)))


def vllm_exec(plan: Mapping[str, Any], owner: str = "") -> str:
    """Return the ExecStart= of vLLM on the plan's node; ``owner`` is the UID:GID that a container runs as."""
    given = _plain(plan)
    if given["executor"] == "ray":
        return systemd.exec_line(launch.contained(given, launch.VLLM, launch.vllm_argv(given), str(owner)))
    return systemd.exec_line(launch.rank_argv(given, str(owner)))


def image_look(plan: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
    """Return the argv that runs another argv in a bare container of the image of the plan's node."""
    return launch.look_argv(_plain(plan), _plain(argv))


def image_versions(printed: str) -> dict[str, str]:
    """Return {vllm, ray}: the releases that an image printed, "" for a missing package."""
    try:
        return image_copies.versions(str(printed))
    except ValueError as error:
        message = f"gb10_container_image: the image did not print its vLLM and Ray releases: {error}"
        raise AnsibleFilterError(message) from error


def plan_text(plan: Mapping[str, Any], object_store_memory: int) -> list[str]:
    """Return the plan as text lines for people."""
    return plan_lines.lines(_plain(plan), int(object_store_memory))


def model_path(name: str, own: Mapping[str, Any], root: str = "") -> str:
    """Return a model's folder on the nodes; for a Hugging Face Hub model the store's folder with ``root``, else "".

    cluster_plan reports errors in the name and in ``own``.
    """
    try:
        model = catalogue.find(str(name), _plain(own))
    except ProblemsError:
        return str(name) if str(name).startswith("/") else ""
    return model.path or (model_store.folder(str(root), model.hub, model.revision) if root and model.hub else "")


def hub_model(name: str, own: Mapping[str, Any]) -> dict[str, str]:
    """Return {name, revision} of a model on Hugging Face Hub, {} for one with a folder. cluster_plan reports errors."""
    try:
        model = catalogue.find(str(name), _plain(own))
    except ProblemsError:
        return {}
    return {"name": model.hub, "revision": model.revision or "main"} if model.hub and not model.path else {}


def model_store_plan(
    plan: Mapping[str, Any], found: Mapping[str, Any], listing: Mapping[str, Any], reserve: int, verify: bool
) -> dict[str, Any]:
    """Return {receivers, chain, problems, report}; see module_utils/model_store/plan.py."""
    given, nodes = _plain(found), [_plain(node) for node in plan["nodes"]]
    names = [node["name"] for node in nodes]
    # Before the head's download its digest is unknown. Then every node that differs from the listing receives.
    wanted = "" if listing else given[names[0]]["digest"]
    receivers = model_store.receivers(names, given, wanted, bool(verify))
    problems = model_store.problems(_plain(plan["store"]), names, given, _plain(listing) or None, int(reserve))
    return {
        "receivers": receivers,
        "chain": model_store.chain(nodes, receivers),
        "problems": [str(problem) for problem in problems],
        "report": report(problems),
    }


def stack(name: str, lock: str = "") -> dict[str, Any]:
    """Return the versions of a stack. Versions that a lock file pins replace the stack's own."""
    found, problems = stacks.resolve(str(name), str(lock), "the lock") if lock else stacks.named(str(name))
    if problems:
        raise AnsibleFilterError("; ".join(map(str, problems)))
    return asdict(found)


def model_entry(name: str, own: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return a model's catalog entry; see module_utils/model/catalog.py."""
    try:
        return catalogue.find(str(name), _plain(own)).facts()
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def memory_plan(
    config: Mapping[str, Any], nodes: Sequence[Any], tensor: int, pipeline: int = 1, weights_bytes: int = 0, max_model_len: int = 0
) -> dict[str, Any]:
    """Return a model's memory plan; see module_utils/memory/plan.py."""
    members = [memory_schema.Node(node["name"], node["head"], node["memory_bytes"]) for node in _plain(nodes)]
    sizes = {"tensor": int(tensor), "pipeline": int(pipeline), "weights_bytes": int(weights_bytes) or None, "max_model_len": int(max_model_len)}
    try:
        planned = memory_planner.plan(memory_schema.Inputs(model_shape.shape(_plain(config)), members, **sizes))
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error
    return {**planned.facts(), "lines": memory_planner.explain(planned)}


def lint_serve(situation: Mapping[str, Any], waivers: Mapping[str, Any] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return the findings of the rules; see Situation in module_utils/rules/schema.py for the keys."""
    try:
        return [finding.facts() for finding in serve_rules.lint(serve_situation.of_data(_plain(situation)), _plain(waivers))]
    except (ProblemsError, TypeError) as error:
        raise AnsibleFilterError(str(error)) from error


def api_key_problem(key: str) -> str:
    """Return the error in a key for the API, without the key; "" for a valid key."""
    return api_access.key_problem(str(key))


def firewall_access(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return {peers, peer_ports, api_port, api_clients}: module peer_firewall's options for the plan's node."""
    return firewall.of_plan(_plain(plan))


def unknown_release(lock: str) -> bool:
    """Whether a lock file pins a vLLM outside the table of arguments, so that the installed one must be queried."""
    release = stacks.locked(str(lock)).get("vllm", "")
    return bool(release) and not vllm_release.known(release)


def stack_lock(name: str) -> str:
    """Return the name of a stack's lock file in the role gb10, "" without a lock or for an unknown stack."""
    stack = stacks.STACKS.get(str(name))
    return stack.lock if stack else ""


def stamped_unit(text: str, inputs: Sequence[Any]) -> dict[str, str]:
    """Return {text, inputs}: the unit with the digest of all launch inputs in place of its placeholder."""
    return systemd.stamped_unit(str(text), _plain(inputs))


def good_start(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a rollback to this launch needs; see module_utils/rollback/plan.py."""
    return way_back.start(_plain(plan))


def start_verdict(nodes: Sequence[Any]) -> dict[str, Any]:
    """Return {failed, start, why_not} of a launch on all nodes; see module_utils/rollback/plan.py for its nodes."""
    return way_back.judge(_plain(nodes))


def start_message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str = "") -> str:
    """Return the error message for a failed launch."""
    return way_back.message(_plain(verdict), str(model), bool(allowed), str(back))


def status_text(nodes: Sequence[Any], wanted: str) -> list[str]:
    """Return the cluster's status as text lines for people; see module_utils/health/status.py for a node's shape."""
    return status_lines.lines(_plain(nodes), str(wanted))


def _mac(value: str) -> str:
    """Return a MAC address in netaddr's format. Raises ValueError for anything else."""
    try:
        netaddr = import_module("netaddr")
    except ImportError as error:
        raise AnsibleFilterError("netaddr is not installed on the controller. Fix: pip install netaddr") from error
    try:
        return str(netaddr.EUI(value, version=48, dialect=netaddr.mac_unix_expanded))
    except (netaddr.AddrFormatError, TypeError) as error:
        raise ValueError(str(error)) from error


def discovery_machine(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a machine with its valid facts and the problems in them."""
    return discovery_answers.machine(machine, _mac)


def _machines(machines: Sequence[Any]) -> list[dict[str, Any]]:
    """Validate all machines: only validated facts may reach a file, a command or a message."""
    return [discovery_machine(machine) for machine in machines]


def discovery_strangers(machines: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the machines on cables that were not queried yet."""
    return discovery.strangers(_machines(machines))


def discovery_access(machines: Sequence[Any], folder: str) -> dict[str, Any]:
    """Return {ssh_config, known_hosts, trusted}: the SSH configuration for the machines on cables."""
    known = _machines(machines)
    new = [machine for machine in discovery.settled(known) if not (machine["observed"] or machine["unreachable"] or machine["invalid"])]
    try:
        return {
            "ssh_config": discovery_files.ssh_config(known, str(folder)),
            "known_hosts": discovery_files.known_hosts(known),
            "trusted": discovery_files.trusted(new),
        }
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def discovery_result(machines: Sequence[Any], partial: bool, model: str = "") -> dict[str, Any]:
    """Return {topology, summary, notes, problems, report, files, trusted}."""
    known = discovery.settled(_machines(machines))
    found = discovery.discover(known, bool(partial))
    try:
        return {
            "topology": found.proposal.topology,
            "summary": discovery_files.summary(known, found),
            "notes": [str(note) for note in found.notes],
            "problems": [str(problem) for problem in found.problems],
            "report": report(found.problems),
            "files": discovery_files.files(known, found, str(model)),
            "trusted": discovery_files.inventory(known, found)["trusted"],
        }
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def api_place(host: str, port: int, name: str, address: str, tls: bool) -> dict[str, str]:
    """Return {url, server_name, endpoint, client} of the API; see module_utils/api/access.py."""
    return api_access.place(str(host), int(port), str(name), str(address), bool(tls))


def api_tls(texts: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the facts and problems of the API's certificate, without its key; see module_utils/api/tls.py."""
    return certificate.verdict(_plain(texts), str(name))


def secret_environment(variables: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return secret variables' names and problems, without values; see module_utils/common/secret_environment.py."""
    return secrets.verdict(_plain(variables), _plain(plain))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "api_key_problem": api_key_problem,
            "api_place": api_place,
            "api_tls": api_tls,
            "bandwidth_report": bandwidth_report,
            "bandwidth_runs": bandwidth_runs,
            "nccl_choice": nccl_choice,
            "cluster_plan": cluster_plan,
            "discovery_access": discovery_access,
            "discovery_machine": discovery_machine,
            "discovery_result": discovery_result,
            "discovery_strangers": discovery_strangers,
            "fabric_outcome": fabric_outcome,
            "fabric_plan": fabric_plan,
            "firewall_access": firewall_access,
            "good_start": good_start,
            "node_plan": node_plan,
            "patch_problems": patch_problems,
            "pinned_gid_index": pinned_gid_index,
            "rank_environment": rank_environment,
            "hub_model": hub_model,
            "image_look": image_look,
            "image_versions": image_versions,
            "lint_serve": lint_serve,
            "memory_plan": memory_plan,
            "model_entry": model_entry,
            "model_path": model_path,
            "model_store_plan": model_store_plan,
            "plan_text": plan_text,
            "ray_exec": ray_exec,
            "secret_environment": secret_environment,
            "stack": stack,
            "stack_lock": stack_lock,
            "unknown_release": unknown_release,
            "stamped_unit": stamped_unit,
            "start_message": start_message,
            "start_verdict": start_verdict,
            "status_text": status_text,
            "vllm_exec": vllm_exec,
            "with_additions": with_additions,
        }

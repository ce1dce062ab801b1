# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the inputs of a cluster before any node is read. plan.py documents the shape of a node."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.renamed_data import RENAMED
from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice as nccl_choice
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: Settings that may differ between nodes; all others describe the cluster and must not.
PER_NODE = ("gb10_fabric_addresses", "gb10_fabric_interface", "gb10_fabric_ports", "gb10_runtime_wheels")
EXECUTORS = ("ray", "mp")
PARALLELISM = ("gb10_tensor_parallel_size", "gb10_pipeline_parallel_size")
#: An image reference that engines accept: a name with a tag, a digest or both, or an ID.
_IMAGE = re.compile(r"(?!sha256:)[A-Za-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?|sha256:[0-9a-f]{64}", re.ASCII)
#: Options of an engine's run command that users cannot set, with the reasons.
_TAKEN = {
    **dict.fromkeys(("-d", "--detach", "--restart"), "the unit runs the container in the foreground and restarts it"),
    **dict.fromkeys(("--name", "--rm"), "the unit finds and removes its container by its name"),
    "--privileged": "the container gets only the devices that it needs",
}
#: A user name that useradd accepts and that the system does not use.
_USER = re.compile(r"(?!(root|nobody)$)[a-z_][a-z0-9_-]{0,30}")
#: A folder path that is valid in a unit.
_FOLDER = re.compile(r"/[^\s\"'%\\]*")
#: Folders that root runs programs from, reads or writes: they must not contain a folder of the services, or be inside
#: one.
_ROOTS = ("/boot", "/etc", "/root", "/run", "/usr", "/var/lib/gb10-netplan")
#: The fact that the role gb10 sets on every node.
PLAN_FACT = "gb10_plan"


def check(nodes: Sequence[Mapping[str, Any]], known_variables: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Return every problem of groups, names and settings.

    The first node is the head; ``known_variables`` maps roles to their public variables.
    """
    return [
        *_check_groups(nodes),
        *_check_variables(nodes, known_variables),
        *_check_equal(nodes),
        *_check_settings(nodes[0]["settings"], len(nodes)),
        *_check_access(nodes),
        *_check_folders(nodes[0]["settings"]),
        *_check_nccl(nodes[0]["nccl_wanted"]),
    ]


def parallelism(settings: Mapping[str, Any], nodes: int) -> tuple[int, int]:
    """Return the user's (tensor, pipeline) parallel size. 0 means the rest of the GPUs, or all if both are 0."""
    tensor, pipeline = settings["gb10_tensor_parallel_size"], settings["gb10_pipeline_parallel_size"]
    devices = nodes * launch.GPUS_PER_NODE
    return tensor or max(1, devices // (pipeline or 1)), pipeline or (max(1, devices // tensor) if tensor else 1)


def _check_nccl(wanted: str) -> list[Problem]:
    if wanted in nccl_choice.WANTED:
        return []
    return [Problem("nccl_sm121_build_enabled", repr(wanted), " or ".join(nccl_choice.WANTED), "correct or remove it")]


def _check_groups(nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
    heads = [node["name"] for node in nodes if node["group"] == "head"]
    problems = []
    if not heads:
        problems.append(
            Problem(
                "groups.head",
                "no host is in the group head",
                "exactly one host in the group head",
                "move one host from worker to head",
            )
        )
    if len(heads) > 1:
        problems.append(
            Problem(
                "groups.head",
                f"{len(heads)} heads: {', '.join(heads)}",
                "exactly one host in the group head",
                "move the other hosts to worker",
            )
        )
    problems += [
        Problem(
            f"nodes[{index}]",
            f"{node['name']} is neither in head nor in worker",
            "one of the two groups",
            "add the host to worker",
        )
        for index, node in enumerate(nodes)
        if not node["group"]
    ]
    return problems


def _check_variables(nodes: Sequence[Mapping[str, Any]], known: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Find misspelled names of this collection's variables, because Ansible ignores them."""
    prefixes = tuple(f"{role}_" for role in known)
    names = {PLAN_FACT, *(name for variables in known.values() for name in variables)}
    problems = []
    for index, node in enumerate(nodes):
        for name in sorted(node["variables"]):
            if name in names:
                continue
            if new := RENAMED.get(name):
                found = f"{name}, set for {node['name']}, is the former name of {new}"
                problems.append(Problem(f"nodes[{index}].{name}", found, new, f"rename it to {new}"))
                continue
            # The role's prefix may be misspelled too. Then only a very similar name counts.
            close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6 if name.startswith(prefixes) else 0.9)
            if not close and not name.startswith(prefixes):
                continue
            problems.append(
                Problem(
                    f"nodes[{index}].{name}",
                    f"{name}, set for {node['name']}, is not a variable of this collection",
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
    if settings["gb10_distributed_executor_backend"] not in EXECUTORS:
        problems.append(
            Problem(
                "gb10_distributed_executor_backend",
                repr(settings["gb10_distributed_executor_backend"]),
                " or ".join(EXECUTORS),
                "correct gb10_distributed_executor_backend",
            )
        )
    negative = [name for name in PARALLELISM if settings[name] < 0]
    problems += [
        Problem(name, str(settings[name]), "1 or more, or 0 for automatic", f"correct {name}") for name in negative
    ]
    problems += _check_replicas(settings, nodes)
    problems += _check_parallelism(settings, nodes) if not negative and settings["gb10_data_parallel_size"] == 1 else []
    problems += _check_ports(settings)
    problems += _check_container(settings)
    if "VLLM_HOST_IP" in settings["gb10_extra_env"]:
        problems.append(
            Problem(
                "gb10_extra_env.VLLM_HOST_IP",
                "it is set",
                "unset: each node has its own value",
                "use gb10_fabric_addresses instead",
            )
        )
    try:
        systemd.environment_file(settings["gb10_extra_env"])
    except ValueError as error:
        problems.append(Problem("gb10_extra_env", str(error), "variable names and one-line values", "correct gb10_extra_env"))
    return problems


def _check_folders(settings: Mapping[str, Any]) -> list[Problem]:
    """Find paths that root reads, writes or runs below a folder that the services can write to (docs/security.md)."""
    user, root = settings["gb10_service_user"], settings["gb10_install_dir"]
    if not _USER.fullmatch(user):
        expected = "a dedicated user name: lower case letters, digits, - and _"
        return [Problem("gb10_service_user", repr(user), expected, "correct gb10_service_user, or remove it")]
    named = {
        "gb10_install_dir": root,
        **{f"gb10_service_read_write_paths[{index}]": folder for index, folder in enumerate(settings["gb10_service_read_write_paths"])},
    }
    problems = [
        Problem(name, repr(folder), "an absolute path without blanks, quotes or %", f"correct {name.partition('[')[0]}")
        for name, folder in named.items()
        if not _FOLDER.fullmatch(folder) or ".." in folder.split("/")
    ]
    if problems:
        return problems
    theirs = {name: folder for name, folder in named.items() if name != "gb10_install_dir"}
    for name, folder in theirs.items():
        taken = next((other for other in (*_ROOTS, root) if _below(folder, other) or _below(other, folder)), "")
        if taken:
            found = f"{folder} overlaps with {taken}, which belongs to root"
            problems.append(
                Problem(name, found, "a folder that only the services use", f"choose a folder outside {taken}")
            )
    home = launch.home(user)
    if _below(root, home) or _below(home, root):
        found = f"{root} overlaps with {home}, the folder of {user}"
        problems.append(
            Problem("gb10_install_dir", found, "a folder that only root can change", f"choose a folder outside {home}")
        )
    entries = {name: entry for name, entry in settings["gb10_models"].items() if isinstance(entry, Mapping)}
    models = {f"gb10_models.{name}.path": str(entry.get("path") or "") for name, entry in entries.items()}
    for name, folder in {"gb10_model": settings["gb10_model"], **models}.items():
        around = next((other for other in (home, *theirs.values()) if folder.startswith("/") and _below(folder, other)), "")
        if around:
            found = f"root reads {folder}, and the services can write to {around}"
            problems.append(
                Problem(name, found, "a folder that the services cannot change", f"move the model out of {around}")
            )
    return problems


def _below(path: str, folder: str) -> bool:
    """Whether a path equals a folder or is below it."""
    path, folder = (posixpath.normpath(each).rstrip("/") for each in (path, folder))
    return path == folder or path.startswith(f"{folder}/")


def _check_access(nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
    settings = nodes[0]["settings"]
    problem = next((node["key_problem"] for node in nodes if node["key_problem"]), "")
    verdicts = [nodes[0]["tls"], *(node["secrets"] for node in nodes)]
    return [
        *api_access.check(
            settings["gb10_api_key_enabled"], problem, settings["gb10_api_host"], settings["gb10_api_name"], settings["gb10_api_clients"]
        ),
        *dict.fromkeys(Problem(**found) for verdict in verdicts for found in verdict.get("problems", ())),
        *secret_environment.check_environment(settings["gb10_extra_env"], "gb10_extra_env"),
        *secret_environment.check_arguments(settings["gb10_vllm_extra_args"], "gb10_vllm_extra_args"),
        *secret_environment.check_engine(settings["gb10_container_args"], "gb10_container_args"),
    ]


def _check_ports(settings: Mapping[str, Any]) -> list[Problem]:
    """Find invalid ports, and ports that two listeners of the head would share."""
    if settings["gb10_distributed_executor_backend"] == "mp":
        return _check_rendezvous(settings)
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
        problems.append(
            Problem(
                "gb10_api_port",
                f"{api} is also {fixed.get(api) or others[api]}",
                "a separate port",
                "change gb10_api_port",
            )
        )
    for port in sorted(fixed.keys() & others.keys())[:1]:
        problems.append(
            Problem(
                "gb10_ray_port",
                f"{port}, {fixed[port]}, is also {others[port]}",
                "separate ports",
                "change gb10_ray_port",
            )
        )
    return problems


def _check_container(settings: Mapping[str, Any]) -> list[Problem]:
    """Find settings that do not work with the unit, which runs the engine in the foreground and names the container."""
    choices = {"gb10_runtime": ("", stacks.NATIVE, stacks.CONTAINER), "gb10_container_engine": launch.ENGINES}
    problems = [
        Problem(
            name,
            repr(settings[name]),
            " or ".join(value or "'' for gb10_stack's runtime" for value in allowed),
            f"correct {name}",
        )
        for name, allowed in choices.items()
        if settings[name] not in allowed
    ]
    image = settings["gb10_container_image"]
    if image and not _IMAGE.fullmatch(image):
        expected = "a reference such as vllm/vllm-openai@sha256:..., or an image ID (sha256:...), with 64 digits"
        problems.append(
            Problem(
                "gb10_container_image", f"{image!r} is not an image reference", expected, "correct gb10_container_image"
            )
        )
    problems += [
        Problem(f"gb10_container_args[{index}]", word, f"not set, because {_TAKEN[option]}", "remove it")
        for index, word in enumerate(settings["gb10_container_args"])
        if (option := word.partition("=")[0]) in _TAKEN
    ]
    return problems


def _check_rendezvous(settings: Mapping[str, Any]) -> list[Problem]:
    """Check the ports without Ray: vLLM's ranks connect on the master port, and use the next port to end together."""
    api, meet = settings["gb10_api_port"], settings["gb10_master_port"]
    problems = [
        Problem(name, str(port), f"1024 to {last}", f"correct {name}")
        for name, port, last in (("gb10_api_port", api, 65535), ("gb10_master_port", meet, 65534))
        if not 1024 <= port <= last
    ]
    if api in (meet, meet + 1):
        problems.append(
            Problem(
                "gb10_api_port",
                f"{api} is also the ranks' master port or the port after it",
                "a separate port",
                "change gb10_api_port",
            )
        )
    return problems


def _check_replicas(settings: Mapping[str, Any], nodes: int) -> list[Problem]:
    """Check that each node has one replica. A replica over several nodes uses another address, which is untested."""
    path = "gb10_data_parallel_size"
    data = settings[path]
    split = [name for name in PARALLELISM if data > 1 and settings[name] > 1]
    problems = [
        Problem(name, f"{settings[name]} within a replica", f"0 or 1 with {path} {data}", "remove one of the two")
        for name in split
    ]
    if data not in (1, nodes):
        expected = f"1, or {nodes}, a replica on each node" if nodes > 1 else "1 with one node"
        problems.append(Problem(path, str(data), expected, f"correct {path}"))
    return problems


def _check_parallelism(settings: Mapping[str, Any], nodes: int) -> list[Problem]:
    tensor, pipeline = parallelism(settings, nodes)
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
                f"a product of {devices}: every node is used",
                "raise one of the two sizes, or remove nodes from the inventory",
            )
        ]
    return []

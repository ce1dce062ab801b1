# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the inputs of a cluster that no node needs to be read for."""

from __future__ import annotations

import difflib
import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.node_checks import listeners
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.renamed_data import REMOVED, RENAMED
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import PREFIX, Inputs, Node, Settings
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.words_data import WORDS
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, secret_environment, spans, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice as nccl_choice
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.service import recorder

_T = TypeVar("_T")
#: Settings that may differ between nodes; all others describe the cluster and must not.
PER_NODE = ("gb10_fabric_addresses", "gb10_fabric_interface", "gb10_fabric_ports", "gb10_runtime_wheels")
EXECUTORS = ("auto", "ray", "mp")
PARALLELISM = ("gb10_tensor_parallel_size", "gb10_pipeline_parallel_size")
#: An image reference that engines accept: a name with a tag, a digest or both, or an ID.
_IMAGE = re.compile(r"(?!sha256:)[A-Za-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?|sha256:[0-9a-f]{64}", re.ASCII)
#: Options of an engine's run command that users cannot set, with the reasons.
_TAKEN = {
    **dict.fromkeys(("-d", "--detach", "--restart"), "the unit runs the container in the foreground and restarts it"),
    **dict.fromkeys(("--name", "--rm"), "the unit finds and removes its container by its name"),
    "--privileged": "the container gets only the devices that it needs",
}
#: Seconds without a request: a shorter time would end the model between two requests of the same person.
_LEAST_REST = 30
#: The least similarity of a misspelled name.
_NEAR = 0.8
#: A user name that useradd accepts and that the system does not use.
_USER = re.compile(r"(?!(root|nobody)$)[a-z_][a-z0-9_-]{0,30}")
#: A folder path that is valid in a unit, and in an engine's option of a mount.
_FOLDER = re.compile(r"(?:/(?!\.\.(?:/|$))[^/\s\"'%\\,]*)+")
_FOLDER_FORM = "an absolute path without .., blanks, commas, quotes or %"
#: Folders that root runs programs from, reads or writes: they must not contain a folder of the services, or be inside
#: one.
_ROOTS = ("/boot", "/etc", "/root", "/run", "/usr", "/var/lib/gb10-netplan")
#: Other folders that an engine may not mount.
_KERNEL = ("/dev", "/proc", "/sys")
#: The facts that roles set on nodes, which a later plan of the same run finds among the variables.
FACTS = (
    *("gb10_inputs", "gb10_plan", "gb10_api_key_state", "gb10_secrets_state"),
    *("golden_outcome", "ray_cluster_joined", "gb10_launch_problem", "gb10_restore_problem", "vllm_serve_smoke"),
)


def check(inputs: Inputs, known_variables: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Return every problem of groups, names and settings. ``known_variables`` maps roles to their public variables."""
    nodes, settings = inputs.nodes, inputs.head.settings
    return [
        *_check_groups(nodes),
        *_check_addresses(nodes),
        *_check_variables(nodes, known_variables),
        *_check_values(nodes),
        *_check_equal(nodes),
        *_check_settings(settings, len(nodes)),
        *_check_access(nodes),
        *recorder.check([node.recorder for node in nodes]),
        *_check_folders(settings),
        *_check_restarts(settings),
        *_check_rest(settings, len(nodes)),
        *_check_nccl(inputs.head.nccl_wanted),
    ]


def _sizes(settings: Settings, nodes: int) -> tuple[int, int]:
    """Return the user's (tensor, pipeline) parallel size. 0 means the rest of the GPUs, or all if both are 0."""
    tensor, pipeline = settings.tensor_parallel_size, settings.pipeline_parallel_size
    devices = nodes * launch_argv.GPUS_PER_NODE
    return tensor or max(1, devices // (pipeline or 1)), pipeline or (max(1, devices // tensor) if tensor else 1)


def _check_nccl(wanted: str) -> list[Problem]:
    if wanted in nccl_choice.WANTED:
        return []
    return [Problem("nccl_sm121_build_enabled", repr(wanted), " or ".join(nccl_choice.WANTED), "correct or remove it")]


def _check_groups(nodes: Sequence[Node]) -> list[Problem]:
    heads, others = [node.name for node in nodes if node.head], [node.name for node in nodes if not node.group]
    if others and len(others) == len(nodes):
        found = f"{', '.join(others)} are in no child group of the cluster's group"
        fix = "move the first host to head, and the others to worker"
        return [Problem("groups", found, "one host in the group head, the others in worker", fix)]
    found, fix = "no host is in the group head", "move one host from worker to head"
    if heads:
        found, fix = f"{len(heads)} heads: {', '.join(heads)}", "move the other hosts to worker"
    head = Problem("groups.head", found, "exactly one host in the group head", fix)
    return ([head] if len(heads) != 1 else []) + [
        Problem(
            f"nodes[{index}]",
            f"{node.name} is neither in head nor in worker",
            "one of the two groups",
            "add the host to worker",
        )
        for index, node in enumerate(nodes)
        if not node.group
    ]


def _check_addresses(nodes: Sequence[Node]) -> list[Problem]:
    """Return the nodes with the address of another one, which would be configured twice, as two nodes."""
    first = {node.address: node.name for node in reversed(nodes)}
    return [
        Problem(
            f"nodes[{index}].ansible_host",
            f"{node.address}, the address of {first[node.address]}",
            "a separate address",
            f"correct ansible_host of {node.name}",
        )
        for index, node in enumerate(nodes)
        if first[node.address] != node.name
    ]


def _check_variables(nodes: Sequence[Node], known: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Find misspelled names of this collection's variables, because Ansible ignores them."""
    prefixes = tuple(f"{role}_" for role in known)
    names = {*FACTS, *(name for variables in known.values() for name in variables)}
    # The names of the roles' own facts begin with an underscore.
    others = [[name for name in sorted(node.variables) if name not in names and name[:1] != "_"] for node in nodes]
    problems = (
        _check_variable(path, node, name, names, prefixes)
        for name, found in _places(others).items()
        for path, node in _named(nodes, found, name)
    )
    return [problem for problem in problems if problem]


def _check_values(nodes: Sequence[Node]) -> list[Problem]:
    """Return the problems of refused values, one for all nodes if it is the same on all."""
    return [
        Problem(path, refused.found, refused.expected, f"correct {refused.name}")
        for refused, found in _places([node.refused for node in nodes]).items()
        for path, _node in _named(nodes, found, refused.name)
    ]


def _places(values: Sequence[Sequence[_T]]) -> dict[_T, list[int]]:
    """Return for each value the indices of the nodes that have it."""
    places: dict[_T, list[int]] = {}
    for index, own in enumerate(values):
        for value in own:
            places.setdefault(value, []).append(index)
    return places


def _named(nodes: Sequence[Node], found: Sequence[int], name: str) -> list[tuple[str, str]]:
    """Return the path of a variable and the node's name for each of the nodes ``found``, one pair for all nodes."""
    if len(found) == len(nodes):
        return [(name, "all nodes" if len(nodes) > 1 else nodes[0].name)]
    return [(f"nodes[{index}].{name}", nodes[index].name) for index in found]


def _check_variable(path: str, node: str, name: str, names: set[str], prefixes: tuple[str, ...]) -> Problem | None:
    """Return the problem of a variable outside ``names``, None for a variable of another program."""
    if new := RENAMED.get(name):
        return Problem(path, f"{name}, set for {node}, is the former name of {new}", new, f"rename it to {new}")
    if reason := REMOVED.get(name):
        return Problem(path, f"{name}, set for {node}, was removed: {reason}", "no such variable", "remove it")
    ours = name.startswith(prefixes)
    # The role's prefix may be misspelled too. Then only a very similar name counts.
    meant = [WORDS[word] for prefix in prefixes if (word := name.removeprefix(prefix)) != name and word in WORDS]
    close = meant or difflib.get_close_matches(name, sorted(names), n=1, cutoff=_NEAR if ours else 0.9)
    if not close and not ours:
        return None
    expected = close[0] if close else "a variable that a role's argument_specs list"
    fix = (
        f"rename it to {close[0]}, or remove it"
        if close
        else "remove it; ansible-doc -t role gb10.cluster.gb10 lists them"
    )
    return Problem(path, f"{name}, set for {node}, is not a variable of this collection", expected, fix)


def _check_equal(nodes: Sequence[Node]) -> list[Problem]:
    first = nodes[0]
    common = [field.name for field in fields(Settings) if f"{PREFIX}{field.name}" not in PER_NODE]
    return [
        Problem(
            f"nodes[{index}].{PREFIX}{name}",
            f"{node.name} has {getattr(node.settings, name)!r}, {first.name} has {getattr(first.settings, name)!r}",
            "the same on every node",
            f"set {PREFIX}{name} for the group gb10_cluster",
        )
        for name in common
        for index, node in enumerate(nodes)
        if getattr(node.settings, name) != getattr(first.settings, name)
    ]


def _check_settings(settings: Settings, nodes: int) -> list[Problem]:
    problems = []
    if (executor := settings.distributed_executor_backend) not in EXECUTORS:
        name = "gb10_distributed_executor_backend"
        problems.append(Problem(name, repr(executor), ", ".join(EXECUTORS), f"correct {name}"))
    sizes = dict(zip(PARALLELISM, (settings.tensor_parallel_size, settings.pipeline_parallel_size), strict=True))
    negative = [
        Problem(name, str(size), "1 or more, or 0 for automatic", f"correct {name}")
        for name, size in sizes.items()
        if size < 0
    ]
    problems += negative
    limits = ("max_num_seqs", "kv_cache_contexts", "kv_cache_tokens_per_request", "memory_reserve")
    problems += _outside(settings, dict.fromkeys(limits, (0, math.inf)))
    problems += _check_replicas(settings.data_parallel_size, sizes, nodes)
    problems += _check_parallelism(settings, nodes) if not negative and settings.data_parallel_size in (0, 1) else []
    problems += _check_ports(settings, nodes)
    problems += _check_container(settings)
    if "VLLM_HOST_IP" in settings.extra_env:
        problems.append(
            Problem(
                "gb10_extra_env.VLLM_HOST_IP",
                "it is set",
                "unset: each node has its own value",
                "use gb10_fabric_addresses instead",
            )
        )
    try:
        systemd.environment_file(settings.extra_env)
    except ValueError as error:
        problems.append(
            Problem("gb10_extra_env", str(error), "variable names and one-line values", "correct gb10_extra_env")
        )
    return problems


def _outside(settings: Settings, ranges: Mapping[str, tuple[int, float]]) -> list[Problem]:
    """Return the problems of settings outside their range, as the first and the last value."""
    return [
        Problem(
            f"{PREFIX}{name}",
            str(getattr(settings, name)),
            f"{first} or more" if last == math.inf else f"{first} to {last}",
            f"correct {PREFIX}{name}",
        )
        for name, (first, last) in ranges.items()
        if not first <= getattr(settings, name) <= last
    ]


def _check_folders(settings: Settings) -> list[Problem]:
    """Find paths that root reads, writes or runs below a folder that the services can write to (docs/security.md)."""
    user, root = settings.service_user, settings.install_dir
    if not _USER.fullmatch(user):
        expected = "a dedicated user name: lower case letters, digits, - and _"
        return [Problem("gb10_service_user", repr(user), expected, "correct gb10_service_user, or remove it")]
    theirs = {
        f"gb10_service_read_write_paths[{index}]": folder
        for index, folder in enumerate(settings.service_read_write_paths)
    }
    problems = [
        Problem(name, repr(folder), _FOLDER_FORM, f"correct {name.partition('[')[0]}")
        for name, folder in {"gb10_install_dir": root, **theirs}.items()
        if not _FOLDER.fullmatch(folder)
    ]
    home = paths.home(user)
    return problems or [
        *_check_writable(theirs, root),
        *_check_root(root, home, user),
        *_check_models(settings, (home, *theirs.values())),
    ]


def _check_writable(folders: Mapping[str, str], root: str) -> list[Problem]:
    """Check that the services' own folders, by variable, do not overlap with root's."""
    return [
        Problem(
            name,
            f"{folder} overlaps with {taken}, which belongs to root",
            "a folder that only the services use",
            f"choose a folder outside {taken}",
        )
        for name, folder in folders.items()
        for taken in [other for other in (*_ROOTS, root) if _overlap(folder, other)][:1]
    ]


def _check_root(root: str, home: str, user: str) -> list[Problem]:
    if not _overlap(root, home):
        return []
    found = f"{root} overlaps with {home}, the folder of {user}"
    return [Problem("gb10_install_dir", found, "a folder that only root can change", f"choose a folder outside {home}")]


def _check_models(settings: Settings, writable: Sequence[str]) -> list[Problem]:
    """Check the folders of models and adapters, which root's engine mounts, against those of the services and root."""
    entries = {name: entry for name, entry in settings.models.items() if isinstance(entry, Mapping)}
    models = {f"gb10_models.{name}.path": str(entry.get("path") or "") for name, entry in entries.items()}
    models["gb10_model"] = settings.model
    found: list[tuple[str, str, Sequence[str]]] = []
    found += [(name, folder, ()) for name, folder in models.items() if folder.startswith("/")]
    name, taken = f"gb10_vllm_extra_args.{adapters.MODULES}", (*_ROOTS, *_KERNEL)
    found += [(name, folder, taken) for folder in adapters.folders(settings.vllm_extra_args)]
    return [problem for each in found for problem in _check_mounted(*each, writable)]


def _check_mounted(name: str, folder: str, taken: Sequence[str], writable: Sequence[str]) -> list[Problem]:
    """Return the problem of a folder that overlaps with one of root, or is below one of the services."""
    if not _FOLDER.fullmatch(folder):
        return [Problem(name, repr(folder), _FOLDER_FORM, "move the folder")]
    around = [other for other in writable if _below(folder, other)]
    around += [other for other in taken if _overlap(folder, other)]
    expected = "a folder that the services cannot change, outside of root's own"
    return [
        Problem(name, f"root reads {folder}, which overlaps with {other}", expected, f"move it out of {other}")
        for other in around[:1]
    ]


def _overlap(one: str, other: str) -> bool:
    return _below(one, other) or _below(other, one)


def _below(path: str, folder: str) -> bool:
    """Whether a path equals a folder or is below it."""
    path, folder = (posixpath.normpath(each).rstrip("/") for each in (path, folder))
    return path == folder or path.startswith(f"{folder}/")


def _check_access(nodes: Sequence[Node]) -> list[Problem]:
    settings, tls = nodes[0].settings, nodes[0].tls
    problem = next((node.key_problem for node in nodes if node.key_problem), "")
    secrets = [found for node in nodes for found in node.secret_problems]
    return [
        *api_access.check(
            settings.api_key_enabled, problem, settings.api_host, settings.api_name, settings.api_clients
        ),
        *api_access.check_address(settings.api_host, settings.api_name, nodes[0].address),
        *dict.fromkeys((*(tls.problems if tls else ()), *secrets)),
        *secret_environment.check_environment(settings.extra_env, "gb10_extra_env"),
        *secret_environment.check_downloads(settings.download_env, "gb10_download_env"),
        *secret_environment.check_arguments(settings.vllm_extra_args, "gb10_vllm_extra_args"),
        *secret_environment.check_engine(settings.container_args, "gb10_container_args"),
    ]


def _check_ports(settings: Settings, nodes: int) -> list[Problem]:
    """Find invalid ports, and ports that two listeners of the head would share."""
    if settings.distributed_executor_backend == "mp":
        return _check_rendezvous(settings, nodes)
    api, ray = settings.api_port, settings.ray_port
    last_ray = 65535 - max(launch_argv.RAY_PORTS.values())
    problems = _outside(settings, {"api_port": (1024, 65535), "ray_port": (1024, last_ray)})
    first, last = launch_argv.RAY_WORKER_PORTS
    fixed = {port: f"Ray's {name}" for name, port in launch_argv.ray_ports(ray, head=True).items()}
    others = {
        launch_argv.RAY_DASHBOARD_PORT: "Ray's dashboard",
        **dict.fromkeys(range(first, last + 1), "one of Ray's worker ports"),
    }
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


def _check_container(settings: Settings) -> list[Problem]:
    """Find settings that do not work with the unit, which runs the engine in the foreground and names the container."""
    choices: Mapping[str, tuple[str, Sequence[str]]] = {
        "gb10_runtime": (settings.runtime, ("", stacks.NATIVE, stacks.CONTAINER)),
        "gb10_container_engine": (settings.container_engine, launch_argv.ENGINES),
    }
    problems = [
        Problem(
            name, repr(value), " or ".join(each or "'' for gb10_stack's runtime" for each in allowed), f"correct {name}"
        )
        for name, (value, allowed) in choices.items()
        if value not in allowed
    ]
    image = settings.container_image
    if image and not _IMAGE.fullmatch(image):
        expected = "a reference such as vllm/vllm-openai@sha256:..., or an image ID (sha256:...), with 64 digits"
        shown = "a name with a user" if "@" in image.partition("@sha256:")[0] else repr(image)
        problems.append(
            Problem(
                "gb10_container_image", f"{shown} is not an image reference", expected, "correct gb10_container_image"
            )
        )
    problems += [
        Problem(f"gb10_container_args[{index}]", word, f"not set, because {_TAKEN[option]}", "remove it")
        for index, word in enumerate(settings.container_args)
        if (option := word.partition("=")[0]) in _TAKEN
    ]
    return problems


def _check_restarts(settings: Settings) -> list[Problem]:
    """Check the limits of restarts: starts that each wait for a gate must reach the limit."""
    names = ("restart_attempts", "restart_delay", "restart_max_delay", "gate_timeout")
    shares = {"service_memory_max": (50, 100), "service_oom_score": (0, 1000)}
    problems = _outside(settings, {**dict.fromkeys(names, (1, math.inf)), **shares})
    longest = max(settings.restart_delay, settings.restart_max_delay) + settings.gate_timeout
    if not problems and settings.restart_interval <= settings.restart_attempts * longest:
        found = (
            f"{settings.restart_interval} is too short for {settings.restart_attempts} starts of {longest} s each, "
            "so they would never end"
        )
        expected = f"more than {settings.restart_attempts * longest}"
        problems.append(Problem("gb10_restart_interval", found, expected, "raise it, or lower gb10_gate_timeout"))
    return problems


def _check_rest(settings: Settings, nodes: int) -> list[Problem]:
    """Check the time without a request, and the port that wakes the model."""
    after, problems = spans.seconds(settings.idle_stop), _outside(settings, {"wake_port": (1024, 65535)})
    if after is None or 0 < after < _LEAST_REST:
        expected = f"a number and its unit, such as 30m or 2h, at least {_LEAST_REST}s; empty for never"
        problems.append(Problem("gb10_idle_stop", repr(settings.idle_stop), expected, "correct gb10_idle_stop"))
    taken = {port: name for name, port in listeners(settings, True, nodes).items() if name != "gb10_wake_port"}
    if after and not api_access.is_address(settings.api_host):
        problems.append(
            Problem(
                "gb10_api_host",
                repr(settings.api_host),
                "an address, because systemd listens on it while the model rests",
                "set an address, or leave gb10_idle_stop empty",
            )
        )
    if after and settings.wake_port in taken:
        found = f"{settings.wake_port} is also {taken[settings.wake_port]}"
        problems.append(Problem("gb10_wake_port", found, "a separate port", "change gb10_wake_port"))
    return problems


def _check_rendezvous(settings: Settings, nodes: int) -> list[Problem]:
    """Check the ports without Ray: the ranks of several nodes connect on the master port, and use the next port to end
    together."""
    api, meet = settings.api_port, settings.master_port
    problems = _outside(settings, {"api_port": (1024, 65535), "master_port": (1024, 65534)})
    if nodes > 1 and api in (meet, meet + 1):
        problems.append(
            Problem(
                "gb10_api_port",
                f"{api} is also the ranks' master port or the port after it",
                "a separate port",
                "change gb10_api_port",
            )
        )
    return problems


def _check_replicas(data: int, sizes: Mapping[str, int], nodes: int) -> list[Problem]:
    """Check that each node has one replica. A replica over several nodes uses another address, which is untested."""
    path = "gb10_data_parallel_size"
    problems = [
        Problem(name, f"{size} within a replica", f"0 or 1 with {path} {data}", "remove one of the two")
        for name, size in sizes.items()
        if data > 1 and size > 1
    ]
    if data not in (0, 1, nodes):
        expected = f"0 for automatic, 1, or {nodes}, a replica on each node" if nodes > 1 else "0 or 1 with one node"
        problems.append(Problem(path, str(data), expected, f"correct {path}"))
    return problems


def _check_parallelism(settings: Settings, nodes: int) -> list[Problem]:
    tensor, pipeline = _sizes(settings, nodes)
    devices = nodes * launch_argv.GPUS_PER_NODE
    if tensor * pipeline > devices:
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

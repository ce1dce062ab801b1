# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse the inputs of the cluster plan once. Keys and other secrets are never among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import typical
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import (
    PREFIX,
    Facts,
    Gpu,
    HubModel,
    ImageOptions,
    Inputs,
    Listener,
    ModelFiles,
    Node,
    Refused,
    Settings,
    Tls,
)
from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import schema as fabric_schema
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.links import PORTS, Ports
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostState
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.patches import Patch
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages as node_packages
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import parse as os_update_parse
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Installed
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import apply as recipe_apply
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import parse as recipe_parse
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Use
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import layers as runtime_layers
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import pins
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.layers import Layer
from ansible_collections.gb10.cluster.plugins.module_utils.service.recorder import UdpPorts
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse as vllm_build_parse
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer


def parse(
    nodes: Sequence[Mapping[str, Any]], lock: str, recipe: Any = None, layers: Sequence[Mapping[str, Any]] = ()
) -> Inputs:
    """Parse the nodes of the role gb10, the text of the runtime's lock file, "" if there is none, and a recipe's data.

    ``recipe`` is the plain data of its YAML, or the Problems that prevented reading it; None without a recipe. Its
    values replace the defaults of variables that the inventory does not set. ``layers`` are those of the module
    cluster_inputs: of gb10_image_layers, then the recipe's mods. A node is a mapping::

        {"name": str, "address": str,          # inventory name and management address
         "user": str,                           # the login user, "" if ssh chooses it
         "group": "head" | "worker" | "",
         "settings": {name: value},             # all roles' variables without secrets, from the step cluster_inputs;
                                                # None for a default that is a template of the plan
         "variables": [str],                    # the names of all inventory variables of this node
         "refused": [{"name": str, "found": str, "expected": str}],   # values of other roles' variables, from the same
         "build": {"enabled": ..., ...},         # the role vllm_build's variables and files; see vllm_build/choice.py
         "nccl_patches": [{"name": str, "path": str, "sha256": str}],   # see nccl/patches.py
         "queried": {"options": [...], "variables": [str]} | {},   # from the head's vLLM, if it is newer than the table
         "gateway": bool,                       # whether it is in the group gateway
         "key_problem": str,                    # the error in the API key, or ""; the key itself is never here
         "tls": {"problems": [...], "warnings": [str], "digest": str, "until": str} | {},
                                                # api_tls.facts of the head's certificate, {} without TLS
         "secrets": {"names": [str], "problems": [...]},   # secret_environment.verdict: the values are never here
         "unreachable": str,                    # the reason why the node could not be read, or ""
         "unrecorded": str,                     # the missing file of recorded facts, in an offline plan, or ""
         "typical": bool,                       # whether the plan assumes typical facts instead of reading the node
         "read": float,                         # when the node was read, in seconds since 1970 by the
                                                # controller's clock; 0 if its facts were recorded
         "observed": {...} | {}}                # the result of node_info, {} if the node was not read
    """
    problems: list[Problem] = []
    ordered = sorted(nodes, key=lambda node: node["group"] != "head")
    problems += _check_layers(ordered[0]["settings"].get("gb10_image_layers", ()) if ordered else (), layers)
    use = _use(ordered, recipe, problems) if recipe is not None else None
    if use:
        ordered = [{**given, "settings": {**given["settings"], **use.settings}} for given in ordered]
    # Ray distributes ranks over nodes. A single node would only pay for its processes.
    executor = {"gb10_distributed_executor_backend": "mp" if len(ordered) == 1 else "ray"}
    ordered = [
        {**given, "settings": {**given["settings"], **executor}}
        if given["settings"].get("gb10_distributed_executor_backend") == "auto"
        else given
        for given in ordered
    ]
    parsed = tuple(_node(given, f"nodes[{index}]", problems) for index, given in enumerate(ordered))
    found = tuple(
        Layer(each["name"], each["folder"], each["digest"], tuple(map(str, each["packages"])), each["network"])
        for each in layers
        if not each["problem"]
    )
    return Inputs(parsed, lock, tuple(problems), use, found)


def _check_layers(given: Any, layers: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return the problems of gb10_image_layers, and of the folders on the controller."""
    if refused := runtime_layers.check(given):
        return refused
    own, problems = len(given), []
    for index, layer in enumerate(layers):
        if layer["problem"]:
            path = f"{runtime_layers.VARIABLE}[{index}]" if index < own else f"gb10_recipe.mods[{index - own}]"
            problems.append(
                Problem(path, layer["problem"], "a folder with run.sh on the controller", f"correct {path}")
            )
    return problems


def _use(nodes: Sequence[Mapping[str, Any]], data: Any, problems: list[Problem]) -> Use | None:
    """Return the use of a recipe on these nodes, None if it has a problem. An empty variable counts as not set."""
    if isinstance(data, list) and all(isinstance(each, Problem) for each in data):
        problems += data
        return None
    recipe, found = recipe_parse.parse(data)
    problems += found
    if not recipe:
        return None
    given = {name for node in nodes for name in node["variables"] if node["settings"].get(name) not in ("", None)}
    # A container without an image is the recipe's.
    given -= {"gb10_runtime"} if {node["settings"].get("gb10_runtime") for node in nodes} == {"container"} else set()
    images, extra = (nodes[0]["settings"].get(name) for name in ("gb10_recipe_images", "gb10_extra_env"))
    use, found = recipe_apply.use(
        recipe,
        given,
        len(nodes),
        images if isinstance(images, Mapping) else {},
        extra if isinstance(extra, Mapping) else (),
    )
    problems += found
    return use


def _node(given: Mapping[str, Any], path: str, problems: list[Problem]) -> Node:
    tls, secrets, settings = given["tls"], given["secrets"], given["settings"]
    options, variables = _queried(given["queried"], path, problems)
    converted, refused = _settings(settings)
    observed = typical.observed(settings, given["address"]) if given["typical"] else given["observed"]
    return Node(
        name=given["name"],
        address=given["address"],
        user=given["user"],
        group=given["group"],
        settings=converted,
        variables=tuple(given["variables"]),
        refused=(*(Refused(**found) for found in given["refused"]), *refused),
        nccl=settings["nccl_sm121_build_version"] or "stack",
        nccl_wanted=str(settings["nccl_sm121_build_enabled"]).lower(),
        nccl_patches=tuple(Patch(**patch) for patch in given["nccl_patches"]),
        build=given["build"],
        options=options,
        environment_variables=variables,
        # A fabric that is removed may have lost its cable.
        removing=settings["qsfp_netplan_state"] == "absent",
        key_problem=given["key_problem"],
        tls=Tls(tls["digest"], tls["until"], _problems(tls), tuple(tls["warnings"])) if tls else None,
        secrets=secrets["names"],
        secret_problems=_problems(secrets),
        smoke_tokens=settings["vllm_serve_smoke_tokens"],
        drop_caches=_boolean(settings["vllm_serve_drop_caches"]),
        # YAML reads off as false.
        watched=str(settings["vllm_watchdog_mode"]).lower() not in ("off", "false"),
        image_python=settings["vllm_runtime_image_python"],
        patch=_patch(settings),
        packages=node_packages.of_roles(settings),
        protection=host_guard_plan.of_settings(settings),
        recorder=UdpPorts(settings["flight_recorder_port"], settings["vllm_watchdog_port"]),
        metrics_port=settings["monitoring_port"] if _boolean(settings["monitoring_enabled"]) else 0,
        store_enabled=_boolean(settings["model_store_enabled"]),
        store_source=settings["model_store_source"],
        gateway=given["gateway"],
        unreachable=given["unreachable"],
        unrecorded=given["unrecorded"],
        typical=given["typical"],
        facts=replace(_facts(observed), clock_ahead=_clock(observed.get("clock"), given["read"])) if observed else None,
    )


def _patch(settings: Mapping[str, Any]) -> PatchSettings:
    """Return the variables of the role vllm_patch."""
    names = settings["vllm_patch_patches"]
    given: dict[str, Any] = {each.name: settings[each.name] for each in fields(PatchSettings)}
    # The argument specification refuses a text.
    given["vllm_patch_patches"] = () if isinstance(names, str) else tuple(map(str, names))
    given["vllm_patch_capability"] = str(settings["vllm_patch_capability"])
    return PatchSettings(**given)


def _queried(
    given: Mapping[str, Any], path: str, problems: list[Problem]
) -> tuple[list[dict[str, Any]] | None, list[str] | None]:
    """Return the options and variables of the head's vLLM, None if it was not queried."""
    if not given:
        return None, None
    try:
        return answer.options(given["options"]), answer.variables(given["variables"])
    except ValueError as error:
        fix = "remove the runtime on the head, and run site.yml, which installs it again"
        problems.append(Problem(f"{path}.queried", str(error), "the options of vllm serve", fix))
        return None, None


def _clock(clock: Any, read: Any) -> float:
    """Return how many seconds a node's clock is ahead of the controller's, 0 if unknown."""
    return (
        float(clock) - float(read) if isinstance(clock, int | float) and isinstance(read, int | float) and read else 0
    )


def _problems(verdict: Mapping[str, Any]) -> tuple[Problem, ...]:
    return tuple(Problem(**found) for found in verdict["problems"])


#: Facts with parsers of their own, which check a form. A changed text could pass.
_CHECKED = ("additions", "image_options", "image_pins", "vllm_build", "toolkit", "debian", "host", "updates", "state")


def _shown(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts whose texts the plan shows, each of one line."""
    return {name: foreign.plain(each) for name, each in observed.items() if name not in _CHECKED}


def _facts(observed: Mapping[str, Any]) -> Facts:
    shown = _shown(observed)
    gpu, hub, built = shown["gpu"], shown.get("hub_model") or {}, observed.get("vllm_build") or {}
    return Facts(
        network=fabric_schema.network(observed),
        gpu=Gpu(
            visible=bool(gpu["gpus"]),
            capability=next((entry["capability"] for entry in gpu["gpus"] if entry["capability"]), None),
            driver=gpu.get("driver_version") or "",
            cuda=gpu.get("cuda_version") or "",
            memory_bytes=gpu.get("memory_bytes") or 0,
            reason=gpu["reason"],
        ),
        kernel=shown.get("kernel", ""),
        cma_free_bytes=observed.get("cma_free_bytes") or 0,
        cma_total_bytes=observed.get("cma_total_bytes") or 0,
        listeners=tuple(Listener(entry["port"], entry["process"], entry["unit"]) for entry in shown["listeners"]),
        login_users=tuple(shown.get("login_users", ())),
        wrong_folders=_reasons(shown.get("wrong_folders", {})),
        model=_model_files(shown),
        hub=HubModel(
            hub.get("name", ""),
            hub.get("revision", ""),
            hub.get("trouble", ""),
            hub.get("refused", 0),
            _model_files(hub),
        )
        if hub
        else None,
        nccl=observed.get("nccl"),
        additions=observed.get("additions", {}),
        installed=_installed(observed.get("state", {})),
        image=_image(observed.get("image_options") or {}),
        pins=pins.parse(observed.get("image_pins")),
        builds=vllm_build_parse.builds(built.get("builds")),
        toolkit=_toolkit(observed["toolkit"]) if observed.get("toolkit") else None,
        host_compiler=(observed.get("toolkit") or {}).get("host_compiler") is not False,
        packages=node_packages.parse(observed.get("debian")),
        host=_host(observed.get("host")),
        updates=os_update_parse.state(observed.get("updates")),
    )


def _host(found: Any) -> HostState | None:
    """Return a host's state, None if facts of another release have no such one."""
    try:
        return load.chosen(HostState, found, "host") if found and isinstance(found, Mapping) else None
    except TypeError:
        # It counts as not read.
        return None


def _toolkit(found: Mapping[str, Any]) -> Toolkit:
    """Return a node's toolkit. Its folder becomes part of PATH."""
    home = str(found.get("home", ""))
    if not re.fullmatch(r"(/[\w.+-]+)+", home, re.ASCII):
        return Toolkit(None)
    return Toolkit(home, str(found.get("release", "")), frozenset(map(str, found.get("architectures", ()))))


def _image(found: Mapping[str, Any]) -> ImageOptions | None:
    """Return the head's query of an image.

    The image is queried again if the query of an earlier release lacks a part.
    """
    if not found or "nccl" not in found:
        return None
    try:
        known = answer.checked(found)
    except ValueError:
        # The run queries the image again.
        return None
    image, image_id = str(found.get("image", "")), str(found.get("image_id", ""))
    return ImageOptions(
        image, image_id, known["version"], known["ray"], known["nccl"], known["options"], known["variables"]
    )


def _installed(found: Mapping[str, Any]) -> Installed:
    """Return the finished parts of a node. Recorded facts may lack some; the IDs become part of a unit."""
    owner = str(found.get("service_user", ""))
    return Installed(
        service_user=owner if re.fullmatch(r"\d+:\d+", owner, re.ASCII) else "",
        service_user_ready=found.get("service_user_ready") is True,
        ray_token_digest=str(found.get("ray_token_digest", "")),
        message_secret_digest=str(found.get("message_secret_digest", "")),
        message_keys_mark=str(found.get("message_keys_mark", "")),
        runtime_mark=str(found.get("runtime_mark", "")),
        units=tuple(map(str, found.get("units", ()))),
        certificate=found.get("certificate") is True,
        api_key=found.get("api_key") is True,
        secret_environment=found.get("secret_environment") is True,
        watchdog_webhook=found.get("watchdog_webhook") is True,
        nccl_replaced=found.get("nccl_replaced") is True,
        last_good=str(found.get("last_good", "")),
    )


def _model_files(found: Mapping[str, Any]) -> ModelFiles:
    complete, reason = bool(found.get("model_complete")), str(found.get("model_reason", ""))
    return ModelFiles(found.get("model"), found.get("model_bytes"), found.get("model_at"), complete, reason)


def _reasons(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(why)[:300] for name, why in given.items()}


def _settings(given: Mapping[str, Any]) -> tuple[Settings, list[Refused]]:
    """Convert each variable to its type. ``-e name=value`` passes numbers and booleans as text."""
    values, refused = {}, []
    for field in fields(Settings):
        name, (convert, expected, fallback) = f"{PREFIX}{field.name}", _TYPES[str(field.type)]
        try:
            values[field.name] = convert(given[name])
        except (AttributeError, TypeError, ValueError):
            refused.append(Refused(name, repr(given[name]), expected))
            values[field.name] = fallback
    return Settings(**values), refused


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "on", "1")


def _text(value: Any) -> Any:
    """Return a number as text, as -e passes it. Raises TypeError for a list or a mapping."""
    if isinstance(value, Mapping | list | tuple):
        raise TypeError(value)
    return str(value) if isinstance(value, int | float) else value


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        raise TypeError(value)
    return [str(word) for word in value]


def _texts(value: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): "" if text is None else str(text) for name, text in value.items()}


def _ports(value: Any) -> Ports:
    """Return gb10_fabric_ports. Raises ValueError for anything else than auto and a list of numbers."""
    if value == "auto":
        return "auto"
    if not isinstance(value, list | tuple) or not all(re.fullmatch(r"-?\d+", str(port)) for port in value):
        raise ValueError(f"{PORTS}: {value!r}")
    return tuple(int(port) for port in value)


#: Type of a field -> conversion, description, and the value after an error.
_TYPES: Mapping[str, tuple[Callable[[Any], Any], str, Any]] = {
    "str": (_text, "a text", ""),
    "int": (int, "a number", 0),
    "bool": (_boolean, "true or false", False),
    "Sequence[str]": (_words, "a list", []),
    "Sequence[Any]": (list, "a list", []),
    "Mapping[str, str]": (_texts, "a mapping", {}),
    "Mapping[str, Any]": (lambda value: value, "a mapping", {}),
    "Ports": (_ports, "auto, or a list such as [1]", None),
}

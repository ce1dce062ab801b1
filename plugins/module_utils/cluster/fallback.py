# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fallback: a small model on the gateway's node, next to a rank of the cluster's model.

It is planned like a cluster of this node alone, in the memory that the cluster's model leaves to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.node_checks import listeners
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Inputs, Node, Settings
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import PATCH_ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model import quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import GENERATE
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Fallback, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

_LOOPBACK = "127.0.0.1"
#: Text of a problem of the cluster of one node -> that of the fallback. The reserve is the memory of all others.
_NAMES = {
    "lower gb10_memory_reserve": "raise gb10_fallback_memory",
    "raise gb10_memory_reserve": "lower gb10_fallback_memory",
    "gb10_memory_reserve": "gb10_fallback_memory",
    "gb10_api_port": "gb10_fallback_port",
    "gb10_max_model_len": "--max-model-len in gb10_fallback_args",
    "gb10_vllm_extra_args": "gb10_fallback_args",
    "gb10_model": "gb10_fallback_model",
}
_TEXT = re.compile("|".join(rf"{name}\b" for name in _NAMES))


def host(inputs: Inputs) -> Node | None:
    """Return the node of the fallback: the first one in the group gateway."""
    return next((node for node in inputs.nodes if node.gateway), None)


def cluster_of(inputs: Inputs, node: Node) -> Inputs:
    """Return the inputs of a cluster of this node alone."""
    settings = inputs.head.settings
    total = (node.facts.gpu.memory_bytes if node.facts else 0) // memory_schema.GIB or memory_schema.SPARK_GIB
    alone = replace(
        settings,
        model=settings.fallback_model,
        fallback_model="",
        recipe="",
        served_model_name="",
        distributed_executor_backend="mp",
        tensor_parallel_size=0,
        pipeline_parallel_size=0,
        data_parallel_size=0,
        expert_parallel=False,
        api_host=_LOOPBACK,
        api_port=settings.fallback_port,
        api_name="",
        api_clients=(),
        api_media_domains=(),
        api_origins=(),
        max_model_len=0,
        max_num_seqs=0,
        kv_cache_dtype="auto",
        kv_cache_contexts=1,
        memory_reserve=max(0, total - settings.fallback_memory),
        vllm_extra_args=settings.fallback_args,
        fabric_topology="auto",
        fabric_ports="auto",
        fabric_addresses=(),
        idle_stop="",
    )
    # Only the head is asked for the last three.
    head = {name: getattr(inputs.head, name) for name in ("build", "options", "environment_variables")}
    only = replace(node, group="head", address=_address(node), settings=alone, store_source="", tls=None, **head)
    return replace(inputs, nodes=(only,), recipe=None)


def _address(node: Node) -> str:
    """Return an address of the node's interfaces. That of the inventory may be a name."""
    interfaces = node.facts.network.interfaces.values() if node.facts else ()
    found = [address.partition("/")[0] for each in interfaces for address in each.addresses]
    others = [address for address in found if not access.loopback(address)]
    return node.address if node.address in others else next(iter(others), node.address)


def without(inputs: Inputs) -> Inputs:
    """Return the inputs of the cluster's model, which leaves the fallback's memory free.

    All ranks use the memory of the smallest one, so each node leaves it.
    """
    reserve = inputs.head.settings.memory_reserve + inputs.head.settings.fallback_memory
    nodes = (replace(node, settings=replace(node.settings, memory_reserve=reserve)) for node in inputs.nodes)
    return replace(inputs, nodes=tuple(nodes))


def fits(inputs: Inputs) -> bool:
    """Whether the memory of the fallback leaves some for the cluster's model on each node."""
    sizes = [node.facts.gpu.memory_bytes // memory_schema.GIB for node in inputs.nodes if node.facts]
    smallest = min(filter(None, sizes), default=memory_schema.SPARK_GIB)
    return 1 <= inputs.head.settings.fallback_memory < smallest - inputs.head.settings.memory_reserve


def problems(inputs: Inputs, found: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a fallback. ``found``: those of the cluster of its node alone."""
    settings, own, node = inputs.head.settings, list[Problem](), host(inputs)
    if node is None:
        names = ", ".join(node.name for node in inputs.nodes)
        fix = "add the group gateway with one of them, or leave gb10_fallback_model empty"
        own.append(Problem("gb10_fallback_model", "no node is in the group gateway", f"one of {names}", fix))
    if not fits(inputs):
        least = "1 GiB or more, and less than a node has besides gb10_memory_reserve"
        own.append(Problem("gb10_fallback_memory", f"{settings.fallback_memory} GiB", least, "correct it"))
    if any(word.startswith("--served-model-name") for word in settings.fallback_args):
        fix = "remove it: the gateway knows the model by the last part of its name"
        own.append(Problem("gb10_fallback_args.--served-model-name", "it is set", "no other name", fix))
    own += _check_port(settings, len(inputs.nodes))
    place = f"nodes[{inputs.nodes.index(node)}]" if node else ""
    return own + [
        Problem(**{name: _text(text, place) for name, text in vars(problem).items()})
        for problem in found
        # Those of the memory follow from the first one.
        if fits(inputs) or problem.path != "gb10_memory_reserve"
    ]


def _text(text: str, place: str) -> str:
    """Return a text of a problem of the cluster of one node with the names that the fallback has."""
    return _TEXT.sub(lambda match: _NAMES[match[0]], text.replace("nodes[0]", place))


def same_name(given: Fallback, name: str) -> list[Problem]:
    """Return the problem of a fallback with the name of the cluster's model, whose replica it would be."""
    if given.served_model_name != name:
        return []
    fix = "set gb10_served_model_name, or choose another model"
    return [Problem("gb10_fallback_model", f"its name is {name}, as that of the cluster's model", "another name", fix)]


def _check_port(settings: Settings, nodes: int) -> list[Problem]:
    """Return the problem of a port that the cluster's model has. The plan of the node alone checks its range."""
    port, taken = settings.fallback_port, {number: name for name, number in listeners(settings, True, nodes).items()}
    if port not in taken:
        return []
    return [
        Problem("gb10_fallback_port", f"{port} is also {taken[port]}", "a separate port", "change gb10_fallback_port")
    ]


def unfit(plan: Plan) -> list[Problem]:
    """Return the problems of a fallback that would run in a container, is unknown, needs more, or makes no text."""
    path, fix, found = "gb10_fallback_model", "choose another model, or leave gb10_fallback_model empty", []
    if plan.runtime.kind != stacks.NATIVE:
        container = f"it would run in a container of {plan.runtime.image}"
        found.append(Problem(path, container, "gb10_runtime: native, for both models", fix))
    if plan.quantization == quantization.UNKNOWN:
        known = "its config.json is not known, so neither memory nor kernels are planned"
        more = "add its config and weights_bytes to gb10_models"
        found.append(Problem(path, known, "a model of the catalog, or of gb10_models with a config", more))
    if plan.drafts or plan.serve.files:
        more = "its draft, or files besides its folder, are not stored for a fallback"
        found.append(Problem(path, more, "a model without them", fix))
    if plan.kind != GENERATE:
        found.append(Problem(path, f"{plan.model} is of the kind {plan.kind}", "a model that generates text", fix))
    return found


def of_plan(plan: Plan, port: int) -> Fallback:
    """Return the fallback from the plan of its node alone."""
    node = plan.node
    return Fallback(
        node=node.name,
        model=plan.model,
        served_model_name=plan.served_model_name,
        context=plan.serve.expected.context,
        port=port,
        store=plan.store,
        args=[*plan.serve.args, *node.foreseen.get(PATCH_ROLE, {}).get("flags", ())],
        user_args=plan.serve.user_args,
        environment=node.environment,
        needs=plan.serve.needs.get(node.name, 0),
        memory=plan.serve.memory,
    )

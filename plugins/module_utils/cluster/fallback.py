# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fallback: a small model on the gateway's node, beside a rank of the cluster's model.

It is planned like a cluster of this node alone, in the memory that the cluster's model leaves to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.node_checks import listeners
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Inputs, Node, Settings
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import GENERATE
from ansible_collections.gb10.cluster.plugins.module_utils.patch.of_plan import ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Fallback, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

_LOOPBACK = "127.0.0.1"
#: Text of a problem of the cluster of one node -> that of the fallback. The reserve is the memory of all others.
_NAMES = {
    "lower gb10_memory_reserve": "raise gb10_fallback_memory",
    "raise gb10_memory_reserve": "lower gb10_fallback_memory",
    "gb10_memory_reserve": "gb10_fallback_memory",
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
        serve_waivers={},
        vllm_extra_args=settings.fallback_args,
        fabric_topology="auto",
        fabric_ports="auto",
        fabric_addresses=(),
        idle_stop="",
    )
    only = replace(node, group="head", settings=alone, store_source="", tls=None, smoke_tokens=0)
    return replace(inputs, nodes=(only,), recipe=None)


def without(inputs: Inputs) -> Inputs:
    """Return the inputs of the cluster's model, which leaves the fallback's memory free.

    All ranks use the memory of the smallest one, so each node leaves it.
    """
    reserve = inputs.head.settings.memory_reserve + inputs.head.settings.fallback_memory
    nodes = (replace(node, settings=replace(node.settings, memory_reserve=reserve)) for node in inputs.nodes)
    return replace(inputs, nodes=tuple(nodes))


def problems(inputs: Inputs, found: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a fallback. ``found``: those of the cluster of its node alone.

    Those of the node itself are the cluster's too.
    """
    settings, own = inputs.head.settings, list[Problem]()
    if not host(inputs):
        names = ", ".join(node.name for node in inputs.nodes)
        fix = "add the group gateway with one of them, or leave gb10_fallback_model empty"
        own.append(Problem("gb10_fallback_model", "no node is in the group gateway", f"one of {names}", fix))
    if settings.fallback_memory < 1:
        least = "1 GiB or more"
        own.append(Problem("gb10_fallback_memory", f"{settings.fallback_memory} GiB", least, "raise it"))
    own += _check_port(settings, len(inputs.nodes))
    mine = [problem for problem in found if not problem.path.startswith("nodes[")]
    return own + [
        Problem(**{name: _TEXT.sub(lambda match: _NAMES[match[0]], text) for name, text in vars(problem).items()})
        for problem in mine
    ]


def _check_port(settings: Settings, nodes: int) -> list[Problem]:
    port, others = settings.fallback_port, replace(settings, fallback_model="")
    taken = {number: name for name, number in listeners(others, True, nodes).items()}
    if port in taken:
        found = f"{port} is also {taken[port]}"
        return [Problem("gb10_fallback_port", found, "a separate port", "change gb10_fallback_port")]
    if not 1024 <= port <= 65535:
        return [Problem("gb10_fallback_port", str(port), "1024 to 65535", "correct gb10_fallback_port")]
    return []


def unfit(plan: Plan) -> list[Problem]:
    """Return the problems of a fallback that would run in a container, or generates no text."""
    path, fix, found = "gb10_fallback_model", "choose another model, or leave gb10_fallback_model empty", []
    if plan.runtime.kind != stacks.NATIVE:
        container = f"it would run in a container of {plan.runtime.image}"
        found.append(Problem(path, container, "gb10_runtime: native, for both models", fix))
    if plan.kind != GENERATE:
        found.append(Problem(path, f"{plan.model} is of the kind {plan.kind}", "a model that generates text", fix))
    return found


def of_plan(plan: Plan, port: int) -> Fallback:
    """Return the fallback from the plan of its node alone."""
    node = plan.node
    patched = node.foreseen.get(ROLE, {})
    return Fallback(
        node=node.name,
        model=plan.model,
        served_model_name=plan.served_model_name,
        context=plan.serve.expected.context,
        port=port,
        store=plan.store,
        args=[*plan.serve.args, *patched.get("flags", ())],
        user_args=plan.serve.user_args,
        environment={**patched.get("environment", {}), **node.environment},
        needs=plan.serve.needs.get(node.name, 0),
        memory=plan.serve.memory,
    )

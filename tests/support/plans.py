"""Models on clusters as serve_plan plans them, and vLLM's resulting arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Settings
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import read_config
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.choice import Loaded
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Served, ServingNode
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

MEMORY = 128_526_000_000
DEFAULTS = spark(1, "head")
#: The stacks that each change plans: a lock of ours, and an image.
_QUICK = ("current", "vllm-openai-0.28.0")
#: Parameters: the other stacks at night.
assert {*_QUICK} <= stacks.STACKS.keys()
EACH_STACK = [stack if stack in _QUICK else pytest.param(stack, marks=pytest.mark.slow) for stack in stacks.STACKS]
#: Number of nodes, and of Thors among them.
SHAPES = {"one": (1, 0), "two": (2, 0), "four": (4, 0), "two and two Thors": (4, 2)}


def known(count: int, thors: int = 0) -> list[ServingNode]:
    """Return planned nodes in serve_plan's input format."""
    capabilities = ["12.1"] * (count - thors) + ["11.0"] * thors
    common = {
        "memory_bytes": MEMORY,
        "driver": "580.142",
        "kernel": "6.17.0-1031-nvidia",
        "cma_free_bytes": 0,
        "cma_total_bytes": 0,
    }
    transport = (
        {"NCCL_IB_DISABLE": "1"} if thors else {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1"}
    )
    environment = {**transport, "RAY_memory_monitor_refresh_ms": "0"}
    return [
        ServingNode(
            name=f"node{index}",
            head=index == 0,
            environment=environment,
            fabric=environment,
            recorded={},
            additions={},
            capability=capability,
            **common,
        )
        for index, capability in enumerate(capabilities)
    ]


def settings_of(**settings: Any) -> Settings:
    """Return the role's defaults with changes."""
    node = {**DEFAULTS, "settings": {**DEFAULTS["settings"], **settings}}
    return parse([node], "").head.settings


def inputs(model: str, stack: str = "current", count: int = 2, thors: int = 0, **settings: Any) -> serve_plan.Inputs:
    chosen = catalog.find(model, settings.get("gb10_models", {}))
    return serve_plan.Inputs(
        model=Served(
            chosen,
            read_config(chosen.config or None),
            chosen.weights_bytes,
            None,
            "args",
            dict.fromkeys(chosen.environment, "environment"),
            False,
        ),
        stack=stacks.STACKS[stack],
        release=vllm_release_checks.of_runtime(stacks.STACKS[stack].vllm),
        settings=settings_of(gb10_model=model, **settings),
        nodes=known(count, thors),
        topology="socket" if thors else "direct",
        transport="none" if count == 1 else "socket" if thors else "roce",
        nccl=Loaded("2.30.7"),
        smoke_tokens=0,
        drops_caches=True,
    )


def without_own_arguments(given: serve_plan.Inputs) -> serve_plan.Inputs:
    """Return the inputs with a model whose entry has no arguments."""
    return replace(given, model=replace(given.model, entry=replace(given.model.entry, args=())))


def argv(given: serve_plan.Inputs, decision: serve_plan.Decision) -> list[str]:
    """Return the arguments of vllm serve after the model's name."""
    plan = {
        "runtime": {"kind": "native", "path": "/r"},
        "model": given.model.entry.reference,
        "served_model_name": given.model.entry.name,
        "api_host": "127.0.0.1",
        "api_port": 8000,
        "api_key": False,
        "api_tls": {},
        "tensor_parallel_size": decision.tensor,
        "pipeline_parallel_size": decision.pipeline,
        "data_parallel_size": decision.data,
        "executor": given.settings.distributed_executor_backend,
        "rendezvous_port": 29501,
        "head": {"name": given.nodes[0].name, "address": "10.110.0.1"},
        "node": _of_node(given.nodes[0]),
        "serve": {"args": decision.args, "user_args": []},
        "nodes": list(map(_of_node, given.nodes)),
    }
    return launch_argv.vllm_argv(typed(plan))[3:]


def _of_node(node: ServingNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("name", "head", "environment", "additions")}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the situation that the rules read, from the facts of one host and the command that runs there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment as fabric_environment
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import quantization_of
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import SPARK, RuleNode, ServedModel, Situation

#: vLLM's default for --host: all addresses.
_ANY = "0.0.0.0"
#: Keys of config.json that count experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok")


def of_host(
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    release: str,
    host: Mapping[str, Any],
    config: Mapping[str, Any] | None,
) -> Situation:
    """Return the situation of one host, which does not show how the nodes are cabled: an active RDMA device means RoCE.

    ``arguments`` are effective values by long name; ``host`` is {name, gpu: as node_text.gpu_facts, kernel, meminfo:
    the text of the file, rdma: as io_fabric.rdma, nccl, image, network}; ``config`` is the model's config.json, None if
    unknown.
    """
    tensor, pipeline = (_integer(arguments.get(f"--{kind}-parallel-size")) for kind in ("tensor", "pipeline"))
    node = _node(host, environment, not arguments.get("--headless"))
    transport = "none"
    if tensor * pipeline > 1 or _integer(arguments.get("--nnodes")) > 1:
        transport = fabric_environment.transport(environment) if node.capability == SPARK else "socket"
    return Situation(
        release=release,
        runtime="container" if host["image"] else "native",
        image=host["image"],
        network=host["network"],
        executor=str(arguments.get("--distributed-executor-backend") or "mp"),
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        transport=transport,
        api_host=str(arguments.get("--host") or _ANY) if node.head else "",
        api_key=bool(arguments.get("--api-key") or environment.get("VLLM_API_KEY")),
        nccl=host["nccl"],
        # Clients choose their own token limits; this value satisfies rule max-tokens-reasoning.
        smoke_tokens=512,
        model=_model(arguments, config),
        arguments=arguments,
        nodes=[node],
    )


def _node(host: Mapping[str, Any], environment: Mapping[str, str], head: bool) -> RuleNode:
    gpu, cma = host["gpu"], node_parse.cma_facts(host["meminfo"])
    return RuleNode(
        name=host["name"],
        head=head,
        memory_bytes=gpu["memory_bytes"] or 0,
        capability=gpu["gpus"][0]["capability"] if gpu["gpus"] else None,
        driver=gpu["driver_version"] or "",
        kernel=host["kernel"],
        cma_free_bytes=cma["cma_free_bytes"] or 0,
        cma_total_bytes=cma["cma_total_bytes"] or 0,
        environment=environment,
        fabric={"NCCL_IB_DISABLE": "0"} if any(device["state"] == "ACTIVE" for device in host["rdma"].values()) else {},
    )


def _model(arguments: Mapping[str, Any], config: Mapping[str, Any] | None) -> ServedModel:
    text = (config or {}).get("text_config")
    keys = {**(text if isinstance(text, Mapping) else {}), **(config or {})}
    quantization = quantization_of(config)
    return ServedModel(
        name="the model",
        type=model_config.family(keys),
        scheme=quantization.scheme,
        moe=any(_integer(keys.get(key), 0) > 1 for key in _EXPERTS),
        reasoning=bool(arguments.get("--reasoning-parser")),
        kv_dtype=quantization.kv_dtype if config else "",
    )


def _integer(value: Any, default: int = 1) -> int:
    return int(value) if isinstance(value, int | str) and re.fullmatch(r"[0-9]{1,18}", str(value)) else default

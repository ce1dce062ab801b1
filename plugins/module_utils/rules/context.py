# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the situation that the rules read, from the facts of one host and the command that runs there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_text
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import SPARK

#: vLLM's default for --host: all addresses.
_ANY = "0.0.0.0"
#: Keys of config.json that count experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok")


def of_host(
    arguments: Mapping[str, Any], environment: Mapping[str, str], release: str, host: Mapping[str, Any], config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the situation; rules.schema.View documents its shape.

    ``arguments`` are effective values by long name; ``host`` is {name, gpu: as node_text.gpu_facts, kernel, meminfo:
    the text of the file, nccl, image, network}; ``config`` is the model's config.json, None if unknown. One host does
    not show how the nodes are cabled.
    """
    tensor, pipeline = (_integer(arguments.get(f"--{kind}-parallel-size")) for kind in ("tensor", "pipeline"))
    gpus = host["gpu"]["gpus"]
    capability = gpus[0]["capability"] if gpus else None
    several = tensor * pipeline > 1 or _integer(arguments.get("--nnodes")) > 1
    roce = several and capability == SPARK and environment.get("NCCL_IB_DISABLE") != "1"
    return {
        "release": release,
        "runtime": "container" if host["image"] else "native",
        "image": host["image"],
        "network": host["network"],
        "executor": str(arguments.get("--distributed-executor-backend") or "mp"),
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "topology": "",
        "transport": ("roce" if roce else "socket") if several else "none",
        "api_host": "" if arguments.get("--headless") else str(arguments.get("--host") or _ANY),
        "api_key": bool(arguments.get("--api-key") or environment.get("VLLM_API_KEY")),
        "nccl": host["nccl"],
        # Clients choose their own token limits; this value satisfies rule max-tokens-reasoning.
        "smoke_tokens": 512,
        "model": _model(arguments, config),
        "arguments": dict(arguments),
        "nodes": [
            {
                "name": host["name"],
                "head": not arguments.get("--headless"),
                "capability": capability,
                "driver": host["gpu"]["driver_version"] or "",
                "kernel": host["kernel"],
                "memory_bytes": host["gpu"]["memory_bytes"] or 0,
                "environment": dict(environment),
                **{name: size or 0 for name, size in node_text.cma_facts(host["meminfo"]).items()},
            }
        ],
    }


def _model(arguments: Mapping[str, Any], config: Mapping[str, Any] | None) -> dict[str, Any]:
    text = (config or {}).get("text_config")
    keys = {**(text if isinstance(text, Mapping) else {}), **(config or {})}
    return {
        "name": "the model",
        "type": model_config.family(keys),
        "scheme": model_config.scheme(config),
        "moe": any(_integer(keys.get(key), 0) > 1 for key in _EXPERTS),
        "reasoning": bool(arguments.get("--reasoning-parser")),
        "weights_bytes": None,
        "positions": model_config.positions(config or {}),
        "kv_dtype": model_config.kv_dtype(config) if config else "",
    }


def _integer(value: Any, default: int = 1) -> int:
    return int(value) if isinstance(value, int | str) and re.fullmatch(r"[0-9]{1,18}", str(value)) else default

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the nodes as the role gb10 describes them (cluster.py) to what serve_plan decides about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import catalogue, stacks, vllm_release
from ansible_collections.gb10.cluster.plugins.module_utils.serve_plan import Inputs


def inputs(
    model: catalogue.Model,
    nodes: Sequence[Mapping[str, Any]],
    known: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    stack: stacks.Stack,
    kind: str,
    carried: str,
) -> Inputs:
    """Return what is decided about: the head's answers count for the model, ``known`` are the nodes as serve_plan has them."""
    head = nodes[0]
    read = head["observed"].get("model")
    built = stack.nccl if head["nccl"] == "stack" else head["nccl"]
    version = built if built and len(nodes) > 1 else stack.bundled_nccl
    return Inputs(
        model=model,
        config=read if read is not None else model.config or None,
        weights_bytes=head["observed"].get("model_bytes") or model.weights_bytes,
        stack=stack,
        settings=settings,
        nodes=known,
        topology=kind,
        transport=carried,
        nccl=version.removeprefix("v").partition("-")[0],
        smoke_tokens=int(head["smoke_tokens"]),
        asked=vllm_release.options_of(head["asked"]["options"]) if head["asked"] else None,
        variables=head["asked"].get("variables"),
    )


def of_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the decision has to know of a node beside the plan; 0, "" and None where it was not read."""
    observed = node["observed"]
    gpu = observed.get("gpu", {})
    return {
        "capability": next((entry["capability"] for entry in gpu.get("gpus", ()) if entry["capability"]), None),
        "driver": gpu.get("driver_version") or "",
        "memory_bytes": gpu.get("memory_bytes") or 0,
        "kernel": observed.get("kernel", ""),
        "cma_free_bytes": observed.get("cma_free_bytes") or 0,
        "cma_total_bytes": observed.get("cma_total_bytes") or 0,
    }


def transport(planned: Sequence[Mapping[str, Any]]) -> str:
    """Return what the plan's environment tells NCCL to use."""
    if len(planned) == 1:
        return "none"
    return "socket" if planned[0]["environment"].get("NCCL_IB_DISABLE") == "1" else "roce"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of the inputs to a memory plan."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import GIB, Inputs
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

_TENSOR, _PIPELINE = "gb10_tensor_parallel_size", "gb10_pipeline_parallel_size"


def check(inputs: Inputs) -> list[Problem]:
    """Return a Problem for every input that makes a plan impossible."""
    return [
        *parallelism(inputs.shape, len(inputs.nodes), inputs.tensor, inputs.pipeline),
        *_options(inputs),
        *_model(inputs),
    ]


def _options(inputs: Inputs) -> list[Problem]:
    """Return the problems of the nodes' memory and of vLLM's options."""
    shape, kv_dtype, dtype = inputs.shape, inputs.kv_dtype, inputs.dtype
    problems = [
        Problem(
            f"nodes[{index}].memory_bytes",
            f"the memory of {node.name} is unknown",
            "MemTotal from /proc/meminfo",
            "gather the node's facts",
        )
        for index, node in enumerate(inputs.ranks)
        if not node.memory_bytes
    ]
    if kv_dtype not in kv_cache.DTYPES or (kv_dtype == "fp8_ds_mla" and not shape.of("mla")):
        expected = f"one of {', '.join(kv_cache.DTYPES)} (fp8_ds_mla only with latent attention)"
        fix = "choose one of these, or set --kv-cache-memory-bytes"
        problems.append(Problem("--kv-cache-dtype", kv_dtype, expected, fix))
    if dtype not in ("auto", *ELEMENT):
        problems.append(Problem("--dtype", dtype, f"one of auto, {', '.join(ELEMENT)}", "correct --dtype"))
    context, most = inputs.max_model_len, f"{shape.positions}, the model's max_position_embeddings"
    if context < 0:
        expected, fix = f"1 to {most}, or 0 for the largest that fits", "set gb10_max_model_len: 0"
        problems.append(Problem("--max-model-len", str(context), expected, fix))
    elif context > shape.positions:
        fix = f"lower it to {shape.positions}"
        problems.append(Problem("--max-model-len", str(context), f"at most {most}", fix))
    return problems


def _model(inputs: Inputs) -> list[Problem]:
    """Return the problems of the model's format and layers."""
    problems = []
    if not inputs.shape.stored.known and not inputs.weights_bytes:
        found = f"weights in a format ({inputs.shape.stored.scheme}) of unknown size"
        fix = "copy the model to the nodes, so that the size of its files is known"
        problems.append(Problem("gb10_model", found, "a known format, or the checkpoint's files", fix))
    encoder = inputs.shape.family in model_layers.ENCODERS
    if not encoder and all(layer.kv_cache.kind in ("none", "state") for layer in inputs.shape.layers):
        found = "no layer keeps keys and values of its tokens"
        problems.append(Problem("gb10_model", found, "a model with attention layers", "plan this model by hand"))
    return problems


def parallelism(shape: Shape, nodes: int, tensor: int, pipeline: int) -> list[Problem]:
    """Return the problems with the two parallel sizes for a model on this many nodes with one GPU each."""
    if tensor < 1 or pipeline < 1:
        sizes = {_TENSOR: tensor, _PIPELINE: pipeline}
        return [Problem(path, str(value), "1 or more", f"correct {path}") for path, value in sizes.items() if value < 1]
    problems = _heads(shape, tensor)
    if pipeline > len(shape.layers):
        found = f"{pipeline} stages for {len(shape.layers)} layers"
        problems.append(
            Problem(_PIPELINE, found, "at least one layer in each stage", f"use at most {len(shape.layers)}")
        )
    if tensor * pipeline > nodes:
        found = f"{tensor} x {pipeline} ranks on {nodes} nodes"
        problems.append(Problem(_TENSOR, found, "one node per rank", f"lower {_TENSOR} or {_PIPELINE}, or add nodes"))
    return problems


def _heads(shape: Shape, tensor: int) -> list[Problem]:
    """Return the problems of heads that the ranks of a stage cannot share evenly."""
    problems, expected = [], "the same number of heads on each rank"
    if not divides(shape, tensor):
        fitting = [
            size for size in range(1, shape.heads + 1) if shape.heads % size == 0 and _divides(shape.kv_heads, size)
        ]
        sizes = ", ".join(map(str, fitting[:5]))
        fix = f"use a size that divides them ({sizes}), and pipeline parallelism for the other nodes"
        heads = f"{shape.heads} attention" if shape.heads % tensor else f"{shape.kv_heads} key/value"
        problems.append(Problem(_TENSOR, f"{tensor} ranks for {heads} heads", expected, fix))
    states = {layer.kv_cache.heads for layer in shape.layers if layer.kv_cache.kind == "state"}
    return problems + [
        Problem(_TENSOR, f"{tensor} ranks for {heads} heads of linear attention", expected, f"use a divisor of {heads}")
        for heads in sorted(heads for heads in states if heads % tensor)
    ]


def divides(shape: Shape, tensor: int) -> bool:
    """Return whether this tensor-parallel size leaves the same number of heads on each rank."""
    return shape.heads % tensor == 0 and (bool(shape.of("mla")) or _divides(shape.kv_heads, tensor))


def _divides(kv_heads: int, tensor: int) -> bool:
    """Return whether vLLM can divide the KV heads evenly, or repeat them evenly. Source: vLLM 0.32, models/llama.py."""
    return kv_heads % tensor == 0 if kv_heads >= tensor else tensor % kv_heads == 0


def too_large(inputs: Inputs, short: Sequence[int], context: int) -> Problem:
    """Return the Problem for a model that does not fit. ``short``: bytes that each rank's node lacks."""
    lacking = ", ".join(
        f"{node.name} lacks {size / GIB:.1f} GiB" for node, size in zip(inputs.ranks, short, strict=True) if size
    )
    found = f"{sum(short) / GIB:.1f} GiB larger than the cluster at {context} tokens of context: {lacking}"
    limits = f"without the reserve of {inputs.reserve / GIB:g} GiB"
    fix = "add nodes, use stronger quantization, shorten the context, or lower gb10_memory_reserve"
    if inputs.share < 1:
        limits, fix = f"{limits}, and within the share {inputs.share:g}", f"{fix} or raise --gpu-memory-utilization"
    return Problem("gb10_model", found, f"weights, workspace and KV cache within each node's memory {limits}", fix)


def too_many(sequences: int, blocks: int, possible: int) -> Problem:
    """Return the Problem for more sequences than blocks, each of which holds a state."""
    found = f"{sequences}, with memory for {blocks} blocks of states"
    fix = f"lower it to {possible}, which can run at the same time, or add nodes"
    return Problem("--max-num-seqs", found, f"at most {blocks}, because vLLM refuses to start with more", fix)

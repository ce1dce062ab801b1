# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the inputs of a memory plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

_TENSOR, _PIPELINE = "gb10_tensor_parallel_size", "gb10_pipeline_parallel_size"
_GIB = 1 << 30


def loaded_dtype(shape: Shape, dtype: str) -> str:
    """Return the type that vLLM loads the model as: with "auto" the checkpoint's, but float32 as bfloat16. Source: vLLM 0.32, config/model.py."""
    if dtype != "auto":
        return dtype
    return shape.dtype if ELEMENT.get(shape.dtype, 4) == 2 else "bfloat16"


def check(
    shape: Shape,
    nodes: Sequence[Mapping[str, Any]],
    tensor: int,
    pipeline: int,
    kv_dtype: str,
    dtype: str,
    max_model_len: int,
    weights_bytes: int | None,
    ceiling: float,
) -> list[Problem]:
    """Return every input that no plan can be made of; the arguments are those of memory_plan.plan()."""
    problems = parallelism(shape, len(nodes), tensor, pipeline)
    problems += [
        Problem(f"nodes[{index}].memory_bytes", f"the memory of {node['name']} is unknown", "MemTotal of /proc/meminfo", "read the node")
        for index, node in enumerate(nodes[: max(0, tensor * pipeline)])
        if not node["memory_bytes"]
    ]
    if kv_dtype not in kv_cache.DTYPES or (kv_dtype == "fp8_ds_mla" and not shape.of("mla")):
        expected = f"one of {', '.join(kv_cache.DTYPES)} (fp8_ds_mla with latent attention alone)"
        problems.append(Problem("--kv-cache-dtype", kv_dtype, expected, "choose one of these, or give --kv-cache-memory-bytes"))
    if dtype not in ("auto", *ELEMENT):
        problems.append(Problem("--dtype", dtype, f"one of auto, {', '.join(ELEMENT)}", "correct --dtype"))
    if not 0 <= max_model_len <= shape.positions:
        expected = f"at most {shape.positions}, the model's max_position_embeddings"
        problems.append(Problem("--max-model-len", str(max_model_len), expected, f"lower it to {shape.positions}"))
    if not shape.stored.known and not weights_bytes:
        found = f"weights in a format ({shape.stored.scheme}) of unknown size"
        fix = "put the model on the nodes, so that its files are counted"
        problems.append(Problem("gb10_model", found, "a known format, or the checkpoint's files", fix))
    if not 0 < ceiling <= 1:
        problems.append(Problem("ceiling", str(ceiling), "a part of the memory, above 0 and at most 1", "use 0.90"))
    if all(layer.kept.kind in ("none", "state") for layer in shape.layers):
        found = "no layer keeps keys and values of its tokens"
        problems.append(Problem("gb10_model", found, "a model with some attention", "plan this model by hand"))
    return problems


def parallelism(shape: Shape, nodes: int, tensor: int, pipeline: int) -> list[Problem]:
    """Return what is wrong with the two sizes for a model on so many nodes of one GPU each."""
    if tensor < 1 or pipeline < 1:
        return [Problem(path, str(value), "1 or more", f"correct {path}") for path, value in ((_TENSOR, tensor), (_PIPELINE, pipeline)) if value < 1]
    problems = []
    fitting = [size for size in range(1, shape.heads + 1) if shape.heads % size == 0 and _divides(shape.kv_heads, size)]
    fix = f"use a size that divides them ({', '.join(map(str, fitting[:5]))}), and pipeline parallelism for the rest of the nodes"
    if shape.heads % tensor:
        problems.append(Problem(_TENSOR, f"{tensor} ranks for {shape.heads} attention heads", "as many heads on each rank", fix))
    elif not shape.of("mla") and not _divides(shape.kv_heads, tensor):
        problems.append(Problem(_TENSOR, f"{tensor} ranks for {shape.kv_heads} key/value heads", "as many heads on each rank", fix))
    problems += [
        Problem(_TENSOR, f"{tensor} ranks for {heads} heads of linear attention", "as many heads on each rank", f"use a divisor of {heads}")
        for heads in sorted({layer.kept.heads for layer in shape.layers if layer.kept.kind == "state" and layer.kept.heads % tensor})
    ]
    if pipeline > len(shape.layers):
        found = f"{pipeline} stages for {len(shape.layers)} layers"
        problems.append(Problem(_PIPELINE, found, "a layer at least in each stage", f"use at most {len(shape.layers)}"))
    if tensor * pipeline > nodes:
        found = f"{tensor} x {pipeline} ranks on {nodes} nodes"
        problems.append(Problem(_TENSOR, found, "a node for each rank", f"lower {_TENSOR} or {_PIPELINE}, or add nodes"))
    return problems


def divides(shape: Shape, tensor: int) -> bool:
    """Return whether tensor parallelism of this size leaves as many heads on each rank."""
    return shape.heads % tensor == 0 and (bool(shape.of("mla")) or _divides(shape.kv_heads, tensor))


def _divides(kv_heads: int, tensor: int) -> bool:
    """KV heads are divided evenly, or fewer of them repeated evenly. Source: vLLM 0.32, models/llama.py."""
    return kv_heads % tensor == 0 if kv_heads >= tensor else tensor % kv_heads == 0


def too_large(short: Sequence[tuple[str, int]], context: int) -> Problem:
    """``short``: bytes that each node lacks."""
    lacking = ", ".join(f"{name} lacks {size / _GIB:.1f} GiB" for name, size in short if size)
    found = f"the model with {context} tokens of context is {sum(size for _name, size in short) / _GIB:.1f} GiB larger than the cluster: {lacking}"
    fix = "add nodes, quantise further or shorten the context"
    return Problem("gb10_model", found, "weights, workspace and KV cache within each node's memory", fix)

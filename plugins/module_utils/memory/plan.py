# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory plan: whether a model fits on the nodes, its context, and its maximum speed.

Weights and KV are computed. Other memory of a process is estimated with constants that were never measured on a GB10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import KVCacheSpec
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: A GB10's memory bandwidth in bytes/s. Source: NVIDIA, DGX Spark's specification (256-bit LPDDR5X at 8533 MT/s).
BANDWIDTH = 273_000_000_000
#: Minimum reserve for the operating system, SSH, Ray and the page cache; exhausted unified memory stops the whole host.
#: An estimate, smaller than the reserve of published recipes (they give 0.80 to 0.90 of the memory to vLLM).
RESERVE = 5 * GIB
#: Additional reserve on the head for the API server, the scheduler and Ray's dashboard. An estimate; Ray's dashboard
#: alone takes 1 GiB in the lab.
HEAD_RESERVE = 4 * GIB
#: A rank's process without its tensors, its CUDA context and the captured graphs. Estimated from vLLM's logs on other
#: GPUs.
PROCESS, CONTEXT, GRAPHS = 2 * GIB, 1 * GIB, 1 * GIB
#: NCCL's buffers with more than one rank. An estimate: 4 MiB (NCCL_BUFFSIZE) for each of some tens of channels and
#: peers.
NCCL = GIB // 2
#: Minimum useful context: without a configured context, a model fits only if this context fits.
SMALLEST_CONTEXT = 4096
#: vLLM's defaults: (minimum memory, tokens per batch, sequences). Source: vLLM 0.32, engine/arg_utils.py
#: get_batch_defaults.
_BATCHES = ((160 * GIB, 16384, 1024), (70 * GIB, 8192, 1024), (0, 2048, 256))


@dataclass(frozen=True)
class NodePlan:
    """One rank's node, in bytes.

    ``left``: for KV, negative if the weights do not fit. ``short``: the missing amount.
    """

    name: str
    rank: int
    layers: int
    memory: int
    reserve: int
    weights: int
    workspace: int
    left: int
    kv: int
    #: KV bytes per token before a sliding window is full, and per further token.
    kv_per_token: int
    kv_growth: int
    short: int


@dataclass(frozen=True)
class MemoryPlan:
    """See plan(). ``tokens``: vLLM's "KV cache size"; ``concurrency``: its "Maximum concurrency" for ``context``."""

    nodes: tuple[NodePlan, ...]
    fits: bool
    short: int
    weights: int
    weights_estimated: bool
    kv_dtype: str
    block: int
    tokens: int
    context: int
    largest_context: int
    concurrency: float
    sequences: int
    #: The context of each sequence when ``sequences`` run simultaneously.
    context_of_each: int
    kv_cache_memory_bytes: int
    fraction: str
    arguments: tuple[str, ...]
    tokens_per_second: float
    tokens_per_second_full: float
    problems: tuple[Problem, ...]

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain data, with the problems as text."""
        return {**asdict(self), "problems": [str(problem) for problem in self.problems]}


def plan(
    shape: Shape,
    *,
    nodes: Sequence[Mapping[str, Any]],
    tensor: int,
    pipeline: int = 1,
    weights_bytes: int | None = None,
    dtype: str = "auto",
    kv_dtype: str = "auto",
    max_model_len: int = 0,
    sequences: int = 0,
    batched_tokens: int = 0,
    ceiling: float = 0.90,
    reserve: int = RESERVE,
    head_reserve: int = HEAD_RESERVE,
    kv_in_bytes: bool = True,
    kv_cache_memory_bytes: int = 0,
    block: int = kv_cache.BLOCK,
) -> MemoryPlan:
    """Plan the memory of each rank, one rank per node, in vLLM's order: the ranks of a stage are adjacent.

    ``nodes``: {name, memory_bytes, head}, at least one per rank; the first ones are used. ``weights_bytes``: size of
    the safetensors, None to estimate it from the dimensions. ``dtype``: vLLM's --dtype. ``max_model_len``: 0 for the
    model's own context, lowered if it does not fit. ``sequences`` (--max-num-seqs) and ``batched_tokens``
    (--max-num-batched-tokens): 0 for vLLM's defaults. ``ceiling``: the maximum share of a node's memory for vLLM.
    ``kv_in_bytes``: whether the release has --kv-cache-memory-bytes; without it the plan returns a fraction.
    ``kv_cache_memory_bytes``: the user's value for that option, 0 for all remaining memory.

    Raises ProblemsError with every invalid input. A model that does not fit is a normal result (``fits``,
    ``problems``).

    Decode roofline, in tokens per second of one sequence: 1 / sum over pipeline stages of (bytes that one rank of the
    stage reads per token / 273e9). A token reads the weights that it uses, including the output matrix, and (``_full``)
    the KV of a full context. Tensor parallelism divides the bytes per rank. Pipeline stages wait for each other, so
    their times add up. With NVIDIA's 273 GB/s the result for gpt-oss-120b on one node is 54.6; users report 57 to 60.
    """
    problems = memory_checks.check(shape, nodes, tensor, pipeline, kv_dtype, dtype, max_model_len, weights_bytes, ceiling)
    if problems:
        raise ProblemsError(problems)
    ranks = list(nodes[: tensor * pipeline])
    loaded = memory_checks.loaded_dtype(shape, dtype)
    default_tokens, default_sequences = next(entry[1:] for entry in _BATCHES if min(node["memory_bytes"] for node in ranks) >= entry[0])
    sequences, batched = sequences or default_sequences, batched_tokens or default_tokens
    # vLLM may schedule one batch per pipeline stage and one more.
    layout = kv_cache.layout(shape, tensor, kv_dtype, loaded, (pipeline + 1) * batched, block)
    scale = Fraction(weights_bytes, model_weights.checkpoint(shape)) if weights_bytes else Fraction(1)
    stages = [_stage(shape, layers, tensor, loaded, kv_dtype, scale) for layers in kv_cache.stages(len(shape.layers), pipeline)]
    of_rank = [stages[rank // tensor] for rank in range(len(ranks))]

    workspace = _workspace(shape, tensor, ELEMENT[loaded], batched, sequences) + PROCESS + CONTEXT + GRAPHS + (NCCL if len(ranks) > 1 else 0)
    memory = [node["memory_bytes"] for node in ranks]
    reserves = [max(node["memory_bytes"] - int(ceiling * node["memory_bytes"]), reserve) + (head_reserve if node["head"] else 0) for node in ranks]
    needs = [stage.weights + workspace for stage in of_rank]
    left = [size - kept - need for size, kept, need in zip(memory, reserves, needs, strict=True)]
    # All ranks get the same arguments, so the fullest node limits them.
    in_bytes = kv_in_bytes or kv_cache_memory_bytes > 0
    if in_bytes:
        pinned = kv_cache_memory_bytes or max(0, min(left)) // MIB * MIB
        kv = [pinned] * len(ranks)
        percent = max(-(-(need + pinned) * 100 // size) for need, size in zip(needs, memory, strict=True))
    else:
        pinned, percent = 0, max(0, min((size - kept) * 100 // size for size, kept in zip(memory, reserves, strict=True)))
        kv = [max(0, percent * size // 100 - need) for need, size in zip(needs, memory, strict=True)]

    pages = [layout.block_bytes(stage.layers) for stage in of_rank]
    blocks = min((have // page for have, page in zip(kv, pages, strict=True) if page), default=0)
    largest = layout.longest(blocks, shape.positions)
    wanted = max_model_len or min(SMALLEST_CONTEXT, shape.positions)
    context = wanted if max_model_len or largest < wanted else largest
    if not max_model_len and KIB < context < shape.positions:
        context = context // KIB * KIB
    # Missing bytes: KV for that context, and memory for the weights and the user's KV size.
    short = [
        max(0, page * (layout.blocks(wanted) + 1) - have) + max(0, kv_cache_memory_bytes - had)
        for page, have, had in zip(pages, kv, left, strict=True)
    ]
    fits, fraction, reads = not any(short), f"{percent / 100:.2f}", sum(stage.reads for stage in stages)
    return MemoryPlan(
        nodes=tuple(
            NodePlan(
                name=node["name"],
                rank=rank,
                layers=len(stage.layers),
                memory=memory[rank],
                reserve=reserves[rank],
                weights=stage.weights,
                workspace=workspace,
                left=left[rank],
                kv=kv[rank],
                kv_per_token=sum(size for _kept, size in stage.tokens),
                kv_growth=sum(size for kept, size in stage.tokens if not kept.window),
                short=short[rank],
            )
            for rank, (node, stage) in enumerate(zip(ranks, of_rank, strict=True))
        ),
        fits=fits,
        short=sum(short),
        weights=weights_bytes or model_weights.checkpoint(shape),
        weights_estimated=not weights_bytes,
        kv_dtype=kv_dtype if kv_dtype != "auto" else shape.kv_dtype if shape.kv_dtype == "fp8" else loaded,
        block=layout.block,
        tokens=layout.tokens(blocks, context),
        context=context,
        largest_context=largest,
        concurrency=blocks / layout.blocks(context),
        sequences=sequences,
        context_of_each=layout.longest(blocks, context, sequences),
        kv_cache_memory_bytes=pinned,
        fraction=fraction,
        arguments=_arguments(fits, pinned, fraction, context if max_model_len or context < shape.positions else 0),
        tokens_per_second=round(BANDWIDTH / reads, 2),
        tokens_per_second_full=round(BANDWIDTH / (reads + sum(stage.reads_of(context) for stage in stages)), 2),
        problems=() if fits else (memory_checks.too_large([(node["name"], lack) for node, lack in zip(ranks, short, strict=True)], wanted),),
    )


@dataclass(frozen=True)
class _Stage:
    """One rank of a pipeline stage, in bytes.

    ``reads``: weights read per token; ``tokens``: KV per token, by layer; ``states``: states of all layers.
    """

    layers: range
    weights: int
    reads: int
    tokens: tuple[tuple[KVCacheSpec, int], ...]
    states: int

    def reads_of(self, context: int) -> int:
        """Return the bytes of KV and states that one token of a sequence of that length reads."""
        return self.states + sum(size * min(context, kept.window or context) for kept, size in self.tokens)


def _stage(shape: Shape, layers: range, tensor: int, loaded: str, kv_dtype: str, scale: Fraction) -> _Stage:
    number = kv_cache.number_bytes(shape, kv_dtype, loaded)
    kept = [shape.layers[index].kept for index in layers]
    return _Stage(
        layers=layers,
        weights=int(scale * model_weights.on_rank(shape, layers, tensor, loaded)),
        reads=int(scale * model_weights.on_rank(shape, layers, tensor, loaded, active=True)),
        tokens=tuple((one, kv_cache.token_bytes(one, tensor, number, kv_dtype == "fp8_ds_mla")) for one in kept),
        states=sum(kv_cache.state_bytes(one, tensor, loaded) for one in kept if one.kind == "state"),
    )


def _workspace(shape: Shape, tensor: int, element: int, tokens: int, sequences: int) -> int:
    """Return an estimate of the activations for the largest batch and the sampler.

    Several rows of the hidden and the intermediate size exist at the same time; a mixture of experts adds a row for
    each expert of a token. The sampler holds the scores of all sequences as float32, three times.
    """
    rows = 8 * shape.hidden + 3 * shape.intermediate // tensor + shape.active_experts * shape.hidden
    return tokens * rows * element + sequences * shape.vocabulary * 4 * 3


def _arguments(fits: bool, pinned: int, fraction: str, context: int) -> tuple[str, ...]:
    """Return the vLLM arguments.

    If bytes are set, vLLM uses the fraction only to refuse a start with less free memory.
    """
    if not fits:
        return ()
    arguments = [f"--kv-cache-memory-bytes={pinned}"] if pinned else []
    arguments.append(f"--gpu-memory-utilization={fraction}")
    return (*arguments, f"--max-model-len={context}") if context else tuple(arguments)


def needs(plan: MemoryPlan) -> dict[str, int]:
    """Return by node name the bytes that vLLM takes, which must be available before the start."""
    return {node.name: node.weights + node.workspace + node.kv for node in plan.nodes}


def explain(plan: MemoryPlan) -> list[str]:
    """Return the plan as a table in GiB, one line per node, followed by the totals."""
    width = max(4, *(len(node.name) for node in plan.nodes))
    lines = [f"{'node':{width}}  memory  reserve  weights  workspace  KV cache  KiB/token"]
    lines += [
        f"{node.name:{width}}  {_gib(node.memory):>6}  {_gib(node.reserve):>7}  {_gib(node.weights):>7}  {_gib(node.workspace):>9}  "
        f"{_gib(node.kv):>8}  {node.kv_per_token / KIB:>9.1f}" + (f"  short by {_gib(node.short)}" if node.short else "")
        for node in plan.nodes
    ]
    source = "estimated from the model's dimensions" if plan.weights_estimated else "in the checkpoint"
    lines.append(f"weights: {_gib(plan.weights)} GiB {source}; KV cache in {plan.kv_dtype}, blocks of {plan.block} tokens")
    if not plan.fits:
        return [*lines, f"does not fit: short by {_gib(plan.short)} GiB in total, for {plan.context} tokens of context"]
    lines.append(
        f"fits: {plan.tokens} tokens of KV; context {plan.context} (largest {plan.largest_context}), "
        f"for {plan.concurrency:.1f} sequences at once; "
        f"{plan.sequences} sequences at once: {plan.context_of_each} tokens each"
    )
    lines.append(
        f"decode: at most {plan.tokens_per_second:.1f} tokens/s for one sequence, "
        f"{plan.tokens_per_second_full:.1f} at {plan.context} tokens"
    )
    return [*lines, " ".join(plan.arguments)]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"

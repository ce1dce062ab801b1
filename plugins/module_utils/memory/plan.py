# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory plan: whether a model fits on the nodes, its context, and its maximum speed.

Weights and KV are computed. Other memory of a process is estimated with constants that were never measured on a GB10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import GIB, Inputs, MemoryPlan, NodePlan
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import KVCacheSpec
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

KIB, MIB = 1 << 10, 1 << 20
#: A GB10's memory bandwidth in bytes/s. Source: NVIDIA, DGX Spark's specification (256-bit LPDDR5X at 8533 MT/s).
BANDWIDTH = 273_000_000_000
#: A rank's process without its tensors, its CUDA context and the captured graphs. Estimated from vLLM's logs on other
#: GPUs.
PROCESS, CONTEXT, GRAPHS = 2 * GIB, 1 * GIB, 1 * GIB
#: NCCL's buffers with more than one rank. An estimate: 4 MiB (NCCL_BUFFSIZE) for each of some tens of channels and
#: peers.
NCCL = GIB // 2
#: Minimum useful context: without a configured context, a model fits only if this context fits.
SMALLEST_CONTEXT = 4096
#: The maximum number of sequences without a value of the user. Recipes for GB10 set 4 to 64; vLLM's default is 256 or
#: 1024, and the sampler, the CUDA graphs and the states of each sequence take memory.
SEQUENCES = 64
#: vLLM's defaults: (minimum memory, tokens per batch). Source: vLLM 0.32, engine/arg_utils.py get_batch_defaults.
_BATCHES = ((160 * GIB, 16384), (70 * GIB, 8192), (0, 2048))


def plan(inputs: Inputs) -> MemoryPlan:
    """Plan the memory of each rank, one rank per node.

    Raises ProblemsError with every invalid input. A model that does not fit is a normal result (``fits``,
    ``problems``).

    The context is as long as fits. Then the KV cache is limited to ``contexts`` sequences of that length (at most
    max_num_seqs), or to ``tokens_per_request`` for each of max_num_seqs sequences if that is more. What more it could
    hold would only be prefixes of earlier requests.

    Decode roofline, in tokens per second of one sequence: 1 / sum over pipeline stages of (bytes that one rank of the
    stage reads per token / 273e9). A token reads the weights that it uses, including the output matrix, and (``_full``)
    the KV of a full context. Tensor parallelism divides the bytes per rank. Pipeline stages wait for each other, so
    their times add up. A checkpoint may hold parts that a token does not read, such as a vision tower, so the roofline
    never counts more than the dimensions give. With NVIDIA's 273 GB/s the result for gpt-oss-120b on one node is 54.6.
    Builds that also load its attention and output as MXFP4 read about half, and reach 57 to 60 (kubis.ai, 2026-03-22).
    """
    if problems := memory_checks.check(inputs):
        raise ProblemsError(problems)
    demand, budget, context, short = _calculate(inputs)
    chosen = not inputs.max_num_seqs
    if chosen and not any(short) and (possible := _sequences(demand, context.blocks)) < demand.max_num_seqs:
        # Fewer sequences need less workspace.
        inputs = replace(inputs, max_num_seqs=possible)
        demand, budget, context, short = _calculate(inputs)
    fits, shape, layout = not any(short), inputs.shape, demand.layout
    # A weights file of a few bytes, such as a pointer of Git LFS, must not end the planner.
    reads = max(sum(stage.reads for stage in demand.stages), 1)
    full = reads + sum(stage.reads_of(context.planned) for stage in demand.stages)
    lowered = context.planned if inputs.max_model_len or context.planned < shape.positions else 0
    nodes = tuple(_node(inputs, demand, budget, rank, lack) for rank, lack in enumerate(short))
    arguments = (
        _arguments(budget.pinned, budget.fraction, lowered, demand.max_num_seqs if chosen else 0) if fits else ()
    )
    return MemoryPlan(
        nodes=nodes,
        fits=fits,
        short=sum(short),
        weights=inputs.weights_bytes or model_weights.checkpoint(shape),
        weights_estimated=not inputs.weights_bytes,
        kv_dtype=_kv_dtype(inputs, demand.dtype),
        block=layout.block,
        tokens=layout.tokens(context.blocks, context.planned),
        context=context.planned,
        largest_context=context.largest,
        concurrency=context.blocks / layout.blocks(context.planned) if layout.groups else demand.max_num_seqs,
        max_num_seqs=demand.max_num_seqs,
        context_of_each=layout.longest(context.blocks, context.planned, demand.max_num_seqs),
        arguments=arguments,
        tokens_per_second=round(BANDWIDTH / reads, 2),
        tokens_per_second_full=round(BANDWIDTH / full, 2),
        problems=_problems(inputs, demand, context, short),
    )


@dataclass(frozen=True)
class _Stage:
    """One rank of a pipeline stage, in bytes.

    ``reads``: weights read per token; ``tokens``: KV per token, by layer; ``states``: states of all layers; ``page``: a
    block of the KV cache.
    """

    weights: int
    reads: int
    tokens: tuple[tuple[KVCacheSpec, int], ...]
    states: int
    page: int

    def reads_of(self, context: int) -> int:
        """Return the bytes of KV and states that one token of a sequence of that length reads."""
        return self.states + sum(size * min(context, spec.window or context) for spec, size in self.tokens)


@dataclass(frozen=True)
class _Demand:
    """The demand of the ranks: the batch, the stages in order, the workspace of a rank in bytes, and the KV layout."""

    max_num_seqs: int
    dtype: str
    stages: tuple[_Stage, ...]
    tensor: int
    workspace: int
    layout: kv_cache.Layout

    @property
    def has_states(self) -> bool:
        """Whether each sequence needs blocks for states of linear attention."""
        return any(group.kv_cache.kind == "state" for group in self.layout.groups)

    def stage(self, rank: int) -> _Stage:
        """Return the stage of a rank."""
        return self.stages[rank // self.tensor]

    @property
    def pages(self) -> list[int]:
        """The bytes of one block of the KV cache by rank."""
        return [stage.page for stage in self.stages for _rank in range(self.tensor)]


@dataclass(frozen=True)
class _Budget:
    """The memory that remains by rank, in bytes. ``pinned``: KV bytes of each rank, 0 if a fraction sets them."""

    reserves: tuple[int, ...]
    left: tuple[int, ...]
    kv: tuple[int, ...]
    pinned: int
    fraction: str


@dataclass(frozen=True)
class _Context:
    """The KV blocks of a rank, and contexts in tokens: the largest possible, the wanted and the planned one."""

    blocks: int
    largest: int
    wanted: int
    planned: int


def _calculate(inputs: Inputs) -> tuple[_Demand, _Budget, _Context, list[int]]:
    """Return the demand, the budget, the context, and the missing bytes by rank."""
    demand = _demand(inputs)
    budget = _budget(inputs, demand, None)
    context = _context(inputs, demand, budget)
    if inputs.contexts:
        budget = _budget(inputs, demand, _most(inputs, demand, context.planned))
        context = replace(context, blocks=_blocks(demand, budget))
    return demand, budget, context, _short(inputs, demand, budget, context)


def _sequences(demand: _Demand, blocks: int) -> int:
    """Return how many sequences can run at the same time; each takes blocks for states."""
    return max(1, (blocks - 1) // demand.layout.blocks(1)) if demand.has_states else demand.max_num_seqs


def _most(inputs: Inputs, demand: _Demand, context: int) -> int:
    """Return the bytes to which a rank's KV cache is limited, for a planned context. vLLM never uses one of the
    blocks."""
    layout, sequences = demand.layout, demand.max_num_seqs
    blocks = max(
        min(inputs.contexts, sequences) * layout.blocks(context),
        sequences * layout.blocks(min(max(1, inputs.tokens_per_request), context)),
    )
    return (blocks + 1) * max(demand.pages)


def _problems(inputs: Inputs, demand: _Demand, context: _Context, short: Sequence[int]) -> tuple[Problem, ...]:
    """Return why vLLM cannot start with this plan: memory, or fewer blocks than the user's number of sequences.

    Source of the second: vllm-project/vllm#38270 (2026-03), #49064; vLLM 0.33, config/compilation.py.
    """
    if any(short):
        return (memory_checks.too_large(inputs, short, context.wanted),)
    if demand.has_states and demand.max_num_seqs > context.blocks:
        return (memory_checks.too_many(demand.max_num_seqs, context.blocks, _sequences(demand, context.blocks)),)
    return ()


def _demand(inputs: Inputs) -> _Demand:
    shape, tensor, dtype = inputs.shape, inputs.tensor, _loaded_dtype(inputs.shape, inputs.dtype)
    smallest = min(node.memory_bytes for node in inputs.ranks)
    default_tokens = next(tokens for least, tokens in _BATCHES if smallest >= least)
    max_num_seqs, batched = inputs.max_num_seqs or SEQUENCES, inputs.max_num_batched_tokens or default_tokens
    scale = Fraction(inputs.weights_bytes, model_weights.checkpoint(shape)) if inputs.weights_bytes else Fraction(1)
    workspace = (
        _workspace(shape, tensor, ELEMENT[dtype], batched, max_num_seqs)
        + PROCESS
        + CONTEXT
        + GRAPHS
        + inputs.draft_bytes
        + inputs.adapter_bytes
    )
    # vLLM may schedule one batch per pipeline stage and one more.
    layout = kv_cache.layout(shape, tensor, inputs.kv_dtype, dtype, (inputs.pipeline + 1) * batched, inputs.block)
    stages = kv_cache.stages(len(shape.layers), inputs.pipeline)
    return _Demand(
        max_num_seqs=max_num_seqs,
        dtype=dtype,
        stages=tuple(_stage(shape, layers, tensor, dtype, scale, layout) for layers in stages),
        tensor=tensor,
        workspace=workspace + (NCCL if len(inputs.ranks) > 1 else 0),
        layout=layout,
    )


def _loaded_dtype(shape: Shape, dtype: str) -> str:
    """Return the type that vLLM loads the model as: for "auto" the checkpoint's type, but bfloat16 instead of float32.

    Source: vLLM 0.32, config/model.py.
    """
    if dtype != "auto":
        return dtype
    return shape.dtype if ELEMENT.get(shape.dtype, 4) == 2 else "bfloat16"


def _budget(inputs: Inputs, demand: _Demand, most: int | None) -> _Budget:
    """Divide each node's memory. All ranks get the same arguments, so the fullest node limits them.

    ``most``: the limit of a rank's KV cache in bytes, None for all that remains.
    """
    memory = [node.memory_bytes for node in inputs.ranks]
    reserves = tuple(max(inputs.reserve, size - int(inputs.share * size)) for size in memory)
    needs = [demand.stage(rank).weights + demand.workspace for rank in range(len(memory))]
    left = tuple(size - reserve - need for size, reserve, need in zip(memory, reserves, needs, strict=True))
    pinned = 0
    if demand.layout.groups:
        pinned = max(0, min(left)) // MIB * MIB if most is None else min(max(0, min(left)), most + MIB - 1) // MIB * MIB
        pinned = inputs.kv_cache_memory_bytes or pinned
    percent = max(-(-(need + pinned) * 100 // size) for need, size in zip(needs, memory, strict=True))
    # A share with more digits than the percentage is not exceeded.
    fraction = f"{percent / 100:.2f}" if percent <= inputs.share * 100 else f"{inputs.share:g}"
    if not demand.layout.groups or inputs.kv_in_bytes or inputs.kv_cache_memory_bytes:
        return _Budget(reserves, left, (pinned,) * len(memory), pinned, fraction)
    # Without the option for bytes, the fraction sets the KV cache.
    percent = min(percent, *((size - reserve) * 100 // size for size, reserve in zip(memory, reserves, strict=True)))
    kv = tuple(max(0, percent * size // 100 - need) for need, size in zip(needs, memory, strict=True))
    return _Budget(reserves, left, kv, 0, f"{percent / 100:.2f}")


def _blocks(demand: _Demand, budget: _Budget) -> int:
    """Return the blocks of the rank with the fewest."""
    return min((have // page for have, page in zip(budget.kv, demand.pages, strict=True) if page), default=0)


def _context(inputs: Inputs, demand: _Demand, budget: _Budget) -> _Context:
    layout, positions = demand.layout, inputs.shape.positions
    blocks = _blocks(demand, budget)
    largest = layout.longest(blocks, positions)
    wanted = inputs.max_model_len or min(SMALLEST_CONTEXT, positions)
    planned = inputs.max_model_len or max(largest, wanted)
    if not inputs.max_model_len and KIB < planned < positions:
        planned = planned // KIB * KIB
    return _Context(blocks, largest, wanted, planned)


def _short(inputs: Inputs, demand: _Demand, budget: _Budget, context: _Context) -> list[int]:
    """Return the missing bytes by rank: KV for the wanted context, and memory for weights and the user's KV size."""
    if not demand.layout.groups:
        return [max(0, -left) for left in budget.left]
    needed = demand.layout.blocks(context.wanted) + 1
    return [
        max(0, page * needed - have) + max(0, inputs.kv_cache_memory_bytes - left)
        for page, have, left in zip(demand.pages, budget.kv, budget.left, strict=True)
    ]


def _node(inputs: Inputs, demand: _Demand, budget: _Budget, rank: int, short: int) -> NodePlan:
    node, stage = inputs.ranks[rank], demand.stage(rank)
    return NodePlan(
        name=node.name,
        memory=node.memory_bytes,
        reserve=budget.reserves[rank],
        weights=stage.weights,
        workspace=demand.workspace,
        left=budget.left[rank],
        kv=budget.kv[rank],
        kv_per_token=sum(size for _spec, size in stage.tokens),
        short=short,
    )


def _kv_dtype(inputs: Inputs, loaded: str) -> str:
    if inputs.kv_dtype != "auto":
        return inputs.kv_dtype
    return inputs.shape.kv_dtype if inputs.shape.kv_dtype == "fp8" else loaded


def _stage(shape: Shape, layers: range, tensor: int, loaded: str, scale: Fraction, layout: kv_cache.Layout) -> _Stage:
    return _Stage(
        weights=int(scale * model_weights.on_rank(shape, layers, tensor, loaded)),
        reads=int(min(scale, Fraction(1)) * model_weights.on_rank(shape, layers, tensor, loaded, active=True)),
        tokens=tuple((shape.layers[index].kv_cache, layout.token_bytes[index]) for index in layers),
        states=sum(layout.state_bytes[index] for index in layers),
        page=layout.block_bytes(layers),
    )


def _workspace(shape: Shape, tensor: int, element: int, tokens: int, max_num_seqs: int) -> int:
    """Return an estimate of the activations for the largest batch and the sampler.

    Several rows of the hidden and the intermediate size exist at the same time; a mixture of experts adds a row for
    each expert of a token. The sampler holds the scores of all sequences as float32, three times.
    """
    rows = 8 * shape.hidden + 3 * shape.intermediate // tensor + shape.active_experts * shape.hidden
    return tokens * rows * element + max_num_seqs * shape.vocabulary * 4 * 3


def _arguments(pinned: int, fraction: str, context: int, sequences: int) -> tuple[str, ...]:
    """Return the vLLM arguments. ``context`` is 0 for vLLM's default, ``sequences`` for the user's value.

    If bytes are set, vLLM uses the fraction only to refuse a start with less free memory.
    """
    arguments = [f"--kv-cache-memory-bytes={pinned}"] if pinned else []
    arguments.append(f"--gpu-memory-utilization={fraction}")
    arguments += [f"--max-model-len={context}"] if context else []
    return (*arguments, f"--max-num-seqs={sequences}") if sequences else tuple(arguments)


def needs(plan: MemoryPlan) -> dict[str, int]:
    """Return by node name the bytes that vLLM takes, which must be available before the start."""
    return {node.name: node.planned for node in plan.nodes}


def explain(plan: MemoryPlan, generates: bool = True, speculative: bool = False) -> list[str]:
    """Return the plan as a table in GiB, one line per node, followed by the totals.

    ``generates``: whether the model generates tokens, whose speed is bounded; ``speculative``: whether it can exceed
    that bound.
    """
    width = max(4, *(len(node.name) for node in plan.nodes))
    lines = [f"{'node':{width}}  memory  reserve  weights  workspace  KV cache  planned  KiB/token"]
    lines += [
        f"{node.name:{width}}  {_gib(node.memory):>6}  {_gib(node.reserve):>7}  {_gib(node.weights):>7}  "
        f"{_gib(node.workspace):>9}  {_gib(node.kv):>8}  {_gib(node.planned):>7}  {node.kv_per_token / KIB:>9.1f}"
        + (f"  short by {_gib(node.short)}" if node.short else "")
        for node in plan.nodes
    ]
    source = "estimated from the model's dimensions" if plan.weights_estimated else "in the checkpoint"
    lines.append(
        f"weights: {_gib(plan.weights)} GiB {source}; KV cache in {plan.kv_dtype}, blocks of {plan.block} tokens"
    )
    if not plan.fits:
        return [*lines, f"does not fit: short by {_gib(plan.short)} GiB in total, for {plan.context} tokens of context"]
    if not plan.tokens:
        return [
            *lines,
            f"fits: an encoder needs no KV cache; texts of up to {plan.context} tokens",
            " ".join(plan.arguments),
        ]
    each = (
        f"or {plan.max_num_seqs} of {plan.context_of_each} tokens"
        if plan.context_of_each
        else f"but never {plan.max_num_seqs}"
    )
    lines.append(
        f"fits: {plan.tokens} tokens of KV; context {plan.context} (largest {plan.largest_context}); "
        f"sequences at once: {plan.concurrency:.1f}, {each}"
    )
    if (more := min(node.left - node.kv for node in plan.nodes)) >= GIB:
        lines.append(f"{_gib(more)} GiB more KV cache would fit")
    if not generates:
        return [*lines, " ".join(plan.arguments)]
    lines.append(
        f"decode: at most {plan.tokens_per_second:.1f} tokens/s for one sequence, "
        f"{plan.tokens_per_second_full:.1f} at {plan.context} "
        f"tokens{', without speculative decoding' if speculative else ''}"
    )
    return [*lines, " ".join(plan.arguments)]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"

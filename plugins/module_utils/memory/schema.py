# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs of a memory plan, and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

GIB = 1 << 30
#: MemTotal of a Spark, for nodes whose memory is unknown.
SPARK_GIB = 121


@dataclass(frozen=True)
class MemoryNode:
    """A node with one GPU. ``memory_bytes``: MemTotal, 0 if unknown."""

    name: str
    head: bool
    memory_bytes: int


@dataclass(frozen=True)
class Inputs:
    """The inputs. Sizes are in bytes.

    ``nodes``: at least one per rank; the first ones are used. ``weights_bytes``: size of the safetensors, None to
    estimate it from the dimensions. ``dtype``: vLLM's --dtype. ``max_model_len``: 0 for the model's own context,
    lowered if it does not fit. ``max_num_seqs``: 0 for at most plan.SEQUENCES. ``max_num_batched_tokens``: 0 for vLLM's
    default. ``reserve``: the memory of each node that stays unplanned. ``share``: the user's maximum share of a node's
    memory for vLLM. ``contexts`` and ``tokens_per_request`` limit the KV cache (plan.plan()); 0 contexts for no limit.
    ``kv_in_bytes``: whether the release has --kv-cache-memory-bytes; without it the plan returns a fraction.
    ``kv_cache_memory_bytes``: the user's value for that option, 0 for the plan's. ``draft_bytes``: of a draft model,
    which may be whole on each rank; ``adapter_bytes``: of LoRA adapters on each rank.
    """

    shape: Shape
    nodes: Sequence[MemoryNode]
    tensor: int
    pipeline: int = 1
    weights_bytes: int | None = None
    dtype: str = "auto"
    kv_dtype: str = "auto"
    max_model_len: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    reserve: int = 0
    share: float = 1.0
    contexts: int = 0
    tokens_per_request: int = 0
    kv_in_bytes: bool = True
    kv_cache_memory_bytes: int = 0
    draft_bytes: int = 0
    adapter_bytes: int = 0
    block: int = kv_cache.BLOCK

    @property
    def ranks(self) -> Sequence[MemoryNode]:
        """The nodes that have a rank, in vLLM's order: the ranks of a pipeline stage are adjacent."""
        return self.nodes[: max(0, self.tensor * self.pipeline)]


@dataclass(frozen=True)
class NodePlan:
    """One rank's node, in bytes.

    ``left``: for KV, negative if the weights do not fit. ``short``: the missing amount.
    """

    name: str
    memory: int
    reserve: int
    weights: int
    workspace: int
    left: int
    kv: int
    #: KV bytes per token before a sliding window is full.
    kv_per_token: int
    short: int

    @property
    def planned(self) -> int:
        """The bytes that vLLM takes."""
        return self.weights + self.workspace + self.kv


@dataclass(frozen=True)
class MemoryPlan:
    """See plan.plan().

    ``tokens``: vLLM's "KV cache size"; ``concurrency``: its "Maximum concurrency" for ``context``.
    """

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
    max_num_seqs: int
    #: The context of each sequence when ``max_num_seqs`` run simultaneously, 0 if so many never do.
    context_of_each: int
    arguments: tuple[str, ...]
    tokens_per_second: float
    tokens_per_second_full: float
    problems: tuple[Problem, ...]

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM's division of KV cache memory into blocks, and the resulting number of tokens.

Layers with the same KV cache spec form a group and share block tables. All groups take their blocks from one pool, so a
block has the same size in every group, with a page for each layer of the largest group. Source: vLLM 0.32,
v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (groups, pages, blocks per sequence), platforms/interface.py
(blocks next to states), distributed/utils.py (pipeline stages). Older releases allocate the same way, but log other
token counts for hybrid models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import KVCacheSpec
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

#: Tokens per block, unless a backend requires more. Source: vLLM 0.32, config/cache.py; its CPU build uses 128.
BLOCK = 16
#: For models with both latents and states the block must be a multiple of this. Source: platforms/interface.py.
_MLA_BLOCK = 128
#: Bytes per number by --kv-cache-dtype. NVFP4 has an 8-bit scale per 16 numbers.
_NUMBER = {name: Fraction(1) for name in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")} | {"nvfp4": Fraction(9, 16)}
#: Bytes per token and MLA layer in the format fp8_ds_mla. Source: vLLM 0.32, layers/attention/mla_attention.py.
_DS_MLA_BYTES = 656
DTYPES = ("auto", *(name for name in ELEMENT if name != "float"), *_NUMBER, "fp8_ds_mla")


@dataclass(frozen=True)
class Group:
    """Layers with one block table. ``block``: the tokens of one block."""

    kv_cache: KVCacheSpec
    layers: tuple[int, ...]
    block: int


@dataclass(frozen=True)
class Layout:
    """The blocks of a rank with its share of the heads. ``pages``: bytes by layer, 0 for layers without KV or state.

    ``block``: the fewest tokens of a group's block. ``token_bytes``: KV per token by layer; ``state_bytes``: the state
    of a sequence by layer.
    """

    groups: tuple[Group, ...]
    pages: tuple[int, ...]
    block: int
    max_scheduled_tokens: int
    token_bytes: tuple[int, ...]
    state_bytes: tuple[int, ...]

    def block_bytes(self, layers: range) -> int:
        """Return the bytes of one block on a rank with these layers; 0 if no layer has KV or state."""
        return max(
            (sum(self.pages[index] for index in group.layers if index in layers) for group in self.groups), default=0
        )

    def blocks(self, context: int) -> int:
        """Return the blocks for a sequence of this many tokens, over all groups."""
        return sum(self._blocks(group, context) for group in self.groups)

    def _blocks(self, group: Group, context: int) -> int:
        if group.kv_cache.kind == "state":
            return group.kv_cache.pages
        if group.kv_cache.kind == "sliding":
            # The window may begin within a block, and vLLM frees scheduled tokens only after they ran.
            return -(-min(group.kv_cache.window - 1 + self.max_scheduled_tokens, context) // group.block) + 1
        return -(-context // group.block)

    def tokens(self, blocks: int, context: int) -> int:
        """Return vLLM's logged "KV cache size": the tokens of all sequences of that length that fit."""
        return blocks * context // self.blocks(context) if self.groups else 0

    def longest(self, blocks: int, limit: int, sequences: int = 1) -> int:
        """Return the longest context up to the limit for this many parallel sequences; 0 if not even one token fits.

        vLLM never uses one of the blocks. Without KV cache nothing else limits it.
        """
        if not self.groups:
            return limit
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks(middle) * sequences <= blocks - 1:
                low = middle
            else:
                high = middle - 1
        return low


def _number_bytes(shape: Shape, kv_dtype: str, dtype: str) -> Fraction:
    """Return the bytes per number in the KV cache. ``dtype``: the loaded model's type, ``kv_dtype``: one of DTYPES."""
    named = (shape.kv_dtype if shape.kv_dtype in _NUMBER else dtype) if kv_dtype == "auto" else kv_dtype
    return _NUMBER.get(named) or Fraction(ELEMENT.get(named, 1))


def _token_bytes(spec: KVCacheSpec, tensor: int, number: Fraction, packed: bool = False) -> int:
    """Return a layer's KV bytes per token on one rank: its share of the KV heads, at least one; latents are whole."""
    if spec.kind == "mla":
        return (_DS_MLA_BYTES if packed else int(spec.key * number)) + spec.index
    return (
        max(1, spec.heads // tensor) * int((spec.key + spec.value) * number) if spec.kind in ("full", "sliding") else 0
    )


def _state_bytes(spec: KVCacheSpec, tensor: int, dtype: str) -> int:
    """Return the state bytes per sequence of a linear attention layer on one rank.

    vLLM repeats groups that do not divide evenly, so that each rank has one.
    """
    groups = spec.groups + (max(0, tensor - spec.groups) if spec.groups and spec.groups % tensor else 0)
    recurrent = ELEMENT.get(spec.recurrent_dtype or dtype, ELEMENT["float32"])
    return (spec.convolution + groups * spec.group) // tensor * ELEMENT[dtype] + spec.recurrent // tensor * recurrent


def layout(
    shape: Shape, tensor: int, kv_dtype: str, dtype: str, max_scheduled_tokens: int, block: int = BLOCK
) -> Layout:
    """Return the blocks of a rank. ``max_scheduled_tokens``: the limit of scheduled, unfinished tokens."""
    number = _number_bytes(shape, kv_dtype, dtype)
    tokens = [_token_bytes(layer.kv_cache, tensor, number, kv_dtype == "fp8_ds_mla") for layer in shape.layers]
    states = [
        _state_bytes(layer.kv_cache, tensor, dtype) if layer.kv_cache.kind == "state" else 0 for layer in shape.layers
    ]
    if any(states) and any(tokens):
        step = max(block, _MLA_BLOCK if shape.of("mla") else block)
        # vLLM enlarges the token page to at least the size of a state, and pads states to that page.
        block = step * -(-max(states) // (step * max(tokens)))
        pages = tuple(max(tokens) * block if token or state else 0 for token, state in zip(tokens, states, strict=True))
        blocks = [block] * len(tokens)
    else:
        # vLLM puts more tokens into the blocks of layers with smaller tokens, so that all pages are equal.
        blocks = [block * (max(tokens) // token) if token else block for token in tokens]
        pages = tuple(token * size or state for token, size, state in zip(tokens, blocks, states, strict=True))
    groups = _groups([layer.kv_cache for layer in shape.layers], blocks)
    return Layout(groups, pages, block, max_scheduled_tokens, tuple(tokens), tuple(states))


def _groups(specs: Sequence[KVCacheSpec], blocks: Sequence[int]) -> tuple[Group, ...]:
    """Return groups of equal size. ``blocks``: the tokens of a block by layer.

    The size is the layer count of the rarest kind, or of the most frequent kind if that is below 1.5 times the former.
    """
    kinds: dict[tuple[str, int], list[int]] = {}
    for index, spec in enumerate(specs):
        if spec.kind != "none":
            kinds.setdefault((spec.kind, spec.window), []).append(index)
    if not kinds:
        return ()
    counts = [len(layers) for layers in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * 1.5 else min(counts)
    groups = []
    for layers in kinds.values():
        number = -(-len(layers) // size)
        groups += [Group(specs[layers[0]], tuple(layers[index::number]), blocks[layers[0]]) for index in range(number)]
    return tuple(groups)


def stages(layers: int, pipeline: int) -> list[range]:
    """Return each pipeline stage's layers; remaining layers go to the stages before the last, in reverse order."""
    sizes = [layers // pipeline] * pipeline
    for index in range(2, layers % pipeline + 2):
        sizes[-index] += 1
    ends = [sum(sizes[: index + 1]) for index in range(pipeline)]
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]

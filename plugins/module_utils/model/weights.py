# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytes of a model's weights: in the whole checkpoint, on one rank, and read by one rank per token."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import Layer
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT, Stored
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape


def checkpoint(shape: Shape) -> int:
    """Return the bytes of the safetensors, computed from the dimensions; estimates ``weights_bytes`` without files."""
    outside = (shape.embeddings + shape.head + shape.hidden) * shape.stored.plain
    return int(outside + sum(_layer(layer, shape.stored, 1, False) for layer in shape.layers))


def on_rank(shape: Shape, layers: range, tensor: int, dtype: str, active: bool = False) -> int:
    """Return the bytes on a rank of the stage with these layers, for a model loaded as ``dtype``.

    ``active``: only the bytes that one token reads. The first stage has the embedding, the last stage the output, both
    divided by tensor parallelism. Both have a tied embedding.
    """
    stored = loaded(shape.stored, dtype)
    first, last = layers.start == 0, layers.stop == len(shape.layers)
    outside = (
        shape.embeddings * (first and not active) + (shape.head or shape.embeddings * (active or not first)) * last
    )
    inside = sum((_layer(shape.layers[index], stored, tensor, active) for index in layers), Fraction(0))
    return int(outside * stored.plain / tensor + inside + shape.hidden * stored.plain * last)


def loaded(stored: Stored, dtype: str) -> Stored:
    """Return the bytes per parameter after loading: unquantized weights have the type that vLLM loads them as."""
    plain = Fraction(ELEMENT[dtype])
    if stored.scheme == "none":
        return replace(stored, attention=plain, mlp=plain, experts=plain, plain=plain)
    return replace(stored, plain=plain)


def _layer(layer: Layer, stored: Stored, tensor: int, active: bool) -> Fraction:
    # With fewer KV heads than ranks, vLLM repeats them so that each rank has one.
    divided = (
        Fraction(layer.attention, tensor) + Fraction(layer.kv, min(tensor, max(1, layer.kv_cache.heads))) + layer.latent
    )
    experts = Fraction(layer.routed if active else layer.experts, tensor)
    return (
        divided * stored.attention
        + Fraction(layer.mlp, tensor) * stored.mlp
        + experts * stored.experts
        + layer.small * stored.plain
    )

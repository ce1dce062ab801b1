"""Numbers of a model's parameters, derived from the bytes of its unquantized weights."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.model import weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape


def parameters(shape: Shape, active: bool = False) -> int:
    """Return the number of all parameters, or of those that one token uses (``active``)."""
    plain = replace(shape, stored=replace(shape.stored, scheme="none"))
    return weights.on_rank(plain, range(len(shape.layers)), 1, "bfloat16", active) // 2

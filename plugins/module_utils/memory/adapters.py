# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LoRA adapters: the memory that vLLM allocates for them at the start, and their folders.

Source: vLLM 0.33.0, config/lora.py and lora/layers: two matrices of --max-lora-rank for each linear layer and each
expert, for --max-loras adapters on the GPU and --max-cpu-loras in the memory of the process. vLLM 0.32.0's CPU build
allocates exactly these bytes for the lab's dense and sparse models. An upper bound: adapters in 16 bits, whole on each
rank, although tensor parallelism divides about half of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import ELEMENT
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape

ENABLE, MODULES = "--enable-lora", "--lora-modules"
#: vLLM's defaults: --max-lora-rank and --max-loras.
_RANK, _LOADED = 16, 1
_BYTES = ELEMENT["bfloat16"]


@dataclass(frozen=True)
class Adapters:
    """Adapters of a server: the ``rank`` of each, and how many are on the GPU and in the memory of the process."""

    rank: int
    loaded: int
    on_cpu: int

    def memory(self, shape: Shape) -> int:
        """Return the bytes on each rank. On a GB10, the process shares the GPU's memory."""
        hidden = shape.hidden
        # The embedding and the output.
        width = 2 * (hidden + shape.vocabulary)
        for layer in shape.layers:
            # One side of each matrix is the hidden size, and its parameters give the other one.
            for matrices, parameters in (
                (2, layer.attention),
                (2, layer.kv),
                (2, layer.latent),
                (3, layer.mlp),
                (3 * shape.experts, layer.experts),
            ):
                width += matrices * hidden + parameters // hidden if parameters else 0
            # The router.
            width += hidden + shape.experts if layer.experts else 0
        return _BYTES * self.rank * width * (self.loaded + self.on_cpu)


def of_arguments(enabled: bool, rank: int, loaded: int, on_cpu: int) -> Adapters | None:
    """Return the adapters of vLLM's arguments; 0 for vLLM's default. None without --enable-lora."""
    loaded = loaded or _LOADED
    return Adapters(rank or _RANK, loaded, on_cpu or loaded) if enabled else None


def folders(words: Sequence[str]) -> list[str]:
    """Return the absolute folders of --lora-modules in arguments: NAME=PATH, or a mapping as JSON."""
    found = []
    reading = False
    for word in words:
        value = word
        if word.startswith("--"):
            name, _equals, value = word.partition("=")
            reading = name.replace("_", "-") == MODULES
        if reading and value:
            found += [path for path in _paths(value) if path.startswith("/")]
    return list(dict.fromkeys(found))


def _paths(word: str) -> Iterator[str]:
    try:
        given = json.loads(word)
    except (ValueError, RecursionError):
        yield word.partition("=")[2]
        return
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, Mapping) and isinstance(each.get("path"), str):
            yield each["path"]

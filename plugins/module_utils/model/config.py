# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readers for a model's config.json.

The model's publisher wrote the file, so any value may have any type. A value of an unexpected type counts as missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Keys for the maximum number of tokens in a sequence; the first one present counts.
POSITIONS = ("max_position_embeddings", "max_sequence_length", "seq_length")
#: Keys that hold the language model of a multimodal model.
_TEXT = ("text_config", "llm_config", "language_config")
#: Names of families and types, and of weight files: they are shown, and compared with known names.
_WORD, _SHARD = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"[\w.+-]{1,255}", re.ASCII)
#: A petabyte: larger than any checkpoint.
_MOST_BYTES = 10**15


def text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a config.json; in an omni model it is part of the thinker."""
    thinker = config.get("thinker_config")
    whole = thinker if isinstance(thinker, Mapping) else config
    return next((found for key in _TEXT if isinstance(found := whole.get(key), Mapping)), whole)


def word(value: object) -> str:
    """Return a name of a family or a type, "" for an invalid value."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def count(value: object) -> int:
    """Return a small number, such as a number of bits; 0 for an invalid value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 16 else 0


def family(config: Mapping[str, Any] | None) -> str:
    """Return the model's type as transformers calls it, "" if missing."""
    return word((config or {}).get("model_type"))


def dtype(config: Mapping[str, Any]) -> str:
    """Return the type of the unquantized weights: "bfloat16", "float16", "float32"; bfloat16 if missing."""
    for part in (text(config), config):
        if found := word(part.get("dtype")) or word(part.get("torch_dtype")):
            return found.removeprefix("torch.")
    return "bfloat16"


def positions(config: Mapping[str, Any]) -> int:
    """Return the context that vLLM serves by default, in tokens; 0 if missing."""
    values = {**config, **text(config)}
    return next((found for key in POSITIONS if isinstance(found := values.get(key), int)), 0)


def checkpoint(
    sizes: Mapping[str, int], index: Mapping[str, Any] | None, pointers: Sequence[str] = ()
) -> tuple[int | None, str]:
    """Return (bytes of the weights, the reason why vLLM cannot load them or "") of a folder.

    ``sizes``: bytes of each *.safetensors in it; ``index``: model.safetensors.index.json, None if missing;
    ``pointers``: the files that Git LFS did not download. The index's total_size counts, so that a missing file does
    not make the model smaller. None bytes: no weights, or no size in the index.
    """
    unloaded = _listed(pointers, "of the weights' files are pointers of Git LFS, not the weights")
    if index is None:
        # Mistral's repositories contain the weights twice, once in Mistral's own format.
        plain = [size for name, size in sizes.items() if not name.startswith("consolidated")]
        return None if pointers else sum(plain or sizes.values()) or None, unloaded
    names = _shards(index)
    if names is None:
        return None, "the index contains an invalid file name"
    missing = _listed(sorted(names - sizes.keys()), f"of {len(names)} files in the index are missing")
    total = _bytes(_mapping(index.get("metadata")).get("total_size"))
    here = 0 if missing or pointers else sum(sizes[name] for name in names)
    return total or here or None, missing or unloaded


def _shards(index: Mapping[str, Any]) -> set[str] | None:
    """Return the files in an untrusted index, None if a name is invalid."""
    names = list(_mapping(index.get("weight_map")).values())
    return set(names) if all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names) else None


def _listed(names: Sequence[str], problem: str) -> str:
    """Return a problem with its number of files and the first one, "" without files."""
    return f"{len(names)} {problem}: {names[0]!r}{', ...' if len(names) > 1 else ''}" if names else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _bytes(value: object) -> int | None:
    """Return a size, None for an invalid value; some indexes contain a float."""
    return (
        int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST_BYTES
        else None
    )

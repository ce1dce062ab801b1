# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model's config.json says of it.

Whoever published the model wrote the file, so any value may be of any type: one that is not of the type that it is read for counts as not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: What the weights are quantised to, as far as it decides between flags that count for one kind alone.
FP8, OTHER, UNKNOWN = "fp8", "other", "unknown"

#: Methods whose weights are 8-bit floating point whatever else they say. Source: vLLM 0.32, model_executor/layers/quantization.
_FP8_METHODS = ("fp8", "fbgemm_fp8", "ptpc_fp8")
_BITS = 8


#: The keys that say how many tokens a sequence can have, the first that is there.
POSITIONS = ("max_position_embeddings", "max_sequence_length", "seq_length")
#: Where multimodal models keep their language model.
_TEXT = ("text_config", "llm_config", "language_config")
#: Methods whose weights have as many bits as their key "bits" (AWQ: "w_bit") says.
_INTEGER_METHODS = ("gptq", "awq", "auto-round", "auto_round", "autoround", "gptqmodel")
#: Names of families and types, and of files of weights: they are shown, and compared with those that are known.
_WORD, _SHARD = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"[\w.+-]{1,255}", re.ASCII)
#: No checkpoint has a petabyte.
_MOST_BYTES = 10**15


def text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a config.json; an omni model has it within its thinker."""
    thinker = config.get("thinker_config")
    whole = thinker if isinstance(thinker, Mapping) else config
    return next((found for key in _TEXT if isinstance(found := whole.get(key), Mapping)), whole)


def word(value: object) -> str:
    """Return a name of a family or a type, "" for what cannot be one."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def count(value: object) -> int:
    """Return a small number, such as of bits, 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 16 else 0


def family(config: Mapping[str, Any] | None) -> str:
    """Return the model's type as transformers calls it, "" if it is not said."""
    return word((config or {}).get("model_type"))


def quantization_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what it says of quantisation, {} if nothing."""
    found = config.get("quantization_config") or text(config).get("quantization_config")
    return found if isinstance(found, Mapping) else {}


def dtype(config: Mapping[str, Any]) -> str:
    """Return the type of what is not quantised: "bfloat16", "float16", "float32"; bfloat16 where it is not said."""
    for part in (text(config), config):
        if found := word(part.get("dtype")) or word(part.get("torch_dtype")):
            return found.removeprefix("torch.")
    return "bfloat16"


def kv_dtype(config: Mapping[str, Any]) -> str:
    """Return the type of the KV cache that vLLM's "auto" takes: "fp8" where the checkpoint says so, otherwise the model's.

    Source: vLLM 0.32, layers/attention/attention.py and layers/quantization/modelopt.py.
    """
    found = quantization_config(config)
    kv = found.get("kv_cache_scheme")
    eight = isinstance(kv, Mapping) and kv.get("type") == "float" and count(kv.get("num_bits")) == _BITS
    return "fp8" if eight or word(found.get("kv_cache_quant_algo")).upper() == "FP8" else dtype(config)


def positions(config: Mapping[str, Any]) -> int:
    """Return the context that vLLM serves where none is asked for, in tokens; 0 where it is not said."""
    values = {**config, **text(config)}
    return next((found for key in POSITIONS if isinstance(found := values.get(key), int)), 0)


#: What Model Optimizer's quant_algo begins with.
_ALGORITHMS = {"FP8": FP8, "NVFP4": "nvfp4", "MXFP4": "mxfp4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4", "INT8": "int8"}


def scheme(config: Mapping[str, Any] | None) -> str:
    """Return how the weights are stored: none, fp8, nvfp4, mxfp4, int4, int8, other (mixed, or rare), unknown (no config.json).

    Sources: as quantization().
    """
    if config is None:
        return UNKNOWN
    found = quantization_config(config)
    return _scheme(found) if found else "none"


def _scheme(found: Mapping[str, Any]) -> str:
    method = word(found.get("quant_method")).lower()
    if method in _FP8_METHODS:
        return FP8
    if method == "mxfp4":
        return method
    if method.startswith("modelopt"):
        algorithm = word(found.get("quant_algo")).upper()
        if algorithm.startswith("MIXED"):
            # Most of the weights, and what decides about kernels.
            return "nvfp4" if "nvfp4" in _group_schemes(found) else OTHER
        return next((name for start, name in _ALGORITHMS.items() if algorithm.startswith(start)), OTHER)
    if method in _INTEGER_METHODS:
        return {4: "int4", _BITS: "int8"}.get(count(found.get("bits")) or count(found.get("w_bit")), OTHER)
    kinds = _group_schemes(found)
    return kinds.pop() if method == "compressed-tensors" and len(kinds) == 1 else OTHER


def group_weights(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what it says of the weights of each group of layers, {} for a group of which it says nothing."""
    groups = found.get("config_groups")
    said = [group.get("weights") if isinstance(group, Mapping) else None for group in groups.values()] if isinstance(groups, Mapping) else []
    return [weights if isinstance(weights, Mapping) else {} for weights in said]


def _group_schemes(found: Mapping[str, Any]) -> set[str]:
    return {_group_scheme(weights) for weights in group_weights(found)}


def _group_scheme(weights: Mapping[str, Any]) -> str:
    bits, size = count(weights.get("num_bits")), count(weights.get("group_size"))
    if weights.get("type") == "float":
        return FP8 if bits == _BITS else {(4, 16): "nvfp4", (4, 32): "mxfp4"}.get((bits, size), OTHER)
    return {4: "int4", _BITS: "int8"}.get(bits, OTHER)


def quantization(config: Mapping[str, Any] | None) -> str:
    """Return FP8 or OTHER by a config.json (a multimodal model's text part counts), UNKNOWN where there is none to read.

    Sources: the formats of Hugging Face's ``quantization_config``, of compressed-tensors (``config_groups``) and of NVIDIA's Model
    Optimizer (``quant_algo``).
    """
    if config is None:
        return UNKNOWN
    found = quantization_config(config)
    method = word(found.get("quant_method")).lower()
    if method in _FP8_METHODS or (method == "modelopt" and word(found.get("quant_algo")).upper().startswith("FP8")):
        return FP8
    weights = group_weights(found)
    if method != "compressed-tensors" or not weights:
        return OTHER
    return FP8 if all(each.get("type") == "float" and count(each.get("num_bits")) == _BITS for each in weights) else OTHER


def checkpoint(sizes: Mapping[str, int], index: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """Return (bytes of the weights, what is wrong with the files or "") of a folder.

    ``sizes``: bytes of each *.safetensors in it; ``index``: model.safetensors.index.json, None if there is none. The index's total_size
    counts, so that a file that is missing does not make the model smaller. None bytes: no weights, or an index that does not say.
    """
    if index is None:
        # Mistral's repositories hold the weights twice, once in a format of its own.
        plain = [size for name, size in sizes.items() if not name.startswith("consolidated")]
        return (sum(plain or sizes.values()) or None), ""
    metadata, shards = index.get("metadata"), index.get("weight_map")
    named = list(shards.values()) if isinstance(shards, Mapping) else []
    if any(not isinstance(name, str) or not _SHARD.fullmatch(name) for name in named):
        return None, "the index names what cannot be a file"
    names = set(named)
    total = _bytes(metadata.get("total_size") if isinstance(metadata, Mapping) else None)
    here = sum(sizes.get(name, 0) for name in names)
    if missing := sorted(names - sizes.keys()):
        more = ", ..." if len(missing) > 1 else ""
        return total, f"{len(missing)} of {len(names)} files of the index are missing: {missing[0]}{more}"
    if not total:
        return here or None, ""
    differs = abs(here - total) * 100 > total
    return total, f"the index says {total} bytes, the files have {here}" if differs else ""


def _bytes(value: object) -> int | None:
    """Return a size, None for what is none; some indexes have it as a float."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST_BYTES else None

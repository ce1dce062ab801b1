# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quantization of a checkpoint: the storage format of its weights, and the KV cache type that it specifies.

The model's publisher wrote config.json, so any value may have any type. A value of an unexpected type counts as
missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model.config import count, dtype, text, word

#: Weight quantization, only as far as flags that apply to one kind depend on it.
FP8, OTHER, UNKNOWN = "fp8", "other", "unknown"
#: Methods whose weights are always 8-bit floating point. Source: vLLM 0.32, model_executor/layers/quantization.
_FP8_METHODS = ("fp8", "fbgemm_fp8", "ptpc_fp8")
_BITS = 8
#: Methods with the bits of a weight in their key "bits" (AWQ: "w_bit").
_INTEGER_METHODS = ("gptq", "awq", "auto-round", "auto_round", "autoround", "gptqmodel")
#: Prefixes of Model Optimizer's quant_algo.
_ALGORITHMS = {"FP8": FP8, "NVFP4": "nvfp4", "MXFP4": "mxfp4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4", "INT8": "int8"}
#: Keys for the lists of unquantized modules in the formats of quantization_config.
_LEFT_OUT = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")


@dataclass(frozen=True)
class Quantization:
    """The quantization of a checkpoint; without a config.json it is UNKNOWN, and the types are "".

    ``scheme``: the storage of its weights: none, fp8, nvfp4, mxfp4, int4, int8, other (mixed, or rare). ``kind``: FP8
    or OTHER. ``dtype``: the type of unquantized weights. ``kv_dtype``: the KV cache type for vLLM's "auto": "fp8" if
    the checkpoint specifies it, otherwise the model's. ``group_size``: weights for each scale, 0 if unknown.
    ``left_out``: the names of unquantized modules as they are written there.
    """

    scheme: str = UNKNOWN
    kind: str = UNKNOWN
    dtype: str = ""
    kv_dtype: str = ""
    group_size: int = 0
    left_out: tuple[Any, ...] = ()


def quantization_of(config: Mapping[str, Any] | None) -> Quantization:
    """Read the quantization from a config.json, None if unknown; for a multimodal model also from its text part.

    Sources: the formats of Hugging Face's ``quantization_config``, of compressed-tensors (``config_groups``) and of
    NVIDIA's Model Optimizer (``quant_algo``); vLLM 0.32, layers/attention/attention.py and
    layers/quantization/modelopt.py.
    """
    if config is None:
        return Quantization()
    given = config.get("quantization_config") or text(config).get("quantization_config")
    found = given if isinstance(given, Mapping) else {}
    groups, unquantized = _group_weights(found), dtype(config)
    sizes = (count(each.get("group_size")) for each in (found, *groups))
    return Quantization(
        scheme=_scheme(found, groups) if found else "none",
        kind=_kind(found, groups),
        dtype=unquantized,
        kv_dtype="fp8" if _eight_bit_kv(found) else unquantized,
        group_size=next((size for size in sizes if size), 0),
        left_out=tuple(name for key in _LEFT_OUT if isinstance(names := found.get(key), list) for name in names),
    )


def with_separate(config: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a config.json with the quantization of Model Optimizer's hf_quant_config.json, if it has none itself.

    Source: vLLM 0.32, transformers_utils/config.py get_config(), and layers/quantization/modelopt.py.
    """
    given = found.get("quantization") if found else None
    if config is None or "quantization_config" in config or not isinstance(given, Mapping):
        return None if config is None else dict(config)
    # The names of modules that are not quantized are long, and nothing reads them.
    kept = {key: value for key, value in given.items() if key != "exclude_modules"}
    return {**config, "quantization_config": {"quant_method": "modelopt", **kept}}


def _eight_bit_kv(found: Mapping[str, Any]) -> bool:
    kv = found.get("kv_cache_scheme")
    eight = isinstance(kv, Mapping) and kv.get("type") == "float" and count(kv.get("num_bits")) == _BITS
    return eight or word(found.get("kv_cache_quant_algo")).upper() == "FP8"


def _scheme(found: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    method, kinds = word(found.get("quant_method")).lower(), {_group_scheme(weights) for weights in groups}
    if method in _FP8_METHODS:
        return FP8
    if method == "mxfp4":
        return method
    if method.startswith("modelopt"):
        algorithm = word(found.get("quant_algo")).upper()
        if algorithm.startswith("MIXED"):
            # NVFP4 holds most of the weights and determines the kernels.
            return "nvfp4" if "nvfp4" in kinds else OTHER
        return next((name for start, name in _ALGORITHMS.items() if algorithm.startswith(start)), OTHER)
    if method in _INTEGER_METHODS:
        return {4: "int4", _BITS: "int8"}.get(count(found.get("bits")) or count(found.get("w_bit")), OTHER)
    return kinds.pop() if method == "compressed-tensors" and len(kinds) == 1 else OTHER


def _group_weights(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the weights entry of each layer group in config_groups, {} for a group without one."""
    groups = found.get("config_groups")
    declared = (
        [group.get("weights") if isinstance(group, Mapping) else None for group in groups.values()]
        if isinstance(groups, Mapping)
        else []
    )
    return [weights if isinstance(weights, Mapping) else {} for weights in declared]


def _group_scheme(weights: Mapping[str, Any]) -> str:
    bits, size = count(weights.get("num_bits")), count(weights.get("group_size"))
    if weights.get("type") == "float":
        return FP8 if bits == _BITS else {(4, 16): "nvfp4", (4, 32): "mxfp4"}.get((bits, size), OTHER)
    return {4: "int4", _BITS: "int8"}.get(bits, OTHER)


def _kind(found: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    method = word(found.get("quant_method")).lower()
    if method in _FP8_METHODS or (method == "modelopt" and word(found.get("quant_algo")).upper().startswith("FP8")):
        return FP8
    if method != "compressed-tensors" or not groups:
        return OTHER
    return (
        FP8 if all(each.get("type") == "float" and count(each.get("num_bits")) == _BITS for each in groups) else OTHER
    )

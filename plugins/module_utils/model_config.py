# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model's config.json says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What the weights are quantised to, as far as it decides between flags that count for one kind alone.
FP8, OTHER, UNKNOWN = "fp8", "other", "unknown"

#: Methods whose weights are 8-bit floating point whatever else they say. Source: vLLM 0.32, model_executor/layers/quantization.
_FP8_METHODS = ("fp8", "fbgemm_fp8", "ptpc_fp8")
_BITS = 8


def quantization(config: Mapping[str, Any] | None) -> str:
    """Return FP8 or OTHER by a config.json (a multimodal model's text part counts), UNKNOWN where there is none to read.

    Sources: the formats of Hugging Face's ``quantization_config``, of compressed-tensors (``config_groups``) and of NVIDIA's Model
    Optimizer (``quant_algo``).
    """
    if config is None:
        return UNKNOWN
    text = config.get("text_config")
    found = config.get("quantization_config") or (text.get("quantization_config") if isinstance(text, Mapping) else None)
    if not isinstance(found, Mapping):
        return OTHER
    method = str(found.get("quant_method", "")).lower()
    if method in _FP8_METHODS or (method == "modelopt" and str(found.get("quant_algo", "")).upper().startswith("FP8")):
        return FP8
    groups = found.get("config_groups")
    if method != "compressed-tensors" or not isinstance(groups, Mapping) or not groups:
        return OTHER
    weights = [group.get("weights") or {} for group in groups.values() if isinstance(group, Mapping)]
    return FP8 if all(each.get("type") == "float" and each.get("num_bits") == _BITS for each in weights) else OTHER

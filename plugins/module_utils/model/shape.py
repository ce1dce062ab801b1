# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's dimensions, from its config.json: the KV cache or state of each layer, and its parameters.

Supported: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, qwen3_next, qwen3_5(_moe), gpt_oss, gemma2 to 4, phi3,
deepseek_v2 and v3 (MLA), glm4_moe, minimax_m2, nemotron_h, and the encoders bert, roberta and xlm-roberta. Any other
model counts as a standard decoder, unless it has a key from _OTHERWISE with an unusual value. Not counted: parts of a
checkpoint outside the language model (vision towers, layers that predict further tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model import parameter_bytes
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import Kind, Layer
from ansible_collections.gb10.cluster.plugins.module_utils.model.parameter_bytes import Stored
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import Quantization, quantization_of

#: Keys of layers with unsupported sizes; a plan that ignored them would be wrong without a warning.
_OTHERWISE = {
    "is_encoder_decoder": "an encoder",
    "num_kv_shared_layers": "layers that share their KV cache",
    "global_head_dim": "heads of several sizes",
    "block_configs": "layers of different sizes",
    "compress_ratios": "compressed KV",
    "linear_attn_config": "an unsupported kind of linear attention",
    "interleave_moe_layer_step": "Llama 4's layers",
    "attn_type_list": "lightning attention",
    "mamba_d_state": "a hybrid architecture other than nemotron_h",
    "ple_layer_ids": "an n-gram embedding table",
    "hc_count": "hyper-connections",
}


@dataclass(frozen=True)
class Shape:
    """A model's dimensions.

    ``intermediate`` is the widest MLP row that a token passes; ``head`` is 0 if the output uses the embedding.
    """

    family: str
    dtype: str
    kv_dtype: str
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    intermediate: int
    positions: int
    experts: int
    active_experts: int
    embeddings: int
    head: int
    layers: tuple[Layer, ...]
    stored: Stored

    def of(self, kind: Kind) -> int:
        """Return the number of layers of a kind."""
        return sum(layer.kv_cache.kind == kind for layer in self.layers)


def _unusual(read: model_layers.Reader, key: str) -> bool:
    """Return whether a key of _OTHERWISE marks layers of unsupported sizes."""
    if key == "global_head_dim" and read.family == "gemma4":
        return False
    if key == "attn_type_list" and (kinds := read.words(key)):
        # MiniMax M2 lists the full attention of each layer.
        return any(kind != 1 for kind in kinds)
    return bool(read.values.get(key))


@dataclass(frozen=True)
class ModelConfig:
    """A config.json, read once. ``raw``: its values, None if it is unknown. ``type``: as transformers calls it, "" if
    missing.

    ``positions``: the context that vLLM serves by default, in tokens; 0 if missing. ``experts``: whether it is a
    mixture of experts. ``shape`` is None for the reason ``unknown``.
    """

    raw: Mapping[str, Any] | None
    type: str
    positions: int
    quantization: Quantization
    experts: bool
    shape: Shape | None
    unknown: str


def read_config(config: Mapping[str, Any] | None) -> ModelConfig:
    """Read a config.json for all stages of a plan; None if it is unknown."""
    quantization, dimensions = quantization_of(config), None
    unknown = "no config.json was read, and the catalog has none"
    if config:
        try:
            dimensions, unknown = _shape(config, quantization), ""
        except ProblemsError as error:
            unknown = "; ".join(f"{problem.path} {problem.found}" for problem in error.problems)
    experts = model_layers.experts_of(model_layers.Reader(config or {})) > 0
    return ModelConfig(
        config,
        model_config.family(config),
        model_config.positions(config or {}),
        quantization,
        experts,
        dimensions,
        unknown,
    )


def shape(config: Mapping[str, Any]) -> Shape:
    """Return the model's dimensions.

    Raises ProblemsError with every key that is missing or marks an unsupported kind of layer.
    """
    return _shape(config, quantization_of(config))


def _shape(config: Mapping[str, Any], quantization: Quantization) -> Shape:
    read = model_layers.Reader(config)
    for key, what in _OTHERWISE.items():
        if _unusual(read, key):
            fix = "plan this model by hand, and set --kv-cache-memory-bytes"
            read.problems.append(
                Problem(f"config.json {key}", f"a model with {what}", "layers of a supported kind", fix)
            )
    hidden, heads = read.number("hidden_size"), read.number("num_attention_heads")
    vocabulary = read.number("vocab_size")
    layers = model_layers.layers(read)
    positions = read.number(*model_config.POSITIONS)
    experts = model_layers.experts_of(read)
    encoder = read.family in model_layers.ENCODERS
    tied = encoder or read.flag("tie_word_embeddings", read.family.startswith("gemma"))
    if read.problems:
        # Each layer reads the same keys, so problems repeat.
        raise ProblemsError(list(dict.fromkeys(read.problems)))
    return Shape(
        family=read.family,
        dtype=quantization.dtype,
        kv_dtype=quantization.kv_dtype,
        hidden=hidden,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=read.number("num_key_value_heads", default=heads, least=1),
        intermediate=max(
            model_layers.intermediate(read),
            model_layers.expert_width(read) * read.number(*model_layers.ACTIVE_EXPERTS, default=1) if experts else 0,
        ),
        positions=max(1, positions - model_layers.padding(read)),
        experts=experts,
        active_experts=read.number(*model_layers.ACTIVE_EXPERTS, default=0) if experts else 0,
        embeddings=vocabulary * hidden,
        head=0 if tied else vocabulary * hidden,
        layers=layers,
        stored=parameter_bytes.stored(quantization, read.family, len(layers)),
    )

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's layers, from its config.json: the KV cache or state of each layer, and its parameters. See shape.py."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config

Kind = Literal["full", "sliding", "mla", "state", "none"]

#: Families of encoders, which read a whole text at once and keep no KV cache. Their positions are embedded, after those
#: of the padding in the RoBERTa families. Source: vLLM 0.33, models/bert.py, models/roberta.py.
ENCODERS = ("bert", "roberta", "xlm-roberta")
#: Families whose MLP has two matrices, without a gate.
_UNGATED = ("nemotron", "nemotron_h", "starcoder2", "phi", "gpt_neox", "falcon")
#: Families that normalize queries and keys per head.
_QUERY_NORMS = ("qwen3", "gemma3", "gemma4")
#: Default period of full attention layers among sliding-window layers, by family, for configurations without a layer
#: list. Source: transformers, models/{gemma2,gpt_oss,gemma3,gemma4}/configuration_*.py.
_ALTERNATE = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma4": 6}
#: Keys for the number of experts that a token uses.
ACTIVE_EXPERTS = ("num_experts_per_tok", "experts_per_token", "top_k_experts")
#: nemotron_h's layer codes. Source: transformers, models/nemotron_h.
_NEMOTRON = {"M": "state", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_NAMES = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
#: DeepSeek V3.2's indexer keeps a key of 128 8-bit numbers and one scale of 4 bytes per token and layer. Source: vLLM
#: 0.32, models/deepseek_v2.py.
_INDEX_SCALE_BYTES = 4
#: Upper limits: of any dimension, and of the dimensions that the code iterates over.
_MOST = 1 << 32
_MOST_OF = {"num_hidden_layers": 512, "n_layer": 512, "num_attention_heads": 4096, "num_key_value_heads": 4096}


@dataclass(frozen=True)
class KVCacheSpec:
    """A layer's KV cache or state for earlier tokens, on one rank that holds the whole layer.

    ``full``, ``sliding``, ``mla``: ``heads * (key + value)`` numbers per token (MLA: one head, latent and rotary key,
    no value). ``state``: ``heads`` must be divisible by the tensor-parallel size. Its amount per sequence is fixed:
    ``convolution`` numbers in the model's type (with ``group`` more for each of ``groups``), and ``recurrent`` numbers
    of the type ``recurrent_dtype`` ("" the model's).
    """

    kind: Kind = "none"
    heads: int = 0
    key: int = 0
    value: int = 0
    window: int = 0
    #: Additional bytes per token for an indexer.
    index: int = 0
    convolution: int = 0
    groups: int = 0
    group: int = 0
    recurrent: int = 0
    recurrent_dtype: str = ""
    #: Maximum number of states per sequence with prefix caching. Before about 0.28 vLLM has it off for such a model by
    #: default.
    pages: int = 0


@dataclass(frozen=True)
class Layer:
    """A layer's parameters by division over ranks and storage. ``routed``: parameters of ``experts`` for one token."""

    kv_cache: KVCacheSpec = KVCacheSpec()
    #: Divided by tensor parallelism: queries and output, or the projections of a linear layer; MLA's up-projections.
    attention: int = 0
    #: Keys and values: divided down to one head per rank.
    kv: int = 0
    #: MLA's down-projections and indexer: whole on each rank.
    latent: int = 0
    #: A dense MLP, or the part of a mixture of experts that every token uses.
    mlp: int = 0
    experts: int = 0
    routed: int = 0
    #: Norms, router, biases, convolutions: never quantized, counted in full on each rank.
    small: int = 0


class Reader:
    """Reads the language model's part of a config.json, and collects a Problem for each missing or invalid key."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.values = model_config.text(config)
        self.problems: list[Problem] = []

    def number(self, *names: str, default: int | None = None, least: int | None = None) -> int:
        """Return the first of the keys that is set.

        Adds a Problem and returns 1 if it is out of bounds, or if none is set and it has no default. ``least``
        defaults to 1 for a required number, otherwise to 0.
        """
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                low, high = (1 if default is None else 0) if least is None else least, _MOST_OF.get(name, _MOST)
                if low <= value <= high:
                    return value
                self.refuse(name, value, f"a number from {low} to {high}")
                return 1
        if default is None:
            fix = f"add {' or '.join(names)} from the model's published config.json"
            self.problems.append(Problem(f"config.json {names[0]}", "missing", "a number", fix))
            return 1
        return default

    def refuse(self, name: str, value: object, expected: str, fix: str = "use the published config.json") -> None:
        self.problems.append(Problem(f"config.json {name}", reprlib.repr(value), expected, fix))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.values.get(name, default))

    def words(self, name: str) -> list[Any]:
        """Return a list with an entry for each layer; adds a Problem and returns [] if it has too many layers."""
        value = self.values.get(name)
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return []
        if len(value) > _MOST_OF["num_hidden_layers"]:
            self.refuse(name, value, f"at most {_MOST_OF['num_hidden_layers']} layers")
            return []
        return list(value)

    @property
    def family(self) -> str:
        return model_config.family(self.values).removesuffix("_text")


def experts_of(read: Reader) -> int:
    return read.number("num_local_experts", "num_experts", "n_routed_experts", default=0)


def intermediate(read: Reader) -> int:
    """Return the dense MLP's width; a model with experts in all layers may lack this key."""
    return read.number("intermediate_size", "ffn_hidden_size", default=expert_width(read) if experts_of(read) else None)


def expert_width(read: Reader) -> int:
    return read.number("moe_intermediate_size", "intermediate_size")


def head_dim(read: Reader) -> int:
    each = read.number("hidden_size", default=1) // max(1, read.number("num_attention_heads", default=1))
    return read.number("head_dim", default=max(1, each), least=1)


def layers(read: Reader) -> tuple[Layer, ...]:
    """Return the model's layers: each has attention and an MLP; each nemotron_h layer has only one of the two."""
    if read.family == "nemotron_h":
        return _nemotron(read)
    if read.family in ENCODERS:
        return _encoder(read)
    hidden = read.number("hidden_size", default=1)
    found = []
    for index, kind in enumerate(_kinds(read)):
        mixer = (
            _delta(read)
            if kind == "linear"
            else _mla(read)
            if read.number("kv_lora_rank", default=0)
            else _attention(read, kind == "sliding")
        )
        mlp, experts, routed, router = _mlp(read, index)
        found.append(
            Layer(
                kv_cache=mixer.kv_cache,
                attention=mixer.attention,
                kv=mixer.kv,
                latent=mixer.latent,
                mlp=mlp,
                experts=experts,
                routed=routed,
                small=mixer.small + router + 2 * hidden,
            )
        )
    return tuple(found)


def _encoder(read: Reader) -> tuple[Layer, ...]:
    """Return BERT's layers with biases. The first one also has the other embeddings and the dense layer at the end."""
    hidden, heads, width = read.number("hidden_size"), read.number("num_attention_heads"), intermediate(read)
    one = Layer(
        KVCacheSpec("none", heads),
        attention=2 * hidden**2,
        kv=2 * hidden**2,
        mlp=2 * hidden * width,
        small=9 * hidden + width,
    )
    positions = read.number("max_position_embeddings") + read.number("type_vocab_size", default=2)
    # The shape counts one norm after the layers. Here two are before them: weight and bias.
    once = (positions + 1) * hidden + hidden**2 + hidden
    first, *others = [one] * read.number("num_hidden_layers")
    return (replace(first, small=first.small + once), *others)


def padding(read: Reader) -> int:
    """Return the positions that a text cannot use. Source: vLLM 0.33, models/roberta.py, replace_roberta_positions."""
    return read.number("pad_token_id", default=1) + 1 if read.family in ENCODERS[1:] else 0


def _kinds(read: Reader) -> list[str]:
    """Return "full", "sliding" or "linear" for each layer."""
    count = read.number("num_hidden_layers", "n_layer")
    if given := read.words("layer_types"):
        return _listed(read, given)
    if every := read.number(
        "full_attention_interval", default=4 if read.number("linear_num_value_heads", default=0) else 0
    ):
        return _all_but_every(every, "linear", count)
    if not read.number("sliding_window", default=0) or not read.flag("use_sliding_window", True):
        return ["full"] * count
    if read.family in _ALTERNATE:
        every = read.number("sliding_window_pattern", default=_ALTERNATE[read.family], least=1)
        return _all_but_every(every, "sliding", count)
    first = read.number("max_window_layers", default=0) if read.family.startswith("qwen") else 0
    return ["sliding" if index >= first else "full" for index in range(count)]


def _listed(read: Reader, given: Sequence[Any]) -> list[str]:
    """Return the kinds in layer_types."""
    names = {
        "full_attention": "full",
        "attention": "full",
        "sliding_attention": "sliding",
        "linear_attention": "linear",
    }
    if unknown := [kind for kind in given if not isinstance(kind, str) or kind not in names]:
        fix = "plan this model by hand, and set --kv-cache-memory-bytes"
        read.refuse("layer_types", unknown[0], f"one of {', '.join(names)}", fix)
    return [names.get(str(kind), "full") for kind in given]


def _all_but_every(every: int, kind: str, count: int) -> list[str]:
    """Return the kinds of layers; each ``every``-th has full attention."""
    return [kind if (index + 1) % every else "full" for index in range(count)]


def _attention(read: Reader, sliding: bool) -> Layer:
    """Return an MHA, GQA or MQA layer. Qwen3-Next and 3.5 gate its output, which adds as many numbers as queries.

    Gemma 4's full attention has wider and fewer heads, and one projection for keys and values. vLLM caches both.
    """
    hidden, heads = read.number("hidden_size", default=1), read.number("num_attention_heads", default=1)
    size = head_dim(read) if sliding else read.number("global_head_dim", default=head_dim(read), least=1)
    shared = not sliding and read.flag("attention_k_eq_v")
    kv_heads = read.number("num_global_key_value_heads" if shared else "num_key_value_heads", default=heads, least=1)
    gated = read.flag("attn_output_gate", read.family.startswith(("qwen3_next", "qwen3_5")))
    bias = read.flag("attention_bias", read.family in ("qwen2", "qwen2_moe"))
    spec = KVCacheSpec(
        "sliding" if sliding else "full",
        kv_heads,
        size,
        size,
        read.number("sliding_window", default=0) if sliding else 0,
    )
    small = ((heads + 2 * kv_heads) * size if bias else 0) + (2 * size if read.family.startswith(_QUERY_NORMS) else 0)
    projections = (1 if shared else 2) * hidden * kv_heads * size
    return Layer(spec, attention=hidden * heads * size * (3 if gated else 2), kv=projections, small=small)


def _mla(read: Reader) -> Layer:
    """Return DeepSeek's MLA layer: one latent and one rotary key per token, not divided by tensor parallelism."""
    hidden, heads = read.number("hidden_size", default=1), read.number("num_attention_heads", default=1)
    rank, queries = read.number("kv_lora_rank"), read.number("q_lora_rank", default=0)
    plain, rotary, value = read.number("qk_nope_head_dim"), read.number("qk_rope_head_dim"), read.number("v_head_dim")
    up = (queries or hidden) * heads * (plain + rotary) + rank * heads * (plain + value) + heads * value * hidden
    down = hidden * (queries + rank + rotary)
    index = 0
    if read.number("index_topk", default=0):
        size, count = read.number("index_head_dim"), read.number("index_n_heads")
        down += queries * count * size + hidden * (size + count)
        index = size + _INDEX_SCALE_BYTES
    return Layer(KVCacheSpec("mla", 1, rank + rotary, index=index), attention=up, latent=down, small=queries + rank)


def _delta(read: Reader) -> Layer:
    """Qwen's gated delta net. Source of the state's shape: vLLM 0.32, layers/mamba/mamba_utils.py."""
    hidden, kernel = read.number("hidden_size", default=1), read.number("linear_conv_kernel_dim")
    keys, values = read.number("linear_num_key_heads"), read.number("linear_num_value_heads")
    key, value = read.number("linear_key_head_dim"), read.number("linear_value_head_dim")
    channels = 2 * keys * key + values * value
    recurrent_dtype = model_config.word(read.values.get("mamba_ssm_dtype"))
    size = values * value * key
    spec = KVCacheSpec(
        "state",
        math.gcd(keys, values),
        convolution=channels * (kernel - 1),
        recurrent=size,
        recurrent_dtype=recurrent_dtype,
        pages=2,
    )
    projections = hidden * (channels + values * value + 2 * values) + values * value * hidden
    return Layer(spec, attention=projections, small=channels * kernel + 2 * values + value)


def _mlp(read: Reader, index: int) -> tuple[int, int, int, int]:
    """Return the index-th layer's MLP parameters: (used by every token, all experts, one token's experts, router)."""
    matrices = 2 if read.family in _UNGATED else 3
    hidden, experts = read.number("hidden_size", default=1), experts_of(read)
    every = read.number("decoder_sparse_step", "moe_layer_freq", default=1)
    dense = index < read.number("first_k_dense_replace", default=0) or index in read.words("mlp_only_layers")
    if not experts or dense or (every > 1 and (index + 1) % every):
        return matrices * hidden * intermediate(read), 0, 0, 0
    used, whole, routed, router = _mixture(read, matrices)
    # Gemma 4 has a dense MLP in addition to the experts.
    return used + (matrices * hidden * intermediate(read) if read.family == "gemma4" else 0), whole, routed, router


def _mixture(read: Reader, matrices: int) -> tuple[int, int, int, int]:
    """Return the same tuple for a layer with experts.

    Nemotron 3 Super's experts use a latent of the token; gpt-oss's have biases.
    """
    hidden, experts, width = read.number("hidden_size", default=1), experts_of(read), expert_width(read)
    latent = read.number("moe_latent_size", default=0)
    one = matrices * (latent or hidden) * width + (2 * width + hidden if read.family == "gpt_oss" else 0)
    shared = read.number("shared_expert_intermediate_size", default=0)
    each = read.number("moe_shared_expert_intermediate_size", default=width)
    shared += read.number("n_shared_experts", default=0) * each
    used = matrices * hidden * shared + 2 * hidden * latent
    return used, experts * one, read.number(*ACTIVE_EXPERTS) * one, hidden * (experts + bool(shared))


def _nemotron(read: Reader) -> tuple[Layer, ...]:
    """Return nemotron_h's layers: Mamba 2, attention, MLP or experts.

    Source: vLLM 0.32, models/nemotron_h.py and mamba_utils.py.
    """
    given = read.values.get("hybrid_override_pattern")
    pattern = given if isinstance(given, str) else ""
    pattern = pattern or "".join(_NEMOTRON_NAMES.get(str(name), "?") for name in read.words("layers_block_type"))
    if not pattern or len(pattern) > _MOST_OF["num_hidden_layers"] or set(pattern) - _NEMOTRON.keys():
        read.refuse("hybrid_override_pattern", pattern, f"one character per layer, from {' '.join(_NEMOTRON)}")
        return ()
    hidden = read.number("hidden_size", default=1)
    one = {"*": _attention(read, False)} if "*" in pattern else {}
    if "M" in pattern:
        one["M"] = _mamba(read)
    if "-" in pattern:
        one["-"] = Layer(mlp=2 * hidden * intermediate(read))
    if "E" in pattern:
        mlp, experts, routed, router = _mixture(read, 2)
        one["E"] = Layer(mlp=mlp, experts=experts, routed=routed, small=router)
    return tuple(one[letter] for letter in pattern)


def _mamba(read: Reader) -> Layer:
    hidden, kernel = read.number("hidden_size", default=1), read.number("conv_kernel", default=4, least=1)
    heads, size = read.number("mamba_num_heads"), read.number("mamba_head_dim")
    groups, state = read.number("n_groups"), read.number("ssm_state_size")
    inner = heads * size
    channels = inner + 2 * groups * state
    spec = KVCacheSpec(
        "state",
        heads,
        convolution=inner * (kernel - 1),
        groups=groups,
        group=2 * state * (kernel - 1),
        recurrent=heads * size * state,
        recurrent_dtype=model_config.word(read.values.get("mamba_ssm_cache_dtype")) or "float32",
        # The current state, the previous one, and one saved during prefill.
        pages=3,
    )
    small = channels * (kernel + 1) + 3 * heads + inner + hidden
    return Layer(spec, attention=hidden * (inner + channels + heads) + inner * hidden, small=small)

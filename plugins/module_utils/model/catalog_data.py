# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models with a short name. Only data: ``catalog`` defines the keys, ``catalog_checks`` validates them.

``config`` has the keys of each config.json for shape and quantization. They come from copies, tables and tests in
public repositories, not from Hugging Face Hub. For the BF16 models and gpt-oss, the published number of bytes was
computed from these keys and matches to the byte (tests/unit/model/test_catalog.py). Lists of unquantized modules are
shortened to wildcards. ``requires`` comes from vLLM's own model registries, 0.10.2 to 0.32.0, or is the first release
that others report to serve the checkpoint.

The presets' settings for memory (0.80 to 0.90 of it, --swap-space, lengths), --enforce-eager, --enable-expert-parallel
and --attention-backend are left out. They disagree with each other and with newer evidence; the memory plan and the
rules choose these settings for the installed release. Every parser in ``args`` is registered in each inspected vLLM
from 0.11.2 or from ``requires`` to 0.33.0, or is a file of the model. ``args`` sets --kv-cache-dtype only if
config.json does not name the FP8 cache that the model is published for. ``args`` has the draft and the kernels of the
fastest published configuration, with ``requires`` for them: NVIDIA measured with aiperf 0.12.0, SPEED-Bench
throughput_8k, one request (NVIDIA/local-ai-inference-recipes at 12b25c66). ``published`` is without speculative
decoding, except in an entry whose ``args`` have a draft, and never of a build that loads weights in fewer bytes than
the checkpoint has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PRESET = "published preset, served over two Sparks; no figures given"
_PRESETS = "vllm-dgx-spark, supported models"
_READ = "2026-11"
_CAPYCTL, _RECIPES = "capyctl-recipes", "vllm-project/recipes"
_TOOLS = "--enable-auto-tool-choice"
_FP8_CACHE = ("--kv-cache-dtype", "fp8")
_FLASHINFER = ("--attention-backend", "FLASHINFER")
_MARLIN = ("--moe-backend", "marlin")
_BF16 = "bfloat16"
_NVIDIA, _NVIDIA_RECIPES = "NVIDIA, 2026-09-03", "NVIDIA/local-ai-inference-recipes"


def _speculative(**settings: object) -> tuple[str, str]:
    """Return the argument for speculative decoding."""
    return "--speculative-config", json.dumps(settings, separators=(",", ":"))


#: Layers of the checkpoint that predict tokens (MTP); of NVIDIA's NVFP4 mixtures of experts they are not quantized.
_MTP3 = _speculative(method="mtp", num_speculative_tokens=3)
_MTP3_TRITON = _speculative(method="mtp", num_speculative_tokens=3, moe_backend="triton")
#: Qwen's FP8 format: one scale per block of 128 x 128. The list of unquantized modules is omitted because of its
#: length.
_QWEN_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
#: Model Optimizer's formats of weights and caches, and its configurations with one and two formats.
_FP8_NUMBERS = {"dynamic": False, "num_bits": 8, "type": "float"}
_NVFP4_NUMBERS = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
_MIXED = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "config_groups": {
        "group_0": {"input_activations": _FP8_NUMBERS, "weights": _FP8_NUMBERS},
        "group_1": {"input_activations": _NVFP4_NUMBERS, "weights": _NVFP4_NUMBERS},
    },
}
_GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "attention_bias": True,
    "num_experts_per_tok": 4,
    "experts_per_token": 4,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "vocab_size": 201088,
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}
_GPT_OSS_NOTES = (
    "vLLM selects the reasoning parser openai_gptoss for this architecture itself. "
    "The preset's --enable-expert-parallel is left out. "
    "--enforce-eager halves the speed on one Spark (59 to 26 tokens a second, conselara.dev, 2026-05). "
    "Without access to the internet, vLLM 0.18.1 needs the encoding's files and TIKTOKEN_ENCODINGS_BASE; the "
    "locks of 0.32.0 and newer contain them. "
    "An issue about wrong MXFP4 results on compute capability 12.1 was open in 2026-11 (vllm-project/vllm#37030)"
)
_QWEN25 = {
    "model_type": "qwen2",
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": _BF16,
}
_MISTRAL = {
    "model_type": "mistral",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
    "torch_dtype": _BF16,
}
_LLAMA31 = {
    "model_type": "llama",
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": _BF16,
}
_LLAMA_NOTES = (
    "vLLM's own examples use a chat template for tools that its wheel does not contain; "
    "this entry uses the model's own template"
)
#: Keys shared by Qwen3-Next and Qwen3.5: of every four layers, three keep a state and one keeps keys and values.
_GATED_DELTA = {
    "head_dim": 256,
    "num_key_value_heads": 2,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
}
#: Qwen3.6 and Qwen3.8 have the same architecture.
_QWEN35 = {
    **_GATED_DELTA,
    "attn_output_gate": True,
    "mamba_ssm_dtype": "float32",
    "vocab_size": 248320,
    "dtype": _BF16,
}
_QWEN35_MOE = {**_QWEN35, "model_type": "qwen3_5_moe_text", "num_experts": 256, "num_experts_per_tok": 8}
_QWEN35_35B = {
    **_QWEN35_MOE,
    "hidden_size": 2048,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN35_122B = {
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": False,
    "text_config": {
        **_QWEN35_MOE,
        "hidden_size": 3072,
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "linear_num_value_heads": 64,
    },
}
_QWEN3_NEXT = {
    **_GATED_DELTA,
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "linear_num_value_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "vocab_size": 151936,
    "torch_dtype": _BF16,
}
_GEMMA4 = {
    "model_type": "gemma4_text",
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "sliding_window": 1024,
    "vocab_size": 262144,
    "max_position_embeddings": 262144,
    "dtype": _BF16,
}
_GEMMA4_LAYERS = [*["sliding_attention"] * 5, "full_attention"]
_GEMMA4_MODULES = "model.language_model.layers.*"
_GEMMA4_NOTES = (
    "License: Apache-2.0. The weight size includes a vision tower that the text model does not need. "
    f"It reasons only if a request enables that. For a Spark, {_RECIPES} also sets VLLM_USE_V2_MODEL_RUNNER=1, "
    "and eugr's recipes do not. The draft reads the model's KV cache. vLLM 0.25.0 to 0.26.0 did not start with it "
    "(vllm-project/vllm#48848); NVIDIA measured with a build of 0.23.1 (eugr/spark-vllm:nightly-20260704) and batches "
    "of 8,192 tokens"
)
_NEMOTRON = {
    "model_type": "nemotron_h",
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "float32",
    "mlp_hidden_act": "relu2",
    "n_shared_experts": 1,
    "sliding_window": None,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
}
_NEMOTRON_30B = {
    **_NEMOTRON,
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "mamba_num_heads": 64,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
_PATTERN_30B = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_BLOCKS = {"M": "mamba", "*": "attention", "E": "moe"}
#: The attention layers of the 30B models, and the Mamba layers before them.
_ATTENTION_30B, _MAMBA_30B = (5, 12, 19, 26, 33, 42), (4, 11, 18, 25, 32, 41)
_UNQUANTIZED_30B = [f"backbone.layers.{layer}.mixer.{part}_proj" for layer in _ATTENTION_30B for part in "qkvo"]
_NEMOTRON_CACHE = "config.json has no quantization; hf_quant_config.json has it, with an FP8 key/value cache"
#: The checkpoint of two entries: with and without its draft.
_QWEN38_27B: Mapping[str, Any] = {
    "hub": "nvidia/Qwen3.8-27B-NVFP4",
    "revision": "482ca0f3832238542f8f5295dde86b5f22711d80",
    "weights_bytes": 21_921_697_280,
    "config": {
        "model_type": "qwen3_5",
        "tie_word_embeddings": False,
        "text_config": {
            **_QWEN35,
            "model_type": "qwen3_5_text",
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "linear_num_value_heads": 48,
        },
        "quantization_config": {**_MIXED, "kv_cache_scheme": _FP8_NUMBERS},
    },
    "reasoning": True,
}
_QWEN38_27B_ARGS = ("--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_xml", *_FP8_CACHE)
_DFLASH2 = _speculative(method="dflash", model="z-lab/Qwen3.8-27B-DFlash2", num_speculative_tokens=8)

#: Layers 0 and 1 have no compressed KV cache, the others 1 of 4 and 1 of 128 tokens in turn.
_DEEPSEEK_V4: Mapping[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "vocab_size": 129280,
    "compress_ratios": [0, 0, *(128 if layer % 2 else 4 for layer in range(41))],
    "quantization_config": _QWEN_FP8,
}
_DEEPSEEK_V4_ARGS = (
    *("--tokenizer-mode", "deepseek_v4", "--reasoning-parser", "deepseek_v4", _TOOLS),
    *("--tool-call-parser", "deepseek_v4", *_FP8_CACHE, "--block-size", "256", "--max-num-batched-tokens", "8192"),
    *("--load-format", "instanttensor"),
)
_DEEPSEEK_V4_NOTES = (
    "License: MIT. The experts are FP4, the rest FP8. The plan does not know compressed KV caches, so the sizes are "
    "NVIDIA's, with the largest share of the memory that leaves the reserve. NVIDIA also sets --trust-remote-code, and "
    "lets the model think in every answer (--default-chat-template-kwargs)"
)

#: Qwen3-Embedding and Qwen3-Reranker. Their checkpoints have no output matrix.
_QWEN3_POOLING = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
    "torch_dtype": _BF16,
}
_QWEN3_POOLING_06B = {
    **_QWEN3_POOLING,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "max_position_embeddings": 32768,
    "vocab_size": 151669,
}
_QWEN3_EMBEDDING_SURE = (
    "not reported on a Spark. Its dimensions come from copies of its config.json, and give the published number of "
    "parameters exactly; its weight size is computed from them"
)
_QWEN3_EMBEDDING_SOURCE = "Qwen3-Embedding's README (layers, dimension); published numbers of parameters"
_QWEN3_EMBEDDING_NOTES = (
    'License: Apache-2.0. A query needs an instruction before its text: "Instruct: TASK\\nQuery:TEXT". '
    "It supports smaller vectors, which vLLM returns with --hf-overrides '{\"is_matryoshka\": true}'"
)
_BGE_M3 = {
    "model_type": "xlm-roberta",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "vocab_size": 250002,
    "torch_dtype": "float32",
}
#: The newest published figures for Sparks.
_CURRENT: Mapping[str, Mapping[str, Any]] = {
    "qwen3.8-27b-nvfp4": {
        **_QWEN38_27B,
        "args": [*_QWEN38_27B_ARGS],
        "nodes": 1,
        "requires": {"since": "0.29.0"},
        "published": {"1": [11.8, 12.7]},
        "published_by": {"1": "capyctl, 2026-10-02"},
        "sure": "measured by others: 11.8 to 12.7 tokens a second on one Spark with vLLM 0.30.0. Its quantization is "
        "that of Qwen3.6-27B-NVFP4, a sibling model; its weight size is that of its files",
        "source": f"{_CAPYCTL}; NVIDIA's playbooks for one Spark and for a cluster; {_RECIPES}",
        "evidence": "2026-10-02",
        "notes": "License: Apache-2.0. vLLM has the architecture since 0.17.0; others report this checkpoint with "
        f"0.29.0 and 0.30.0. NVIDIA and eugr set the tool parser qwen3_xml, {_RECIPES} and {_CAPYCTL} qwen3_coder. "
        "With a draft, it is the entry qwen3.8-27b-nvfp4-dflash2. "
        "One source found no MTP layers in this checkpoint; a forum user reports 18.5 tokens a second with MTP. "
        "NVIDIA sets --trust-remote-code, which an architecture built into vLLM does not need",
    },
    "qwen3.8-27b-nvfp4-dflash2": {
        **_QWEN38_27B,
        "args": [*_QWEN38_27B_ARGS, *_DFLASH2],
        "nodes": 1,
        "requires": {"since": "0.30.0"},
        "published": {"1": [23.0, 35.4], "2": [37.4, 37.4]},
        "published_by": {"1": "capyctl, 2026-10-02", "2": _NVIDIA},
        "sure": "measured by others: 34.5 tokens a second on one Spark with vLLM 0.30.0 (23.0 to 35.4). NVIDIA "
        "measured 24.3 on one and 37.4 on two with 0.28.0 and RadixArk's checkpoint, which has the same size and "
        "formats. Its quantization is that of Qwen3.6-27B-NVFP4, a sibling model; its weight size is that of its files",
        "source": f"{_NVIDIA_RECIPES}; {_CAPYCTL}; NVIDIA's choice for one and for two Sparks (choose-recipe)",
        "evidence": "2026-10-20",
        "notes": "License of the model: Apache-2.0. It is qwen3.8-27b-nvfp4 with the draft z-lab/Qwen3.8-27B-DFlash2 "
        "(3.8 GB), which is stored like the model. The draft uses the model's embeddings and output matrix. "
        "NVIDIA also sets draft_tensor_parallel_size 2, which vLLM refuses for other tensor sizes of the model. "
        "Without it, vLLM uses the model's size. "
        "NVIDIA also sets batches of 16,384 tokens, at most eight sequences and --trust-remote-code; on one Spark it "
        "uses its container 26.10 since 2026-10. "
        "A user of NVIDIA's forum reports 47.9 tokens a second; the engine is unclear. "
        "The plan's upper bound for the speed is that without a draft",
    },
    "qwen3.6-27b-nvfp4": {
        **_QWEN38_27B,
        "hub": "nvidia/Qwen3.6-27B-NVFP4",
        "revision": "0893e1606ff3d5f97a441f405d5fc541a6bdf404",
        "weights_bytes": 21_921_428_072,
        "args": [
            *_QWEN38_27B_ARGS,
            *(*_FLASHINFER, *_speculative(method="mtp", num_speculative_tokens=5)),
        ],
        "nodes": 1,
        "requires": {"since": "0.28.0"},
        "published": {"1": [28.4, 28.4], "2": [43.6, 43.6]},
        "published_by": {"1": "NVIDIA, 2026-08-31", "2": "NVIDIA, 2026-08-28"},
        "sure": "measured by others: 28.4 tokens a second on one Spark and 43.6 on two with vLLM 0.28.0. Its "
        "dimensions are Qwen3.8-27B's, of the same architecture and size; its weight size is that of its tensors",
        "source": f"{_NVIDIA_RECIPES}; qwen3x-orin's checkpoint metadata (bytes); {_RECIPES}",
        "evidence": "2026-08-31",
        "notes": "License: Apache-2.0. The weight size includes the layer for MTP and a vision tower. NVIDIA also sets "
        "batches of 8,192 tokens, at most eight sequences and --trust-remote-code, and on two Sparks "
        "VLLM_USE_V2_MODEL_RUNNER=1 and draft_tensor_parallel_size 2, which vLLM's default equals",
    },
    "qwen3.5-122b-a10b-nvfp4": {
        "hub": "nvidia/Qwen3.5-122B-A10B-NVFP4",
        "revision": "98915d837c4e7c87ac8296d02e89de19b3207e6d",
        "weights_bytes": 83_495_005_008,
        "config": {
            **_QWEN35_122B,
            "quantization_config": {
                **_NVFP4,
                "ignore": [
                    "lm_head",
                    *(f"model.language_model.layers.*.{each}*" for each in ("linear_attn", "self_attn")),
                    "model.language_model.layers.*.mlp.shared_expert*",
                ],
            },
        },
        "reasoning": True,
        "args": [
            *("--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_xml"),
            *(*_FP8_CACHE, *_MARLIN, *_FLASHINFER, *_MTP3_TRITON),
        ],
        "nodes": 1,
        "requires": {"since": "0.28.0"},
        "published": {"1": [27.3, 27.3]},
        "published_by": {"1": "NVIDIA, 2026-08-31"},
        "sure": "measured by others: 27.3 tokens a second on one Spark with vLLM 0.28.0. Its dimensions are those of "
        "the FP8 checkpoint; the quantized modules are from its model card, its weight size is that of its files",
        "source": f"{_NVIDIA_RECIPES}; its model card; ArtificialAnalysis/aa-agentperf-local (bytes of the files)",
        "evidence": "2026-09-21",
        "notes": "License: Apache-2.0. The weight size includes the layer for MTP in BF16 and a vision tower; without "
        "them vLLM loaded 73.2 GiB. NVIDIA also sets batches of 8,192 tokens and at most eight sequences",
    },
    "deepseek-v4-flash": {
        "hub": "deepseek-ai/DeepSeek-V4-Flash",
        "revision": "60d8d70770c6776ff598c94bb586a859a38244f1",
        "config": _DEEPSEEK_V4,
        "reasoning": True,
        "image": "eugr/spark-vllm@sha256:2c2aa4062f3fa74a5917db55fe4bde29cfd8ddd4e90722165b6b22b1867d7066",
        "args": [
            *(*_DEEPSEEK_V4_ARGS, "--max-num-seqs", "4"),
            *_speculative(method="mtp", num_speculative_tokens=2),
        ],
        "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_USE_BREAKABLE_CUDAGRAPH": "1"},
        "nodes": 2,
        "max_model_len": 262144,
        "published": {"2": [36.0, 36.0]},
        "published_by": {"2": _NVIDIA},
        "sure": "measured by others: 36.0 tokens a second on two Sparks with this image and a context of 500,000. Its "
        "weight size is unknown",
        "source": f"{_NVIDIA_RECIPES} (image, revision, options); a simulator's test (dimensions)",
        "evidence": "2026-09-03",
        "notes": _DEEPSEEK_V4_NOTES,
    },
    "deepseek-v4-flash-0731": {
        "hub": "deepseek-ai/DeepSeek-V4-Flash-0731",
        "revision": "7872f01b1d1fe23eabc4c98b48bffcef5a386062",
        "weights_bytes": 166_878_536_440,
        "config": _DEEPSEEK_V4,
        "reasoning": True,
        "image": "eugr/spark-vllm-b12x@sha256:16ce6e7efce8bebda9a800fd1432c7dde42d28f901354af00b2f3a57e68e3654",
        "args": [
            *(*_DEEPSEEK_V4_ARGS, "--max-num-seqs", "8", "--moe-backend", "b12x", "--linear-backend", "b12x"),
            *("--attention-backend", "B12X", "--max-cudagraph-capture-size", "48"),
            *("--compilation-config", '{"cudagraph_mode":"FULL_AND_PIECEWISE","custom_ops":["all"]}'),
            *_speculative(
                method="dspark",
                num_speculative_tokens=5,
                draft_sample_method="probabilistic",
                attention_backend="B12X",
            ),
        ],
        "environment": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "CUTE_DSL_ARCH": "sm_121a",
            "VLLM_USE_BREAKABLE_CUDAGRAPH": "0",
            "VLLM_MOE_SKIP_PADDING": "0",
            **dict.fromkeys(
                (
                    *("B12X_MLA_SM120_UNIFIED", "B12X_MOE_FORCE_A8", "VLLM_MEMORY_PROFILE_INCLUDE_ATTN"),
                    *("VLLM_USE_AOT_COMPILE", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_V2_MODEL_RUNNER"),
                    *(
                        f"VLLM_USE_B12X_{part}"
                        for part in ("FP8_GEMM", "MHC", "MOE", "SPARSE_INDEXER", "WO_PROJECTION")
                    ),
                ),
                "1",
            ),
        },
        "nodes": 2,
        "max_model_len": 262144,
        "published": {"2": [40.7, 40.7]},
        "published_by": {"2": _NVIDIA},
        "sure": "measured by others: 40.7 tokens a second on two Sparks with this image; a user found its answers "
        "right (2026-09-04), and wrong with an older build",
        "source": f"{_NVIDIA_RECIPES} (image, revision, options); a checkpoint lock (bytes of the tensors); "
        "BittnerPierre/dsv4f-0731-vllm-b12x-repro",
        "evidence": "2026-09-04",
        "notes": f"{_DEEPSEEK_V4_NOTES}. Its draft (DSpark) is in the checkpoint",
    },
    "nemotron-3.5-lightning-30b-a3b-nvfp4": {
        "hub": "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
        "revision": "bee7596271d1495f6992ae224aefde4410e816b8",
        "weights_bytes": 21_559_589_596,
        "config": {
            **_NEMOTRON_30B,
            "layers_block_type": [_BLOCKS[letter] for letter in _PATTERN_30B],
            "num_nextn_predict_layers": 1,
            "max_position_embeddings": 1048576,
            "dtype": _BF16,
            "quantization_config": {**_MIXED, "exclude_modules": _UNQUANTIZED_30B},
        },
        "reasoning": True,
        "args": [
            *("--reasoning-parser", "nemotron_v3", _TOOLS, "--tool-call-parser", "qwen3_xml", *_FP8_CACHE, *_MARLIN),
            *("--mamba-backend", "flashinfer", "--mamba-cache-mode", "align", "--mamba-ssm-cache-dtype", "float16"),
            *("--enable-mamba-cache-stochastic-rounding", "--mamba-cache-philox-rounds", "5"),
            *_speculative(
                method="dspark",
                model="nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4-DSpark",
                num_speculative_tokens=7,
            ),
        ],
        "nodes": 1,
        "requires": {"since": "0.29.0"},
        "published": {"1": [95.5, 95.5]},
        "published_by": {"1": _NVIDIA},
        "sure": "measured by others: 95.5 tokens a second on one Spark with a build of vLLM between 0.28 and 0.29; "
        "without the draft 70.2 with 0.30.0",
        "source": f"{_NVIDIA_RECIPES}; {_CAPYCTL}; eugr's recipes; {_RECIPES}",
        "evidence": "2026-10-07",
        "notes": f"License: OpenMDW-1.1. {_NEMOTRON_CACHE}. "
        "The experts and the output are NVFP4, the Mamba layers FP8, the attention bfloat16. "
        "The weight size includes a layer for MTP that is not loaded: vLLM loaded 17.9 GiB. NVIDIA also sets batches "
        "of 16,384 tokens",
    },
    "nemotron-3-ultra-550b-a55b-nvfp4": {
        "hub": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
        "revision": "02462641f13d3af838b904f48195b9bb8a1e4ebc",
        "weights_bytes": 352_308_689_576,
        "config": {
            **_NEMOTRON,
            "hidden_size": 8192,
            "intermediate_size": 5120,
            "layers_block_type": [
                _BLOCKS[letter]
                for letter in (
                    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*"
                    "EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
                )
            ],
            "num_attention_heads": 64,
            "mamba_num_heads": 256,
            "n_routed_experts": 512,
            "num_experts_per_tok": 22,
            "moe_latent_size": 2048,
            "moe_intermediate_size": 5120,
            "moe_shared_expert_intermediate_size": 10240,
            "num_nextn_predict_layers": 1,
            "dtype": _BF16,
            "quantization_config": _MIXED,
        },
        "reasoning": True,
        "args": [
            *("--trust-remote-code", "--reasoning-parser", "nemotron_v3", _TOOLS, "--tool-call-parser", "qwen3_coder"),
            *(*_FP8_CACHE, *_MARLIN, "--attention-backend", "TRITON_ATTN"),
        ],
        "nodes": 4,
        "requires": {"since": "0.22.0"},
        "sure": "served by others on four Sparks, with vLLM 0.22.0 and 16,384 tokens of context. No figures without "
        "MTP. Its weight size is that of its files; the share of each format in it is unknown",
        "source": f"GB10sor's model profiles; NVIDIA's Spark deployment guide; eugr's recipes; {_RECIPES}",
        "evidence": "2026-08",
        "notes": f"License: OpenMDW-1.1. {_NEMOTRON_CACHE}. "
        "The weight size includes a layer for MTP; a recipe notes 85 GB on each node. "
        "With four MTP tokens, that recipe reports about 15.3 tokens a second; a user of NVIDIA's forum "
        "reports 5.3 a request with SGLang. NVIDIA's guide also sets at most two sequences, -cc.mode 0 and "
        "--mamba-cache-mode align, and the tool parser qwen3_xml. According to the recipe, batches of 32,768 "
        "tokens hung nodes, and --load-format instanttensor exceeded the limit of open files",
    },
    "minimax-m2.7-nvfp4": {
        "hub": "nvidia/MiniMax-M2.7-NVFP4",
        "revision": "e79701cb1f9dce8fe5395b9ed2b20170beebecde",
        "weights_bytes": 139_862_328_320,
        "config": {
            "model_type": "minimax_m2",
            "hidden_size": 3072,
            "intermediate_size": 1536,
            "num_hidden_layers": 62,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "attn_type_list": [1] * 62,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "sliding_window": None,
            "vocab_size": 200064,
            "max_position_embeddings": 196608,
            "tie_word_embeddings": False,
            "dtype": _BF16,
            "quantization_config": {
                **_NVFP4,
                "kv_cache_scheme": _FP8_NUMBERS,
                "ignore": ["lm_head", "model.layers.*.block_sparse_moe.gate", "model.layers.*.self_attn*"],
            },
        },
        "reasoning": True,
        "args": [
            *("--trust-remote-code", "--reasoning-parser", "minimax_m2", _TOOLS, "--tool-call-parser", "minimax_m2"),
            *_MARLIN,
        ],
        "nodes": 2,
        "requires": {"since": "0.20.0"},
        "published": {"2": [24.0, 26.0]},
        "published_by": {"2": "eugr/spark-vllm-docker#183, 2026-05-08"},
        "sure": "measured by others: 24 to 26 tokens a second on two Sparks, with eugr's builds of vLLM. Its weight "
        "size is computed from its numbers by type",
        "source": f"spark-arena/recipe-registry; eugr/spark-vllm-docker#183 and #236; {_NVIDIA_RECIPES}; {_RECIPES}",
        "evidence": "2026-09-01",
        "notes": "License: a custom one that excludes commercial use; read it first. "
        "The attention is stored as float32 and loaded as bfloat16, so each of two nodes needs 2.7 GB less "
        "than planned. The figures are with vLLM's choice of MoE kernels (NVIDIA: 25.8), and #236 requests CUTLASS. "
        "Marlin was 24 % faster than CUTLASS with MiniMax-M2.5 on two Sparks (Avarok-Cybersecurity/dgx-vllm#4). "
        "Another NVFP4 build uses the reasoning parser minimax_m2_append_think",
    },
    "qwen3.6-35b-a3b-nvfp4": {
        "hub": "nvidia/Qwen3.6-35B-A3B-NVFP4",
        "revision": "491c2f1ea524c639598bf8fa787a93fed5a6fbce",
        "weights_bytes": 23_407_580_856,
        "config": {
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": _QWEN35_35B,
            "quantization_config": _MIXED,
        },
        "reasoning": True,
        "args": [
            *("--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_xml"),
            *(*_FP8_CACHE, *_MARLIN, *_FLASHINFER, *_MTP3_TRITON),
        ],
        "nodes": 1,
        "requires": {"since": "0.28.0"},
        "published": {"1": [94.8, 97.7]},
        "published_by": {"1": "vllm-project/recipes#918, 2026-08-31"},
        "sure": "measured by others: 94.8 (NVIDIA) and 97.7 tokens a second on one Spark with vLLM 0.28.0 and a later "
        "revision (1355db6a); without the draft 77.3 with 0.30.0",
        "source": f"{_NVIDIA_RECIPES}; {_RECIPES}#918; {_CAPYCTL}; NVIDIA's playbook for one Spark",
        "evidence": "2026-10-07",
        "notes": "License: Apache-2.0. config.json does not name the FP8 key/value cache; hf_quant_config.json does. "
        "NVIDIA also sets batches of 8,192 tokens, at most eight sequences and --trust-remote-code, which an "
        "architecture built into vLLM does not need",
    },
    "gemma-4-26b-a4b-nvfp4": {
        "hub": "nvidia/Gemma-4-26B-A4B-NVFP4",
        "revision": "a19cfe00be84568a6867111c9a68c9c44fdcffe6",
        "weights_bytes": 18_782_360_732,
        "config": {
            "model_type": "gemma4",
            "tie_word_embeddings": True,
            "text_config": {
                **_GEMMA4,
                "hidden_size": 2816,
                "intermediate_size": 2112,
                "moe_intermediate_size": 704,
                "num_hidden_layers": 30,
                "layer_types": _GEMMA4_LAYERS * 5,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "num_global_key_value_heads": 2,
                "num_experts": 128,
                "top_k_experts": 8,
            },
            "quantization_config": {
                **_NVFP4,
                "kv_cache_scheme": _FP8_NUMBERS,
                "ignore": ["lm_head", *(f"{_GEMMA4_MODULES}.{module}*" for module in ("mlp", "router", "self_attn"))],
            },
        },
        "args": [
            *("--reasoning-parser", "gemma4", _TOOLS, "--tool-call-parser", "gemma4", "--moe-backend", "auto"),
            *_speculative(
                method="mtp",
                model="google/gemma-4-26B-A4B-it-assistant",
                num_speculative_tokens=4,
                moe_backend="triton",
            ),
        ],
        "nodes": 1,
        "requires": {"since": "0.27.0"},
        "published": {"1": [34.4, 34.4]},
        "published_by": {"1": _NVIDIA},
        "sure": "measured by others: 34.4 tokens a second on one Spark with the draft, 30.3 without it (vLLM 0.30.0). "
        "No figure with the draft and a release from 0.27 on",
        "source": f"{_NVIDIA_RECIPES}; {_CAPYCTL}; eugr/spark-vllm-docker#238; {_RECIPES}",
        "evidence": "2026-10-07",
        "notes": f"{_GEMMA4_NOTES}. Its MoE kernels are vLLM's choice (FlashInfer), as in all measurements. The model "
        "card lists one GPU only",
    },
    "gemma-4-31b-it-nvfp4": {
        "hub": "nvidia/Gemma-4-31B-IT-NVFP4",
        "revision": "4135a98a9b728a548947683219633b25682223ac",
        "weights_bytes": 32_633_255_032,
        "config": {
            "model_type": "gemma4",
            "tie_word_embeddings": True,
            "text_config": {
                **_GEMMA4,
                "hidden_size": 5376,
                "intermediate_size": 21504,
                "num_hidden_layers": 60,
                "layer_types": _GEMMA4_LAYERS * 10,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "num_global_key_value_heads": 4,
                "num_experts": None,
            },
            "quantization_config": {
                **_NVFP4,
                "kv_cache_scheme": _FP8_NUMBERS,
                "ignore": ["lm_head", f"{_GEMMA4_MODULES}.self_attn*"],
            },
        },
        "args": [
            *("--reasoning-parser", "gemma4", _TOOLS, "--tool-call-parser", "gemma4"),
            *_speculative(method="mtp", model="google/gemma-4-31B-it-assistant", num_speculative_tokens=4),
        ],
        "nodes": 1,
        "requires": {"since": "0.27.0"},
        "published": {"1": [12.4, 16.0]},
        "published_by": {"1": "a fork of eugr's recipes, 2026-07-19"},
        "sure": "measured by others: 12.4 (NVIDIA) and 16 tokens a second on one Spark with the draft, 6.8 without it. "
        "No figure with the draft and a release from 0.27 on",
        "source": f"{_NVIDIA_RECIPES}; a fork of eugr's recipes; {_RECIPES}",
        "evidence": "2026-08-31",
        "notes": _GEMMA4_NOTES,
    },
    "nemotron-3-nano-30b-a3b-nvfp4": {
        "hub": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        "revision": "6efb4a2a1c1fa277ce7b3df7a1416255011b1c99",
        "weights_bytes": 19_339_781_632,
        "config": {
            **_NEMOTRON_30B,
            "hybrid_override_pattern": _PATTERN_30B,
            "torch_dtype": _BF16,
            "quantization_config": {
                **_NVFP4,
                "exclude_modules": [
                    "lm_head",
                    *_UNQUANTIZED_30B,
                    *(f"backbone.layers.{layer}.mixer.{part}_proj" for layer in _MAMBA_30B for part in ("in", "out")),
                ],
            },
        },
        "reasoning": True,
        "args": [
            *("--trust-remote-code", "--reasoning-parser", "nemotron_v3", _TOOLS, "--tool-call-parser", "qwen3_coder"),
            *(*_FP8_CACHE, *_MARLIN),
        ],
        "nodes": 1,
        "requires": {"since": "0.17.1"},
        "published": {"1": [58.0, 58.0]},
        "published_by": {"1": "mARTin-B78, 2026-04-23"},
        "sure": "measured by others: 58 tokens a second on one Spark, with eugr's build of vLLM. The first release "
        "that serves it is unknown; 0.17.1 is the first with its parser",
        "source": "mARTin-B78's tutorial; eugr's recipes; another project's notes with NVIDIA's container 26.05",
        "evidence": "2026-04-23",
        "notes": f"License: NVIDIA's open model license for Nemotron. {_NEMOTRON_CACHE}. "
        "The recipes take the reasoning parser nano_v3 from a file of the model, whose checksum is unknown here; "
        "NVIDIA sets the built-in nemotron_v3 for a sibling model. The notes set Marlin and a context of "
        "65,536, eugr's recipes CUTLASS. eugr reports that it fails on two Sparks",
    },
    "gpt-oss-120b": {
        "hub": "openai/gpt-oss-120b",
        "revision": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a",
        "weights_bytes": 65_248_815_744,
        "config": {
            **_GPT_OSS,
            "num_hidden_layers": 36,
            "num_local_experts": 128,
            "layer_types": ["sliding_attention", "full_attention"] * 18,
        },
        "reasoning": True,
        "args": [_TOOLS, "--tool-call-parser", "openai"],
        "nodes": 1,
        "published": {"1": [33.0, 34.2]},
        "published_by": {"1": "capyctl, 2026-10-09"},
        "sure": "measured by others: 34 tokens a second on one Spark with vLLM 0.30.0. Other builds reached 57 to 60 "
        "on one Spark and 69 to 76 on two, with attention and output as MXFP4",
        "source": (
            f"{_PRESETS}, its default; {_CAPYCTL}; NVIDIA/dgx-spark-playbooks#79; conselara.dev; kubis.ai; Spark Arena"
        ),
        "evidence": "2026-10-09",
        "notes": f"{_GPT_OSS_NOTES}. vLLM 0.30.0 reached 34.2 tokens a second, NVIDIA's container 26.02 33 to 34. Both "
        "read attention and output in bfloat16, as this project does. The builds that reached 57 to 60 store "
        "both as MXFP4 (--mxfp4-layers moe,qkv,o,lm_head in eugr's recipe). Then a token reads about half of "
        "the bytes. conselara.dev reports the same speed with NVIDIA's container 26.04, which no memory of 273 GB/s "
        "allows with bfloat16. vLLM 0.30.0 used 94 GiB while it loaded the model",
    },
    "gpt-oss-20b": {
        "hub": "openai/gpt-oss-20b",
        "revision": "6cee5e81ee83917806bbde320786a8fb61efebee",
        "weights_bytes": 13_761_264_768,
        "config": {
            **_GPT_OSS,
            "num_hidden_layers": 24,
            "num_local_experts": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        "reasoning": True,
        "args": [_TOOLS, "--tool-call-parser", "openai"],
        "nodes": 1,
        "published": {"1": [46.7, 46.7]},
        "published_by": {"1": "capyctl, 2026-10-09"},
        "sure": (
            "measured by others: 46.7 tokens a second on one Spark with vLLM 0.30.0; NVIDIA lists it as supported "
            "on one Spark"
        ),
        "source": f"{_PRESETS}; {_CAPYCTL}; NVIDIA's playbook",
        "evidence": "2026-10-09",
        "notes": f"{_GPT_OSS_NOTES}. LMSYS measured 49.7 tokens a second with Ollama (2025-10)",
    },
    "qwen3.5-122b-a10b-fp8": {
        "hub": "Qwen/Qwen3.5-122B-A10B-FP8",
        "revision": "a099dee70ccfcd8d5dda56aaa0b60cb8ecadabc9",
        "weights_bytes": 127_163_011_832,
        "config": {**_QWEN35_122B, "quantization_config": _QWEN_FP8},
        "reasoning": True,
        "args": ["--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_coder"],
        "nodes": 2,
        "requires": {"since": "0.17.0"},
        "sure": "served by others on two Sparks (tensor parallel) and on four Sparks and Thors (pipeline parallel); no "
        "figures given. Its dimensions are from several projects' copies that agree, its FP8 blocks from "
        "sibling models",
        "source": "vllm-gb10, its production model; distributed-vllm",
        "evidence": _READ,
        "notes": "The weight size is that of all files, including a vision tower and a layer for speculative decoding "
        "that the text model does not need. Both presets set --trust-remote-code, which an architecture built into "
        "vLLM does not need. vllm-gb10: 13 minutes to load",
    },
    "qwen3.5-35b-a3b": {
        "hub": "Qwen/Qwen3.5-35B-A3B",
        "weights_bytes": 71_903_645_408,
        "config": {
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": _QWEN35_35B,
        },
        "reasoning": True,
        "args": ["--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_coder"],
        "nodes": 1,
        "requires": {"since": "0.17.0"},
        "sure": "published preset, served on one Spark; no figures given. Its weight size is its number of "
        "parameters in BF16",
        "source": "vllm-gb10",
        "evidence": _READ,
        "notes": "The preset sets --trust-remote-code, which an architecture built into vLLM does not need",
    },
    "qwen3-omni-30b-a3b-instruct": {
        "hub": "Qwen/Qwen3-Omni-30B-A3B-Instruct",
        "revision": "26291f793822fb6be9555850f06dfe95f2d7e695",
        "weights_bytes": 70_519_637_090,
        "config": {
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "dtype": _BF16,
                "text_config": {
                    "model_type": "qwen3_omni_moe_text",
                    "hidden_size": 2048,
                    "intermediate_size": 768,
                    "moe_intermediate_size": 768,
                    "shared_expert_intermediate_size": 0,
                    "num_hidden_layers": 48,
                    "num_attention_heads": 32,
                    "num_key_value_heads": 4,
                    "head_dim": 128,
                    "num_experts": 128,
                    "num_experts_per_tok": 8,
                    "decoder_sparse_step": 1,
                    "mlp_only_layers": [],
                    "vocab_size": 152064,
                    "max_position_embeddings": 65536,
                    "tie_word_embeddings": False,
                },
            },
        },
        "nodes": 1,
        "requires": {"since": "0.11.1"},
        "sure": "published preset, served on one Spark; no figures given. The preset does not specify this model "
        "or -Thinking. Its weight size is its number of parameters in BF16",
        "source": "vllm-gb10",
        "evidence": _READ,
        "notes": "vLLM itself serves only the text output (it does not load the talker). The preset's `vllm serve "
        "--omni` needs vllm-omni, which this collection's stacks do not contain",
    },
    "nemotron-3-super-120b-a12b-nvfp4": {
        "hub": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
        "revision": "445d56f38229f7a37ae5207734f7e8af0fa9a2c8",
        "weights_bytes": 80_297_329_824,
        "config": {
            **_NEMOTRON,
            "hidden_size": 4096,
            "intermediate_size": 2688,
            "num_hidden_layers": 88,
            "hybrid_override_pattern": (
                "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
            ),
            "num_attention_heads": 32,
            "mamba_num_heads": 128,
            "n_routed_experts": 512,
            "num_experts_per_tok": 22,
            "moe_latent_size": 1024,
            "moe_intermediate_size": 2688,
            "moe_shared_expert_intermediate_size": 5376,
            "num_nextn_predict_layers": 1,
            "mtp_hybrid_override_pattern": "*E",
            "dtype": _BF16,
            "quantization_config": {**_MIXED, "kv_cache_scheme": _FP8_NUMBERS},
        },
        "reasoning": True,
        "args": [
            *("--reasoning-parser", "nemotron_v3", _TOOLS, "--tool-call-parser", "qwen3_xml"),
            *(*_FLASHINFER, "--moe-backend", "auto", "--mamba-cache-mode", "align", *_MTP3),
        ],
        "nodes": 1,
        "requires": {"since": "0.24.0"},
        "published": {"1": [22.3, 23.6]},
        "published_by": {"1": "spark-arena/recipe-registry#19, 2026-08"},
        "sure": "measured by others: 22.3 (NVIDIA, vLLM 0.24.0) and 23.6 (Marlin) tokens a second on one Spark with "
        "MTP, 15 to 17 without; 23 without it on two with a patched build of 0.17.2. Its weight size is that of a "
        "later revision (4f0cf9da)",
        "source": f"{_NVIDIA_RECIPES}; {_RECIPES}#632; spark-arena/recipe-registry#19; kubis.ai; mARTin-B78's tutorial",
        "evidence": "2026-08-31",
        "notes": "config.json names the FP8 key/value cache, which vLLM then selects. Of 41,100 quantized modules 139 "
        "are FP8, the others NVFP4. vLLM chooses the MoE kernels: FlashInfer's are faster than Marlin's there "
        f"({_RECIPES}#632, 2026-07). NVIDIA also sets batches of 16,384 tokens, at most eight sequences and "
        "VLLM_FLOAT32_MATMUL_PRECISION=high. A fork of eugr's recipes reports crashes with MTP before 0.24",
    },
    "qwen3-next-80b-a3b-instruct-fp8": {
        "hub": "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8",
        "revision": "c5f5f263bdd5cc134092897864e8905d8fe7b928",
        "weights_bytes": 82_051_854_384,
        "config": {**_QWEN3_NEXT, "quantization_config": _QWEN_FP8},
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "sure": "served by others on one Spark; no figures given. Its dimensions are those of Qwen3-Coder-Next, a "
        "sibling model; its weight size is that of its files",
        "source": "a user's notes about a Spark; dgx-vllm (Avarok) for another FP8 form of it",
        "evidence": _READ,
        "notes": "The Instruct form is not a reasoning model, so it has no reasoning parser",
    },
    "qwen3-next-80b-a3b-instruct-fp8-dynamic": {
        "hub": "DevQuasar/Qwen.Qwen3-Next-80B-A3B-Instruct-FP8-Dynamic",
        "config": {
            **_QWEN3_NEXT,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
        },
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "published": {"1": [39.0, 39.0]},
        "published_by": {"1": "dgx-vllm, 2026-01-20"},
        "sure": "measured by others: 39 tokens a second on one Spark, in a custom image. Its dimensions are those of "
        "Qwen3-Coder-Next, a sibling model; its quantization is inferred from its name, and its weight size is "
        "unknown",
        "source": "dgx-vllm (Avarok)",
        "evidence": "2026-01-20",
        "notes": "The preset sets --kv-cache-dtype fp8, and --reasoning-parser qwen3, which this model does not need: "
        "it is not a reasoning model. Its expert configuration for GB10, "
        "E=512,N=512,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json, is for one node",
    },
    "qwen3-embedding-0.6b": {
        "hub": "Qwen/Qwen3-Embedding-0.6B",
        "kind": "embed",
        "weights_bytes": 1_191_553_024,
        "config": {**_QWEN3_POOLING_06B},
        "nodes": 1,
        "sure": _QWEN3_EMBEDDING_SURE,
        "source": _QWEN3_EMBEDDING_SOURCE,
        "evidence": _READ,
        "notes": _QWEN3_EMBEDDING_NOTES,
    },
    "qwen3-embedding-4b": {
        "hub": "Qwen/Qwen3-Embedding-4B",
        "kind": "embed",
        "weights_bytes": 8_043_548_672,
        "config": {
            **_QWEN3_POOLING,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "max_position_embeddings": 40960,
            "vocab_size": 151665,
        },
        "nodes": 1,
        "sure": _QWEN3_EMBEDDING_SURE,
        "source": _QWEN3_EMBEDDING_SOURCE,
        "evidence": _READ,
        "notes": _QWEN3_EMBEDDING_NOTES,
    },
    "qwen3-embedding-8b": {
        "hub": "Qwen/Qwen3-Embedding-8B",
        "kind": "embed",
        "weights_bytes": 15_134_590_976,
        "config": {
            **_QWEN3_POOLING,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "max_position_embeddings": 40960,
            "vocab_size": 151665,
        },
        "nodes": 1,
        "sure": _QWEN3_EMBEDDING_SURE,
        "source": _QWEN3_EMBEDDING_SOURCE,
        "evidence": _READ,
        "notes": _QWEN3_EMBEDDING_NOTES,
    },
    "qwen3-reranker-0.6b": {
        "hub": "Qwen/Qwen3-Reranker-0.6B",
        "kind": "rerank",
        "weights_bytes": 1_191_553_024,
        "config": {**_QWEN3_POOLING_06B},
        "files": [
            {
                "name": "qwen3_reranker.jinja",
                "url": "https://raw.githubusercontent.com/vllm-project/vllm/5d6a1c2492914feea387f49a86eacdc3f99b29a1/"
                "examples/pooling/score/template/qwen3_reranker.jinja",
                "argument": "--chat-template",
                "sha256": "e1ee98e69aab7b2da366edf1c50efcef37e34b4a0c50fb816336213e68d9047a",
            }
        ],
        "nodes": 1,
        "requires": {"since": "0.18.1"},
        "sure": "not reported on a Spark. Its dimensions are those of Qwen3-Embedding-0.6B, a sibling model, and "
        "give its published number of parameters exactly",
        "source": (
            "vLLM's documentation of Qwen3-Reranker, and its example's chat template; published numbers of parameters"
        ),
        "evidence": _READ,
        "notes": "License: Apache-2.0. The plan adds vLLM's --hf-overrides for it, and the template adds the "
        "instruction to each query. vLLM warns that scores are inaccurate without the template",
    },
    "bge-m3": {
        "hub": "BAAI/bge-m3",
        "kind": "embed",
        "weights_bytes": 2_271_019_008,
        "config": {**_BGE_M3, "architectures": ["XLMRobertaModel"]},
        "nodes": 1,
        "sure": (
            "not reported on a Spark. Its dimensions come from copies of its config.json; its weight size is "
            "computed from them"
        ),
        "source": "copies of its config.json in public repositories",
        "evidence": _READ,
        "notes": "License: MIT. vLLM returns its dense vectors, not the sparse and the multiple ones",
    },
    "bge-reranker-v2-m3": {
        "hub": "BAAI/bge-reranker-v2-m3",
        "kind": "rerank",
        "weights_bytes": 2_271_023_108,
        "config": {**_BGE_M3, "architectures": ["XLMRobertaForSequenceClassification"], "id2label": {"0": "LABEL_0"}},
        "nodes": 1,
        "sure": "not reported on a Spark. Its dimensions come from copies of its config.json, and give a published "
        "number of parameters exactly; its weight size is computed from them",
        "source": "copies of its config.json in public repositories",
        "evidence": _READ,
        "notes": (
            "License: Apache-2.0. It is an encoder: it has no KV cache, and vLLM cannot divide its layers over nodes"
        ),
    },
}
#: Language models of 2024, which are no longer published for Sparks. They come last in every list.
OLDER: Mapping[str, Mapping[str, Any]] = {
    "qwen2.5-7b-instruct": {
        "hub": "Qwen/Qwen2.5-7B-Instruct",
        "weights_bytes": 15_231_233_024,
        "config": {
            **_QWEN25,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "sure": _PRESET,
        "source": _PRESETS,
        "evidence": _READ,
    },
    "qwen2.5-14b-instruct": {
        "hub": "Qwen/Qwen2.5-14B-Instruct",
        "weights_bytes": 29_540_067_328,
        "config": {
            **_QWEN25,
            "hidden_size": 5120,
            "intermediate_size": 13824,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "vocab_size": 152064,
        },
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "sure": _PRESET,
        "source": _PRESETS,
        "evidence": _READ,
    },
    "qwen2.5-32b-instruct": {
        "hub": "Qwen/Qwen2.5-32B-Instruct",
        "weights_bytes": 65_527_752_704,
        "config": {
            **_QWEN25,
            "hidden_size": 5120,
            "intermediate_size": 27648,
            "num_hidden_layers": 64,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "vocab_size": 152064,
        },
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "sure": _PRESET,
        "source": _PRESETS,
        "evidence": _READ,
    },
    "qwen2.5-72b-instruct": {
        "hub": "Qwen/Qwen2.5-72B-Instruct",
        "weights_bytes": 145_412_407_296,
        "config": {
            **_QWEN25,
            "hidden_size": 8192,
            "intermediate_size": 29568,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "vocab_size": 152064,
        },
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 2,
        "sure": _PRESET,
        "source": _PRESETS,
        "evidence": _READ,
        "notes": "Every token reads all weights, so it is slow on Sparks",
    },
    "mistral-7b-instruct-v0.3": {
        "hub": "mistralai/Mistral-7B-Instruct-v0.3",
        "weights_bytes": 14_496_047_104,
        "config": {
            **_MISTRAL,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32768,
            "max_position_embeddings": 32768,
        },
        "args": ["--tokenizer-mode", "mistral", _TOOLS, "--tool-call-parser", "mistral"],
        "nodes": 1,
        "sure": _PRESET,
        "source": _PRESETS,
        "evidence": _READ,
        "notes": "Uses Mistral's own tokenizer, because its tool call identifiers must have nine characters",
    },
    "mistral-nemo-instruct-2407": {
        "hub": "mistralai/Mistral-Nemo-Instruct-2407",
        "revision": "04d8a90549d23fc6bd7f642064003592df51e9b3",
        "weights_bytes": 24_495_564_800,
        "config": {
            **_MISTRAL,
            "hidden_size": 5120,
            "intermediate_size": 14336,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "vocab_size": 131072,
            "max_position_embeddings": 131072,
        },
        "args": ["--tokenizer-mode", "mistral", _TOOLS, "--tool-call-parser", "mistral"],
        "nodes": 1,
        "sure": _PRESET,
        "source": f"{_PRESETS}; another project's runs with vLLM 0.29 on one H100",
        "evidence": "2026-09-26",
        "notes": "With the transformers tokenizer, vLLM 0.29 found no chat template; with Mistral's own tokenizer it "
        "served",
    },
    "mixtral-8x7b-instruct-v0.1": {
        "hub": "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "weights_bytes": 93_405_585_408,
        "config": {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
            "torch_dtype": _BF16,
        },
        "nodes": 1,
        "sure": f"{_PRESET}; its size implies that it fits on one Spark",
        "source": _PRESETS,
        "evidence": _READ,
        "notes": "The model does not support tool calls",
    },
    "llama-3.1-8b-instruct": {
        "hub": "meta-llama/Llama-3.1-8B-Instruct",
        "weights_bytes": 16_060_522_496,
        "config": {
            **_LLAMA31,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
        },
        "gated": True,
        "args": [_TOOLS, "--tool-call-parser", "llama3_json"],
        "nodes": 1,
        "sure": f"{_PRESET}; others measured its FP8 and NVFP4 forms (20 and 39 tokens a second on one Spark), but not "
        "this BF16 form",
        "source": _PRESETS,
        "evidence": _READ,
        "notes": _LLAMA_NOTES,
    },
    "llama-3.1-70b-instruct": {
        "hub": "meta-llama/Llama-3.1-70B-Instruct",
        "weights_bytes": 141_107_412_992,
        "config": {
            **_LLAMA31,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
        },
        "gated": True,
        "args": [_TOOLS, "--tool-call-parser", "llama3_json"],
        "nodes": 2,
        "sure": f"{_PRESET}; LMSYS measured its FP8 form (2.7 tokens a second on one Spark); no figures for this BF16 "
        "form",
        "source": _PRESETS,
        "evidence": _READ,
        "notes": _LLAMA_NOTES,
    },
    "phi-4": {
        "hub": "microsoft/phi-4",
        "revision": "2db69c1c3e91a05d2c64a3185acfbaf36f744e25",
        "weights_bytes": 29_319_014_400,
        "config": {
            "model_type": "phi3",
            "hidden_size": 5120,
            "intermediate_size": 17920,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 10,
            "vocab_size": 100352,
            "max_position_embeddings": 16384,
            "tie_word_embeddings": False,
            "torch_dtype": _BF16,
        },
        "nodes": 1,
        "sure": _PRESET,
        "source": f"{_PRESETS}; another project's runs with vLLM 0.29 on one H100",
        "evidence": "2026-09-26",
        "notes": "Its ten key/value heads are divisible by two nodes, not by four",
    },
    "gemma-2-27b-it": {
        "hub": "google/gemma-2-27b-it",
        "weights_bytes": 54_454_256_640,
        "config": {
            "model_type": "gemma2",
            "hidden_size": 4608,
            "intermediate_size": 36864,
            "num_hidden_layers": 46,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "query_pre_attn_scalar": 144,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "sliding_window": 4096,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "torch_dtype": _BF16,
        },
        "gated": True,
        "nodes": 1,
        "sure": f"{_PRESET}; its weight size is computed from its dimensions",
        "source": _PRESETS,
        "evidence": _READ,
        "notes": "The model does not support tool calls",
    },
}
MODELS: Mapping[str, Mapping[str, Any]] = {**_CURRENT, **OLDER}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models with a short name. Only data: ``catalog`` defines the keys, ``catalog_checks`` validates them.

``config`` has the keys of each config.json for shape and quantization. They come from copies, tables and tests in
public repositories, not from Hugging Face Hub. For the BF16 models and gpt-oss, the published number of bytes was
computed from these keys and matches to the byte (tests/unit/model/test_catalog.py). ``requires`` comes from vLLM's own
model registries, 0.10.2 to 0.32.0.

The presets' settings for memory (0.80 to 0.90 of it, --swap-space, lengths), --enforce-eager, --enable-expert-parallel
and --attention-backend are left out. They disagree with each other and with newer evidence; the memory plan and the
rules choose these settings for the installed release. Every parser in ``args`` is registered in each inspected vLLM
from 0.11.2 to 0.32.0, or is a file of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PRESET = "published preset, served over two Sparks; no figures given"
_PRESETS = "vllm-dgx-spark, supported models"
_READ = "2026-11"
_TOOLS = "--enable-auto-tool-choice"
_BF16 = "bfloat16"
#: Qwen's FP8 format: one scale per block of 128 x 128. The list of unquantized modules is omitted because of its
#: length.
_QWEN_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
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
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
    },
}
_GPT_OSS_NOTES = (
    "vLLM selects the reasoning parser openai_gptoss for this architecture itself. "
    "The preset's --enable-expert-parallel is left out. "
    "--enforce-eager halves the speed on one Spark (57 to 26 tokens a second, conselara.dev, 2026-05)"
)
_QWEN25 = {
    "model_type": "qwen2",
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": _BF16,
}
_MISTRAL = {"model_type": "mistral", "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False, "torch_dtype": _BF16}
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
_QWEN35 = {
    **_GATED_DELTA,
    "model_type": "qwen3_5_moe_text",
    "attn_output_gate": True,
    "mamba_ssm_dtype": "float32",
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "vocab_size": 248320,
    "dtype": _BF16,
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

MODELS: Mapping[str, Mapping[str, Any]] = {
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
        "published": {"1": [57.0, 60.0], "2": [69.0, 76.0]},
        "sure": "measured by others, with other stacks: 57 to 60 tokens a second on one Spark, 69 to 76 on two",
        "source": f"{_PRESETS}, its default; conselara.dev; kubis.ai; Spark Arena",
        "evidence": "2026-05",
        "notes": _GPT_OSS_NOTES,
    },
    "gpt-oss-20b": {
        "hub": "openai/gpt-oss-20b",
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
        "sure": f"{_PRESET}; NVIDIA lists it as supported on one Spark",
        "source": f"{_PRESETS}; NVIDIA's playbook",
        "evidence": "2026-07",
        "notes": _GPT_OSS_NOTES,
    },
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
        "config": {**_LLAMA31, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
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
        "config": {**_LLAMA31, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
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
    "qwen3.5-122b-a10b-fp8": {
        "hub": "Qwen/Qwen3.5-122B-A10B-FP8",
        "revision": "a099dee70ccfcd8d5dda56aaa0b60cb8ecadabc9",
        "weights_bytes": 127_163_011_832,
        "config": {
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": {
                **_QWEN35,
                "hidden_size": 3072,
                "moe_intermediate_size": 1024,
                "shared_expert_intermediate_size": 1024,
                "num_hidden_layers": 48,
                "num_attention_heads": 32,
                "linear_num_value_heads": 64,
            },
            "quantization_config": _QWEN_FP8,
        },
        "reasoning": True,
        "args": ["--reasoning-parser", "qwen3", _TOOLS, "--tool-call-parser", "qwen3_coder"],
        "nodes": 2,
        "requires": {"since": "0.17.0"},
        "sure": "served by others on two Sparks (tensor parallel) and on four Sparks and Thors (pipeline parallel); no "
        "figures given. Its dimensions are from several projects' copies that agree, its FP8 blocks from sibling models",
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
            "text_config": {
                **_QWEN35,
                "hidden_size": 2048,
                "moe_intermediate_size": 512,
                "shared_expert_intermediate_size": 512,
                "num_hidden_layers": 40,
                "num_attention_heads": 16,
                "linear_num_value_heads": 32,
            },
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
        "weights_bytes": 80_300_000_000,
        "config": {
            "model_type": "nemotron_h",
            "hidden_size": 4096,
            "intermediate_size": 2688,
            "num_hidden_layers": 88,
            "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
            "mamba_ssm_cache_dtype": "float32",
            "mlp_hidden_act": "relu2",
            "n_routed_experts": 512,
            "n_shared_experts": 1,
            "num_experts_per_tok": 22,
            "moe_latent_size": 1024,
            "moe_intermediate_size": 2688,
            "moe_shared_expert_intermediate_size": 5376,
            "num_nextn_predict_layers": 1,
            "mtp_hybrid_override_pattern": "*E",
            "sliding_window": None,
            "vocab_size": 131072,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": False,
            "dtype": _BF16,
            "quantization_config": {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
                "config_groups": {
                    "group_0": {
                        "input_activations": {"dynamic": False, "num_bits": 8, "type": "float"},
                        "weights": {"dynamic": False, "num_bits": 8, "type": "float"},
                    },
                    "group_1": {
                        "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                        "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                    },
                },
            },
        },
        "reasoning": True,
        "args": [
            *("--trust-remote-code", "--reasoning-parser", "super_v3", _TOOLS, "--tool-call-parser", "qwen3_coder"),
            *("--moe-backend", "marlin", "--attention-backend", "TRITON_ATTN"),
        ],
        "files": [
            {
                "name": "super_v3_reasoning_parser.py",
                "url": "https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4/resolve/"
                "445d56f38229f7a37ae5207734f7e8af0fa9a2c8/super_v3_reasoning_parser.py",
                "sha256": "f7fc71d1697ed79931787cf7485ee297365a41c3442cc1e05e6ebab43e0a39c1",
                "argument": "--reasoning-parser-plugin",
            }
        ],
        "nodes": 1,
        "requires": {"since": "0.17.0"},
        "sure": "served by others on one Spark, on two, and on two with two Thors (pipeline parallel); NVIDIA lists it "
        "as supported. Its weight size is rounded",
        "source": "distributed-vllm; NVIDIA's playbook for Nemotron on Spark",
        "evidence": "2026-07",
        "notes": "Both presets set --kv-cache-dtype fp8; the weights are calibrated for it, and vLLM selects it by "
        "default. The first preset sets TRITON_ATTN, NVIDIA's playbook --moe-backend marlin; until 0.23 that was "
        "VLLM_NVFP4_GEMM_BACKEND=marlin and VLLM_USE_FLASHINFER_MOE_FP4=0. Since 0.17.0 vLLM has the built-in parser "
        "nemotron_v3; others served with it and without the plugin. Two projects record the plugin's checksum, one "
        "of them for this revision, and a third project's copy of the file matches it. Of 41,100 quantized modules "
        "139 are FP8, the others NVFP4",
    },
    "qwen3-next-80b-a3b-instruct-fp8": {
        "hub": "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8",
        "weights_bytes": 81_800_000_000,
        "config": {**_QWEN3_NEXT, "quantization_config": _QWEN_FP8},
        "args": [_TOOLS, "--tool-call-parser", "hermes"],
        "nodes": 1,
        "sure": "served by others on one Spark; no figures given. Its dimensions are those of Qwen3-Coder-Next, a "
        "sibling model; its weight size is the sum of its rounded file sizes",
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
        "sure": "measured by others: 39 tokens a second on one Spark, in a custom image. Its dimensions are those of "
        "Qwen3-Coder-Next, a sibling model; its quantization is inferred from its name, and its weight size is "
        "unknown",
        "source": "dgx-vllm (Avarok)",
        "evidence": "2026-01-20",
        "notes": "The preset sets --kv-cache-dtype fp8, and --reasoning-parser qwen3, which this model does not need: "
        "it is not a reasoning model. Its expert configuration for GB10, "
        "E=512,N=512,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json, is for one node",
    },
}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replacements for names that a vLLM release lacks: data only. The second text of each entry is its source."""

from __future__ import annotations

from collections.abc import Mapping

_WARNED = "vllm/envs.py (0.23.0), the warning of deprecated_env"
_ATTENTION = "vllm/config/attention.py (0.14.1), _set_from_env_if_set"
_RAY = "vllm/v1/executor/abstract.py (0.33.0) line 77; ray_executor.py is gone"
_MOE = ("use --moe-backend", _WARNED)

#: For removed names, and for those of other packages: the fix.
REPLACED: Mapping[str, tuple[str, str]] = {
    "--swap-space": ("remove it: vLLM no longer swaps", "vllm/entrypoints/llm.py (0.18.0) line 266"),
    "--enable-reasoning": (
        "remove it: --reasoning-parser is enough",
        "removed before 0.13; vllm/config/structured_outputs.py (0.13.0)",
    ),
    "--disable-log-requests": (
        "remove it: vLLM logs requests only with --enable-log-requests",
        "vllm/engine/arg_utils.py (0.16.0) line 2088",
    ),
    "--calculate-kv-scales": (
        "remove it: vLLM uses the checkpoint's scales, or 1.0",
        "vllm/config/cache.py (0.27.1) line 278",
    ),
    "--task": (
        "use --runner pooling for embedding or classification models, otherwise remove it",
        "vllm/utils/argparse_utils.py (0.32.0), error()",
    ),
    "--omni": ("remove it: only the package vllm-omni has it (docs/left_out.md)", "docs.vllm.ai, vLLM-Omni CLI guide"),
    "VLLM_ATTENTION_BACKEND": ("use --attention-backend", _ATTENTION),
    "VLLM_FLASH_ATTN_VERSION": ("use --attention-config.flash_attn_version", _ATTENTION),
    "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH": (
        "use --attention-config.flash_attn_max_num_splits_for_cuda_graph",
        _ATTENTION,
    ),
    "VLLM_V1_USE_PREFILL_DECODE_ATTENTION": ("use --attention-config.use_prefill_decode_attention", _ATTENTION),
    "VLLM_USE_CUDNN_PREFILL": ("use --attention-config.use_cudnn_prefill", _ATTENTION),
    "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL": (
        "use --attention-config.use_trtllm_ragged_deepseek_prefill",
        _ATTENTION,
    ),
    "VLLM_USE_TRTLLM_ATTENTION": ("use --attention-config.use_trtllm_attention", _ATTENTION),
    "VLLM_DISABLE_FLASHINFER_PREFILL": ("use --attention-config.disable_flashinfer_prefill", _ATTENTION),
    "VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION": ("use --attention-config.disable_flashinfer_q_quantization", _ATTENTION),
    "VLLM_ALL2ALL_BACKEND": ("use --all2all-backend", "vllm/config/parallel.py (0.15.1) line 544"),
    "VLLM_TORCH_PROFILER_DIR": ("use --profiler-config.torch_profiler_dir", "vllm/config/profiler.py (0.16.0) line 43"),
    "VLLM_USE_FLASHINFER_MOE_FP16": _MOE,
    "VLLM_USE_FLASHINFER_MOE_FP8": _MOE,
    "VLLM_USE_FLASHINFER_MOE_FP4": _MOE,
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": _MOE,
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": (
        "use --moe-backend flashinfer_trtllm and --quantization-config.moe.activation mxfp8",
        _WARNED,
    ),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": (
        "use --moe-backend flashinfer_cutlass and --quantization-config.moe.activation mxfp8",
        _WARNED,
    ),
    "VLLM_FLASHINFER_MOE_BACKEND": (
        "use --moe-backend flashinfer_trtllm, flashinfer_cutlass or flashinfer_cutedsl",
        _WARNED,
    ),
    "VLLM_MXFP4_USE_MARLIN": ("use --moe-backend marlin, and for linear layers --linear-backend marlin", _WARNED),
    "VLLM_NVFP4_GEMM_BACKEND": ("use --linear-backend", _WARNED),
    "VLLM_USE_FBGEMM": ("use --linear-backend fbgemm", _WARNED),
    "VLLM_USE_NVFP4_CT_EMULATIONS": ("use --linear-backend emulation", _WARNED),
    "VLLM_TEST_FORCE_FP8_MARLIN": (
        "use --linear-backend marlin or --moe-backend marlin",
        (
            "vllm/model_executor/kernels/linear/scaled_mm/marlin.py (0.28.0) line 49, "
            "layers/fused_moe/oracle/fp8.py line 374"
        ),
    ),
    "VLLM_MM_HASHER_ALGORITHM": ("use --mm-hasher-algorithm", "vllm/config/multimodal.py (0.30.0) line 157"),
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL": (
        "use --prefix-cache-retention-interval",
        "vllm/engine/arg_utils.py (0.29.0)",
    ),
    "VLLM_USE_RAY_COMPILED_DAG": (
        "remove it: no release since 0.13 reads it",
        "gone before 0.13; vllm/v1/executor/ray_executor.py (0.13.0)",
    ),
    "VLLM_USE_RAY_SPMD_WORKER": (
        "remove it: no release since 0.13 reads it",
        "gone before 0.13; vllm/v1/executor/ray_executor.py (0.13.0)",
    ),
    "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": ("remove it: since 0.33 the V2 executor is the only one for Ray", _RAY),
    "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE": ("remove it: since 0.33 no executor compiles a DAG", _RAY),
    "VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM": ("remove it: since 0.33 no executor compiles a DAG", _RAY),
    "VLLM_USE_RAY_WRAPPED_PP_COMM": ("remove it: since 0.33 no executor compiles a DAG", _RAY),
}

#: For names from later releases: the equivalent in earlier ones.
EARLIER: Mapping[str, tuple[str, str]] = {
    "--moe-backend": (
        "remove it: in 0.15 and 0.16 VLLM_USE_FLASHINFER_MOE_FP8 and similar variables choose the backend, "
        "in earlier releases nothing",
        "vllm/model_executor/layers/fused_moe/oracle/fp8.py (0.15.1) line 142",
    ),
    "--linear-backend": (
        "set VLLM_DISABLED_KERNELS to the kernels to avoid",
        "vllm/model_executor/kernels/linear/__init__.py (0.18.1)",
    ),
}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name vLLM's kernels on a GB10, so that no rank chooses at run time, and find those that a CUDA compiler has to make.

Without names, each rank queries a web server for the attention to use, and FlashInfer compiles kernels next to the
loaded weights. Sources: vLLM 0.33.0, utils/flashinfer.py, platforms/cuda.py, v1/sample/ops/topk_topp_sampler.py,
model_executor/warmup/kernel_warmup.py and layers/fused_moe/oracle; flashinfer-ai/flashinfer#3634.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import ModelConfig, Shape
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import SPARK
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import Release

ATTENTION, MOE, AUTOTUNE = "--attention-backend", "--moe-backend", "--enable-flashinfer-autotune"
SAMPLER, DISABLED = "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_DISABLED_KERNELS"
#: FlashInfer's kernels for linear layers that vLLM prefers to its own on 12.x. Source: vLLM 0.18.1 to 0.33.0,
#: model_executor/kernels/linear. A release ignores the names that it does not have.
_LINEAR = (
    "FlashInferFP8ScaledMMLinearKernel",
    "FlashInferCutlassNvFp4LinearKernel",
    "FlashInferB12xNvFp4LinearKernel",
    "FlashInferCutlassMxfp8LinearKernel",
    "FlashInferMxFp4LinearKernel",
)
#: Storage of weights whose linear layers none of them serves.
_OWN_LINEAR = ("none", "int4", "int8")
#: Other arguments that set the same value. Source: vLLM 0.32, engine/arg_utils.py.
_ELSEWHERE = {
    ATTENTION: ("--attention-config", "backend"),
    MOE: ("--kernel-config", "moe_backend"),
    AUTOTUNE: ("--kernel-config", "enable_flashinfer_autotune"),
}
#: The backend of experts by the storage of their weights. Each is vLLM's own choice on 12.x or the fallback whose
#: answers were right in reports (rules fp8-cutlass and fp4-moe-path), and none needs a compiler.
_EXPERTS: Mapping[str, str] = {"none": "triton", "fp8": "triton", "nvfp4": "marlin", "mxfp4": "marlin"}
_COMPILED_EXPERTS = ("flashinfer", "b12x")
#: The first releases whose TRITON_ATTN serves a draft's parallel tokens, whose TRITON_MLA reads an FP8 cache, and that
#: use FlashInfer's sampler by default. Source: vLLM 0.18.1 to 0.33.0, the files above.
_DRAFTS, _MLA_FP8, _SAMPLED = (0, 24, 0), (0, 28, 0), (0, 22, 0)


def environment(scheme: str, flashinfer: bool) -> dict[str, str]:
    """Return the variables that name the sampler and the linear kernels; ``scheme``: the storage of the weights."""
    linear = {} if flashinfer or scheme in _OWN_LINEAR else {DISABLED: ",".join(_LINEAR)}
    return {SAMPLER: str(int(flashinfer)), **linear}


def named(
    release: Release, config: ModelConfig, kv_dtype: str, given: Arguments, flashinfer: bool
) -> tuple[list[str], list[str]]:
    """Name each backend that neither the model nor the user has ``given``: arguments and reasons.

    ``kv_dtype``: the type of the KV cache.
    """
    scheme = config.quantization.scheme
    experts = _EXPERTS.get(scheme, "") if config.experts else ""
    wanted = {ATTENTION: _attention(release, config.shape, kv_dtype, given, flashinfer), MOE: experts}
    reasons = {
        ATTENTION: "gb10_flashinfer" if flashinfer else "it needs no CUDA compiler, and every rank has the same one",
        MOE: f"for experts with weights of type {scheme}" if scheme != "none" else "for unquantized experts",
    }
    words = {name: (f"{name}={backend}", reasons[name]) for name, backend in wanted.items() if backend}
    words[AUTOTUNE] = ("--no-enable-flashinfer-autotune", "tuning next to the loaded model exhausted the memory")
    new = [
        pair
        for name, pair in words.items()
        if name in release.options and name not in given.values and not given.member(*_ELSEWHERE[name])
    ]
    return [word for word, _why in new], [f"{word}: {why}" for word, why in new]


def _attention(release: Release, shape: Shape | None, kv_dtype: str, given: Arguments, flashinfer: bool) -> str:
    """Return the attention backend, "" if vLLM has to choose: it refuses a named one that a layer cannot use."""
    drafts = bool(given.speculative())
    if shape is None or kv_dtype == "nvfp4" or (drafts and release.number < _DRAFTS):
        return ""
    if shape.of("mla"):
        # Sparse attention has one backend on 12.x. A draft may have another attention than its model.
        sparse = any(layer.kv_cache.index for layer in shape.layers)
        unread = kv_dtype.startswith("fp8") and release.number < _MLA_FP8
        return "" if sparse or drafts or unread else "TRITON_MLA"
    return "FLASHINFER" if flashinfer and shape.family not in model_layers.ENCODERS else "TRITON_ATTN"


def compiled(
    release: Release,
    arguments: Arguments,
    variables: Mapping[str, str],
    capability: str | None,
    scheme: str,
    experts: bool,
) -> list[str]:
    """Return the kernels that FlashInfer compiles, from effective arguments and a rank's variables; [] for
    none.

    A choice that is left to vLLM counts if FlashInfer may be its result.
    """
    attention, moe, tuned = (arguments.argument(name) or arguments.member(*_ELSEWHERE[name]) for name in _ELSEWHERE)
    # Only on 12.x FlashInfer may be the result of a choice that is left to vLLM.
    spark = capability == SPARK
    tunes = AUTOTUNE not in arguments.values and AUTOTUNE in release.options and spark
    made = {
        "the sampler": variables.get(SAMPLER, str(int(release.number >= _SAMPLED))) != "0",
        "attention": "FLASHINFER" in attention.upper() or (not attention and spark),
        "linear layers": spark and scheme not in _OWN_LINEAR and _LINEAR[0] not in variables.get(DISABLED, ""),
        "experts": moe.startswith(_COMPILED_EXPERTS) or (experts and moe in ("", "auto") and spark),
        "tuned kernels": tunes if not tuned else tuned.lower() != "false",
    }
    return [kernel for kernel, needed in made.items() if needed]

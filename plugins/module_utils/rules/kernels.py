# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about kernels and models: backends, CUDA graphs, quantization, speculative decoding, reasoning.

vllm_patch decides which FP8 kernels of a vLLM release need a patch; the rule about them only refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, INFO, WARNING, Found
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import build
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as version
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.choice import HANG_FIXED, new_compilers
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import (
    CONSELARA,
    SPARK,
    THOR,
    View,
    rule,
    when,
)

EAGER, MOE, LINEAR, QUANTIZATION = "--enforce-eager", "--moe-backend", "--linear-backend", "--quantization"
_CUTLASS = ("cutlass", "flashinfer_cutlass")
#: Backends with kernels only for 10.x.
#: Source: vLLM 0.17.1 to 0.32.0, fused_moe/experts/trtllm_*.py, flashinfer_cutedsl*.py.
_DATACENTRE = ("flashinfer_trtllm", "flashinfer_cutedsl")
_LEAST_TOKENS = 512
_READ = "condition: unit tests; code: read in vLLM 0.17.1 to 0.32.0; effect: not tested here"


def moe_backend(view: View) -> str:
    """Return the MoE backend that was requested, "" if vLLM chooses."""
    found = view.argument(MOE) or view.member("--kernel-config", "moe_backend")
    return "" if found == "auto" else found


def _fp4_moe(view: View) -> bool:
    return view.model.moe and view.model.scheme in ("nvfp4", "mxfp4")


def graphs(view: View) -> bool:
    """Whether vLLM captures CUDA graphs."""
    return not view.argument(EAGER) and view.member("--compilation-config", "cudagraph_mode").upper() != "NONE"


def _eager(view: View) -> list[Found]:
    # The notes on Thors use eager mode to avoid an assembler without sm_110a.
    if view.has(THOR) or graphs(view):
        return []
    return (
        view.given(EAGER)
        if view.argument(EAGER)
        else [("gb10_vllm_extra_args.--compilation-config.cudagraph_mode", "NONE")]
    )


def _graph_mode(view: View) -> list[Found]:
    mode = view.member("--compilation-config", "cudagraph_mode")
    return when(
        view.ranks > 1 and mode.upper() == "PIECEWISE",
        ("gb10_vllm_extra_args.--compilation-config.cudagraph_mode", mode),
    )


def _old_nccl(view: View) -> list[Found]:
    loaded = version(view.situation.nccl)
    made_new = new_compilers(view.situation.nccl_gcc)
    return when(
        view.ranks > 1 and loaded is not None and loaded < HANG_FIXED and not made_new, ("nccl", view.situation.nccl)
    )


def _breakable(view: View) -> list[Found]:
    affected = view.ranks > 1 and view.before(0, 25)
    return view.variable("VLLM_USE_BREAKABLE_CUDAGRAPH", lambda value: value == "1") if affected else []


def _flashinfer_fp8(view: View) -> list[Found]:
    # With auto, vLLM uses the type that the checkpoint was calibrated for.
    cache = view.argument("--kv-cache-dtype").removeprefix("auto") or view.model.kv_dtype
    affected = view.before(0, 20) and not view.before(0, 16)
    if not affected or (view.model.scheme != "fp8" and not cache.startswith("fp8")):
        return []
    if chosen := view.argument("--attention-backend"):
        return when(chosen.upper() == "FLASHINFER", *view.given("--attention-backend"))
    if chosen := view.member("--attention-config", "backend"):
        return when(chosen.upper() == "FLASHINFER", ("gb10_vllm_extra_args.--attention-config.backend", chosen))
    left = f"not given, and FlashInfer is the first of vLLM's choices on 12.x that supports a KV cache of {cache}"
    return when(cache.startswith("fp8"), ("gb10_vllm_extra_args.--attention-backend", left))


def _fp4_path(view: View) -> list[Found]:
    if not _fp4_moe(view) or view.before(0, 17) or not view.before(0, 20):
        return []
    chosen = moe_backend(view)
    # On 12.x vLLM chooses Marlin for MXFP4. For NVFP4 it prefers FlashInfer's CUTLASS, then its own.
    unsafe = chosen in _CUTLASS or (not chosen and view.model.scheme == "nvfp4")
    return when(unsafe, (f"gb10_vllm_extra_args.{MOE}", chosen or "not given, so vLLM uses CUTLASS for NVFP4"))


def _moe_on(view: View, backends: Sequence[str]) -> list[Found]:
    """Return the MoE backend of a MoE model if it is one of these."""
    chosen = moe_backend(view)
    return when(view.model.moe and chosen in backends, (f"gb10_vllm_extra_args.{MOE}", chosen))


def _linear(view: View) -> list[Found]:
    strict = view.before(0, 28) and not view.before(0, 22)
    return when(strict and view.argument(LINEAR) not in ("", "auto"), *view.given(LINEAR))


def _atomic_add(view: View) -> list[Found]:
    if not view.before(0, 20):
        return []
    marlin = "marlin" in (moe_backend(view), view.argument(LINEAR)) or view.argument(QUANTIZATION).endswith("_marlin")
    # vLLM uses Marlin by default for 4-bit weights with 16-bit activations, and on 12.x for experts in MXFP4.
    default = view.model.scheme == "int4" or (_fp4_moe(view) and view.model.scheme == "mxfp4" and not moe_backend(view))
    if not marlin and not default:
        return []
    return view.variable("VLLM_MARLIN_USE_ATOMIC_ADD", lambda value: value != "1")


def _mxfp4(view: View) -> list[Found]:
    model = view.model
    if view.argument(QUANTIZATION) != "mxfp4" or model.type in ("", "gpt_oss"):
        return []
    # From 0.20 on vLLM also reads MXFP4 checkpoints of other models.
    other = model.scheme not in ("mxfp4", "unknown", "") or (model.scheme == "mxfp4" and view.before(0, 20))
    return when(
        other, (f"gb10_vllm_extra_args.{QUANTIZATION}", f"mxfp4 with {model.name}, whose weights are {model.scheme}")
    )


def _fp8_kernels(view: View) -> list[Found]:
    old = view.before(0, 20) or build(view.situation.release) == 12
    if view.model.scheme != "fp8" or not old:
        return []
    return view.variable("VLLM_DISABLED_KERNELS", lambda value: "CutlassFP8ScaledMMLinearKernel" not in (value or ""))


def _tokens(view: View) -> list[Found]:
    if not view.model.reasoning:
        return []
    found = when(
        view.situation.smoke_tokens < _LEAST_TOKENS, ("vllm_serve_smoke_tokens", str(view.situation.smoke_tokens))
    )
    limit = view.member("--override-generation-config", "max_new_tokens")
    return found + when(
        limit.isdigit() and int(limit) < _LEAST_TOKENS,
        ("gb10_vllm_extra_args.--override-generation-config.max_new_tokens", limit),
    )


def _parser(view: View) -> list[Found]:
    # vLLM parses the gpt-oss format without this option.
    wanted = view.model.reasoning and view.model.type not in ("", "gpt_oss")
    return when(wanted and not view.argument("--reasoning-parser"), *view.given("--reasoning-parser"))


RULES = (
    rule(
        "enforce-eager",
        WARNING,
        shows=f"`{EAGER}`, or the graph mode NONE, in a cluster without a Thor",
        detect=_eager,
        why="without CUDA graphs gpt-oss-120b generated 26 instead of 59 tokens per second on one Spark",
        fix=f"remove {EAGER}, and use NCCL 2.29.3 or newer between nodes",
        source=f"{CONSELARA}; vLLM's own article about Sparks (2026-06-01): graphs by default",
        evidence="2026-08-16",
        disputed=(
            "a recipe for Gemma 4 31B on two Sparks calls it necessary (vllm-project/recipes#414, open, 2026-04). The "
            "draft of vLLM's article called it the key to stability (vllm-project/vllm-project.github.io#214, "
            "2026-05); the published article does not. Avarok and vllm-gb10 run eager (2026-02). Across nodes the "
            "cause was the hang of old NCCL: eager made it rarer (vllm-project/vllm#41725, 2026-07) or hid it "
            "(vllm-project/vllm#52504, 2026-08). Some images still need eager (tonyd2wild GLM-5.3-Flash, topkfix; "
            "eugr/spark-vllm-docker#400, 2026-09): waive this for those"
        ),
    ),
    rule(
        "nccl-arm-hang",
        WARNING,
        shows="several nodes, NCCL below 2.29.3, unless it was verified to be built by GCC 10 or newer",
        detect=_old_nccl,
        why=(
            "a build by a GCC before 10 loses slots for operations when a compare-and-swap fails spuriously, as it "
            "may on ARM. After minutes to hours one rank waits for a slot forever, its peers spin at 96 % and 20 W, "
            "and the API stays green. It happens with and without CUDA graphs, and with and without RoCE"
        ),
        fix="set nccl_sm121_build_enabled: auto, or use NCCL 2.29.3 or newer in every process",
        source=(
            "NVIDIA/nccl#2353 (wheels bisected), its release v2.29.3-1; marin-community/marin#7344 (the "
            "cause); sgl-project/sglang#33289 (two Sparks)"
        ),
        evidence="2026-08-27",
        disputed=(
            "DGX OS's own build of 2.28.9 ran 60 minutes clean where the wheel's 2.28.9 hung "
            "(vllm-project/vllm#42354, 2026-07). A newer GCC would explain it, and gb10.cluster.nccl_info reads the "
            "compiler. With 2.30.4 a pair also stalled "
            "(vllm-project/vllm#41834, 2026-05), and so did receivers on dual rails (NVIDIA/nccl#2334, open): not "
            "every hang has this cause"
        ),
    ),
    rule(
        "breakable-cudagraph",
        WARNING,
        shows="several nodes, vLLM before 0.25 and `VLLM_USE_BREAKABLE_CUDAGRAPH=1`",
        detect=_breakable,
        why=(
            "it captures the all-reduce between nodes, which has no GPUDirect on a GB10: an illegal access at "
            "capture, seen on a pair with a nightly after 0.23, NCCL 2.28.9 and MiniMax M3"
        ),
        fix="unset it, or set it to 0",
        source="vllm-project/vllm#46253, #46372 (it is MiniMax M3's fused all-reduce)",
        evidence="2026-06-29",
        disputed=(
            "AEON-7 runs such graphs with NCCL 2.30.7 and a patch of every capture site (2026-08-20). NVIDIA measured "
            "DeepSeek V4 Flash on two Sparks with 1 and vLLM 0.28 (2026-09-03); eugr's recipe for four sets 1: both "
            "are newer, so the rule ends at 0.24"
        ),
    ),
    rule(
        "cudagraph-mode",
        INFO,
        shows="several nodes and the graph mode PIECEWISE",
        detect=_graph_mode,
        why="on four Sparks it was 19 % slower, and FULL_AND_PIECEWISE 5 to 17 % faster",
        fix="let vLLM choose the mode, or set FULL_AND_PIECEWISE",
        source="tonyd2wild/GLM-5.3-Flash-NVFP4-1M-KV-4x-DGX-Spark#5",
        evidence="2026-09",
        disputed="eugr/spark-vllm-docker#35 saw FULL hang and PIECEWISE work (2026-02)",
    ),
    rule(
        "flashinfer-fp8",
        WARNING,
        shows=(
            "vLLM 0.16 to 0.19: an FP8 model with FlashInfer attention, or an FP8 KV cache (requested, or the "
            "checkpoint's) without another backend"
        ),
        detect=_flashinfer_fp8,
        why="FlashInfer returned wrong answers with FP8 on Blackwell",
        fix="set --attention-backend TRITON_ATTN, or compare fixed prompts at temperature 0 before you rely on it",
        source=f"vllm-project/vllm#35138; {CONSELARA}",
        evidence="2026-05",
        disputed=(
            "that issue is about eight NVLink GPUs on 0.16; the one on 12.0 with an FP8 cache "
            "(vllm-project/vllm#41651) is closed. NVIDIA's and eugr's recipes run FlashInfer with an FP8 cache on "
            "newer releases (2026-06 to 2026-09), so the rule ends at 0.19"
        ),
    ),
    rule(
        "fp4-moe-path",
        WARNING,
        shows=(
            f"vLLM 0.17 to 0.19: a MoE model with FP4 weights on CUTLASS, requested or for NVFP4 because `{MOE}` is "
            "not given"
        ),
        detect=_fp4_path,
        why="CUTLASS FP4 returned fluent nonsense on 12.1; only the text shows it",
        fix=f"set {MOE} marlin",
        source=f"{CONSELARA}; vllm-project/vllm#38423 (a fix of 2026-03); vLLM 0.32.0, fused_moe/oracle/nvfp4.py",
        evidence="2026-09",
        disputed=(
            "vLLM's own choice was correct and faster than Marlin on a Spark (vllm-project/recipes#632, 2026-07). "
            "NVIDIA measured two recipes with it on 0.24 and 0.26 (2026-09), so the rule ends at 0.19. One newer build "
            "still returned nonsense (MiaAI-Lab/GLM-5.3-Flash-NVFP4-Dual-DGX-Spark#1, 2026-08): compare fixed prompts"
        ),
        tested=_READ,
    ),
    rule(
        "moe-backend-datacentre",
        ERROR,
        shows=f"a MoE model with `{MOE}` {' or '.join(_DATACENTRE)}",
        detect=lambda view: _moe_on(view, _DATACENTRE),
        why=(
            "these kernels exist only for compute capability 10.x, and vLLM raises ValueError for a requested backend "
            "that cannot run"
        ),
        fix=f"set {MOE} marlin, or remove it",
        source=(
            "vLLM 0.32.0, fused_moe/experts/trtllm_*.py, flashinfer_cutedsl_moe.py: is_device_capability_family(100)"
        ),
        evidence="2026-11",
        gpus=(SPARK, THOR),
        tested=_READ,
    ),
    rule(
        "moe-backend-triton-nvfp4",
        ERROR,
        shows=f"an NVFP4 MoE model with `{MOE} triton`",
        detect=lambda view: when(view.model.scheme == "nvfp4", *_moe_on(view, ("triton",))),
        why="no release has a Triton kernel for NVFP4 experts: ValueError. The flag applies to every kind of MoE",
        fix=f"use {MOE} triton only for FP8 models",
        source="vLLM 0.17.1 to 0.32.0, fused_moe/oracle/nvfp4.py map_nvfp4_backend",
        evidence="2026-11",
        gpus=(),
        tested=_READ,
    ),
    rule(
        "linear-backend-strict",
        WARNING,
        shows=f"vLLM 0.22 to 0.27 with `{LINEAR}`",
        detect=_linear,
        why=(
            "these releases raise ValueError if a layer type of the model has no kernel of that backend; from 0.28 on "
            "vLLM warns and chooses another"
        ),
        fix="list the kernels to avoid in VLLM_DISABLED_KERNELS instead, or use vLLM 0.28",
        source="vLLM 0.22.1, model_executor/kernels/linear/__init__.py line 484",
        evidence="2026-11",
        gpus=(),
        tested=_READ,
    ),
    rule(
        "marlin-atomic-add",
        WARNING,
        shows=(
            "vLLM before 0.20: Marlin (requested, or the default for 4-bit integer weights and MXFP4 experts) without "
            "`VLLM_MARLIN_USE_ATOMIC_ADD=1`"
        ),
        detect=_atomic_add,
        why="without it a race in Marlin caused wrong answers on 12.1",
        fix="set VLLM_MARLIN_USE_ATOMIC_ADD=1 in gb10_extra_env, on all ranks",
        source=CONSELARA,
        evidence="2026-05",
        disputed=(
            "vLLM's code calls it an experimental speed-up for narrow layers, not a correctness fix (0.18.1 to 0.32.0, "
            "marlin_utils.py). NVIDIA measured Marlin recipes without it on 0.28 (2026-09), so the rule ends at 0.19"
        ),
    ),
    rule(
        "mxfp4-checkpoint",
        ERROR,
        shows=(
            f"`{QUANTIZATION} mxfp4` with a model other than gpt-oss whose weights are not MXFP4 (before 0.20: any "
            "model other than gpt-oss)"
        ),
        detect=_mxfp4,
        why=(
            "the loader expects gpt-oss's packed experts; other checkpoints cause an IndexError, and vLLM cannot "
            "quantize to MXFP4 at load time"
        ),
        fix=f"remove {QUANTIZATION}: vLLM reads the method from the checkpoint (gptq_marlin for GPTQ, fp8 for FP8)",
        source=CONSELARA,
        evidence="2026-05",
        gpus=(SPARK, THOR),
    ),
    rule(
        "fp8-cutlass",
        INFO,
        shows=(
            "an FP8 model with vLLM before 0.20 or a build for CUDA 12, without the variable that turns the CUTLASS "
            "kernels off"
        ),
        detect=_fp8_kernels,
        why=(
            "the CUTLASS FP8 kernels of these builds are for sm_120a, which 12.1 cannot run. Before 0.20 some of them "
            "need a patch, which this rule cannot detect"
        ),
        fix="let role vllm_patch decide: it patches these kernels, or sets VLLM_DISABLED_KERNELS if that is enough",
        source="vllm-gb10 (vLLM 0.18.1), Avarok-Cybersecurity/dgx-vllm; vllm-project/vllm#43367",
        evidence="2026-06",
        disputed=(
            "a nightly of 0.19.2 for CUDA 13 also failed (vllm-project/vllm#40758, 2026-04). The wheels for CUDA 13 "
            "from 0.20 on contain sm_120f, which 12.1 can run"
        ),
    ),
    rule(
        "max-tokens-reasoning",
        WARNING,
        shows="a reasoning model and fewer than 512 tokens for an answer",
        detect=_tokens,
        why="reasoning tokens count too: they use up the budget before the answer begins, and content is null",
        fix="allow 512 tokens or more, 1024 with tools",
        source=f"{CONSELARA}; NVIDIA's vLLM playbook (finish_reason: length)",
        evidence="2026-10-07",
        gpus=(),
    ),
    rule(
        "reasoning-parser",
        INFO,
        shows="a reasoning model other than gpt-oss without `--reasoning-parser`",
        detect=_parser,
        why="the reasoning then appears in content, as raw <think> tags",
        fix="set --reasoning-parser to the value in the model card, such as qwen3",
        source="vllm-gb10 (vLLM 0.18.1)",
        evidence="2026 (vLLM 0.18.1)",
        gpus=(),
    ),
)

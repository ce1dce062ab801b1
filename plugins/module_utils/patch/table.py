# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions of each patch per vLLM release: data only, one row for each patch and range of releases.

Sources: the Python files of vLLM 0.13.0 to 0.33.0, whose files and lines the rows name, and the architectures in the
published wheels. Not tested on a GB10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

APPLIES, USE_FLAG, NOT_NEEDED, UNSUPPORTED = "applies", "use_flag", "not_needed", "unsupported"

#: The first and last release in the table. Others are judged by their code.
FIRST, LAST = (0, 13, 0), (0, 33, 0)

_LAYERS = "model_executor/layers"
UTILS = f"{_LAYERS}/quantization/utils/w8a8_utils.py"
ORACLE = f"{_LAYERS}/fused_moe/oracle/fp8.py"
CONFIGS = f"{_LAYERS}/fused_moe/configs"
FP8 = f"{_LAYERS}/quantization/fp8.py"
_OLD_KERNELS = f"{_LAYERS}/quantization/kernels/scaled_mm"
_KERNELS = "model_executor/kernels/linear/scaled_mm"
#: The assemblers of the Triton in the package's environment.
PTXAS = "../triton/backends/nvidia/bin"


@dataclass(frozen=True)
class Edit:
    """A place in a file of the package. ``kind`` selects the inserted lines, see blocks.py."""

    file: str
    function: str
    kind: str


@dataclass(frozen=True)
class Row:
    """The action of a patch from release ``since`` to before ``until``. The first matching row counts.

    ``cuda`` restricts it to builds for that CUDA release or newer, ``family`` to GPUs of that major capability.
    ``edits`` are made whenever the patch is applied. ``replaced`` are the additional edits of mechanism source. Other
    mechanisms use ``flags`` and ``environment`` instead.
    """

    patch: str
    since: tuple[int, ...]
    until: tuple[int, ...] | None
    verdict: str
    reason: str
    source: str
    edits: tuple[Edit, ...] = ()
    replaced: tuple[Edit, ...] = ()
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cuda: int | None = None
    family: int | None = None
    #: The patch that covers this one if both are requested.
    covered_by: str = ""
    #: (file, text) that identifies this row's releases by their code, if the version does not.
    known_by: tuple[str, str] | None = None


_FUNCTIONS = (Edit(UTILS, "cutlass_fp8_supported", "false"), Edit(UTILS, "cutlass_block_fp8_supported", "false"))
_TORCH = Edit(UTILS, "Fp8LinearOp.__init__", "torch_backend")


def _kernels(folder: str) -> tuple[Edit, Edit]:
    return (
        Edit(f"{folder}/cutlass.py", "CutlassFP8ScaledMMLinearKernel.is_supported", "unsupported_kernel"),
        Edit(f"{folder}/flashinfer.py", "FlashInferFP8ScaledMMLinearKernel.is_supported", "unsupported_kernel"),
    )


_PER_TENSOR = {"VLLM_DISABLED_KERNELS": "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel"}
_ALL_CUTLASS = {
    "VLLM_DISABLED_KERNELS": "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel,CutlassFp8BlockScaledMMKernel"
}
#: The kernels that a failed check of the GPU probe turns off. Source: vLLM 0.20.2 to 0.33.0, model_executor/kernels/linear.
PROBED: Mapping[str, tuple[str, ...]] = {
    "fp8_vllm": tuple(_ALL_CUTLASS["VLLM_DISABLED_KERNELS"].split(",")),
    "fp4_vllm": ("CutlassNvFp4LinearKernel",),
}
_FAMILY_WHEELS = (
    "this build is for CUDA 13, whose published wheels have sm_120f code, a family target that 12.1 runs; "
    "your own build for other targets is not detected, use mechanism source to patch it"
)
_WHEELS = "sm_12x strings in _C*.so of the aarch64 wheels on PyPI: sm_120a up to 0.19.0, sm_120f in 0.20.2, 0.22.1, 0.25.1, 0.28.0, 0.32.0, 0.33.0"
_HALF = (
    "for block-wise FP8 only the patch helps. Otherwise the well-known patch has no effect in this release, because "
    "CutlassFP8ScaledMMLinearKernel does not call cutlass_fp8_supported(); VLLM_DISABLED_KERNELS turns it off"
)
_SCALES = "Per-tensor FP8 with dynamic scales keeps a scale for each token, the patch one for all: their answers differ"
_BLOCK_KERNEL = (f"{_KERNELS}/cutlass.py", "class CutlassFp8BlockScaledMMKernel")
_NO_LINEAR_OP = "Fp8LinearOp was removed in 0.15; VLLM_DISABLED_KERNELS turns off the two kernels that precede torch's"
_TRITON = "triton_moe"

ROWS: tuple[Row, ...] = (
    Row(
        "w8a8", (0, 13), (0, 15), APPLIES,
        "the CUTLASS FP8 kernels are built for sm_120a, which 12.1 does not run, and no variable turns them off",
        f"{UTILS} (0.13.0) lines 44, 54, 412; {_WHEELS}",
        edits=_FUNCTIONS, known_by=(UTILS, "class Fp8LinearOp"),
    ),
    Row(
        "w8a8", (0, 15), (0, 17), APPLIES, _HALF, f"{_OLD_KERNELS}/cutlass.py (0.15.1) line 147, __init__.py line 166",
        edits=_FUNCTIONS, replaced=_kernels(_OLD_KERNELS), environment=_PER_TENSOR,
    ),
    Row(
        "w8a8", (0, 17), (0, 20), APPLIES, _HALF, f"{_KERNELS}/cutlass.py (0.18.1) line 147, {_LAYERS}/quantization/utils/fp8_utils.py line 347",
        edits=_FUNCTIONS, replaced=_kernels(_KERNELS), environment=_PER_TENSOR,
    ),
    Row("w8a8", (0, 20), None, NOT_NEEDED, _FAMILY_WHEELS, _WHEELS, cuda=13, family=12),
    Row(
        "w8a8", (0, 20), (0, 29), USE_FLAG,
        "VLLM_DISABLED_KERNELS turns off all CUTLASS FP8 kernels; the well-known patch would leave CutlassFP8ScaledMMLinearKernel on. "
        f"Block-wise FP8 then uses DeepGEMM if it supports the GPU (from 0.24), else Triton. {_SCALES}",
        f"{_KERNELS}/cutlass.py (0.22.1) lines 163, 282; {FP8} (0.24.0) line 317; https://github.com/vllm-project/vllm/issues/43367",
        replaced=(*_FUNCTIONS, *_kernels(_KERNELS)), environment=_ALL_CUTLASS, known_by=_BLOCK_KERNEL,
    ),
    Row(
        "w8a8", (0, 29), None, USE_FLAG,
        "VLLM_DISABLED_KERNELS turns off all CUTLASS FP8 kernels; before 0.31 the well-known patch would leave CutlassFP8ScaledMMLinearKernel "
        "on. Block-wise FP8 then uses DeepGEMM, or Marlin with 16-bit activations, which precedes Triton since 0.29. "
        f"{_SCALES}",
        f"{_KERNELS}/cutlass.py (0.30.0) lines 164, 288; (0.32.0) lines 169, 290; model_executor/kernels/linear/__init__.py line 478; "
        f"{FP8} (0.32.0) line 277",
        replaced=(*_FUNCTIONS, *_kernels(_KERNELS)), environment=_ALL_CUTLASS, known_by=_BLOCK_KERNEL,
    ),
    Row(
        "w8a8_torch", (0, 13), (0, 15), APPLIES,
        "Fp8LinearOp uses CUTLASS or FlashInfer if cutlass_fp8_supported() is True",
        f"{UTILS} (0.13.0) line 409",
        edits=(_TORCH,), covered_by="w8a8",
    ),
    Row("w8a8_torch", (0, 20), None, NOT_NEEDED, _FAMILY_WHEELS, _WHEELS, cuda=13, family=12),
    Row(
        "w8a8_torch", (0, 15), (0, 17), USE_FLAG, _NO_LINEAR_OP, f"{_OLD_KERNELS}/__init__.py (0.15.1) line 58",
        environment=_PER_TENSOR, covered_by="w8a8", known_by=(f"{_OLD_KERNELS}/cutlass.py", "class CutlassFP8ScaledMMLinearKernel"),
    ),
    Row(
        "w8a8_torch", (0, 17), None, USE_FLAG, _NO_LINEAR_OP, "model_executor/kernels/linear/__init__.py (0.18.1) line 104",
        environment=_PER_TENSOR, covered_by="w8a8", known_by=(f"{_KERNELS}/cutlass.py", "class CutlassFP8ScaledMMLinearKernel"),
    ),
    Row(
        "fp8_moe_oracle", (0, 13), (0, 14), NOT_NEEDED,
        "on this GPU the function already returns Triton: FlashInfer, DeepGEMM and CUTLASS are for 9.0 and 10.x, "
        "Marlin for below 8.9",
        f"{FP8} (0.13.0) lines 125 to 196; utils/deep_gemm.py line 47", replaced=(Edit(FP8, "get_fp8_moe_backend", _TRITON),), family=12,
    ),
    Row(
        "fp8_moe_oracle", (0, 13), (0, 14), APPLIES, "no flag chooses the MoE backend in this release", f"{FP8} (0.13.0) line 125",
        edits=(Edit(FP8, "get_fp8_moe_backend", _TRITON),),
    ),
    Row(
        "fp8_moe_oracle", (0, 14), (0, 15), APPLIES,
        "compressed-tensors models that are not block-wise use CUTLASS, whose group GEMM is not rejected on 12.1 "
        "before 0.15; no flag chooses",
        f"{ORACLE} (0.14.1) line 141, _custom_ops.py line 898", edits=(Edit(ORACLE, "select_fp8_moe_backend", _TRITON),),
    ),
    Row(
        "fp8_moe_oracle", (0, 15), (0, 17), USE_FLAG,
        "static per-tensor FP8 would use FlashInfer's CUTLASS; without FlashInfer, Triton is the first that supports "
        "12.x",
        f"{ORACLE} (0.15.1) lines 142, 203", replaced=(Edit(ORACLE, "select_fp8_moe_backend", _TRITON),),
        environment={"VLLM_USE_FLASHINFER_MOE_FP8": "0"}, family=12,
    ),
    Row(
        "fp8_moe_oracle", (0, 15), (0, 17), APPLIES, "no flag chooses the MoE backend in this release", f"{ORACLE} (0.15.1) line 129",
        edits=(Edit(ORACLE, "select_fp8_moe_backend", _TRITON),),
    ),
    Row(
        "fp8_moe_oracle", (0, 17), None, USE_FLAG,
        "static per-tensor FP8 would use FlashInfer's CUTLASS, and block-wise FP8 DeepGEMM since 0.24. --moe-backend "
        "applies to every kind of MoE: with an NVFP4 model vLLM does not start, so it depends on quantization",
        f"{ORACLE} (0.18.1) lines 209, 271; (0.32.0) lines 394, 451", replaced=(Edit(ORACLE, "select_fp8_moe_backend", _TRITON),),
        flags=("--moe-backend", "triton"), known_by=(ORACLE, "config.moe_backend"),
    ),
    Row(
        "moe_config", (0, 13), None, USE_FLAG,
        "vLLM reads tuned tables from VLLM_TUNED_CONFIG_FOLDER first; these are within ranges that others measured "
        "on a GB10, but were not measured themselves",
        "fused_moe.py get_moe_configs: 0.13.0 line 832, 0.32.0 line 1109; https://github.com/Avarok-Cybersecurity/dgx-vllm",
    ),
    Row(
        "triton_ptxas", (0, 13), None, USE_FLAG, "Triton runs the assembler in these variables",
        "https://github.com/triton-lang/triton/blob/00526b7b/third_party/nvidia/backend/compiler.py: get_ptxas, sm_arch_from_capability; knobs.py",
    ),
)  # fmt: skip

#: The patches in order of application, and the version of each one's inserted lines.
PATCHES: Mapping[str, int] = {"w8a8": 1, "w8a8_torch": 1, "fp8_moe_oracle": 1, "moe_config": 1, "triton_ptxas": 1}

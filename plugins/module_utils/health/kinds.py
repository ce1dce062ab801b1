# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds of errors without their own symptom, by the text or the place of the exception: data only.

The first kind that matches counts. ``text`` is searched in the exception, ``place`` in its file and function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of errors, and the next step of an owner. ``example``: (place, exception) of one."""

    name: str
    fix: str
    text: str = "(?!)"
    place: str = "(?!)"
    example: tuple[str, str] = ("", "")

    def matches(self, place: str, text: str) -> bool:
        """Return whether an exception is of this kind."""
        return bool(re.search(self.text, text) or re.search(self.place, place))


_BACKEND = "choose another --attention-backend, --moe-backend or --linear-backend; gb10_stack: current has newer ones"

KINDS: tuple[Kind, ...] = (
    Kind(
        "a CUDA module could not be loaded, or the GPU reported an error",
        "read journalctl -k of that node for Xid and NVRM lines; restart all ranks by site.yml; reboot the node if it "
        "returns",
        text=r"CUDA (?:driver |runtime )?error|Triton Error \[CUDA\]|CUDA_ERROR_|cudaError|cu(?:Module|Library)Load",
        place=r"^triton/compiler/compiler\.py in _init_handles",
        example=("triton/backends/nvidia/driver.py in load_binary", "RuntimeError: Triton Error [CUDA]: unknown error"),
    ),
    Kind(
        "a kernel library failed at its first use",
        f"{_BACKEND}; remove the options of the recipe that choose kernels",
        text=r"(?:ninja|nvcc|ptxas|cicc|cutlass|CUTLASS|DeepGEMM|deep_gemm|deepgemm|FlashInfer|flashinfer)",
        place=r"^(?:flashinfer|triton|deep_gemm)/|^vllm/(?:utils/(?:deep_gemm|flashinfer)|_custom_ops|v1/attention/"
        r"|model_executor/(?:kernels|warmup|layers/(?:fused_moe|attention)))|^torch/(?:_inductor|_dynamo)/",
        example=("flashinfer/jit/core.py in build_and_load", "RuntimeError: x"),
    ),
    Kind(
        "the checkpoint does not fit this vLLM's loader",
        "use the image or the vLLM release that the model's page names, or another checkpoint of the model",
        text=r"has no (?:parameter|attribute) '\w{0,80}(?:weight|scale)|no module or parameter named"
        r"|size of tensor .{0,80}must match|shape '?\[.{0,60}is invalid for input",
        place=r"^vllm/model_executor/(?:model_loader|models|layers/quantization|parameter|utils\.py)",
        example=("vllm/model_executor/models/utils.py in load_weights", "KeyError: 'layers.0.mlp.experts.w13_scale_2'"),
    ),
    Kind(
        "the model's configuration is not known to this vLLM or its Transformers",
        "use the image or the vLLM release that the model's page names; --trust-remote-code runs code of the model's "
        "repository",
        place=r"^transformers/|^vllm/(?:transformers_utils|config/model|model_executor/models/registry|tokenizers)",
        example=("transformers/models/auto/configuration_auto.py in from_pretrained", "KeyError: 'qwen9'"),
    ),
    Kind(
        "the ranks could not talk to each other",
        "run verify.yml, which tests the links; set NCCL_DEBUG: INFO in gb10_extra_env for NCCL's own reason",
        text=r"NCCL|[Gg]loo|ncclResult|c10d|[Ss]tore.{0,40}timed? ?out|pair closure",
        place=r"^torch/distributed/|^vllm/distributed/",
        example=("torch/distributed/distributed_c10d.py in barrier", "RuntimeError: Application timeout caused pair"),
    ),
    Kind(
        "Ray could not place or run a rank",
        "read journalctl -u gb10-ray on every node; site.yml --tags ray_cluster starts Ray again",
        text=r"ray\.exceptions|placement group",
        place=r"^ray/|^vllm/(?:v1/)?executor/ray",
        example=("ray/_private/worker.py in get", "RuntimeError: x"),
    ),
    Kind(
        "vLLM refuses its arguments or variables",
        "compare the words of the message with gb10_vllm_extra_args, the recipe and gb10_extra_env; plan.yml prints "
        "the command",
        place=r"^vllm/(?:engine/arg_utils|config/|entrypoints/|envs\.py|platforms/|utils/argparse)",
        example=("vllm/config/vllm.py in __post_init__", "AssertionError: x"),
    ),
    Kind(
        "the Python environment of vLLM is incomplete or mixed",
        "run site.yml --tags vllm_runtime; with an image, use another one",
        text=r"^(?:ImportError|ModuleNotFoundError)|undefined symbol|cannot import name",
        example=("", "ImportError: x"),
    ),
)

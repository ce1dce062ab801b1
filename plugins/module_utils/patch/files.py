# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Non-Python files of patches: tables of fused MoE kernels for a GB10."""

from __future__ import annotations

import json

#: (experts per rank, intermediate size per rank) of Qwen3-Next-80B on one rank, and tensor parallel over two.
MOE_SHAPES = ((512, 512), (512, 256))
_BLOCK_SHAPES = ("", ",block_shape=[128,128]")
#: Batch sizes in tokens.
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
_SMALL, _LARGE = 64, 512


def moe_tables() -> dict[str, bytes]:
    """Return file name -> content, with vLLM's get_config_file_name() for FP8 W8A8, with and without block-wise scales.

    vLLM reads every key except triton_version as a batch size, so only that key can hold a remark.
    """
    table: dict[str, object] = {
        "triton_version": "untuned: written by gb10.cluster within ranges known from a GB10, not measured"
    }
    for batch in _BATCHES:
        table[str(batch)] = {
            "BLOCK_SIZE_M": 16 if batch <= _SMALL else 32,
            "BLOCK_SIZE_N": 128,
            # Small batches are memory-bound, so use deeper pipelines of smaller tiles. 5 stages of 16 x 64 and
            # 64 x 128 bytes take 45 KiB.
            "BLOCK_SIZE_K": 64 if batch <= _SMALL else 128,
            "GROUP_SIZE_M": 1 if batch <= _SMALL else 8 if batch <= _LARGE else 16,
            "num_warps": 4,
            "num_stages": 5 if batch <= _SMALL else 4,
        }
    content = (json.dumps(table, indent=4) + "\n").encode()
    return {
        f"E={experts},N={size},device_name=NVIDIA_GB10,dtype=fp8_w8a8{block_shape}.json": content
        for experts, size in MOE_SHAPES
        for block_shape in _BLOCK_SHAPES
    }

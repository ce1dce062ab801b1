# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arch lists in vLLM's CMakeLists.txt: a GPU that they do not name gets code of an older GPU only, or none.

CMake reduces TORCH_CUDA_ARCH_LIST to these lists. In 0.32.0 and 0.33.0 with CUDA 13, they have 12.0 and not 12.1, so
that 12.1a becomes 12.0. Source: cmake/utils.cmake, cuda_archs_loose_intersection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

#: A list of all kernels, or of one kernel: the command and its entries.
_ARCHS = re.compile(
    r'^( *)((?:set\(CUDA_SUPPORTED_ARCHS|cuda_archs_loose_intersection\(\w+)\s+")([^"]*)"', re.MULTILINE
)


def is_vllm(text: str) -> bool:
    """Return whether this is vLLM's CMakeLists.txt."""
    return "project(vllm_extensions" in text


def with_gpus(text: str, gpus: Sequence[ComputeCapability]) -> str:
    """Return CMakeLists.txt with each GPU after MAJOR.0 in the lists that lack it, unchanged if none does."""
    added = sorted({gpu for gpu in gpus if gpu.minor})

    def extended(match: re.Match[str]) -> str:
        entries = match[3].split(";")
        for gpu in added:
            entries = list(_with(entries, gpu))
        return f'{match[1]}{match[2]}{";".join(entries)}"'

    return _ARCHS.sub(extended, text)


def _with(entries: list[str], gpu: ComputeCapability) -> Iterator[str]:
    known = any(re.fullmatch(rf"{re.escape(str(gpu))}[af]?(\+PTX)?", entry) for entry in entries)
    for entry in entries:
        yield entry
        if not known and (base := re.fullmatch(rf"{gpu.major}\.0([af]?)", entry)):
            yield f"{gpu}{base[1]}"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arch lists in vLLM's CMakeLists.txt: a GPU that they do not name gets code of an older GPU only, or none.

CMake reduces TORCH_CUDA_ARCH_LIST to these lists. In 0.32.0 and 0.33.0 with CUDA 13, they have 12.0 and not 12.1, so
that 12.1a becomes 12.0. Source: cmake/utils.cmake, cuda_archs_loose_intersection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

#: In vLLM's CMakeLists.txt alone.
PROJECT = "project(vllm_extensions"
#: A list of all kernels, or of one kernel: the command and its entries.
_ARCHS = re.compile(r'^ *(?:set\(CUDA_SUPPORTED_ARCHS|cuda_archs_loose_intersection\(\w+)\s+"[^"]*"', re.MULTILINE)


def with_gpus(text: str, gpus: Sequence[ComputeCapability]) -> str:
    """Return CMakeLists.txt with each GPU after MAJOR.0 in the lists that lack it, unchanged if none does."""
    added = sorted({gpu for gpu in gpus if gpu.minor})

    def extended(match: re.Match[str]) -> str:
        entries = match[0]
        for gpu in added:
            if not re.search(rf'[";]{re.escape(str(gpu))}[af]?(\+PTX)?[";]', entries):
                entries = re.sub(rf'([";]{gpu.major}\.0([af]?))(?=[";])', rf"\1;{gpu}\2", entries)
        return entries

    return _ARCHS.sub(extended, text)

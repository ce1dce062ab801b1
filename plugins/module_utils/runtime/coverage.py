# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernel coverage: whether the extensions of an installed runtime have code for a GPU, and which of them vLLM needs.

An extension is named by its path below the package folder without suffixes, such as "vllm/_flashmla_C". Its coverage
is {native, same_major, ptx, none}: the number of its programs that a GPU would run in each way (fat_binary.Way).
A backend's kernels cannot be distinguished within an extension, so only an extension without any code for a GPU counts.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.runtime.fat_binary import WAYS

Coverage = Mapping[str, int]
#: Extensions with GPU code, relative to the package folder. PyTorch is left out: 3 GB, and it covers each GPU by PTX.
PATTERNS = ("vllm/*.so", "vllm/vllm_flash_attn/*.so", "nvidia/nccl/lib/libnccl.so.2")


@dataclass(frozen=True)
class Need:
    """An extension that a value of an argument needs. With ``value`` "", each start needs it; "*" is any value.

    ``extension`` is a pattern of fnmatch; one match with code is enough, because releases rename extensions.
    """

    option: str
    value: str
    extension: str
    source: str


_RELEASES = "vLLM 0.18.1, 0.24.0 and 0.33.0"
_ATTENTION = f"{_RELEASES}, v1/attention"
NEEDS = (
    Need("", "", "vllm/_C*", f"{_RELEASES}, _custom_ops.py (cache, norms, CUTLASS, Marlin)"),
    Need("--moe-backend", "*", "vllm/_moe_C*", f"{_RELEASES}, _custom_ops.py (routing of tokens, Marlin)"),
    Need("--attention-backend", "FLASH_ATTN", "vllm/vllm_flash_attn/_vllm_fa?_C", f"{_ATTENTION}/backends/fa_utils.py"),
    Need("--attention-backend", "FLASHMLA", "vllm/_flashmla_C", f"{_ATTENTION}/ops/flashmla.py"),
    Need("--attention-backend", "FLASHMLA_SPARSE", "vllm/_flashmla_C", f"{_ATTENTION}/ops/flashmla.py"),
    Need("--kda-prefill-backend", "flashkda", "vllm/_flashkda_C", "vLLM 0.33.0, models/kimi_k3/nvidia/kda.py"),
    Need("--quantization", "fp_quant", "vllm/_qutlass_C", "vLLM 0.24.0 and 0.33.0, quantization/fp_quant.py"),
)
#: The JSON arguments that set an option too, with their member.
MEMBERS: Mapping[str, tuple[str, str]] = {
    "--attention-backend": ("--attention-config", "backend"),
    "--moe-backend": ("--kernel-config", "moe_backend"),
}
_AUTO = ("", "auto")


def name(path: str) -> str:
    """Return an extension's name for its path below the package folder."""
    return re.sub(r"(\.abi3|\.cpython-[\w-]+)?\.so[.\d]*$", "", path)


def runs(coverage: Coverage) -> bool:
    """Return whether a GPU runs at least one program."""
    return any(coverage[way] for way in WAYS if way != "none")


def gaps(extensions: Mapping[str, Coverage], capability: str, chosen: Mapping[str, str]) -> list[str]:
    """Return a sentence for each extension that is needed and has no code for a GPU.

    ``chosen`` are the values of the options in NEEDS, "" if vLLM chooses. Without vLLM's extensions, nothing is known.
    """
    if not any(path.startswith("vllm/") for path in extensions):
        return []
    return [
        _sentence(need, _matches(extensions, need.extension), capability, chosen)
        for need in NEEDS
        if _applies(need, chosen) and not any(map(runs, _matches(extensions, need.extension).values()))
    ]


def described(coverage: Coverage) -> str:
    """Return a coverage as text: "0 native, 85 same major, 6 PTX, 20 none"."""
    labels = {"native": "native", "same_major": "same major", "ptx": "PTX", "none": "none"}
    return ", ".join(f"{coverage[way]} {labels[way]}" for way in WAYS)


def _applies(need: Need, chosen: Mapping[str, str]) -> bool:
    value = chosen.get(need.option, "")
    return not need.option or (value not in _AUTO and (need.value == "*" or value.lower() == need.value.lower()))


def _matches(extensions: Mapping[str, Coverage], pattern: str) -> dict[str, Coverage]:
    return {path: coverage for path, coverage in extensions.items() if fnmatch.fnmatchcase(path, pattern)}


def _sentence(need: Need, matches: Mapping[str, Coverage], capability: str, chosen: Mapping[str, str]) -> str:
    programs = sum(sum(coverage.values()) for coverage in matches.values())
    found = f"has no code for {capability} (programs: {programs})" if matches else "does not exist"
    reason = f"{need.option} {chosen[need.option]}" if need.option else "each model"
    return f"{', '.join(matches) or need.extension}, which {reason} needs, {found}"

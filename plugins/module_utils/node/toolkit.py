# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA toolkit, and the GPUs that its compiler supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import versions
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

#: The first CUDA release whose nvcc supports an architecture under this name. Thor's 11.0 was 10.1 before CUDA 13.
#: Source: NVIDIA, CUDA Features Archive, "CUDA Compiler" of each release.
SINCE = {
    ComputeCapability(8, 0): (11, 0),
    ComputeCapability(8, 6): (11, 1),
    ComputeCapability(8, 7): (11, 4),
    ComputeCapability(8, 9): (11, 8),
    ComputeCapability(9, 0): (11, 8),
    ComputeCapability(10, 0): (12, 8),
    ComputeCapability(12, 0): (12, 8),
    ComputeCapability(10, 3): (12, 9),
    ComputeCapability(12, 1): (12, 9),
    ComputeCapability(11, 0): (13, 0),
}


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit: its folder (None if not found), nvcc's release ("13.0.88") and its architectures ("sm_121")."""

    home: str | None
    release: str = ""
    architectures: frozenset[str] = frozenset()

    @classmethod
    def of_nvcc(cls, home: str, version: str, codes: str) -> Toolkit:
        """Parse the output of `nvcc --version` and `nvcc --list-gpu-code`."""
        release = re.search(r"\bV(\d+\.\d+\.\d+)\b", version)
        return cls(home, release[1] if release else "", frozenset(re.findall(r"^sm_\d+\w?$", codes, re.MULTILINE)))


def check(toolkit: Toolkit, gpus: Sequence[ComputeCapability]) -> list[Problem]:
    """Return why a toolkit cannot compile for these GPUs."""
    if toolkit.home is None:
        newest = max((SINCE[gpu] for gpu in gpus if gpu in SINCE), default=(12, 9))
        expected = f"a CUDA toolkit of release {_dotted(newest)} or newer"
        return [Problem("toolkit", "nvcc not found", expected, "install one, or set the folder of an installed one")]
    return [_unknown_to(toolkit, gpu) for gpu in sorted(set(gpus)) if gpu.sm not in toolkit.architectures]


def check_driver(toolkit: Toolkit, driver: str) -> list[Problem]:
    """Return the problem of code with PTX from a newer nvcc than the driver, whose CUDA release ("13.0") is "" if
    unknown.

    A driver runs GPU code of each compiler of its major release, but translates the PTX of its own release and older
    ones only (cudaErrorUnsupportedPtxVersion). Source: NVIDIA, CUDA Compatibility, "Minor Version Compatibility";
    vllm-project/vllm#47397; NVIDIA/nvbandwidth#61.
    """
    compiler, newest = versions.release(toolkit.release), versions.release(driver)
    if not compiler or not newest or compiler[:2] <= newest[:2]:
        return []
    found = (
        f"nvcc {toolkit.release} in {toolkit.home} is newer than CUDA {driver}, the newest that the drivers of all "
        "nodes support"
    )
    fix = f"install the CUDA toolkit {driver} next to it, and set its folder"
    return [
        Problem(
            "toolkit",
            found,
            f"nvcc {driver} or older, because these drivers do not translate the PTX of newer ones",
            fix,
        )
    ]


def _unknown_to(toolkit: Toolkit, gpu: ComputeCapability) -> Problem:
    since = SINCE.get(gpu)
    expected = f"CUDA {_dotted(since)} or newer for {gpu}" if since else f"a CUDA release that supports {gpu}"
    found = f"nvcc {toolkit.release} in {toolkit.home} does not support {gpu.sm}"
    return Problem("toolkit", found, expected, "install it, or set the folder of an installed one")


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"

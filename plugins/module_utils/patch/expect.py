# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predict the flags and variables of the patches before vLLM is installed, with the decisions of choose.py."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import plan as patch_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings, Request
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import TOOLKIT, Assembler

#: The first Triton whose own assembler supports sm_121a. Source: ptxas-blackwell in PyPI's wheels for aarch64: 3.5.1
#: has none, 3.6.0 and 3.8.0 list sm_121a.
_ASSEMBLER = (3, 6)


@dataclass(frozen=True)
class Package:
    """The vLLM to install, its Triton ("" if unknown) and its CUDA release. ``folder``: for tuned tables.

    ``toolkit``: the architectures of the node's CUDA toolkit.
    """

    version: str
    cuda: int
    triton: str
    folder: str
    toolkit: frozenset[str]


def additions(
    settings: PatchSettings, package: Package, capability: ComputeCapability, quantization: str
) -> tuple[list[str], dict[str, str]]:
    """Return the flags and the variables that the role will record for a node with this GPU."""
    if not settings.present or settings.vllm_patch_image:
        return [], {}
    target = f"{capability.sm}a"
    triton = release(package.triton)
    own = frozenset([target] if triton is None or triton >= _ASSEMBLER else [])
    toolkit = frozenset([target] if capability.sm in package.toolkit else [])
    request = Request(
        names=settings.vllm_patch_patches,
        capability=capability,
        version=package.version,
        cuda=package.cuda,
        mechanism=settings.vllm_patch_mechanism,
        capability_given=bool(settings.vllm_patch_capability),
        folder=package.folder,
        bundled={name: Assembler(name, own) for name in ("ptxas", "ptxas-blackwell")},
        toolkit=Assembler(TOOLKIT, toolkit),
        quantization=settings.quantization(quantization),
    )
    return patch_plan.launch(patch_plan.decided(request, None))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inputs and results of patch planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import Edit
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy

GB10 = ComputeCapability(12, 1)


class Link(str):
    """A symbolic link instead of a file; the text is its target."""

    __slots__ = ()


#: The wanted content of a file; None means the shipped content.
Wanted: TypeAlias = "bytes | Link | None"


@dataclass(frozen=True)
class State:
    """A file: its content, and its shipped content, each None if there is none.

    ``ours``: it has the content that an earlier run wrote. ``kept``: an original or record of an earlier run exists.
    ``trouble`` is why the shipped content is unknown, "" if it is known.
    """

    current: Wanted
    shipped: bytes | None
    ours: bool
    kept: bool
    trouble: str

    @property
    def stale(self) -> bool:
        """Whether an original is kept of a file that is no longer patched."""
        return self.kept and not self.ours and not self.trouble


class Tree(Protocol):
    """A package's files, by their path relative to it."""

    def state(self, path: str) -> State:
        """Return the state of a file, which may be absent."""

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""


@dataclass(frozen=True)
class PatchSettings:
    """The variables of the role vllm_patch. The image is another one than the runtime's, whose vLLM is unknown."""

    vllm_patch_patches: Sequence[str]
    vllm_patch_state: str
    vllm_patch_mechanism: str
    vllm_patch_capability: str
    vllm_patch_quantization: str
    vllm_patch_image: str

    @property
    def present(self) -> bool:
        """Whether patches are applied, not removed."""
        return self.vllm_patch_state == "present"

    def quantization(self, of_model: str) -> str:
        """Return the quantization to patch for, by default that of the model."""
        return of_model if self.vllm_patch_quantization == "auto" else self.vllm_patch_quantization


@dataclass(frozen=True)
class Request:
    """``capability_given``: the capability was given, not detected. ``folder``: the folder for tuned tables.

    ``quantization`` selects flags: "fp8"; "other" omits a flag that applies to every kind of MoE; "unknown" patches the
    function instead, which affects only FP8. ``failed``: the failed checks of the GPU probe, with descriptions.
    ``bundled`` are Triton's own assemblers by file name, not the replacements of an earlier run.
    """

    names: Sequence[str]
    capability: ComputeCapability
    version: str | None
    cuda: int | None
    mechanism: str
    capability_given: bool
    folder: str
    bundled: Mapping[str, image_copy.Assembler]
    toolkit: image_copy.Assembler
    quantization: str = "fp8"
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Decision:
    """The decision on one patch. ``edits`` are its places, edited if it applies; ``files`` are written as a whole."""

    status: str
    reason: str
    source: str
    edits: tuple[Edit, ...] = ()
    files: dict[str, Wanted] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

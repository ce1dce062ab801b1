# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planning of patches is told and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import Edit
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy

GB10 = ComputeCapability(12, 1)


class Link(str):
    """A symbolic link in a file's place; the text is what it points to."""

    __slots__ = ()


#: What a file is to be; None stands for what vLLM shipped.
Wanted: TypeAlias = "bytes | Link | None"


class Tree(Protocol):
    """A package's files, by their path relative to it."""

    def shipped(self, path: str) -> bytes | None:
        """Return the file as vLLM shipped it, None if it did not."""

    def current(self, path: str) -> Wanted:
        """Return the file as it is, None if it is not there."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""

    def trouble(self, path: str) -> str:
        """Return why it is not known what vLLM shipped, "" if it is."""

    def ours(self, path: str) -> bool:
        """Whether the file is as an earlier run wrote it."""

    def stale(self, path: str) -> bool:
        """Whether an earlier run's original is kept of a file that is not patched any more."""


@dataclass(frozen=True)
class Request:
    """``asked`` says that the capability was given rather than found; ``folder`` is where tuned tables may be put.

    ``quantization`` is what flags are chosen for: "fp8"; "other", where a flag that counts for every kind of MoE is left out; or
    "unknown", where the function is patched instead, which acts on FP8 alone.
    ``bundled`` are Triton's own assemblers by their file name, without what an earlier run put in their place.
    """

    names: Sequence[str]
    capability: ComputeCapability
    version: str | None
    cuda: int | None
    mechanism: str
    asked: bool
    folder: str
    bundled: Mapping[str, image_copy.Assembler]
    toolkit: image_copy.Assembler
    quantization: str = "fp8"


@dataclass
class Decision:
    """What becomes of one patch. ``edits`` are the places that it is about, which are edited if it applies; ``files`` what it writes whole."""

    status: str
    reason: str
    source: str
    edits: tuple[Edit, ...] = ()
    files: dict[str, Wanted] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)



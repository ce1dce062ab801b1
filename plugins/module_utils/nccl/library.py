# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of a libnccl from its bytes: release, CUDA, compiler and GPU code; and its defects for given GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability, Variant
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import SINCE
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import elf, fat_binary
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.fat_binary import FatBinary, Way

#: NCCL's compile-time string, "so that running strings on the lib can quickly reveal the version" (src/init.cc).
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)([^\0+ ]{0,32})\+cuda(\d+\.\d+)\0")
#: The entry of each object file in .comment: "GCC: (GNU) 8.5.0 20210514 (Red Hat 8.5.0-26)".
_GCC = re.compile(rb"GCC: \([^)\0]*\) (\d{1,3}(?:\.\d{1,3}){0,2})")
#: The function that distinguishes a libnccl from its plugins and callers.
SYMBOL = "ncclGetVersion"

_RUNS: tuple[tuple[Way, str], ...] = (
    ("native", "have native code"),
    ("same_major", "would run code of an older GPU of its generation"),
    ("ptx", "would be translated from PTX"),
    ("none", "cannot run"),
)


@dataclass(frozen=True)
class Library:
    """A libnccl: release ("2.30.7", None if unknown), CUDA release, machine as in uname, and loaded GPU code.

    ``gcc`` are the GCC releases that compiled its object files, including those of static libraries, oldest first.
    """

    version: str | None
    cuda: str | None
    machine: str
    fat_binaries: tuple[FatBinary, ...]
    gcc: tuple[str, ...] = ()

    @property
    def common(self) -> tuple[FatBinary, ...]:
        """The programs for every GPU. NCCL always adds a few for one family (sm_100f; sm_100a before CUDA 12.9)."""
        variants: tuple[Variant, ...] = ("", "a")
        for variant in variants:
            if found := tuple(
                fat for fat in self.fat_binaries if any(code.architecture.variant == variant for code in fat.codes)
            ):
                return found
        return self.fat_binaries

    @property
    def native(self) -> list[ComputeCapability]:
        """The GPUs for which every program has native code."""
        built_for = {code.architecture.capability for fat in self.common for code in fat.codes if code.kind == "cubin"}
        return sorted(gpu for gpu in built_for if all(fat.way(gpu) == "native" for fat in self.common))

    @property
    def runs(self) -> list[ComputeCapability]:
        """The GPUs that can run every program, natively, with code of an older GPU of their generation, or from PTX."""
        return [gpu for gpu in sorted(SINCE) if self.common and all(fat.way(gpu) != "none" for fat in self.common)]

    def facts(self) -> dict[str, Any]:
        """Return the library as plain data, as in nccl_info."""
        counts = fat_binary.counts(self.fat_binaries)
        return {
            "version": self.version,
            "cuda": self.cuda,
            "machine": self.machine,
            "gcc": list(self.gcc),
            "programs": len(self.fat_binaries),
            "code": [
                {"kind": code.kind, "architecture": str(code.architecture), "count": count} for code, count in counts
            ],
            "native": [str(capability) for capability in self.native],
            "runs": [str(capability) for capability in self.runs],
        }


def read(data: memoryview, path: str) -> Library:
    """Read a library from bytes, such as a mapped file. Raises ProblemsError at ``path`` if it is not complete."""
    # Most of the file is GPU code; the version string is among the constants.
    constants = [
        data[section.start : section.end] for section in elf.sections(data, path) if section.name == b".rodata"
    ]
    found = next((match for part in [*constants, data] if (match := _VERSION.search(part))), None)
    version, cuda = (
        (found[1].decode() + found[2].decode("ascii", "replace"), found[3].decode()) if found else (None, None)
    )
    return Library(
        version,
        cuda,
        elf.machine(data, path),
        tuple(fat_binary.loaded(fat_binary.read(data, path))),
        _compilers(data, path),
    )


def is_one(data: memoryview, path: str) -> bool:
    """Return whether the file is a libnccl, under any name. Raises ProblemsError if it is not a complete ELF file."""
    return elf.exports(data, path, SYMBOL)


def _compilers(data: memoryview, path: str) -> tuple[str, ...]:
    comments = [
        bytes(data[section.start : section.end]) for section in elf.sections(data, path) if section.name == b".comment"
    ]
    found = {match[1].decode() for comment in comments for match in _GCC.finditer(comment)}
    return tuple(sorted(found, key=lambda text: tuple(int(number) for number in text.split("."))))


def problems(library: Library, path: str, gpus: Sequence[ComputeCapability], machine: str) -> list[Problem]:
    """Return the reasons why the library has no native code for these GPUs on a machine (as in uname)."""
    found = []
    if library.version is None:
        found.append(Problem(path, "it contains no NCCL release", "a libnccl", "set the path of the built library"))
    if library.machine != machine:
        expected, fix = f"a library for {machine}", "build it on a node of this kind"
        found.append(Problem(path, f"it is built for {library.machine}", expected, fix))
    found += [_lacking(library, path, gpu) for gpu in gpus if gpu not in library.native]
    return found


def _lacking(library: Library, path: str, gpu: ComputeCapability) -> Problem:
    counts = fat_binary.counts(library.fat_binaries)
    held = ", ".join(f"{count} {code.kind} for {code.architecture}" for code, count in counts) or "no GPU code"
    ways = fat_binary.ways(library.common, gpu)
    runs = ", ".join(f"{ways[way]} {reported}" for way, reported in _RUNS if ways[way]) or "it has no programs"
    found = f"not all programs have code for {gpu.sm}: {runs}; it contains {held}"
    return Problem(path, found, f"cubins for {gpu.sm}", f"build it with NVCC_GENCODE={gpu.gencode}")

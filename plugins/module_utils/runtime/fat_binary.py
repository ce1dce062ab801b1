# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU code in a shared library, and how a GPU would run it, read from the file's bytes without CUDA.

NVIDIA documents neither the layout nor the flags. They were derived by compiling with nvcc 13.0 for single
architectures. The results match cuobjdump 13.5 on those files and on libnccl 2.28.9 and 2.30.7.
tests/unit/runtime/test_fat_binary.py repeats the comparison where both tools are installed.

A section holds consecutive fat binaries. Each begins with a header of 16 bytes (magic, version, its own size as u16,
size of the rest as u64). Its entries follow, each with a header and the code, which may be compressed.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import (
    Architecture,
    ComputeCapability,
    Variant,
)
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.elf import Section, sections, wrong

#: Code that the driver loads (False), and input of a device link (True).
SECTIONS = {b".nv_fatbin": False, b"__nv_relfatbin": True}
_MAGIC = 0xBA55ED50
#: The most fat binaries of a file. vLLM's largest extension has some thousands.
_MOST = 200_000
_HEADER = struct.Struct("<IHHQ")
#: Kind, its version, size of header and of payload, compressed size, offset of options, ISA version, architecture,
#: name, flags.
_ENTRY = struct.Struct("<HHIQ IIHHI II Q")
#: The smallest header of an entry that nvcc writes.
_ENTRY_SIZE = 64
_KINDS: dict[int, Kind] = {1: "ptx", 2: "cubin", 8: "lto"}
_ARCHITECTURE_ONLY, _FAMILY = 0x10_0000, 0x20_0000

#: Text for the driver, code for the GPU, or code for the linker of a later build.
Kind = Literal["ptx", "cubin", "lto"]
#: How a GPU would run one fat binary, best first: code for that GPU, code for an older GPU of its major capability,
#: translated from PTX, or not at all.
Way = Literal["native", "same_major", "ptx", "none"]
WAYS: tuple[Way, ...] = ("native", "same_major", "ptx", "none")


@dataclass(frozen=True, order=True)
class Code:
    """One program of a fat binary."""

    kind: Kind
    architecture: Architecture

    def way(self, gpu: ComputeCapability) -> Way:
        """Return how this GPU runs this program. Code for a link runs on no GPU."""
        built_for, variant = self.architecture.capability, self.architecture.variant
        if self.kind == "cubin" and gpu.runs(built_for, variant):
            return "native" if gpu == built_for else "same_major"
        return "ptx" if self.kind == "ptx" and gpu.translates(built_for, variant) else "none"


@dataclass(frozen=True)
class FatBinary:
    """One program for several architectures. A relocatable one is input of a device link and is not loaded."""

    relocatable: bool
    codes: tuple[Code, ...]

    def way(self, gpu: ComputeCapability) -> Way:
        """Return the best way of this GPU to run the program."""
        return min((code.way(gpu) for code in self.codes), key=WAYS.index, default="none")


def read(data: memoryview, path: str) -> list[FatBinary]:
    """Return every fat binary of a shared library, in the order of the file.

    ``data`` may be a mapped file: only headers are read. Raises ProblemsError at ``path`` if the file is not a complete
    ELF file for 64-bit little-endian machines, or its GPU code has another layout.
    """
    found = [
        FatBinary(SECTIONS[section.name], codes)
        for section in sections(data, path)
        if section.name in SECTIONS
        for codes in itertools.islice(_fat_binaries(data[section.start : section.end], section, path), _MOST + 1)
    ]
    # Sections may overlap, so that a small file has many.
    if len(found) > _MOST:
        raise wrong(path, f"{len(found)} fat binaries")
    return found


def loaded(fat_binaries: Sequence[FatBinary]) -> list[FatBinary]:
    """Return the fat binaries that the driver loads. As in cuobjdump, relocatable ones count only without others."""
    return [fat for fat in fat_binaries if not fat.relocatable] or list(fat_binaries)


def counts(fat_binaries: Sequence[FatBinary]) -> list[tuple[Code, int]]:
    """Return the number of programs of each kind and architecture, sorted by architecture."""
    found = Counter(code for fat in fat_binaries for code in fat.codes)
    return sorted(found.items(), key=lambda item: (item[0].architecture, item[0].kind))


def ways(fat_binaries: Sequence[FatBinary], gpu: ComputeCapability) -> dict[Way, int]:
    """Return the number of fat binaries that the GPU would run in each way. Every way has an entry."""
    found = Counter(fat.way(gpu) for fat in fat_binaries)
    return {way: found[way] for way in WAYS}


def _fat_binaries(data: memoryview, section: Section, path: str) -> Iterator[tuple[Code, ...]]:
    offset = 0
    while offset < len(data):
        # Linkers pad with zeros to a multiple of 8.
        if data[offset : offset + 8] == bytes(8)[: len(data) - offset]:
            offset += 8
            continue
        if offset + _HEADER.size > len(data):
            raise _broken(section, offset, "has no room for a header", path)
        magic, _version, header, size = _HEADER.unpack_from(data, offset)
        if magic != _MAGIC or header < _HEADER.size:
            raise _broken(section, offset, "does not begin with a fat binary header", path)
        end = offset + header + size
        if end > len(data):
            raise _broken(section, offset, "is longer than its section", path)
        yield tuple(_codes(data[:end], offset + header, section, path))
        offset = end


def _codes(data: memoryview, offset: int, section: Section, path: str) -> Iterator[Code]:
    while offset < len(data):
        if offset + _ENTRY_SIZE > len(data):
            raise _broken(section, offset, "has no room for an entry's header", path)
        kind, _version, header, size, *_packing, architecture, _name, _name_size, flags = _ENTRY.unpack_from(
            data, offset
        )
        if header < _ENTRY_SIZE or offset + header + size > len(data):
            raise _broken(section, offset, "has an entry that is longer than its fat binary", path)
        if kind in _KINDS:
            yield Code(_KINDS[kind], Architecture(ComputeCapability(*divmod(architecture, 10)), _variant(flags)))
        offset += header + size


def _variant(flags: int) -> Variant:
    if flags & _ARCHITECTURE_ONLY:
        return "a"
    return "f" if flags & _FAMILY else ""


def _broken(section: Section, offset: int, what: str, path: str) -> Exception:
    name = section.name.decode()
    return wrong(path, f"the GPU code at byte {section.start + offset:#x}, in section {name}, {what}")

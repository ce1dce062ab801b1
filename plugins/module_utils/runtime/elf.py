# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sections of an ELF file, and its entries for the dynamic linker.

Source: Tool Interface Standard, "Executable and Linking Format", and its 64-bit form in elf(5).
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

#: Magic, 64 bits, little endian.
MAGIC = b"\x7fELF"
_IDENT = MAGIC + b"\x02\x01"
#: After e_ident: type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize, shnum,
#: shstrndx.
_HEADER = struct.Struct("<16x HHIQQQIHHHHHH")
#: Name, type, flags, address, offset, size, link, info, alignment, entry size.
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8
#: Name, info, other, section (0: defined elsewhere), value, size; and a tag with its value.
_SYMBOL, _DYNAMIC = struct.Struct("<IBBHQQ"), struct.Struct("<QQ")
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
#: The maximum length of a text in .dynstr, a list of folders.
_LONGEST = 4096
#: The maximum entries of .dynamic that are read. A library has some dozens.
_MOST_DYNAMIC = 4096
_XINDEX = 0xFFFF
#: e_machine, as in uname.
_MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True)
class Section:
    """A section with bytes in the file, from ``start`` to ``end`` (exclusive)."""

    name: bytes
    start: int
    end: int


def machine(data: memoryview, path: str) -> str:
    """Return the file's machine as in uname, or its ELF number. Raises ProblemsError as sections() does."""
    number: int = _header(data, path)[1]
    return _MACHINES.get(number, f"ELF machine {number}")


def sections(data: memoryview, path: str) -> Iterator[Section]:
    """Yield the sections. Raises ProblemsError at ``path`` if it is not an ELF file or is truncated."""
    header = _header(data, path)
    table, size, count, names_index = header[5], header[10], header[11], header[12]
    if table == 0:
        return
    if size != _SECTION.size:
        raise wrong(path, f"its section headers have {size} bytes")
    first = _section(data, table, path)
    # The first section holds counts that do not fit into the header.
    count, names_index = count or first[5], first[6] if names_index == _XINDEX else names_index
    if table + count * size > len(data) or names_index >= count:
        raise wrong(path, f"its {count} section headers do not fit into {len(data)} bytes")
    names = _section(data, table + names_index * size, path)
    for index in range(1, count):
        name, kind, _flags, _address, start, length, *_rest = _section(data, table + index * size, path)
        if kind == _NOBITS:
            continue
        if start + length > len(data):
            raise wrong(path, f"section {index} ends at byte {start + length} of {len(data)}")
        yield Section(_string(data[: names[4] + names[5]], names[4] + name), start, start + length)


@dataclass(frozen=True)
class Dynamic:
    """A library's entries for the dynamic linker: the libraries that it needs, and their search path.

    With a ``runpath`` the linker ignores the ``rpath``. The linker searches an rpath before LD_LIBRARY_PATH, a runpath
    after it. Source: ld.so(8).
    """

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def dynamic(data: memoryview, path: str) -> Dynamic:
    """Return the file's entries for the dynamic linker, if it has any. Raises ProblemsError as sections() does."""
    entries, texts = _entries(data, path, b".dynamic", _DYNAMIC)
    values: dict[int, list[str]] = {}
    for tag, value in itertools.islice(entries, _MOST_DYNAMIC):
        if tag in (_NEEDED, _RPATH, _RUNPATH) and texts.start + value < texts.end:
            start = texts.start + value
            text = bytes(data[start : min(start + _LONGEST, texts.end)]).partition(b"\0")[0]
            values.setdefault(tag, []).append(text.decode("utf-8", "surrogateescape"))
    folders = {
        tag: tuple(folder for text in values.get(tag, ()) for folder in text.split(":") if folder)
        for tag in (_RPATH, _RUNPATH)
    }
    return Dynamic(tuple(values.get(_NEEDED, ())), folders[_RPATH], folders[_RUNPATH])


def exports(data: memoryview, path: str, name: str) -> bool:
    """Return whether the file defines a dynamic symbol of this name. Raises ProblemsError as sections() does."""
    symbols, texts = _entries(data, path, b".dynsym", _SYMBOL)
    # Linkers store a name that is a suffix of another only inside that one.
    places = {match.start() for match in re.finditer(re.escape(name.encode()) + rb"\0", data[texts.start : texts.end])}
    return bool(places) and any(section and at in places for at, _info, _other, section, *_rest in symbols)


def _entries(
    data: memoryview, path: str, name: bytes, form: struct.Struct
) -> tuple[Iterator[tuple[int, ...]], Section]:
    """Return the complete entries of a section for the dynamic linker, and the section of their texts."""
    found = {section.name: section for section in sections(data, path)}
    table, texts = found.get(name), found.get(b".dynstr")
    if table is None or texts is None:
        return iter(()), Section(b"", 0, 0)
    size = (table.end - table.start) // form.size * form.size
    return form.iter_unpack(data[table.start : table.start + size]), texts


def wrong(path: str, found: str) -> ProblemsError:
    """Return the error for a file that is not a valid shared library."""
    expected = "a complete shared library for a 64-bit little-endian machine"
    return ProblemsError([Problem(path, found, expected, "copy or build the file again")])


def _header(data: memoryview, path: str) -> tuple[int, ...]:
    if data[: len(_IDENT)] != _IDENT:
        raise wrong(path, "it does not begin with an ELF header")
    if len(data) < _HEADER.size:
        raise wrong(path, f"it ends after {len(data)} bytes")
    return _HEADER.unpack_from(data)


def _section(data: memoryview, offset: int, path: str) -> tuple[int, ...]:
    if offset + _SECTION.size > len(data):
        raise wrong(path, f"its section headers at byte {offset} exceed its {len(data)} bytes")
    return _SECTION.unpack_from(data, offset)


def _string(data: memoryview, start: int) -> bytes:
    """Return the zero-terminated text at ``start``, at most 64 bytes: section names are short."""
    return bytes(data[start : start + 64]).partition(b"\0")[0]

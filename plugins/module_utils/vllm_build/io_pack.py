# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a wheel of vLLM again, in the one form that root installs.

The code that is built writes the wheel, and another host may have built it. A file outside ``vllm/`` could run as root:
a ``.pth``, a program in ``.data/scripts``, a console script named uv, a path in RECORD that a removal follows. Equal
contents have one form, so a wheel is in it if it stays equal. No two readers of archives disagree about it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import wheel

#: The largest wheel, packed and unpacked, in bytes; the most files; the largest text that is parsed.
_MOST_WHEEL, _MOST_FILES, _MOST_TEXT = 8 << 30, 100_000, 1 << 20
_PART = 1 << 20
#: The largest list of files. The bytes of the record at the end of an archive that has its size, and of ZIP64's locator
#: and record, which precede it. Source: PKWARE, APPNOTE 4.3.16.
_MOST_LIST, _END_RECORD, _LOCATOR, _RECORD = 32 << 20, 22, 20, 56
#: zipfile raises RuntimeError for an encrypted member, NotImplementedError for an unknown method, and ValueError for an
#: offset of another form.
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError)


def pack(descriptor: int, path: str) -> str:
    """Write the wheel ``descriptor`` again to ``path``, and return its SHA-256.

    Raises ProblemsError for a damaged wheel and one with files that vLLM does not have, OSError.
    """
    try:
        with open(descriptor, "rb", closefd=False) as source, zipfile.ZipFile(_listed(source)) as archive:
            found = [member for member in archive.infolist() if not member.is_dir()]
            refuse(_problems(found))
            with open(path, "wb") as file:
                with zipfile.ZipFile(file, "w") as target:
                    _write(archive, target, sorted(found, key=lambda member: member.filename))
                file.flush()
                os.fsync(file.fileno())
    except _DAMAGED as error:
        raise ProblemsError(
            [Problem("wheel", str(error) or type(error).__name__, "a complete wheel", "run the build again")]
        ) from error
    os.chmod(path, io_file.READABLE)
    return io_file.sha256(path)


def _listed(source: IO[bytes]) -> IO[bytes]:
    """Return an archive whose list of files is short enough to be read. Raises ProblemsError, OSError."""
    source.seek(max(0, source.seek(0, os.SEEK_END) - _END_RECORD - _LOCATOR - _RECORD))
    end = source.read()
    # With a comment, another place could look like the record for zipfile. No build writes one.
    at = len(end) - _END_RECORD
    if at < 0 or end[at : at + 4] != b"PK\x05\x06" or end[-2:] != b"\0\0":
        raise ProblemsError(
            [Problem("wheel", "no list of files at its end", "a complete wheel", "run the build again")]
        )
    # The size of the list, without the entry's own.
    size = int.from_bytes(end[at + 12 : at + 16], "little")
    if at >= _LOCATOR and end[at - _LOCATOR : at - _LOCATOR + 4] == b"PK\x06\x07":
        # The record before the locator counts for zipfile.
        record = at - _LOCATOR - _RECORD
        size = max(size, int.from_bytes(end[record + 40 : record + 48], "little")) if record >= 0 else _MOST_LIST + 1
    if size > _MOST_LIST:
        raise ProblemsError(
            [Problem("wheel", f"a list of files with {size} bytes", f"at most {_MOST_LIST}", "build it again")]
        )
    return source


def _problems(found: Sequence[zipfile.ZipInfo]) -> list[Problem]:
    size = sum(member.file_size for member in found)
    if len(found) > _MOST_FILES or size > _MOST_WHEEL:
        expected = f"at most {_MOST_FILES} files and {_MOST_WHEEL} bytes"
        return [Problem("wheel", f"{len(found)} files, {size} bytes", expected, "build fewer architectures")]
    return wheel.member_problems([member.filename for member in found])


def _write(archive: zipfile.ZipFile, target: zipfile.ZipFile, found: Sequence[zipfile.ZipInfo]) -> None:
    """Write all files, and RECORD last, as the format requires."""
    record: list[tuple[str, str, int | str]] = []
    own = ""
    for member in found:
        if member.filename.endswith(f"{wheel.INFORMATION}/RECORD"):
            own = member.filename
            continue
        mode = io_file.SEARCHABLE if member.external_attr >> 16 & 0o111 else io_file.READABLE
        with archive.open(member) as source:
            content = source
            if member.filename.endswith(f"{wheel.INFORMATION}/entry_points.txt"):
                text = source.read(_MOST_TEXT)
                refuse(wheel.entry_problems(text.decode()))
                content = io.BytesIO(text)
            record.append(_member(target, member.filename, mode, content, member.file_size))
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([*record, (own, "", "")])
    text = table.getvalue().encode()
    _member(target, own, io_file.READABLE, io.BytesIO(text), len(text))


def _member(target: zipfile.ZipFile, name: str, mode: int, source: IO[bytes], size: int) -> tuple[str, str, int]:
    """Add a file without compression, whose result differs between releases of zlib, and return its line of RECORD."""
    # Its time is the earliest of the format.
    member = zipfile.ZipInfo(name)
    member.external_attr, member.file_size = (stat.S_IFREG | mode) << 16, size
    digest, written = hashlib.sha256(), 0
    with target.open(member, "w") as file:
        while part := source.read(_PART):
            digest.update(part)
            # Python's reader already stops at the size of the directory.
            written += file.write(part)
    return name, f"sha256={base64.urlsafe_b64encode(digest.digest()).decode().rstrip('=')}", written

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store of builds on a node: a folder for each wheel, complete or absent. Only root writes there.

STORE/wheels/0.33.0-0123456789ab/vllm-0.33.0+gb10….whl
STORE/wheels/0.33.0-0123456789ab/stamp.json            the inputs of the build, and the wheel's SHA-256
STORE/tree                                             the patched source of the last build
"""

from __future__ import annotations

import contextlib
import glob
import mmap
import os
import shutil
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, fat_binary
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse

STAMP = "stamp.json"
_MOST_STAMP = 1 << 20
#: The largest extension that is read, in bytes.
_MOST_EXTENSION = 4 << 30


def stamps(store: str) -> list[dict[str, Any]]:
    """Return the stamps of the builds, newest first. A build without its wheel does not count.

    The wheel's hash is verified at its installation.
    """
    found = []
    for path in sorted(glob.glob(f"{glob.escape(store)}/wheels/*/{STAMP}"), key=os.path.getmtime, reverse=True):
        stamp, folder = io_json.json_file(path, _MOST_STAMP) or {}, os.path.dirname(path)
        stored = parse.build(stamp)
        if stored and stored.name == os.path.basename(folder) and os.path.isfile(f"{folder}/{stored.wheel}"):
            found.append(stamp)
    return found


@contextlib.contextmanager
def part(store: str, name: str) -> Iterator[str]:
    """Yield a temporary folder.

    It becomes the build if the block succeeds, and is removed otherwise. Raises OSError.
    """
    # Also what interrupted runs left of other builds, which takes gigabytes.
    for left in glob.glob(f"{glob.escape(store)}/wheels/.*.part"):
        shutil.rmtree(left)
    with io_file.new_folder(f"{store}/wheels/{name}", f"{store}/wheels/.{name}.part") as temporary:
        yield temporary


def extensions(wheel: str, folder: str) -> dict[str, list[fat_binary.FatBinary]]:
    """Return {name: programs} of the wheel's extensions, which are unpacked one at a time below ``folder``.

    Raises ProblemsError for a damaged wheel or extension, OSError.
    """
    found = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".so"):
                    found[coverage.name(member.filename)] = _programs(archive, member, f"{folder}/.extension")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two are for packed data that this Python cannot read: another method, or encrypted.
        raise _damaged(wheel, str(error)) from error
    return found


def _programs(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str) -> list[fat_binary.FatBinary]:
    if member.file_size > _MOST_EXTENSION:
        raise _damaged(member.filename, f"it has {member.file_size} bytes")
    try:
        with archive.open(member) as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if not member.file_size:
            return []
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as data,
        ):
            return fat_binary.loaded(fat_binary.read(data, member.filename))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _damaged(path: str, found: str) -> ProblemsError:
    return ProblemsError(
        [Problem("wheel", f"{os.path.basename(path)}: {found}", "a complete wheel", "run the build again")]
    )


def installed(store: str, runtime: str | None) -> list[str]:
    """Return the builds whose wheel an environment has.

    Its last file lists the wheels' hashes; see PlannedNode.runtime_mark.
    """
    hashes = io_file.read(f"{runtime}/.complete").split() if runtime else []
    return [str(stamp["name"]) for stamp in stamps(store) if stamp["sha256"] in hashes]


def old(store: str, used: Collection[str], keep: int) -> list[str]:
    """Return the builds to remove: all but ``used`` and the newest, so that ``keep`` stay."""
    others = [str(stamp["name"]) for stamp in stamps(store) if stamp["name"] not in used]
    return others[max(0, keep - len(used)) :]


def forget(store: str, names: Sequence[str]) -> None:
    """Remove builds. Raises OSError."""
    for name in names:
        # Without its stamp it is no longer a build, so an interrupted removal leaves none that is incomplete.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{store}/wheels/{name}/{STAMP}")
        shutil.rmtree(f"{store}/wheels/{name}")

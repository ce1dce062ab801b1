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
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_coverage
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_pack, parse, wheel

_STAMP = "stamp.json"
_MOST_STAMP = 1 << 20


def stamps(store: str) -> list[dict[str, Any]]:
    """Return the stamps of the builds, newest first. A build without its wheel does not count.

    The wheel's hash is verified at its installation.
    """
    found = []
    for path in sorted(glob.glob(f"{glob.escape(store)}/wheels/*/{_STAMP}"), key=os.path.getmtime, reverse=True):
        stamp, folder = io_json.json_file(path, _MOST_STAMP) or {}, os.path.dirname(path)
        stored = parse.build(stamp)
        if stored.get("name") == os.path.basename(folder) and os.path.isfile(f"{folder}/{stored['wheel']}"):
            found.append(stamp)
    return found


def add(store: str, stamp: Mapping[str, Any], source: int, gpus: Sequence[ComputeCapability]) -> dict[str, Any]:
    """Add a wheel, an open file, in its one form, and return its stamp.

    A stamp of another host has the hash of that form. Raises ProblemsError for another hash, a damaged wheel, other
    files than vLLM's, and a wheel without code for a GPU; OSError.
    """
    wheels, name = f"{store}/wheels", stamp["name"]
    # What interrupted runs left, also of other builds, takes gigabytes.
    for left in glob.glob(f"{glob.escape(wheels)}/.*.part"):
        shutil.rmtree(left)
    with io_file.new_folder(f"{wheels}/{name}", f"{wheels}/.{name}.part") as folder:
        path = f"{folder}/{stamp['wheel']}"
        sha256 = io_pack.pack(source, path)
        if sha256 != stamp.get("sha256", sha256):
            fix = "remove the build on the head, and run again"
            raise ProblemsError([Problem("file", f"its one form has sha256 {sha256}", stamp["sha256"], fix)])
        found = _coverage(path, folder, gpus)
        refuse(wheel.problems(found))
        content = {"coverage": wheel.lines(found), **stamp, "sha256": sha256}
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        io_file.write_file(f"{folder}/{_STAMP}", text, io_file.READABLE)
    return content


def _coverage(path: str, folder: str, gpus: Sequence[ComputeCapability]) -> wheel.Found:
    """Return the GPU code of a wheel in its one form, whose extensions are unpacked below ``folder``.

    Raises ProblemsError for a damaged extension, OSError.
    """
    with tempfile.TemporaryDirectory(dir=folder) as unpacked:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if gpus and name.endswith(".so")]
            archive.extractall(unpacked, names)
        return {str(gpu): io_coverage.read(unpacked, gpu) for gpu in gpus}


def remove_old(store: str, used: str, runtime: str | None, keep: int) -> list[str]:
    """Remove all builds but ``used``, that of an environment and the newest, so that ``keep`` stay. Return their names.

    The last file of an environment lists the wheels' hashes; see PlannedNode.runtime_mark. Raises OSError.
    """
    hashes = io_file.read(f"{runtime}/.complete").split() if runtime else []
    found = stamps(store)
    others = [str(stamp["name"]) for stamp in found if stamp["name"] != used and stamp["sha256"] not in hashes]
    removed = others[max(0, keep - (len(found) - len(others))) :]
    for name in removed:
        # Without its stamp it is no longer a build, so an interrupted removal leaves none that is incomplete.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{store}/wheels/{name}/{_STAMP}")
        shutil.rmtree(f"{store}/wheels/{name}")
    return removed

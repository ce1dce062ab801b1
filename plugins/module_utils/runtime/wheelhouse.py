# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wheels of a lock on their way from one node to the others. The lock is trusted, a wheel only by its hash."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

GIB = 2**30
#: Bytes of disk for wheels, their archive and the environment. Wheels of ``current`` have 4.3 GB, its environment 8 GB.
DISK_BYTES: Mapping[str, int] = {"cuda": 14 * GIB, "cpu": 4 * GIB}
MOST_WHEELS = 2000
#: The lock in the folder of its wheels.
LOCK = "requirements.lock"
DISK_FULL = "No space left on device"
_MOST_ERROR = 300
#: The name of a file in the archive. Source: packaging.python.org, "Binary distribution format".
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.whl")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?![0-9a-f])")


def hashes(lock: str) -> frozenset[str]:
    """Return every SHA-256 in a lock's text."""
    return frozenset(_HASH.findall(lock))


def check_disk(folder: str, free: int, device: str) -> list[Problem]:
    """Return the problem of a disk that cannot hold the wheels and the environment of a stack for this device."""
    if free >= (least := DISK_BYTES[device]):
        return []
    fix = "free disk space: playbooks/reset.yml lists the files of this collection"
    return [
        Problem(
            "disk",
            f"{free / GIB:.1f} GiB are free in {folder}",
            f"{least / GIB:.0f} GiB for the wheels and the environment",
            fix,
        )
    ]


def venv_problems(status: int, python: str, output: str) -> list[Problem]:
    """Return the problem of an interpreter that makes no environment, such as one without Debian's package for it."""
    if status == 0:
        return []
    found = " ".join(output.split())[:_MOST_ERROR] or f"exit status {status}"
    fix = f"install its venv package, such as {posixpath.basename(python)}-venv"
    return [Problem(f"vllm_runtime_python: {python} -m venv", found, "an environment with pip", fix)]


def pip_problems(status: int, stderr: str) -> list[Problem]:
    """Return the problem of a download by pip: its error, or the last line of an exception; and why an index did not
    answer."""
    if status == 0:
        return []
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match("ERROR: (?!Exception:)", line)] + lines[-1:]
    retries = [line.partition(" after ")[2] for line in lines if line.startswith("WARNING: Retrying")]
    found = "; ".join(line[:_MOST_ERROR] for line in [*errors[:1], *retries[-1:]]) or f"pip has exit status {status}"
    fix = "correct the network of this node or vllm_runtime_index_url, and run again: finished files are kept"
    if DISK_FULL in stderr:
        fix = "free disk space, and run again"
    return [Problem("wheels", found, "every wheel of the lock; nothing was installed", fix)]


def check_entry(name: str, regular: bool, number: int) -> list[Problem]:
    """Return the problem of an archive's entry, which another node has written; ``number`` counts from 0."""
    if number >= MOST_WHEELS:
        return [_refused(f"it has more than {MOST_WHEELS} entries")]
    return [] if regular and NAME.fullmatch(name) else [_refused(f"{name[:100]!r} is not a wheel")]


def check_wheel(name: str, sha256: str, wanted: frozenset[str]) -> list[Problem]:
    """Return the problem of a wheel that the lock does not pin."""
    return [] if sha256 in wanted else [_refused(f"{name} has sha256 {sha256}, which the lock does not have")]


def _refused(found: str) -> Problem:
    return Problem(
        "archive",
        found,
        "wheels with the hashes of the lock",
        "run again; if it repeats, find out why the head sends other files",
    )

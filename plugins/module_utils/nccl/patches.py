# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Patches of NCCL's source: those of this collection by name, and files of a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

_VARIABLE = "nccl_sm121_build_patches"
#: The name of each patch of the role's files, and the fault that it corrects.
KNOWN: Mapping[str, str] = {
    "arm-send-fence": "on ARM a missing fence before a send can hang all ranks (NVIDIA/nccl#1983, proposed as #2393)",
}


@dataclass(frozen=True)
class Patch:
    """A patch: its name in KNOWN or its file's, its path on the controller, and its SHA-256, "" if unreadable."""

    name: str
    path: str
    sha256: str


def check(patches: Sequence[Patch]) -> list[Problem]:
    """Return the problems of the variable's patches."""
    problems, names = [], [patch.name for patch in patches]
    for index, patch in enumerate(patches):
        path = f"{_VARIABLE}[{index}]"
        if not patch.sha256:
            expected = f"a patch file on the controller, or one of {', '.join(KNOWN)}"
            problems.append(Problem(path, f"{patch.path} cannot be read", expected, f"correct {path}"))
        if patch.name in names[:index]:
            problems.append(Problem(path, f"a second {patch.name}", "another name for each patch", "rename the file"))
    return problems


def fixed(names: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence about the patches of a build, none without a patch."""
    known, own = [name for name in names if name in KNOWN], [name for name in names if name not in KNOWN]
    found = [f"patch {name}: {KNOWN[name]}" for name in known]
    return (*found, *([f"patched with {', '.join(own)}"] if own else []))


def unfit(name: str, release: str) -> Problem:
    """Return the warning about a patch of this collection that the release does not have the lines for."""
    found = f"{name} does not fit NCCL {release}, which is built without it"
    return Problem(_VARIABLE, found, f"a release with that fault: {KNOWN[name]}", f"remove {name}, or set another tag")

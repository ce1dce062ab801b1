# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install a built NCCL into a host's store, and make it current.

Unpacks a build that ``nccl_build`` packed on another host, after verifying its hash, and points ``current`` at it.
Rejects a library without code for this host's GPUs. Keeps some older builds for a rollback.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

_NAME = re.compile(r"(?!current$)[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``store``: The store of NCCL builds on this host.
    ``name``: The name of the build.
    ``sha256``: SHA-256 of its library.
    ``capabilities``: The compute capabilities of this host's GPUs.
    ``artifact``: The packed build on this host. Without it, a missing build is only reported.
    ``artifact_sha256``: SHA-256 of ``artifact``.
    ``keep``: Number of builds to keep, including the current one.
    """

    store: str = field(metadata={"type": "path"})
    name: str
    sha256: str
    capabilities: Sequence[str]
    artifact: str = field(default="", metadata={"type": "path"})
    artifact_sha256: str = ""
    keep: int = 3


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {missing, library, removed}: whether the build is not there, its path or null, removed older builds."""
    store, name = given.store, given.name
    library = f"{store}/{name}/{nccl_io_store.LIBRARY}"
    refuse(list(_wrong(given)))
    gpus = [ComputeCapability.parse(text, f"capabilities[{index}]") for index, text in enumerate(given.capabilities)]
    stamp = nccl_io_store.stamp(store, name)
    there = stamp is not None and stamp["sha256"] == given.sha256
    if there:
        _check(library, given, given.sha256, gpus)
    elif not given.artifact:
        return {"changed": False, "missing": True, "library": None, "removed": []}
    elif not module.check_mode:
        _unpack(given, gpus)
    used = nccl_io_store.current(store)
    older = [each for each in nccl_io_store.names(store) if each not in (name, used)]
    # Keep the build used until now too: running ranks still have it mapped.
    removed = older[max(0, given.keep - len({name, used} - {None})) :]
    if not module.check_mode:
        if used != name:
            nccl_io_store.use(store, name)
        for each in removed:
            shutil.rmtree(f"{store}/{each}")
    return {
        "changed": not there or used != name or bool(removed),
        "missing": False,
        "library": library,
        "removed": removed,
        "diff": {"before": f"current: {used}\n", "after": f"current: {name}\n"},
    }


def _wrong(given: Inputs) -> Iterator[Problem]:
    """Yield the inputs of another form: the head's results become paths on every node."""
    forms = {"name": (given.name, _NAME), "sha256": (given.sha256, _SHA256)}
    if given.artifact:
        forms["artifact_sha256"] = (given.artifact_sha256, _SHA256)
    fix = "build NCCL again, and examine the head if it returns"
    for name, (value, form) in forms.items():
        if not form.fullmatch(value):
            yield Problem(name, repr(value[:100]), "a build of nccl_build", fix)


def _check(path: str, given: Inputs, found: str, gpus: list[ComputeCapability]) -> None:
    """Raise ProblemsError unless the library's hash (``found``) is that of the build, with code for these GPUs."""
    place = f"libnccl {given.name}"
    problems = nccl_library.problems(io_library.library(path), place, gpus, os.uname().machine)
    if found != given.sha256:
        problems.insert(0, Problem(place, f"it has sha256 {found}", given.sha256, "build it again, or correct sha256"))
    refuse(problems)


def _unpack(given: Inputs, gpus: list[ComputeCapability]) -> None:
    """Add the artifact's build to the store if it is valid. Raises ProblemsError, OSError or ValueError."""
    io_file.add_folder(given.store)
    with nccl_io_store.part(given.store, given.name) as part:
        nccl_io_store.unpack(given.artifact, given.artifact_sha256, part)
        made = f"{part}/{nccl_io_store.LIBRARY}"
        _check(made, given, io_file.sha256(made), gpus)

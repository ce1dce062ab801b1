# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of a planned NCCL build on the head, and the use of the build on each node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import tags
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan

_ARCHIVE = re.compile(r"[.]tar([.][a-z0-9]+)?$")


@dataclass(frozen=True)
class NcclSettings:
    """The role's variables. The version is None for that of the plan."""

    nccl_sm121_build_source: str
    nccl_sm121_build_version: str | None
    nccl_sm121_build_commit: str
    nccl_sm121_build_checksum: str
    nccl_sm121_build_patches: Sequence[str]
    nccl_sm121_build_capabilities: Sequence[str]
    nccl_sm121_build_cuda_home: str
    nccl_sm121_build_only_funcs: str
    nccl_sm121_build_ccache: bool
    nccl_sm121_build_method: str
    nccl_sm121_build_keep_releases: int

    @property
    def archive(self) -> bool:
        """Whether the source is a tar file on the controller, not a git repository."""
        return _ARCHIVE.search(self.nccl_sm121_build_source) is not None


def store(plan: Plan) -> str:
    """Return the folder of NCCL builds on each node."""
    return f"{plan.root}/nccl"


def wrong_archive(settings: NcclSettings, sha256: str) -> str:
    """Return why the source is not the required tar file, "" if it is. ``sha256`` is "" for a missing file."""
    source, wanted = settings.nccl_sm121_build_source, settings.nccl_sm121_build_checksum
    if not settings.archive or (sha256 and wanted in ("", sha256)):
        return ""
    found = f"{source} has sha256 {sha256}" if sha256 else f"{source} does not exist"
    fix = "fetch the file again, or correct nccl_sm121_build_checksum"
    return str(Problem("nccl_sm121_build_source", found, wanted or "a tar file on the controller", fix))


def build(plan: Plan, settings: NcclSettings, sha256: str, patches: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the module's options for the build, and for the check of its requirements: {options, requirements}.

    ``sha256``: of the tar file; ``patches``: {name, text} of each. Raises ProblemsError for a tag without a known
    commit.
    """
    gpus = settings.nccl_sm121_build_capabilities or sorted({node.capability or "" for node in plan.nodes} - {""})
    cuda_home = settings.nccl_sm121_build_cuda_home
    common = {
        "store": store(plan),
        "capabilities": list(gpus),
        **({"cuda_home": cuda_home} if cuda_home else {}),
        "functions": settings.nccl_sm121_build_only_funcs,
        "ccache": settings.nccl_sm121_build_ccache,
    }
    return {
        "options": {**common, **_source(plan, settings, sha256), "patches": list(patches)},
        # git applies patches, too.
        "requirements": {**common, "from_git": not settings.archive or bool(patches)},
    }


def _source(plan: Plan, settings: NcclSettings, sha256: str) -> dict[str, Any]:
    """Return the folder of the source on the head, with its identity or its commit."""
    folder, source = f"{store(plan)}/source", settings.nccl_sm121_build_source
    if settings.archive:
        return {"source": f"{folder}/{sha256[:12]}", "identity": f"sha256 {sha256}"}
    tag = settings.nccl_sm121_build_version or plan.stack.nccl
    return {"source": f"{folder}/{tag}", "commit": tags.commit(tag, settings.nccl_sm121_build_commit, source)}


def use(plan: Plan, settings: NcclSettings, wanted: bool, built: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the plan's node uses the build.

    ``wanted``: whether NCCL is built. ``built``: the head's result of module nccl_build. Check mode on a fresh head has
    none.

    ``there``: whether there is a build. ``install`` and ``select`` are inputs of the step nccl_install and options of
    the module nccl_select. ``environment``, ``files`` and ``mounts`` are launch overrides. An image stays unchanged, so
    its ranks preload the mounted build.
    """
    name, sha256 = str(built.get("name") or ""), str(built.get("sha256") or "")
    there = wanted and bool(sha256)
    folder = f"{store(plan)}/{name}"
    library, interpreter = f"{folder}/lib/libnccl.so.2", python(plan)
    mounted = there and not interpreter
    method = settings.nccl_sm121_build_method
    return {
        "there": there,
        "install": {
            "store": store(plan),
            "name": name,
            "sha256": sha256,
            "capabilities": [plan.node.capability],
            "keep": settings.nccl_sm121_build_keep_releases,
        },
        "select": {
            "python": interpreter,
            **({"library": library, "method": method} if wanted else {"state": "absent"}),
        },
        "environment": {"LD_PRELOAD": library} if mounted else {},
        "files": {library: sha256} if there else {},
        "mounts": [{"source": folder, "target": folder, "read_only": True}] if mounted else [],
    }


def python(plan: Plan) -> str:
    """Return the interpreter of the ranks, "" in a container."""
    return f"{plan.runtime.path}/bin/python" if isinstance(plan.runtime, Environment) else ""

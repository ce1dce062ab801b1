# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a vLLM with the patches for a GPU, and write or restore its files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import FP8, OTHER, UNKNOWN
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import plan as patch_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch.io_tree import Tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import GB10, Request
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PATCHES, PTXAS
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe, io_package
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import TABLES, TOOLKIT

#: The options of the module vllm_patch, which documents them, except O(compared).
ARGUMENTS: dict[str, Any] = {
    "package_dir": {"type": "path"},
    "python": {"type": "path"},
    "capability": {"type": "str"},
    "patches": {"type": "list", "elements": "str", "choices": list(PATCHES)},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "mechanism": {"type": "str", "choices": ["auto", "source"], "default": "auto"},
    "quantization": {"type": "str", "choices": [FP8, OTHER, UNKNOWN], "default": FP8},
    "config_folder": {"type": "path"},
    "probe": {"type": "path", "default": ""},
    "toolkit": {
        "type": "dict",
        "options": {"path": {"type": "path", "default": TOOLKIT}, "runs_as": {"type": "path"}},
    },
}


def capability_of(run: Run, given: str | None, state: str) -> ComputeCapability:
    """Return the capability to patch for. Removal does not need one. Raises ProblemsError."""
    if given is not None or state == "absent":
        return ComputeCapability.parse(given) if given is not None else GB10
    gpu = node_io_facts.gpu(run)
    found = next((gpu["capability"] for gpu in gpu["gpus"] if gpu["capability"]), None)
    if found is None:
        reason = gpu["reason"] or "the GPU does not report one"
        expected = 'a compute capability such as "12.1"'
        raise ProblemsError([Problem("capability", f"not set, and {reason}", expected, "set capability")])
    return ComputeCapability.parse(found)


def outcome(run: Run, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the result of module vllm_patch. Raises ProblemsError or OSError."""
    capability = capability_of(run, params["capability"], params["state"])
    package = io_package.find(params["package_dir"], params["python"])
    folder = os.path.abspath(params["config_folder"] or os.path.join(os.path.dirname(package.path), TABLES))
    with io_package.locked(package):
        tree = Tree(package.path, folder)
        request = Request(
            names=list(PATCHES) if params["patches"] is None else params["patches"],
            capability=capability,
            version=package.version,
            cuda=package.cuda,
            mechanism=params["mechanism"],
            capability_given=params["capability"] is not None,
            folder=folder,
            bundled={
                name: io_package.assembler(tree.original(f"{PTXAS}/{name}")) for name in ("ptxas", "ptxas-blackwell")
            },
            toolkit=io_package.assembler(**(params["toolkit"] or {"path": TOOLKIT})),
            quantization=params["quantization"],
            failed=gpu_probe.recorded(io_file.read(params["probe"])),
        )
        plan = (patch_plan.present if params["state"] == "present" else patch_plan.absent)(request, tree)
        digests = tree.digests(sorted({path for patch in plan.patches for path in patch["files"]}), plan.files)
        texts = tree.apply(plan.files, check_mode)
    diff = [
        line
        for path, before, after in texts.values()
        for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)
    ]
    return {
        "changed": bool(texts),
        "package_dir": package.path,
        "vllm_version": package.version,
        "capability": str(capability) if params["capability"] or params["state"] == "present" else None,
        "cuda_build": package.cuda,
        "patches": plan.patches,
        "written": sorted(texts),
        "files": digests,
        "flags": plan.flags,
        "environment": plan.environment,
        "diff": {"prepared": "".join(diff)},
    }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch overrides that the role vllm_patch will record, so that a plan shows the command of the first run."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.additions import Additions
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.runtime import Runtime
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Node
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import PATCH_ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import expect
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.stacks import Stack
from ansible_collections.gb10.cluster.plugins.module_utils.serve import schema as serve_schema

_ROLE = PATCH_ROLE


def additions(node: Node, runtime: Runtime, recorded: Additions, root: str, quantization: str) -> Additions:
    """Return a node's recorded overrides with those of the role.

    Its flags depend on the model. ``root``: gb10_install_dir.
    """
    try:
        capability = ComputeCapability.parse(node.patch.vllm_patch_capability or node.capability or "")
    except ProblemsError:
        return recorded
    if runtime.unread:
        return recorded
    flags, environment = expect.additions(node.patch, _package(node, runtime, root), capability, quantization)
    if not flags and not environment and _ROLE not in recorded:
        return recorded
    return {**recorded, _ROLE: {"environment": environment, "files": {}, **recorded.get(_ROLE, {}), "flags": flags}}


def _package(node: Node, runtime: Runtime, root: str) -> expect.Package:
    """Return the vLLM of a node's environment or image. An image brings its own Triton and CUDA toolkit."""
    planned, stack = runtime.planned, runtime.stack
    if not isinstance(planned, Environment):
        image = image_copy.short(planned.options_of.removeprefix("sha256:")) or "IMAGE_ID"
        return expect.Package(stack.vllm, stack.cuda, "", image_copy.tables(f"{root}/images/{image}"), frozenset())
    toolkit = node.facts.toolkit.architectures if node.facts and node.facts.toolkit else frozenset()
    return expect.Package(stack.vllm, stack.cuda, stack.triton, f"{planned.path}/{image_copy.TABLES}", toolkit)


def explain(ranks: Sequence[serve_schema.ServingNode], stack: Stack) -> list[str]:
    """Return a sentence for each set of overrides that no node has recorded yet."""
    found = []
    for rank in ranks:
        addition = rank.additions.get(_ROLE)
        if addition and _ROLE not in rank.recorded:
            words = [*addition["environment"], *([" ".join(addition["flags"])] if addition["flags"] else [])]
            cuda = f" for CUDA {stack.cuda}" if stack.cuda else ""
            found.append(f"{', '.join(words)}: vllm_patch will add this to vLLM {stack.vllm}{cuda}")
    return list(dict.fromkeys(found))

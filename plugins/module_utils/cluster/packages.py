# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Debian packages that each role needs on a node, and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.runtime import Runtime
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Node
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import MISSING


def lacking(node: Node, runtime: Runtime, nccl: bool, download: bool) -> dict[str, list[str]]:
    """Return the packages that a node lacks, by role. ``nccl``: it is certainly built; ``download``: the head downloads
    the model.

    The role nccl_sm121_build may decide later to build, and then installs its own.
    """
    native = isinstance(runtime.planned, Environment)
    needs = {
        "vllm_runtime": native,
        "vllm_build": node.head and runtime.build.state == MISSING,
        # In a container, the ranks' huggingface_hub is out of reach.
        "model_store": node.head and download and not native,
        "nccl_sm121_build": node.head and nccl,
    }
    known = node.facts.packages.lacking if node.facts else ()
    found = {role: [name for name in node.packages[role] if name in known] for role, needed in needs.items() if needed}
    return {role: names for role, names in found.items() if names}


def check(nodes: Sequence[Node]) -> list[Problem]:
    """Return a problem for each name that is not a package, such as an option of apt-get."""
    expected = "a Debian package, such as g++ or g++=4:13.2.0-7ubuntu1"
    return [
        Problem(f"nodes[{index}].{role}_packages", repr(name), expected, f"correct {role}_packages")
        for index, node in enumerate(nodes)
        for role, names in node.packages.items()
        for name in names
        if not packages.SPECIFICATION.fullmatch(name)
    ]


def warnings(nodes: Sequence[Node], lacking_of: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return a sentence for each pending reboot, for a lock of apt that the run would wait for, and for each fault of a
    node's system."""
    found = []
    for node in nodes:
        state = node.facts.packages if node.facts else packages.State()
        if state.reboot is not None:
            found.append(f"{node.name}: {packages.pending_reboot(state.reboot)}")
        if state.holder and lacking_of.get(node.name):
            wait = f"the run waits for it up to {node.settings.apt_timeout} s, before it changes anything"
            found.append(f"{node.name}: apt is locked by {state.holder}; {wait}")
        if system := node.facts and node.facts.system:
            found += [f"{node.name}: {text}" for text in os_update_plan.warnings(system)]
    return found

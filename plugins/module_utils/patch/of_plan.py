# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The vLLM of a planned node as the module vllm_patch patches it, and the launch overrides of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import TABLES

ROLE = "vllm_patch"


def place(plan: Plan, copy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options with the place of vLLM: in the ``copy`` of an image, or in the environment; else {}.

    ``copy``: the result of module vllm_image_extract, {} without an image.
    """
    if copy:
        probe = f"{plan.root}/images/{copy['image_id']}.gpu-probe.json"
        return {**{name: copy[name] for name in ("package_dir", "config_folder", "toolkit")}, "probe": probe}
    if not isinstance(plan.runtime, Environment):
        return {}
    path = plan.runtime.path
    return {
        "python": f"{path}/bin/python",
        "probe": f"{path}/gpu-probe.json",
        "config_folder": f"{path}/{TABLES}",
    }


def overrides(compared: Mapping[str, Any], mounts: Any) -> dict[str, Any]:
    """Return the launch overrides of a node's comparison. ``mounts``: those of the copy of an image.

    A removal records no files, so that the overrides are empty after it. So are those of a node without a comparison,
    such as a fresh one in check mode.
    """
    present = compared.get("options", {}).get("state") == "present"
    return {
        "environment": compared.get("environment", {}),
        "flags": compared.get("flags", []),
        "files": compared.get("files", {}) if present else {},
        "mounts": list(mounts) if present else [],
    }


def recorded(plan: Plan, wanted: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether every node has recorded its overrides (by node name) for this runtime."""
    entries = {
        name: {**each, "runtime": plan.runtime.name} if any(each.values()) else {} for name, each in wanted.items()
    }
    return all(entries[node.name] == node.additions.get(ROLE, {}) for node in plan.nodes)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The vLLM of a planned node as the module vllm_patch patches it, and the launch overrides of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import PATCH_ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import TABLES

ROLE = PATCH_ROLE


def options(plan: Plan, settings: PatchSettings, copy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options. ``copy``: the result of the step vllm_image_extract, {} without an image."""
    return {
        **_place(plan, copy),
        "patches": list(settings.vllm_patch_patches),
        "state": settings.vllm_patch_state,
        "mechanism": settings.vllm_patch_mechanism,
        "quantization": settings.quantization(plan.quantization),
        **({"capability": settings.vllm_patch_capability} if settings.vllm_patch_capability else {}),
    }


def _place(plan: Plan, copy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the place of vLLM: in the copy of an image, or in the environment."""
    if copy:
        probe = f"{plan.root}/images/{copy['image_id']}.gpu-probe.json"
        return {**{name: copy[name] for name in ("package_dir", "config_folder", "toolkit")}, "probe": probe}
    path = plan.runtime.path if isinstance(plan.runtime, Environment) else ""
    return {
        "python": f"{path}/bin/python",
        "probe": f"{path}/gpu-probe.json",
        "config_folder": f"{path}/{TABLES}",
    }


def overrides(compared: Mapping[str, Any], mounts: Any, present: bool) -> dict[str, Any]:
    """Return the launch overrides of a node's comparison. ``mounts``: those of the copy of an image. ``present``: no
    removal.

    A removal records no files, so that the overrides are empty after it. So are those of a node without a comparison,
    such as a fresh one in check mode.
    """
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

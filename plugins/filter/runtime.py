# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the requirements of a build, and kernels to compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def build_requirements(lock: str, tools: str) -> str:
    """Return the requirements file of vLLM's build environment: torch from the runtime's lock, and the tools."""
    from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements

    return requirements.requirements(str(lock), str(tools))


def build_text(stamp: Mapping[str, Any]) -> list[str]:
    """Return lines about a built wheel: its GPU code, its duration and the compiler cache."""
    from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import wheel

    return wheel.text(plain_data(stamp))


def kernels_to_compile(plan: Fact) -> dict[str, Any]:
    """Return the kernels to compile on the plan's node; see module_utils/kernels/plan.py, of_node()."""
    from ansible_collections.gb10.cluster.plugins.module_utils.kernels.plan import of_node

    return of_node(typed_plan(plan))


def required_gpu_checks(quantization: str) -> list[str]:
    """Return the checks of the GPU probe that stop a run for a model of this quantization."""
    from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe

    return gpu_probe.required(str(quantization))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "build_requirements": build_requirements,
            "build_text": build_text,
            "kernels_to_compile": kernels_to_compile,
            "required_gpu_checks": required_gpu_checks,
        }

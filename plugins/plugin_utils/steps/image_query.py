# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return the commands that query a container image.

Each command runs an unprivileged container without network, with the engine of the fact ``gb10_plan``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_ids, layers
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The results of module container_image that the role vllm_runtime registers.
_NAMED, _GOT, _BUILT = "__vllm_runtime_named", "__vllm_runtime_got", "__vllm_runtime_built"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``image``: The image's ID, or the name of an image of the plan below a layer. By default the plan's image that
    the role ``vllm_runtime`` found or provided on the head. The action then fails if this node knows another image
    of that name.
    ``python``: The interpreter inside the image that runs vLLM.
    """

    image: str | None = None
    python: str


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {argv, gpu_argv, releases_argv}; without ``image`` also {image_id, files, recorded}."""
    plan, image = step.plan(variables), given.image
    if image is None:
        return _of_head(step, plan, given.python, variables)
    return {"changed": False, **_commands(plan, image, given.python)}


def _of_head(step: Decision, plan: Plan, python: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image of the plan on the head, or a failure if the node knows another one."""
    head, name = plan.head.name, plan.runtime.image
    named = step.of_nodes(variables, [head, plan.node.name], _NAMED, {})
    fetched = step.of_nodes(variables, [head], _BUILT if plan.runtime.builds else _GOT, {})
    # In check mode nothing was fetched.
    image_id = str(named[head].get("image_id") or fetched[head].get("image_id") or "")
    recorded = plan.node.additions.get(overrides.IMAGE_ROLE, {}).get("files", {}).get(name, "")
    known = [recorded, named[plan.node.name].get("image_id") or ""]
    if problem := image_ids.problem(name, known, image_id, head, plan.node.name):
        return {"failed": True, "msg": problem}
    return {
        "changed": False,
        "image_id": image_id,
        "files": {name: image_id} if image_id else {},
        "recorded": bool(image_id) and image_id == recorded,
        **(_commands(plan, image_id, python) if image_id else {}),
    }


def _commands(plan: Plan, image: str, python: str) -> dict[str, Any]:
    # An ID is the result of another node. A name could be an argument of the engine.
    if image not in {build.base for build in plan.runtime.builds} and not layers.is_id(image):
        return {"failed": True, "msg": f"{image!r} is neither the ID of an image nor an image of the plan"}
    return {
        "argv": launch_argv.query_argv(plan, image, [python]),
        "gpu_argv": launch_argv.query_argv(plan, image, [python], gpu=True),
        "releases_argv": launch_argv.query_argv(plan, image, [python, "-c", layers.RELEASES]),
    }

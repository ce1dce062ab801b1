# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of image_query, which documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import layers
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Returns the commands that query an image in bare containers, on the controller."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {argv, gpu_argv, releases_argv}."""
        super().run(tmp, task_vars)
        arguments = self.arguments(image={"type": "str", "required": True}, python={"type": "str", "required": True})
        plan, image, python = self.plan(task_vars or {}), arguments["image"], arguments["python"]
        bases = {build.base for build in plan.runtime.builds}
        # An ID is the result of another node. A name could be an argument of the engine.
        if image not in bases and not layers.is_id(image):
            return {"failed": True, "msg": f"{image!r} is neither the ID of an image nor an image of the plan"}
        return {
            "changed": False,
            "argv": launch_argv.query_argv(plan, image, [python]),
            "gpu_argv": launch_argv.query_argv(plan, image, [python], gpu=True),
            "releases_argv": launch_argv.query_argv(plan, image, [python, "-c", layers.RELEASES]),
        }

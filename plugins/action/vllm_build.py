# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_build: it takes a build from the plan, and waits for it."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.spans import span
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

_TOOLS = Path(__file__).parents[2] / "roles/vllm_build/files/tools.lock"
#: The role's variables and the values of the plan that the module has under the same name.
_SETTINGS = ("jobs", "nvcc_threads", "ccache", "network", "while_serving", "timeout")
_PLANNED = ("name", "torch", "driver")
#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 60, 300


class ActionModule(Decision):
    """Runs the module, with O(planned) until the wheel is in the store."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's last result; with O(planned) also {folder, requirements} of the build environment."""
        arguments = plain_data(dict(self._task.args))
        if not arguments.pop("planned", False):
            return self.module(arguments, variables)
        plan, settings = self.plan(variables), self.variable(variables, "gb10_inputs")["settings"]
        text = requirements.requirements(self.file(plan.runtime.lock, variables), _TOOLS.read_text(encoding="utf-8"))
        # The build environment is named after its packages.
        folder = f"{plan.root}/build/environment-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        given = {**_options(plan, settings), **arguments, "folder": folder}
        result = self.module(given, variables)
        poll = Polling(partial(self.module, {**given, "wait": True}, variables), variables, _SHOWN, _SILENCE)
        if result.get("state") == "running" and not self.check_mode:
            for result in poll:
                if result.get("failed") or result["state"] != "running":
                    break
                if poll.due() is not None:
                    poll.show(f"vLLM is built, {span(poll.elapsed)}: {result['line']}")
        return {**result, "folder": folder, "requirements": text}


def _options(plan: Plan, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the module's options for the build of a plan. ``settings``: those of the role on the head."""
    store, build = f"{plan.root}/build", plan.build
    source = settings["vllm_build_source"].rpartition("/")[2]
    own = {
        each["variable"]: f"{store}/dependencies/{each['sha256'][:12]}/{each.get('folder', '')}".removesuffix("/")
        for each in settings["vllm_build_dependencies"]
    }
    optional = {"cuda_home": settings["vllm_build_cuda_home"], "runtime": getattr(plan.runtime, "link", "")}
    return {
        **{name: settings[f"vllm_build_{name}"] for name in _SETTINGS},
        **{name: getattr(build, name) for name in _PLANNED},
        **{name: value for name, value in optional.items() if value},
        "capabilities": list(build.capabilities),
        "store": store,
        "device": plan.stack.device,
        "cuda": str(plan.stack.cuda),
        "identity": f"{source} {build.identity}",
        "commit": build.identity.removeprefix("commit ") if build.identity.startswith("commit ") else "",
        "patches": [f"{store}/patches/{path.rpartition('/')[2]}" for path in settings["vllm_build_patches"]],
        "units": list(dict.fromkeys((plan.ranks_unit, paths.VLLM_UNIT))),
        "environment": {**settings["vllm_build_environment"], **own},
        "keep": settings["vllm_build_keep_releases"],
    }

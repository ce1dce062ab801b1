# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module nccl_build: it takes a build from the plan, and decides how a node uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import sources
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class ActionModule(Decision):
    """Runs the module, or with O(planned) or O(built) decides without a connection."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result; with O(planned) its options; with O(built) how the node uses the build."""
        arguments = plain_data(dict(self._task.args))
        built = arguments.get("built", "")
        if not built and not arguments.get("planned"):
            return self.module(arguments, variables)
        plan, settings = self.plan(variables), self.role_settings(variables, of_plan.NcclSettings)
        inventory = variables.get("inventory_dir") or ""
        if not built:
            return _planned(plan, settings, sources.patches_of_nccl(settings.nccl_sm121_build_patches, inventory))
        of_head = self.of_nodes(variables, [plan.head.name], built, {})[plan.head.name]
        return {"changed": False, **of_plan.use(plan, settings, bool(arguments["wanted"]), of_head)}


def _planned(plan: Plan, settings: of_plan.NcclSettings, files: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the module's options, or a failure for another source than the required one. ``files``: the patches."""
    sha256 = _sha256(settings.nccl_sm121_build_source) if settings.archive else ""
    if wrong := of_plan.wrong_archive(settings, sha256):
        return {"failed": True, "msg": wrong}
    try:
        patches = [{"name": file["name"], "text": Path(file["path"]).read_text(encoding="utf-8")} for file in files]
        found: Mapping[str, Any] = of_plan.build(plan, settings, sha256, patches)
    except (ProblemsError, OSError, UnicodeError) as error:
        return {"failed": True, "msg": str(error)}
    return {"changed": False, "archive": settings.archive, **found}


def _sha256(path: str) -> str:
    """Return the digest of a file on the controller, "" if it does not exist."""
    try:
        return io_file.sha256(str(Path(path).expanduser()))
    except FileNotFoundError:
        return ""

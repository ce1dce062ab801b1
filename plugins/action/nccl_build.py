# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module nccl_build: it knows the commits of NCCL's tags."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import tags


class ActionModule(ActionBase):
    """Runs the module, or with O(tag) returns the commit without a connection."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result, or {commit}; a failure for an unknown tag."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if tag := str(arguments.pop("tag", "")):
            try:
                found = tags.commit(tag, str(arguments.get("commit", "")), str(arguments.get("repository", "")))
            except ProblemsError as error:
                return {"failed": True, "msg": str(error)}
            return {"changed": False, "commit": found}
        return dict(self._execute_module(module_args=arguments, task_vars=task_vars))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module root_files: it reads programs of this collection on the controller."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import program


class ActionModule(ActionBase):
    """Replaces each entry's program by its content."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {**self._task.args, "files": program.with_contents(self._task.args.get("files", []))}
        return {**result, **self._execute_module(module_args=arguments, task_vars=task_vars)}

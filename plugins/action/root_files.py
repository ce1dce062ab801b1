# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action behind the modules root_files and systemd_unit_info: it reads programs of this collection on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import program


class ActionModule(ActionBase):
    """Replaces each entry's program by its content."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        files = self._task.args.get("files", [])
        if not isinstance(files, list) or not all(isinstance(entry, dict) for entry in files):
            raise AnsibleActionFail("files: expected: a list of mappings with path and content, program or state")
        arguments = {**self._task.args, "files": [_with_content(entry) for entry in files]}
        result |= self._execute_module(module_args=arguments, task_vars=task_vars)
        return result


def _with_content(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of files as the module takes it. Raises AnsibleActionFail for a program that the collection does not have."""
    if "program" not in entry:
        return entry
    try:
        content = program.text(str(entry["program"]))
    except ValueError as error:
        raise AnsibleActionFail(f"files: program: {error}") from error
    return {**{key: value for key, value in entry.items() if key != "program"}, "content": content}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module systemd_unit_info: it compares with known facts without a connection."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed
from ansible_collections.gb10.cluster.plugins.plugin_utils import program


class ActionModule(ActionBase):
    """Replaces each entry's program by its content, and connects only if the service is not known."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        known, files = arguments.pop("known", {}), program.with_contents(arguments.get("files", []))
        name, unit = str(arguments.get("name")), arguments.get("unit")
        if unit and (service := known.get("services", {}).get(name)):
            planned = installed.unit_files(name, unit["text"], files)
            differs = not installed.has(known, arguments.get("directories", []), planned)
            compared = installed.compared(service, unit["inputs"], arguments.get("broken", ""), differs)
            return {**result, "changed": False, "service": service, "cause": "", **compared}
        return {**result, **self._execute_module(module_args={**arguments, "files": files}, task_vars=task_vars)}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of show, which documents it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import shown


class ActionModule(ActionBase):
    """Prints from the controller."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the printed lines."""
        super().run(tmp, task_vars)
        options = {"lines": {"type": "raw", "required": True}, "last": {"type": "bool", "default": False}}
        _result, arguments = self.validate_argument_spec(argument_spec=options)
        given = arguments["lines"]
        # A text of a list may be a node's, which must not begin a line.
        lines = shown(given if isinstance(given, str) else "\n".join(str(each).replace("\n", "\n  ") for each in given))
        # With -v, the result would repeat them.
        return {"changed": False, "msg": lines, "last": arguments["last"], "_ansible_verbose_override": True}

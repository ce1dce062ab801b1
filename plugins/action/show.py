# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of show, which documents it."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import color, printable

#: It prints the lines itself, because it knows the terminal and the end of the run.
_CALLBACK = "gb10.cluster.brief"


class ActionModule(ActionBase):
    """Prints from the controller, because a module's result is printed as JSON."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the printed lines."""
        super().run(tmp, task_vars)
        options = {"lines": {"type": "raw", "required": True}, "last": {"type": "bool", "default": False}}
        _result, arguments = self.validate_argument_spec(argument_spec=options)
        given = arguments["lines"]
        text = given if isinstance(given, str) else "\n".join(map(str, given))
        lines = [printable(line) for line in text.split("\n")]
        if constants.DEFAULT_STDOUT_CALLBACK != _CALLBACK:
            for line in lines:
                Display().display(f"  {line}".rstrip(), color=color(line))
        # With -v, the result would repeat them.
        return {"changed": False, "msg": lines, "last": arguments["last"], "_ansible_verbose_override": True}

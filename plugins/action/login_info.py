# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of login_info, which documents it."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_COMMAND = "ansible.builtin.command"


class ActionModule(Decision):
    """Logs in with the connection of the task. A node that refuses stays in the play."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {reason, sudo_free}."""
        if self.arguments(sudo={"type": "bool", "default": False})["sudo"]:
            # The smallest command, because only its rights matter.
            _found, reason = self.read(_COMMAND, {"argv": ["id", "-u"]}, variables)
            return {"changed": False, "reason": reason, "sudo_free": False}
        # become would ask for the password, or use one that sudo remembers.
        argv = ["sudo", "-n", "-k", "true"]
        try:
            result = self.module({"argv": argv}, variables, _COMMAND)
        except AnsibleError as error:
            return {"changed": False, "reason": str(error) or "no answer", "sudo_free": False}
        if result.get("rc") not in (0, 1):
            return {**result, "failed": True}
        return {"changed": False, "reason": "", "sudo_free": result["rc"] == 0}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module netplan_apply: it survives a change that cuts its host off."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.filter.core import to_nice_yaml
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import of_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Seconds after the timer's end until the host must be reachable again.
_GRACE_SECONDS = 60
#: The head of the netplan file, as Ansible's filter comment writes it.
_MANAGED = "#\n# Ansible managed\n#\n"


class ActionModule(Decision):
    """Runs the module. If the connection is lost, waits for the host and queries the result."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, or one with `problem` if the host was cut off.

        Raises AnsibleConnectionFailure if the host stays unreachable.
        """
        given = dict(self._task.args)
        if given.pop("planned", False):
            plan = self.plan(variables)
            content = _MANAGED + to_nice_yaml(dict(plan.node.netplan), indent=2)
            given |= of_plan.options(plan, self.role_settings(variables, of_plan.NetplanSettings), content)
        identifier = given.get("identifier") or secrets.token_hex(8)
        arguments = {**given, "identifier": identifier}
        begin = time.monotonic()
        try:
            return self.module(arguments, variables)
        except AnsibleConnectionFailure as error:
            # In check mode nothing changes, so the host is unreachable for another reason.
            if self.check_mode:
                raise
            lost = f"  {variables.get('inventory_hostname')}: connection lost during the change ({error})"
            Display().display(f"{lost}; waiting for its timer to restore the old configuration")
            end = begin + int(arguments.get("confirm_timeout", 120)) + _GRACE_SECONDS
            status = self._wait(identifier, end, variables)
        if status.get("failed"):
            return status
        answer = {"changed": False, "differences": [], "pending": "", "problem": ""}
        if status["pending"] == identifier:
            return {**answer, "changed": True, "pending": identifier}
        last = status["last"] if status["last"].get("id") == identifier else {"how": "never started"}
        away = f"{time.monotonic() - begin:.0f} s"
        problem = f"the change cut the host off for {away}; it was {last['how']}, and the old configuration is in place"
        return {**answer, "problem": problem}

    def _wait(self, identifier: str, deadline: float, variables: dict[str, Any]) -> dict[str, Any]:
        """Query the host until it responds."""
        asked = {"state": "read", "identifier": identifier}
        while True:
            status = self.reconnected(lambda: self.node("netplan_confirm", asked, variables), deadline)
            # A reachable host with a pending change was not cut off after all, or its rollback is still running.
            if status.get("failed") or status["pending"] != identifier or time.monotonic() > deadline:
                return status

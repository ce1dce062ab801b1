# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action behind the module netplan_change: it outlives a change that cuts its host off."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

#: Seconds beyond the timer's own that a host has to be reachable again.
_GRACE_SECONDS = 60
_PAUSE_SECONDS = 3


class ActionModule(ActionBase):
    """Runs the module; if the connection is lost, waits until the host is back and asks it what happened."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's answer, or one with `problem` where the host was cut off. Raises AnsibleConnectionFailure if it stays away."""
        super().run(tmp, task_vars)
        identifier = self._task.args.get("identifier") or secrets.token_hex(8)
        arguments = {**self._task.args, "identifier": identifier}
        begin = time.monotonic()
        try:
            return dict(self._execute_module(module_args=arguments, task_vars=task_vars))
        except AnsibleConnectionFailure as error:
            # Before the change has begun, this is any host that cannot be reached.
            if self._task.check_mode:
                raise
            name = (task_vars or {}).get("inventory_hostname")
            Display().display(f"  {name}: connection lost during the change ({error}); waiting for its timer to put the old configuration back")
            status = self._wait(identifier, begin + int(arguments.get("confirm_timeout", 120)) + _GRACE_SECONDS, task_vars)
        if status.get("failed"):
            return status
        answer = {"changed": False, "differences": [], "pending": "", "problem": ""}
        if status["pending"] == identifier:
            return {**answer, "changed": True, "pending": identifier}
        last = status["last"] if status["last"].get("id") == identifier else {"how": "never begun"}
        away = f"{time.monotonic() - begin:.0f} s"
        return {**answer, "problem": f"the change cut the host off for {away}; it was {last['how']}, and the old configuration is back"}

    def _wait(self, identifier: str, deadline: float, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Ask until the host answers."""
        while True:
            time.sleep(_PAUSE_SECONDS)
            try:
                self._connection.reset()
                status = self._execute_module(
                    module_name="gb10.cluster.netplan_confirm", module_args={"state": "read", "identifier": identifier}, task_vars=task_vars
                )
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise
                continue
            # Reachable though the change is pending: it did not cut the host off after all, or is still being put back.
            if status.get("failed") or status["pending"] != identifier or time.monotonic() > deadline:
                return dict(status)

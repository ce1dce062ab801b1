# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module netplan_apply: it survives a change that cuts its host off."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

#: Seconds after the timer's end until the host must be reachable again.
_GRACE_SECONDS = 60
_PAUSE_SECONDS = 3


class ActionModule(ActionBase):
    """Runs the module. If the connection is lost, waits for the host and queries the result."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result, or one with `problem` if the host was cut off.

        Raises AnsibleConnectionFailure if the host stays unreachable.
        """
        super().run(tmp, task_vars)
        identifier = self._task.args.get("identifier") or secrets.token_hex(8)
        arguments = {**self._task.args, "identifier": identifier}
        begin = time.monotonic()
        try:
            return dict(self._execute_module(module_args=arguments, task_vars=task_vars))
        except AnsibleConnectionFailure as error:
            # In check mode nothing changes, so the host is unreachable for another reason.
            if self._task.check_mode:
                raise
            name = (task_vars or {}).get("inventory_hostname")
            lost = f"  {name}: connection lost during the change ({error})"
            Display().display(f"{lost}; waiting for its timer to restore the old configuration")
            status = self._wait(
                identifier, begin + int(arguments.get("confirm_timeout", 120)) + _GRACE_SECONDS, task_vars
            )
        if status.get("failed"):
            return status
        answer = {"changed": False, "differences": [], "pending": "", "problem": ""}
        if status["pending"] == identifier:
            return {**answer, "changed": True, "pending": identifier}
        last = status["last"] if status["last"].get("id") == identifier else {"how": "never started"}
        away = f"{time.monotonic() - begin:.0f} s"
        problem = f"the change cut the host off for {away}; it was {last['how']}, and the old configuration is in place"
        return {**answer, "problem": problem}

    def _wait(self, identifier: str, deadline: float, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Query the host until it responds."""
        while True:
            time.sleep(_PAUSE_SECONDS)
            try:
                self._connection.reset()
                status = self._execute_module(
                    module_name="gb10.cluster.netplan_confirm",
                    module_args={"state": "read", "identifier": identifier},
                    task_vars=task_vars,
                )
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise
                continue
            # A reachable host with a pending change was not cut off after all, or its rollback is still running.
            if status.get("failed") or status["pending"] != identifier or time.monotonic() > deadline:
                return dict(status)

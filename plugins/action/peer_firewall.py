# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action behind the module peer_firewall: it confirms new rules over a new SSH connection, because an old one would live on anyhow."""

from __future__ import annotations

import re
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

#: Seconds beyond the timer's own that a host has to be reachable again.
_GRACE_SECONDS = 30
_PAUSE_SECONDS = 3
#: sshd's variable SSH_CONNECTION: the client's address and port, the server's address and port.
_CONNECTION = re.compile(r"^(\S+) (\d+) \S+ \d+\s*$", re.MULTILINE)


class ActionModule(ActionBase):
    """Runs the module, and where that loaded new rules, once more through a connection that they have to let in."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's answer; failed if the host was cut off, and then its rules are gone again. Raises AnsibleConnectionFailure."""
        super().run(tmp, task_vars)
        begin = time.monotonic()
        first = self._connected()
        answer = dict(self._execute_module(module_args={**self._task.args, "client": first[0]}, task_vars=task_vars))
        if not answer.get("pending"):
            return answer
        timeout = int(self._task.args.get("confirm_timeout", 60))
        try:
            self._connection.reset()
            again = self._connected()
            if again == first:
                message = (
                    f"The new rules were not confirmed, and the host takes them back within {timeout} s: Ansible's connection from {first[0]} port "
                    f"{first[1]} is an old one, which they could not have refused. Fix: leave ControlMaster and ControlPath of SSH to Ansible."
                )
                return {**answer, "changed": False, "pending": False, "failed": True, "msg": message}
            confirmed = dict(self._execute_module(module_args={**self._task.args, "client": again[0], "confirm": True}, task_vars=task_vars))
        except AnsibleConnectionFailure as error:
            Display().display(f"  no new connection to the host ({error}); waiting until it has taken the new rules back")
            self._wait(begin + timeout + _GRACE_SECONDS, task_vars)
            message = f"The new rules cut the host off, and it took them back: {error}"
            return {**answer, "changed": False, "pending": False, "failed": True, "msg": message}
        if confirmed.get("failed"):
            return confirmed
        return {**answer, "pending": False}

    def _connected(self) -> tuple[str, str]:
        """Return address and port of the SSH client by which commands reach the host now, ("", "") where none does."""
        # Without SSH it would be the variable of the shell that Ansible runs in.
        if not re.search("ssh|paramiko", self._connection.transport):
            return "", ""
        said = self._low_level_execute_command('printf "%s\\n" "$SSH_CONNECTION"', sudoable=False)
        found = _CONNECTION.findall(said["stdout"])
        return found[-1] if found else ("", "")

    def _wait(self, deadline: float, task_vars: dict[str, Any] | None) -> None:
        """Wait until the host lets in again."""
        while True:
            time.sleep(_PAUSE_SECONDS)
            try:
                self._connection.reset()
                self._execute_module(module_name="ansible.builtin.ping", module_args={}, task_vars=task_vars)
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise
                continue
            return

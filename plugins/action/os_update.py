# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of os_update: calls the module on the host, and waits for the host after a boot."""

from __future__ import annotations

import re
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Seconds between two attempts to connect, and between two messages about the wait.
_PAUSE_SECONDS, _SHOWN_SECONDS = 5, 60
_BOOT = re.compile(r"[0-9a-f-]{36}")


class ActionModule(Decision):
    """Connects again until the host has booted."""

    planned = False

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result; failed if the host does not come back. Raises AnsibleConnectionFailure."""
        given = dict(self._task.args)
        answer = self.module(given, variables)
        if answer.get("failed") or not (former := answer.get("boot_id")):
            return answer
        began, limit = time.monotonic(), float(answer["timeout"])
        host = variables["inventory_hostname"]
        while (waited := time.monotonic() - began) < limit:
            if int(waited) // _SHOWN_SECONDS != int(max(0.0, waited - _PAUSE_SECONDS)) // _SHOWN_SECONDS:
                Display().display(f"  {host} boots for {waited:.0f} s, of at most {limit:.0f} s")
            time.sleep(_PAUSE_SECONDS)
            if self._boot() not in ("", former):
                return {**answer, "seconds": round(time.monotonic() - began)}
        message = (
            f"{host} does not answer {limit:.0f} s after its reboot. Expected: a boot. Fix: look at its screen. Switch "
            "it off and on: the former kernel then starts. Then run the playbook again, which reports what started."
        )
        return {**answer, "failed": True, "msg": message}

    def _boot(self) -> str:
        """Return the ID of the host's boot, "" while it does not answer."""
        try:
            self._connection.reset()
            found = self._low_level_execute_command("cat /proc/sys/kernel/random/boot_id", sudoable=False)
        except AnsibleConnectionFailure:
            return ""
        text = found["stdout"].strip()
        return text if found["rc"] == 0 and _BOOT.fullmatch(text) else ""

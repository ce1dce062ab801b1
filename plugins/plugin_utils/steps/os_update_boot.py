# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boot the newest kernel of a node once, and connect again until the node has booted."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Seconds between two attempts to connect, and between two messages about the wait.
_PAUSE_SECONDS, _SHOWN_SECONDS = 5, 60
_BOOT = re.compile(r"[0-9a-f-]{36}")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``timeout``: Maximum seconds until the node answers.
    """

    timeout: int


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``os_update`` with {seconds: from the order to the first answer}, none in check mode.

    Failed if the node does not come back. Raises AnsibleConnectionFailure.
    """
    answer = step.node("os_update", {"step": "boot"}, variables)
    if answer.get("failed") or not (former := answer.get("boot_id")):
        return answer
    began, host = time.monotonic(), variables["inventory_hostname"]
    while (waited := time.monotonic() - began) < given.timeout:
        if int(waited) // _SHOWN_SECONDS != int(max(0.0, waited - _PAUSE_SECONDS)) // _SHOWN_SECONDS:
            Display().display(f"  {host} boots for {waited:.0f} s, of at most {given.timeout} s")
        time.sleep(_PAUSE_SECONDS)
        if _boot(step) not in ("", former):
            return {**answer, "seconds": round(time.monotonic() - began)}
    message = (
        f"{host} does not answer {given.timeout} s after its reboot. Expected: a boot. Fix: look at its screen. Switch "
        "it off and on: the former kernel then starts. Then run the playbook again, which reports what started."
    )
    return {**answer, "failed": True, "msg": message}


def _boot(step: Decision) -> str:
    """Return the ID of the node's boot, "" while it does not answer."""
    try:
        step._connection.reset()
        found = step._low_level_execute_command("cat /proc/sys/kernel/random/boot_id", sudoable=False)
    except AnsibleConnectionFailure:
        return ""
    text = found["stdout"].strip()
    return text if found["rc"] == 0 and _BOOT.fullmatch(text) else ""

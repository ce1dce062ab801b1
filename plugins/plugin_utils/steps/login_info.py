# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Log in to a machine and run sudo, without a failure if it refuses.

Logs in as the task's connection does, and verifies whether sudo needs a password.
With ``sudo``, runs a command with ``become`` of the task instead.
In check mode, only a task with ``check_mode: false`` logs in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_COMMAND = "ansible.builtin.command"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``sudo``: Whether to verify ``become`` of the task.
    """

    sudo: bool = False


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {reason, sudo_free}."""
    if given.sudo:
        # The smallest command, because only its rights matter.
        _found, reason = step.read(_COMMAND, {"argv": ["id", "-u"]}, variables)
        return {"changed": False, "reason": reason, "sudo_free": False}
    # become would ask for the password, or use one that sudo remembers.
    argv = ["sudo", "-n", "-k", "true"]
    try:
        result = step.module({"argv": argv}, variables, _COMMAND)
    except AnsibleError as error:
        return {"changed": False, "reason": str(error) or "no answer", "sudo_free": False}
    if result.get("rc") not in (0, 1):
        return {**result, "failed": True}
    return {"changed": False, "reason": "", "sudo_free": result["rc"] == 0}

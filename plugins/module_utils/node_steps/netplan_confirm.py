# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Confirm a change of the network configuration by ``netplan_apply``, or roll it back at once.

Without confirmation, a timer restores the old configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``state``: Whether to keep the change, to roll it back, or only to read its state.
    ``identifier``: The change, the result ``pending`` of ``netplan_apply``. Without it, any waiting change is rolled
    back, and none is confirmed.
    """

    state: str = field(default="confirmed", metadata={"choices": ["confirmed", "restored", "read"]})
    identifier: str = ""


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {pending, last}, also with a failure.

    ``pending``: The change that still waits for confirmation, "" if none.
    ``last``: The last change as {id, how, time}, empty before the first one.
    """
    state, waiting = given.state, _waiting()
    identifier = given.identifier or (waiting if state == "restored" else "")
    changed = state != "read" and identifier != "" and waiting == identifier
    if changed and not module.check_mode:
        command = runner(module)
        changed = (
            io_rollback.confirm(command, identifier)
            if state == "confirmed"
            else io_rollback.restore(command, "restored at once")
        )
    last = io_rollback.read(io_rollback.LAST) or {}
    answer = {"pending": _waiting(), "last": last}
    if state == "confirmed" and not changed and (last.get("id"), last.get("how")) != (identifier, "confirmed"):
        how = f"{last['how']} at {last['time']}" if last.get("id") == identifier else "unknown here"
        message = f"The change {identifier} cannot be confirmed, because it is {how}."
        return {"failed": True, "msg": message, **answer}
    diff = {"before": "", "after": f"{state} {identifier}\n" if changed else ""}
    return {"changed": changed, **answer, "diff": diff}


def _waiting() -> str:
    return str((io_rollback.read(io_rollback.PENDING) or {"id": ""})["id"])

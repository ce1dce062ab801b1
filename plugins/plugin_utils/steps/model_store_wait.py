# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait until a node has its model, and show the transferred bytes and the rate.

Polls ``model_store_info`` on the node. Does not fail, so that a play can report the errors of all nodes together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines.
_SHOWN = 15
#: Seconds without a response until a node counts as unreachable.
_SILENCE = 60


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``folder``: The model's folder.
    ``unit``: The unit that copies the model to this node.
    ``status``: The unit's status file.
    ``timeout``: Maximum wait in seconds.
    """

    folder: str
    unit: str
    status: str
    timeout: int


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {reason}: why the node does not have the model, also for an unreachable node; "" if it does."""
    asked = {"folder": given.folder, "unit": given.unit, "status": given.status}
    poll = Polling(partial(step.module, asked, variables, "gb10.cluster.model_store_info"), variables, _SHOWN, _SILENCE)
    reason, done = None, 0
    try:
        for info in poll:
            if (reason := _end(info, given.unit)) is not None:
                break
            progress = info["progress"]
            if poll.elapsed > given.timeout:
                reason = f"timeout after {poll.elapsed:.0f} s, {model_store_plan.line(progress, 0, 0)}"
                break
            if (seconds := poll.due()) is not None:
                poll.show(model_store_plan.line(progress, done, seconds))
                done = progress["done"]
    except AnsibleConnectionFailure as error:
        return {"changed": False, "reason": f"{poll.host} is no longer reachable: {' '.join(str(error).split())}"}
    return {"changed": False, "reason": f"{poll.host}: {reason}" if reason else ""}


def _end(info: Mapping[str, Any], unit: str) -> str | None:
    """Return why the transfer failed, "" if the model is complete, None while it runs."""
    if info.get("failed"):
        return str(info.get("msg"))
    progress = info["progress"]
    if progress["state"] in ("complete", "failed"):
        return str(progress["reason"])
    if progress["active"] in ("failed", "inactive"):
        return f"{unit} has stopped. Fix: see journalctl -u {unit}"
    return None

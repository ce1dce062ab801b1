# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module model_store_wait, which contains its documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines.
_SHOWN = 15
#: Seconds without a response until a node counts as unreachable.
_SILENCE = 60


class ActionModule(ActionBase):
    """Polls the unit from the controller."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {changed, reason}."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            argument_spec={
                "folder": {"type": "path", "required": True},
                "unit": {"type": "str", "required": True},
                "status": {"type": "path", "required": True},
                "timeout": {"type": "int", "required": True},
            }
        )
        asked = {key: arguments[key] for key in ("folder", "unit", "status")}
        call = partial(
            self._execute_module, module_name="gb10.cluster.model_store_info", module_args=asked, task_vars=task_vars
        )
        poll = Polling(call, task_vars, _SHOWN, _SILENCE)
        try:
            reason = _wait(poll, arguments["unit"], arguments["timeout"])
        except AnsibleConnectionFailure as error:
            reason = f"{poll.host} is no longer reachable: {' '.join(str(error).split())}"
        return {"changed": False, "reason": reason}


def _wait(poll: Polling, unit: str, timeout: int) -> str:
    """Return why the transfer failed, "" if the model is complete."""
    done = 0
    for info in poll:
        if info.get("failed"):
            return f"{poll.host}: {info.get('msg')}"
        progress = info["progress"]
        if progress["state"] == "complete":
            return ""
        if progress["state"] == "failed":
            return f"{poll.host}: {progress['reason']}"
        if progress["active"] in ("failed", "inactive"):
            return f"{poll.host}: {unit} has stopped. Fix: see journalctl -u {unit}"
        if (seconds := poll.due()) is not None:
            poll.show(model_store_plan.line(progress, done, seconds))
            done = progress["done"]
        if poll.elapsed > timeout:
            return f"{poll.host}: timeout after {poll.elapsed:.0f} s, {model_store_plan.line(progress, 0, 0)}"
    raise AssertionError("polling has no end")

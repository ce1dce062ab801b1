# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module vllm_build_wait, which contains its documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines.
_SHOWN = 60
#: Seconds without a response until the host counts as unreachable. The build continues there.
_SILENCE = 300


class ActionModule(ActionBase):
    """Polls the unit from the controller."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {changed, line}, or a failure with the reason."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            argument_spec={"store": {"type": "path", "required": True}, "name": {"type": "str", "required": True}}
        )
        call = partial(
            self._execute_module, module_name="gb10.cluster.vllm_build_info", module_args=arguments, task_vars=task_vars
        )
        poll = Polling(call, task_vars, _SHOWN, _SILENCE)
        try:
            return next(result for info in poll if (result := _result_of(info, poll, arguments["store"])))
        except AnsibleConnectionFailure as error:
            reason = " ".join(str(error).split())
            return {
                "failed": True,
                "msg": f"{poll.host} is no longer reachable: {reason}. The build continues. Fix: run again",
            }


def _result_of(info: dict[str, Any], poll: Polling, store: str) -> dict[str, Any]:
    """Return the result of an ended build, {} while it runs."""
    if info.get("failed"):
        return {"failed": True, "msg": f"{poll.host}: {info.get('msg')}"}
    progress = info["progress"]
    if progress["state"] == "finished":
        return {"changed": False, "line": progress["line"]}
    if progress["state"] != "running":
        fix = (
            f"Fix: see {store}/build.log on {poll.host}, then run again. Finished objects are reused; the runtime "
            "is unchanged"
        )
        return {"failed": True, "msg": f"The build of vLLM on {poll.host} ended: {progress['reason']}\n{fix}."}
    if poll.due() is not None:
        poll.show(progress["line"])
    return {}

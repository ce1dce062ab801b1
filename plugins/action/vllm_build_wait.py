# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module vllm_build_wait, which contains its documentation."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

#: Seconds between queries, and between progress lines.
_PAUSE, _SHOWN = 5, 60
#: Seconds without a response until the host counts as unreachable. The build continues there.
_SILENCE = 300


class ActionModule(ActionBase):
    """Polls the unit from the controller, because a module cannot show output while it runs."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {changed, line}, or a failure with the reason."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            argument_spec={"store": {"type": "path", "required": True}, "name": {"type": "str", "required": True}}
        )
        name = (task_vars or {}).get("inventory_hostname")
        heard, shown = time.monotonic(), 0.0
        while True:
            try:
                info = self._execute_module(module_name="gb10.cluster.vllm_build_info", module_args=arguments, task_vars=task_vars)
            except AnsibleConnectionFailure as error:
                if time.monotonic() - heard > _SILENCE:
                    reason = " ".join(str(error).split())
                    return {"failed": True, "msg": f"{name} is no longer reachable: {reason}. The build continues. Fix: run again"}
                time.sleep(_PAUSE)
                continue
            heard = time.monotonic()
            if info.get("failed"):
                return {"failed": True, "msg": f"{name}: {info.get('msg')}"}
            progress = info["progress"]
            if progress["state"] == "finished":
                return {"changed": False, "line": progress["line"]}
            if progress["state"] != "running":
                log = f"{arguments['store']}/build.log"
                fix = f"Fix: see {log} on {name}, then run again. Finished objects are reused; the runtime is unchanged"
                return {"failed": True, "msg": f"The build of vLLM on {name} ended: {progress['reason']}\n{fix}."}
            if heard - shown >= _SHOWN:
                Display().display(f"  {name}: {progress['line']}")
                shown = heard
            time.sleep(_PAUSE)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action behind the module model_store_wait: its documentation is there."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store

#: Seconds between questions; fewer at first, so that a small model does not wait long.
_PAUSE = 5
_FIRST = 1
#: Between the lines that are shown.
_SHOWN = 15
#: Of a node that does not answer, until it counts as gone.
_SILENCE = 60


class ActionModule(ActionBase):
    """Polls the unit from the controller, because a module cannot speak before it ends."""

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
        name = (task_vars or {}).get("inventory_hostname")
        begin = shown = heard = time.monotonic()
        done = -1
        while True:
            try:
                info = self._execute_module(
                    module_name="gb10.cluster.model_store_info",
                    module_args={key: arguments[key] for key in ("folder", "unit", "status")},
                    task_vars=task_vars,
                )
            except AnsibleConnectionFailure as error:
                if time.monotonic() - heard > _SILENCE:
                    return {"changed": False, "reason": f"{name} cannot be reached any more: {' '.join(str(error).split())}"}
                time.sleep(_PAUSE)
                continue
            now = heard = time.monotonic()
            if info.get("failed"):
                return {"changed": False, "reason": f"{name}: {info.get('msg')}"}
            progress = info["progress"]
            if progress["state"] == "complete":
                return {"changed": False, "reason": ""}
            if progress["state"] == "failed":
                return {"changed": False, "reason": f"{name}: {progress['reason']}"}
            if progress["active"] in ("failed", "inactive"):
                return {"changed": False, "reason": f"{name}: {arguments['unit']} has ended. Its log: journalctl -u {arguments['unit']}"}
            if done < 0 or now - shown >= _SHOWN:
                Display().display(f"  {name}: {model_store.line(progress, max(done, 0), now - shown if done >= 0 else 0)}")
                done, shown = progress["done"], now
            if now - begin > arguments["timeout"]:
                return {"changed": False, "reason": f"{name}: after {now - begin:.0f} s, {model_store.line(progress, 0, 0)}"}
            time.sleep(_FIRST if now - begin < _PAUSE else _PAUSE)

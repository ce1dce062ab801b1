# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module model_store_wait, which contains its documentation."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store

#: Seconds between queries; shorter at first, so that a small model does not wait long.
_PAUSE = 5
_FIRST = 1
#: Seconds between progress lines.
_SHOWN = 15
#: Seconds without a response until a node counts as unreachable.
_SILENCE = 60


class ActionModule(ActionBase):
    """Polls the unit from the controller, because a module cannot show output while it runs."""

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
                    return {
                        "changed": False,
                        "reason": f"{name} is no longer reachable: {' '.join(str(error).split())}",
                    }
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
                unit = arguments["unit"]
                return {"changed": False, "reason": f"{name}: {unit} has stopped. Fix: see journalctl -u {unit}"}
            if done < 0 or now - shown >= _SHOWN:
                Display().display(f"  {name}: {model_store.line(progress, max(done, 0), now - shown if done >= 0 else 0)}")
                done, shown = progress["done"], now
            if now - begin > arguments["timeout"]:
                line = model_store.line(progress, 0, 0)
                return {"changed": False, "reason": f"{name}: timeout after {now - begin:.0f} s, {line}"}
            time.sleep(_FIRST if now - begin < _PAUSE else _PAUSE)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module flashinfer_kernels, which contains its documentation."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

#: Seconds between steps, and between progress lines; and without a response until the host counts as unreachable.
_PAUSE, _SHOWN, _SILENCE = 5, 30, 300


class ActionModule(ActionBase):
    """Repeats the module until the kernels are stored, because a module cannot show output while it runs."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's last result."""
        super().run(tmp, task_vars)
        begin = heard = shown = time.monotonic()
        changed = False
        while True:
            try:
                result: dict[str, Any] = self._execute_module(module_name="gb10.cluster.flashinfer_kernels", task_vars=task_vars)
            except AnsibleConnectionFailure:
                if time.monotonic() - heard > _SILENCE:
                    raise
                time.sleep(_PAUSE)
                continue
            heard = time.monotonic()
            changed = changed or bool(result.get("changed"))
            if result.get("failed") or result.get("state") != "running":
                return {**result, "changed": changed}
            if heard - shown >= _SHOWN:
                host = (task_vars or {}).get("inventory_hostname")
                Display().display(f"  {host}: FlashInfer: {result['line']}, {heard - begin:.0f} s")
                shown = heard
            time.sleep(_PAUSE)

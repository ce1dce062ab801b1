# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module flashinfer_kernels, which contains its documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 30, 300


class ActionModule(ActionBase):
    """Repeats the module until the kernels are stored."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's last result."""
        super().run(tmp, task_vars)
        call = partial(self._execute_module, module_name="gb10.cluster.flashinfer_kernels", task_vars=task_vars)
        poll, changed = Polling(call, task_vars, _SHOWN, _SILENCE), False
        for result in poll:
            changed = changed or bool(result.get("changed"))
            if result.get("failed") or result.get("state") != "running":
                return {**result, "changed": changed}
            if poll.due() is not None:
                poll.show(f"FlashInfer: {result['line']}, {poll.elapsed:.0f} s")
        raise AssertionError("polling has no end")

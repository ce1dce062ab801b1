# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module flashinfer_kernels, which contains its documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import plan as kernels_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 30, 300


class ActionModule(Decision):
    """Repeats the module until the kernels are stored."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's last result; with O(planned) also {shared}."""
        arguments, more = dict(self._task.args), dict[str, Any]()
        if arguments.pop("planned", False):
            plan = self.plan(variables)
            found = kernels_plan.of_node(plan)
            if not found:
                return {"changed": False, "state": "none", "line": "nothing to compile", "modules": {}, "shared": False}
            arguments |= found
            of_head = kernels_plan.of_node(plan.at(plan.nodes[0])).get("name", "")
            more["shared"] = not plan.node.head and found["name"] == of_head
        call = partial(self.module, arguments, variables)
        poll, changed = Polling(call, variables, _SHOWN, _SILENCE), False
        for result in poll:
            changed = changed or bool(result.get("changed"))
            if result.get("failed") or result.get("state") != "running":
                return {**result, **more, "changed": changed}
            if poll.due() is not None:
                poll.show(f"FlashInfer: {result['line']}, {poll.elapsed:.0f} s")
        raise AssertionError("polling has no end")

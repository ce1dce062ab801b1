# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action step: it runs a decision of a role on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps
from ansible_collections.gb10.cluster.plugins.plugin_utils import steps
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class ActionModule(Decision):
    """Gives the step its typed inputs, and this action to read variables, results and modules with."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the step's result."""
        given = dict(self._task.args)
        name = str(given.pop("name", ""))
        try:
            entry = io_steps.entry(steps.__name__, name)
            inputs, _secrets = io_steps.inputs(entry.Inputs, plain_data(given.pop("inputs", {})))
        except ValueError as error:
            raise AnsibleActionFail(f"step {name}: {error}") from error
        self.trusted, self.planned = getattr(entry, "TRUSTED", True), getattr(entry, "PLANNED", True)
        result: dict[str, Any] = entry.run(self, inputs, variables)
        return result

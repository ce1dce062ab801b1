# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module gateway_info: the gateway's place, and what people read about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import report
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class ActionModule(Decision):
    """Adds texts to the module's result."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result and {lines, example, client_settings, place, refusal}."""
        arguments = plain_data(self._task.args)
        client, models = str(arguments.get("new_client", "")), arguments.get("new_client_models", [])
        place = gateway.place(self, variables)
        options = {"url": place["url"], "server_name": place["server_name"], **arguments}
        state: dict[str, Any] = self.module(options, variables)
        if state.get("failed"):
            return state
        return {
            **state,
            "lines": report.lines(state, place["endpoint"]),
            "example": report.example(state, place, str(variables["inventory_hostname"]), self._inventories(variables)),
            "client_settings": report.client_settings(place["endpoint"], state["models"]),
            "place": {
                **{name: place[name] for name in ("url", "server_name")},
                "interval": gateway.number(self, variables, "health_interval"),
            },
            "refusal": report.refusal(state, client, models) if client else "",
        }

    def _inventories(self, variables: Mapping[str, Any]) -> list[str]:
        """Return the files and folders of this run's inventory."""
        return [os.path.relpath(str(each)) for each in variables.get("ansible_inventory_sources") or ()]

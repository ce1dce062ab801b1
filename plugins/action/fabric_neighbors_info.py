# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module fabric_neighbors_info: it validates the answer, and keeps a machine without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import machines
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Returns nothing of the untrusted answer but the fields that it validated."""

    trusted = False

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {machine}, also if the machine cannot be queried."""
        arguments = self.arguments(machine={"type": "dict", "default": {}}, direct={"type": "bool", "default": False})
        machine = arguments["machine"] or self._host(variables)
        if arguments["direct"]:
            if machine["observed"].get("management"):
                machine["direct"] = self.read("ansible.builtin.ping", {}, variables)[1]
        elif plan.can_be_queried(machine):
            answer, reason = self.read("gb10.cluster.fabric_neighbors_info", {}, variables)
            # An empty answer would be that of a machine which was not queried.
            machine = plan.answered(machine, {**answer, "changed": False}, reason)
        else:
            machine = plan.answered(machine, {}, plan.NO_HOST_KEY)
        return {"changed": False, "machine": machines.validated(machine), "_ansible_verbose_override": True}

    def _host(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's host as a machine of discovery, not yet queried."""
        login = machines.login(self, variables)
        return {
            "name": variables["inventory_hostname"],
            "address": self.address(variables),
            "login": {**login, "local": self._connection.transport == "local"},
            "unreachable": "",
            "observed": {},
        }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of access_report, which documents it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import report
from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The registered results of the role access, in the order of report.of_results.
_RESULTS = ("__access_host_key", "__access_login", "__access_password", "__access_sudo")


class ActionModule(Decision):
    """Reads the results of all nodes on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the values for the purpose, or a failure with the problems of all nodes."""
        arguments = self.arguments(
            nodes={"type": "list", "elements": "str", "required": True},
            purpose={"type": "str", "choices": ["host_keys", "logins", "inventory"], "required": True},
        )
        found = [self.of_nodes(variables, arguments["nodes"], name, {}) for name in _RESULTS]
        nodes = [report.of_results(*(results[name] for results in found)) for name in arguments["nodes"]]
        return {"changed": False, **_PURPOSES[arguments["purpose"]](nodes)}


def host_keys(nodes: Sequence[report.Node]) -> dict[str, Any]:
    """Return the host keys that known_hosts does not have, or a failure."""
    if found := report.host_key_problems(nodes):
        return {"failed": True, "msg": problems.report(found)}
    return {"unknown": report.unknown(nodes)}


def logins(nodes: Sequence[report.Node]) -> dict[str, Any]:
    """Return lines about the access to each node, or a failure."""
    if found := report.login_problems(nodes):
        return {"failed": True, "msg": report.report(found, len(nodes))}
    return {"lines": report.lines(nodes)}


def written(nodes: Sequence[report.Node]) -> dict[str, Any]:
    """Return the inventory of the nodes, and what to append to a command."""
    options = "" if all(node["sudo_free"] for node in nodes) else "-K"
    return {"text": inventory.of_addresses(nodes), "options": options}


_PURPOSES = {"host_keys": host_keys, "logins": logins, "inventory": written}

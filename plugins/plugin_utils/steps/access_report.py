# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge the access of the controller to all nodes.

Reads the results that tasks of the role access registered on the nodes.
Fails with the problems of all nodes, each with the fix for its cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import report
from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The registered results of the role access, in the order of report.of_results.
_RESULTS = ("__access_host_key", "__access_login", "__access_password", "__access_sudo")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The names of the nodes.
    ``purpose``: host_keys finds machines that give no host key, or another one than known_hosts has. logins finds
    nodes without a login by key or without sudo. inventory returns an inventory of the nodes, and finds nothing.
    """

    nodes: Sequence[str]
    purpose: str = field(metadata={"choices": ["host_keys", "logins", "inventory"]})


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the values for the purpose, or a failure with the problems of all nodes."""
    found = [step.of_nodes(variables, given.nodes, name, {}) for name in _RESULTS]
    nodes = [report.of_results(*(results[name] for results in found)) for name in given.nodes]
    return {"changed": False, **_PURPOSES[given.purpose](nodes)}


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

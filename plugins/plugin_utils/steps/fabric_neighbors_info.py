# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the neighbors on a machine's QSFP cables, or verify only the login.

The answer of a machine at the other end of a cable is untrusted: only the fields that are valid are returned.
A machine that cannot be queried is no failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.discovery import answer, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import machines
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

TRUSTED = False


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``machine``: The machine to query, if it was found on a cable, as ``discovery_plan`` returns it. The default is the
    host, with its login settings for ssh.
    ``direct``: Whether to verify only the login, for a host with the management address of ``machine``.
    """

    machine: Mapping[str, Any] = field(default_factory=dict)
    direct: bool = False


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {machine: {name, address, login, unreachable, invalid, direct, observed}}.

    ``address``: On a cable with the interface of the machine that sees it.
    ``login``: The ``user``, ``key``, ``port`` and ``arguments`` of ssh, and whether it is the controller, ``local``.
    ``unreachable``: Why it could not be queried, else "".
    ``invalid``: Each problem of its answer.
    ``direct``: Why the controller does not reach its management address, else "". Only for a machine on a cable.
    ``observed``: The result of the node's step of this name, empty without one or with a problem.
    """
    machine = dict(given.machine) or _host(step, variables)
    if given.direct:
        if machine["observed"].get("management"):
            machine["direct"] = step.read("ansible.builtin.ping", {}, variables)[1]
    elif plan.can_be_queried(machine):
        found, reason = step.read_node("fabric_neighbors_info", {}, variables)
        # An empty answer would be that of a machine which was not queried.
        machine = plan.answered(machine, {**found, "changed": False}, reason)
    else:
        machine = plan.answered(machine, {}, plan.NO_HOST_KEY)
    return {"changed": False, "machine": answer.machine(machine), "_ansible_verbose_override": True}


def _host(step: Decision, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's host as a machine of discovery, not yet queried."""
    login = machines.login(step, variables)
    return {
        "name": variables["inventory_hostname"],
        "address": step.address(variables),
        "login": {**login, "local": step._connection.transport == "local"},
        "unreachable": "",
        "observed": {},
    }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the launch records of all nodes, and announce a rollback or an upgrade.

Compares the records that ``launch_record_info`` read on each node. A record counts only if its content has the digest
of its ID.
Fails with every reason why a rollback or an upgrade is not possible, and for an ID that names no record or several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history, plan, upgrade
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import RecordError
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The nodes of the cluster. Those that the run does not reach are left out, with a warning in the list.
    ``records``: The variable of each node with the registered result of ``launch_record_info``.
    ``purpose``: list lists the records, newest first, or shows the difference between ``older`` and ``newer``.
    failure decides whether the nodes can return to the last working launch after the errors in
    ``gb10_launch_problem``. rollback selects the record ``target``, and announces the return to it. upgrade
    announces the differences between the running launch and the fact ``gb10_plan``.
    ``older``: The first digits of the older record's ID; empty for the list.
    ``newer``: The first digits of the newer record's ID; empty for the list.
    ``target``: The first digits of the ID to return to; empty for the record before the current one.
    ``allowed``: Whether to roll back after a failure.
    ``prepared``: Whether the plan has the patches and NCCL of its runtime. If not, the running ones are assumed.
    """

    nodes: Sequence[str]
    records: str
    purpose: str = field(default="list", metadata={"choices": ["list", "failure", "rollback", "upgrade"]})
    older: str = ""
    newer: str = ""
    target: str = ""
    allowed: bool = False
    prepared: bool = False


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {lines, id, start, plan, former, former_start, due, why, end, lost, same_runtime}, or a failure."""
    found = _found(step, given, variables)
    # The plan and the starts would be longer than all other output of a run with -v.
    return {"changed": False, **found, "_ansible_verbose_override": True}


def _found(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> dict[str, Any]:
    nodes, purpose, older, newer = given.nodes, given.purpose, given.older, given.newer
    reached = [node for node in nodes if node in variables["ansible_play_hosts"]] if purpose == "list" else nodes
    results = step.of_nodes(variables, reached, given.records, {})
    if purpose == "failure":
        errors = step.of_nodes(variables, nodes, "gb10_launch_problem", "")
        failed = [{"name": node, "problem": errors[node], "record": results[node]} for node in nodes]
        return plan.judge(failed, step.plan(variables).model, given.allowed)
    refused = "" if purpose == "list" else f"The {purpose} is not possible; nothing was changed:\n"
    reported = history.verified(results)
    try:
        if purpose == "rollback":
            return history.target(reported, given.target)
        if purpose == "upgrade":
            return upgrade.announce(reported, step.plan(variables), given.prepared)
        lines = history.compared(reported, older, newer) if older or newer else history.lines(reported)
    except RecordError as error:
        return {"failed": True, "msg": f"{refused}{error}"}
    return {"lines": [*(f"warning: not read: {node}" for node in nodes if node not in reached), *lines]}

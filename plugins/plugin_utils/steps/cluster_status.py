# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the status of a node, also of one that does not answer, or turn that of all nodes into text.

Calls ``cluster_status_info`` with the address and key of ``gb10_inputs``. An unreachable node stays in the play.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.health import status
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import StatusNode
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The nodes of the cluster. With them, the action returns the text and connects to no node.
    """

    nodes: Sequence[str] = ()


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {node}, or {lines} of all nodes."""
    inputs = step.variable(variables, "gb10_inputs")
    if names := given.nodes:
        read = step.of_nodes(variables, names, "__gb10_status", {})
        nodes = [load.load(StatusNode, each["node"], name) for name, each in read.items()]
        model = catalog.find(inputs["model"], inputs["settings"]["gb10_models"])
        return {"changed": False, "lines": status.lines(nodes, model.reference)}
    host = variables["inventory_hostname"]
    head = host in step.variable(variables, "gb10_heads")
    options = {
        "url": inputs["api"]["url"] if head else "",
        "server_name": inputs["api"]["server_name"],
        "key_file": paths.API_KEY[0],
    }
    found, reason = step.read("gb10.cluster.cluster_status_info", options, variables)
    if held := (found.get("lock") or {}).get("held"):
        found["lock"]["ended"] = _ended(held)
    node = {"name": host, "head": head, "unreachable": reason, "facts": found, "client": inputs["client"]}
    return {"changed": False, "node": node}


def _ended(held: object) -> bool:
    """Whether a lock's run was one of this controller, and has ended. A node may answer anything."""
    try:
        return io_lock.ended(run_lock_plan.lock(held))
    except ValueError:
        return False

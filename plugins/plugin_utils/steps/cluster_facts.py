# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node for the plan, or its saved facts.

Calls ``node_info`` with options that follow from ``gb10_inputs`` of all nodes. With ``gb10_plan_offline``, it reads
the saved facts on the controller, or nothing for typical facts.
A node that cannot be read stays in the play, so that the plan lists it with all other problems.
Refuses a run that leaves out a node of the cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import collect
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """No inputs."""


def run(step: Decision, _given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {node}: the planner's input about the node without its settings."""
    host, nodes = variables["inventory_hostname"], step.variable(variables, "gb10_nodes")
    if missing := [node for node in nodes if node not in variables["ansible_play_hosts_all"]]:
        message = (
            f"This run leaves out {', '.join(missing)}. Expected: every node of the cluster. "
            "Fix: run without --limit. To run one role alone, use --tags."
        )
        return {"failed": True, "msg": message}
    if failed := [node for node in nodes if node not in variables["ansible_play_hosts"]]:
        return {"failed": True, "msg": f"The plan needs {', '.join(failed)}, which failed before: see above."}
    own = step.variable(variables, "gb10_inputs")
    heads, workers = (step.variable(variables, f"gb10_{group}") for group in ("heads", "workers"))
    node = {
        "name": host,
        "address": own["client"]["address"],
        "user": own["client"]["user"],
        "group": "head" if host in heads else "worker" if host in workers else "",
        "unreachable": "",
        "unrecorded": "",
        "typical": False,
        "read": 0,
        "observed": {},
        "queried": {},
    }
    found = {**node, **_found(step, node, own, variables)}
    return {"changed": False, "node": found, "_ansible_verbose_override": True}


def _found(
    step: Decision, node: Mapping[str, Any], own: Mapping[str, Any], variables: dict[str, Any]
) -> dict[str, Any]:
    """Return the facts that the plan's mode selects: the node's, the saved ones, or none."""
    # Boolean values are accepted for false and true.
    offline = str(own["settings"]["gb10_plan_offline"]).lower()
    if any(each["name"] == "gb10_plan_offline" for each in own["refused"]):
        # Its default would connect to the node.
        return {"typical": True}
    if offline == "false":
        return _read(step, node, own, variables)
    if offline != "true":
        return {"typical": offline == "typical"}
    # Its default refers to the inventory.
    folder = Path(str(step.variable(variables, "gb10_facts_dir"))).expanduser().resolve()
    path = f"{folder}/{node['name']}.json"
    text = step.file(path, variables)
    return {"observed": json.loads(text or "{}"), "unrecorded": "" if text else path}


def _read(step: Decision, node: Mapping[str, Any], own: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    head = node["group"] == "head"
    runtime = collect.runtime(own, step.file(own["settings"]["gb10_runtime_lock"], variables))
    observed, reason = step.read("gb10.cluster.node_info", collect.options(own, runtime, head), variables)
    found = {"read": time.time(), "unreachable": reason}
    if reason:
        return found
    observed = collect.facts(observed)
    queried = _queried(step, own, runtime, variables) if head and not own["known_release"] else {}
    return {**found, "observed": observed, "queried": queried}


def _queried(step: Decision, own: Mapping[str, Any], runtime: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {options, variables} of an installed vLLM that is newer than the table, {} without one."""
    mark, _reason = step.read("ansible.builtin.stat", {"path": f"{runtime}/.complete"}, variables)
    if not mark.get("stat", {}).get("exists"):
        return {}
    settings = own["settings"]
    prefix = confinement.query(str(settings["gb10_service_user"]), settings["gb10_service_read_write_paths"])
    python = [*prefix, f"{runtime}/bin/python"]
    answer, reason = step.read_node("vllm_arguments_info", {"python": python}, variables)
    if reason:
        raise AnsibleActionFail(reason)
    return {"options": answer["options"], "variables": answer["variables"]}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back from a model that does not start to the last one that answered.

Each node keeps a record of the last good start, written when a model has answered: ``{"start": {...}, "files": {path: {"text", "mode"}}}``,
with `start` as start() returns it, the same on all nodes, and the files that this node's services are started from. A start that failed
comes in as ``{"name": str, "problem": str, "record": {"start": {...} | {}, "differs": [path]}}`` for each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls as api_tls
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import node_checks
from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch

#: Where a node keeps its record.
RECORD = "/etc/gb10/good.json"
UNIT_FOLDER = "/etc/systemd/system"
#: In the order in which they are started; stopped in the other one.
UNITS = (node_checks.RAY_UNIT, node_checks.VLLM_UNIT)
#: What services are started from, beside the records in paths.FOLDER.
FILES = ("/etc/gb10/cluster.env", *(f"{UNIT_FOLDER}/{unit}" for unit in UNITS), secret_environment.FILE, *api_tls.FILES.values())


def start(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be known of a start to come back to it: {id, model, served_model_name, url, server_name, needs}.

    ``id`` is the same on all nodes, and another one whenever they are started from anything else.
    """
    return {
        "id": launch.start_digest(plan),
        "model": plan["model"],
        "served_model_name": plan["served_model_name"],
        "url": plan["api"]["url"],
        "server_name": plan["api"]["server_name"],
        "needs": dict(plan["serve"]["needs"]),
    }


def units(files: Mapping[str, Any]) -> list[str]:
    """Return the services that a record's files have, in the order in which they are started."""
    return [unit for unit in UNITS if f"{UNIT_FOLDER}/{unit}" in files]


def judge(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return {failed, start, why_not}: what failed, "" if nothing did; the start to go back to, {} if there is none; and why there is none."""
    failed = "\n".join(f"{node['name']}: {node['problem']}" for node in nodes if node["problem"])
    starts = [node["record"].get("start") or {} for node in nodes]
    without = [node["name"] for node, known in zip(nodes, starts, strict=True) if not known]
    why_not = ""
    if len(without) == len(nodes):
        why_not = "no model has answered here before"
    elif without:
        why_not = f"{', '.join(without)} {'was' if len(without) == 1 else 'were'} no part of the last good start"
    elif len({known["id"] for known in starts}) > 1:
        why_not = "the nodes remember different starts, as after a run that was killed"
    elif not any(node["record"]["differs"] for node in nodes):
        why_not = "what failed is the last good start itself"
    return {"failed": failed, "start": {} if why_not else dict(starts[0]), "why_not": why_not}


def message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str) -> str:
    """Return the last word of a run whose start failed. ``back``: why the old one does not answer either, "" if it does."""
    said = f"{model} could not be started:\n{verdict['failed']}\n"
    old = verdict["start"]
    if old and allowed:
        name = old["model"] + (" as it was started before" if old["model"] == model else "")
        if back:
            return f"{said}Went back to {name}, and that does not answer either: {back}"
        return f"{said}Went back to {name}, which answers again. A run that asks for {model} tries it anew."
    why = verdict["why_not"] or "vllm_serve_rollback is false"
    return f"{said}Nothing was started in its place: {why}."

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Roll back from a model that does not start to the last one that answered.

After a model answers, each node records the launch (record.py). A record's `start` is the same on all nodes.
A failed launch is ``{"name": str, "problem": str, "record": {"start": {...} | {}, "differs": [path]}}`` for each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def judge(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return {why, start, why_not}.

    ``why`` has the failures, or "". ``start`` is the launch to roll back to, or {}; then ``why_not`` has the reason.
    """
    failed = "\n".join(f"{node['name']}: {node['problem']}" for node in nodes if node["problem"])
    starts = [node["record"].get("start") or {} for node in nodes]
    without = [node["name"] for node, known in zip(nodes, starts, strict=True) if not known]
    why_not = ""
    if len(without) == len(nodes):
        why_not = "no model has answered on this cluster before"
    elif without:
        has = "has" if len(without) == 1 else "have"
        why_not = f"{', '.join(without)} {has} no record of the last good launch"
    elif any(known != starts[0] for known in starts):
        why_not = "the nodes have records of different launches, for example after a killed run"
    elif not any(node["record"]["differs"] for node in nodes):
        why_not = "the failed launch is the last good one"
    return {"why": failed, "start": {} if why_not else dict(starts[0]), "why_not": why_not}


def message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str) -> str:
    """Return the final message of a run whose launch failed. ``back``: why the rollback failed, or ""."""
    failure = f"{model} could not be started:\n{verdict['why']}\n"
    old = verdict["start"]
    if old and allowed:
        name = old["model"] + (" with its previous configuration" if old["model"] == model else "")
        if back:
            return f"{failure}The rollback to {name} failed: {back}"
        return f"{failure}Restored {name}. It answers again. The next run with {model} retries it."
    why = verdict["why_not"] or "vllm_serve_rollback is false"
    return f"{failure}No rollback: {why}."

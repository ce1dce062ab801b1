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


def judge(nodes: Sequence[Mapping[str, Any]], model: str, allowed: bool) -> dict[str, Any]:
    """Return {why, start, end, lost} of a failed launch of ``model``. ``allowed``: whether to roll back.

    ``why`` has the failures, or "". ``start`` is the launch to roll back to, or {}. ``end`` is the final message of the
    run; ``lost`` begins that of a run whose rollback failed, too.
    """
    why = "\n".join(f"{node['name']}: {node['problem']}" for node in nodes if node["problem"])
    failed = f"{model} could not be started:\n{why}\n"
    if why_not := _why_not(nodes) or ("" if allowed else "vllm_serve_rollback is false"):
        return {"why": why, "start": {}, "end": f"{failed}No rollback: {why_not}.", "lost": ""}
    start = nodes[0]["record"]["start"]
    name = start["model"] + (" with its previous configuration" if start["model"] == model else "")
    end = f"{failed}Restored {name}. It answers again. The next run with {model} retries it."
    return {"why": why, "start": dict(start), "end": end, "lost": f"{failed}The rollback to {name} failed: "}


def _why_not(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return why there is no launch to roll back to, "" if there is one."""
    starts = [node["record"].get("start") for node in nodes]
    without = [node["name"] for node, start in zip(nodes, starts, strict=True) if not start]
    if len(without) == len(nodes):
        return "no model has answered on this cluster before"
    if without:
        has = "has" if len(without) == 1 else "have"
        return f"{', '.join(without)} {has} no record of the last good launch"
    if any(start != starts[0] for start in starts):
        return "the nodes have records of different launches, for example after a killed run"
    return "" if any(node["record"]["differs"] for node in nodes) else "the failed launch is the last good one"

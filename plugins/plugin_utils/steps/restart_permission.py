# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse to change something that the ranks of a node use, when ``gb10_allow_restart`` is false."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``subject``: What changes, such as ``NCCL``.
    ``changes``: The files or settings that change.
    """

    subject: str
    changes: Sequence[str]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {running}: whether ranks run on the node, or a refusal."""
    plan = step.plan(variables)
    found = step.module({"name": plan.ranks_unit}, variables, "gb10.cluster.systemd_unit")
    if found.get("failed"):
        return found
    running = found["service"]["pid"] is not None
    if running and not plan.allow_restart:
        refusal = (
            f"{given.subject} of {plan.node.name} must be changed while its ranks run: {'; '.join(given.changes)}. "
            "Expected: gb10_allow_restart: true. Fix: set it, or undo the change."
        )
        return {"failed": True, "msg": refusal}
    return {"changed": False, "running": running}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a server cannot be measured now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import UNIT
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


def refusal(plan: Plan, api: Mapping[str, Any], running: bool, busy_ok: bool) -> str:
    """Return the first reason not to measure, "" if there is none.

    ``api``: from the module cluster_status_info. ``running``: whether the unit of a benchmark runs.
    """
    if running:
        return (
            f"{UNIT}.service runs on {plan.head.name}. Expected: one benchmark at a time. Fix: wait until it ends, or "
            f"run systemctl stop {UNIT}.service after an interrupted run."
        )
    if not api.get("healthy") or api.get("answers") is not True or api.get("root") != plan.model:
        reason = f" ({api['reason']})" if api.get("reason") else ""
        return (
            f"{plan.api.url} serves {api.get('root') or 'no model'}{reason}. Expected: {plan.model}, which answers. "
            "Fix: run site.yml, or set gb10_model to the served model."
        )
    busy = int((api.get("running") or 0) + (api.get("waiting") or 0))
    if busy and not busy_ok:
        return (
            f"{busy} requests of other clients run or wait. Expected: none. Fix: wait until they end, or set "
            "benchmark_model_busy_ok: true, which measures the rest of the speed."
        )
    return ""

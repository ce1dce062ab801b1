# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A measurement before a report: whether it can return to the present state, and its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

_REPORT = "or report without field_report_measure."


def serves(states: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a service of any node runs. ``states``: from the module cluster_status_info."""
    return any(service["pid"] is not None for state in states for service in state.get("services", ()))


def current(plan: Plan, installed: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the plan is the recorded launch of every node, so that a start changes nothing.

    ``installed``: the part of this name of each node's facts.
    """
    launches = {node: each.get("launch") or {} for node, each in installed.items()}
    recorded = {each.get("current", "") for each in installed.values()}
    return all(launches.values()) and recorded == {record.digest(record.content(plan, launches))}


def refusal(plan: Plan, recorded: bool, runs: bool, api: Mapping[str, Any]) -> str:
    """Return why the cluster cannot be measured, "" if it can. ``recorded``: of current(). ``runs``: of serves()."""
    answers = api.get("answers") is True and api.get("root") == plan.model
    if not recorded or (runs and not answers):
        found = f"The services run, but {plan.model} does not answer"
        return (
            f"{found if recorded else 'The plan is not the launch that site.yml recorded'}. Expected: the planned "
            f"model answers, or it answered before and is stopped. Fix: run site.yml, {_REPORT}"
        )
    if runs and not plan.allow_restart:
        return (
            f"{plan.model} serves, and a measurement stops it. Expected: gb10_allow_restart: true. Fix: set it, "
            f"{_REPORT}"
        )
    return ""


def steps(runs: bool) -> list[str]:
    """Return the steps. Those after the bandwidth return to the former state, and read the nodes again first."""
    return ["stop", "bandwidth", "gb10", "ray_cluster", "vllm_serve", "vllm_watchdog" if runs else "stop"]

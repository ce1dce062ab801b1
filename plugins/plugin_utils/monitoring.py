# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common code of the actions of the role monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import MonitoringSettings, Site
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: In the format of Prometheus.
_RULES = Path(__file__).parents[2] / "roles" / "monitoring" / "files" / "rules.yml"


def site_of(step: Decision, variables: Mapping[str, Any], plan: Plan, cluster: str, golden: str = "") -> Site:
    """Return the names and addresses of a cluster's nodes. ``cluster``: "" for the only one of an inventory."""
    names = [node.name for node in plan.nodes]
    hosts = step.of_nodes(variables, names, "ansible_host", "")
    return Site(cluster or "gb10", {name: str(hosts[name] or name) for name in names}, golden)


def rules() -> str:
    """Return the text of the recording and alert rules of Prometheus."""
    return _RULES.read_text(encoding="utf-8")


def settings_of(inputs: Mapping[str, Any]) -> MonitoringSettings:
    """Return the settings of a node in its fact gb10_inputs."""
    return load.chosen(MonitoringSettings, inputs["settings"], "gb10_inputs.settings")

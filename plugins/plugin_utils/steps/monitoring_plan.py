# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the metrics of a node, and the files of Prometheus and Grafana.

Returns the units of the node exporter and of the collector, and for the head's cluster a scrape configuration, rules
and a dashboard.
Reads ``gb10_plan``, the settings of ``gb10_inputs``, and the result of the last golden answers on the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import scrape
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import MonitoringSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.monitoring import rules, site_of


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``cluster``: The name of the cluster in labels. An inventory's only cluster has none, and is ``gb10``.
    ``golden_result``: The file of the last golden answers on the controller.
    ``directory``: The folder on the controller for the files of Prometheus and Grafana.
    """

    cluster: str = ""
    golden_result: str = field(metadata={"type": "path"})
    directory: str = ""


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {files, unit, settings, ca, written, controller, notes}."""
    plan = step.plan(variables)
    settings = step.role_settings(variables, MonitoringSettings)
    # The firewall's role checks them too, but can be off or left out by tags.
    if problems := firewall_plan.check_clients(settings.monitoring_clients):
        return {"failed": True, "msg": "\n".join(map(str, problems))}
    site = site_of(step, variables, plan, given.cluster, _golden(step, given.golden_result, variables))
    files = monitoring_plan.of_node(plan, settings, site)
    controller = monitoring_plan.of_controller(plan, settings, site, rules()) if plan.node.head else {}
    return {
        "changed": False,
        "files": [
            paths.program_file("metrics"),
            *({"path": path, "content": text} for path, text in files.items()),
        ],
        "unit": monitoring_plan.exporter(settings),
        "settings": [{"path": paths.MONITORING_SETTINGS, "content": files[paths.MONITORING_SETTINGS]}],
        "ca": f"{given.directory}/{scrape.ca(site.cluster)}",
        "written": paths.EXPORTER_UNIT in plan.node.state.units,
        "controller": {f"{given.directory}/{name}": text for name, text in controller.items()},
        "notes": scrape.notes(plan, settings.monitoring_clients) if plan.node.head else [],
    }


def _golden(step: Decision, path: str, variables: dict[str, Any]) -> str:
    """Return the day of the last golden answers, "" without a result."""
    return str(parse.record(step.file(path, variables), parse.GOLDEN).get("date", ""))

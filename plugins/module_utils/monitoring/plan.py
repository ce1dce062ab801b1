# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan monitoring: the files of a node, its open ports, and the files for Prometheus and Grafana."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import dashboard, scrape
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import MonitoringSettings, Site
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import RESTARTING

PACKAGE = "prometheus-node-exporter"
#: The user of the distribution's packages. The exporter must read the collector's files.
USER = "prometheus"
#: Only a program that reads the kernel's log needs it.
_CAPABILITY = "CAP_SYSLOG"


def ports(plan: Plan, exporter: int) -> list[int]:
    """Return the ports of each node that Prometheus reads besides the API: the node exporter's, and Ray's."""
    ray = argv.ray_ports(plan.ray_port, head=False)["metrics-export-port"]
    return [exporter, *([ray] if plan.by_ray else [])]


def of_node(plan: Plan, settings: MonitoringSettings, site: Site) -> dict[str, str]:
    """Return path -> text of the node's files, besides the collector."""
    return {
        paths.MONITORING_SETTINGS: _settings(plan, settings, site),
        f"{paths.UNIT_FOLDER}/{paths.METRICS_UNIT}": _collector(),
        f"{paths.UNIT_FOLDER}/{paths.METRICS_TIMER}": _TIMER,
        f"{paths.UNIT_FOLDER}/{paths.EXPORTER_UNIT}": exporter(settings)["text"],
    }


def of_controller(plan: Plan, settings: MonitoringSettings, site: Site, rules: str) -> dict[str, str]:
    """Return name -> text of the files for Prometheus and Grafana. ``rules``: the text of rules.yml."""
    return {
        "prometheus.yml": scrape.text(scrape.jobs(plan, ports(plan, settings.monitoring_port), site)),
        "rules.yml": rules,
        "dashboard.json": dashboard.text(),
    }


_OTHERS = (paths.WATCHDOG_UNIT, paths.MEMORY_GUARD_UNIT, paths.GATEWAY_UNIT, paths.FALLBACK_UNIT)


def _settings(plan: Plan, settings: MonitoringSettings, site: Site) -> str:
    restarts = settings.vllm_watchdog_mode in RESTARTING
    runtime = plan.runtime
    environment, image = (runtime.link, "") if isinstance(runtime, Environment) else ("", runtime.image)
    given = {
        "units": [*paths.UNITS, *_OTHERS],
        "watchdog_restarts": settings.vllm_watchdog_restarts_per_hour if restarts else 0,
        "links": {rail.interface: plan.mtu for rail in plan.node.rails},
        "certificate_expiry": _time(plan.api_tls.until) if plan.api_tls and plan.node.head else 0,
        "golden": _time(site.golden) if plan.node.head else 0,
        "environment": environment,
        "image": image,
    }
    return json.dumps(given, indent=4, sort_keys=True) + "\n"


def _time(day: str) -> int:
    """Return the seconds since 1970 of a day such as 2026-11-26, 0 for another text."""
    try:
        return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return 0


def _collector() -> str:
    program = paths.program_file("metrics")["path"]
    return "\n".join(
        [
            *unit.HEAD,
            "[Unit]",
            "Description=Metrics of a GB10 for the node exporter",
            "",
            "[Service]",
            "Type=oneshot",
            f"ExecStart=/usr/bin/python3 -I -B {program} {paths.MONITORING_SETTINGS}",
            "TimeoutStartSec=14",
            f"User={USER}",
            f"AmbientCapabilities={_CAPABILITY}",
            f"CapabilityBoundingSet={_CAPABILITY}",
            "# Only root can read it, so systemd passes a copy. The second line counts without a watchdog.",
            f"LoadCredential=watchdog.json:{paths.WATCHDOG_STATUS}",
            "SetCredential=watchdog.json:{}",
            f"RuntimeDirectory={paths.METRICS_FOLDER.removeprefix('/run/')}",
            "RuntimeDirectoryPreserve=yes",
            "MemoryMax=256M",
            "Nice=10",
            "# systemd would log each start.",
            "LogLevelMax=warning",
            *unit.CONFINED_SERVICE,
            "",
        ]
    )


_TIMER = "\n".join(
    [
        *unit.HEAD,
        "[Unit]",
        "Description=Metrics of a GB10 every 30 seconds",
        "",
        "[Timer]",
        "OnCalendar=*:*:0/30",
        "AccuracySec=1s",
        "",
        "[Install]",
        "WantedBy=timers.target",
        "",
    ]
)


def exporter(settings: MonitoringSettings) -> dict[str, str]:
    """Return the node exporter's unit {text, inputs}."""
    clients = " ".join(["localhost", *settings.monitoring_clients])
    text = unit.text(
        "Node exporter of the GB10 cluster",
        ["Wants=network-online.target", "After=network-online.target"],
        [
            unit.INPUTS,
            f"ExecStart=/usr/bin/{PACKAGE} --web.listen-address=:{settings.monitoring_port} "
            f"--collector.textfile.directory={paths.METRICS_FOLDER} --no-collector.thermal_zone",
            "Restart=always",
            "RestartSec=5",
            f"User={USER}",
            "CapabilityBoundingSet=",
            "# Also where peer_firewall_enabled is false.",
            "IPAddressDeny=any",
            f"IPAddressAllow={clients}",
            "MemoryMax=256M",
            *(line for line in unit.CONFINED_SERVICE if not line.startswith("RestrictAddressFamilies")),
            "# Netlink has the state of interfaces.",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        ],
    )
    return systemd.unit_with_digest(text, [])

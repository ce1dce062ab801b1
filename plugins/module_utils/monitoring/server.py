# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prometheus and Alertmanager on a host of the group monitoring: files, units, problems of the variables."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import dashboard, plan, scrape
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import ServerSettings
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit

_LOOPBACK = "127.0.0.1"
#: A text in another place of the URL could be a line of a file.
_URL = re.compile(r"https?://[\x21-\x7e]+")
_DASHBOARDS = f"{paths.PROMETHEUS_FOLDER}/dashboards"
_NAME = "GB10 clusters"
_MOST = {"port": 65535, "alerts_port": 65535, "days": 3650, "size": 4096}


def check(settings: ServerSettings, webhook: str, jobs: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return the problems of the variables. None has the webhook, which is a secret."""
    path = "monitoring_server"
    problems = firewall_plan.check_clients(settings.clients, f"{path}_clients")
    for name, most in _MOST.items():
        if not 1 <= (value := getattr(settings, name)) <= most:
            problems.append(Problem(f"{path}_{name}", str(value), f"1 to {most}", "correct it"))
    if settings.port == settings.alerts_port:
        found = f"{settings.port} is also {path}_port"
        problems.append(Problem(f"{path}_alerts_port", found, "another port", "change one of them"))
    if webhook and not (_URL.fullmatch(webhook) and urllib.parse.urlsplit(webhook).hostname):
        problems.append(Problem(f"{path}_webhook", "not a URL", "http:// or https:// and a host", "correct it"))
    if not jobs:
        found, fix = "no cluster has metrics", "set it in a cluster's variables, or empty the group monitoring"
        problems.append(Problem("monitoring_enabled", found, "true in one cluster or more", fix))
    if settings.clients and (names := [host for host in _hosts(jobs) if not access.is_address(host)]):
        found, fix = f"{', '.join(names)} is a name", "set addresses, or empty it"
        problems.append(Problem(f"{path}_clients", found, "addresses in ansible_host and gb10_api_name", fix))
    return problems


def files(jobs: Sequence[Mapping[str, Any]], settings: ServerSettings, rules: str) -> dict[str, str]:
    """Return path -> text of the files of Prometheus, without the CAs. ``rules``: the text of rules.yml."""
    alerts = f"{_LOOPBACK}:{settings.alerts_port}"
    return {
        f"{paths.PROMETHEUS_FOLDER}/prometheus.yml": scrape.text(jobs, alerts),
        f"{paths.PROMETHEUS_FOLDER}/rules.yml": rules,
        f"{_DASHBOARDS}/gb10.json": dashboard.text(),
    }


def grafana(settings: ServerSettings) -> dict[str, str]:
    """Return path -> text of the files for a Grafana on the host: its data source, and the folder of the dashboard."""
    source = {"name": _NAME, "uid": "gb10", "type": "prometheus", "access": "proxy", "editable": False}
    provider = {"name": _NAME, "type": "file", "options": {"path": _DASHBOARDS}}
    given = (
        {"apiVersion": 1, "datasources": [{**source, "url": f"http://{_LOOPBACK}:{settings.port}"}]},
        {"apiVersion": 1, "providers": [provider]},
    )
    # YAML contains JSON, and the standard library has no YAML.
    texts = (f"# Ansible managed\n{json.dumps(each)}\n" for each in given)
    return dict(zip(paths.GRAFANA_FILES, texts, strict=True))


def units(jobs: Sequence[Mapping[str, Any]], settings: ServerSettings, rules: str) -> list[dict[str, Any]]:
    """Return the units in start order, each as {name, text, inputs, port, variable}."""
    contents = sorted(files(jobs, settings, rules).items())
    given = {
        "alerts_port": (paths.ALERTMANAGER_UNIT, systemd.unit_with_digest(_alertmanager(settings), [])),
        "port": (paths.PROMETHEUS_UNIT, systemd.unit_with_digest(_prometheus(jobs, settings), contents)),
    }
    return [
        {"name": name, **each, "port": getattr(settings, port), "variable": f"monitoring_server_{port}"}
        for port, (name, each) in given.items()
    ]


def _prometheus(jobs: Sequence[Mapping[str, Any]], settings: ServerSettings) -> str:
    host, filters = f"{_LOOPBACK}:", []
    if settings.clients:
        # The filter of systemd knows no direction, so the nodes that Prometheus reads are clients too.
        allowed = dict.fromkeys(["localhost", *settings.clients, *_hosts(jobs)])
        host, filters = ":", ["IPAddressDeny=any", f"IPAddressAllow={' '.join(allowed)}"]
    argv = [
        "/usr/bin/prometheus",
        f"--config.file={paths.PROMETHEUS_FOLDER}/prometheus.yml",
        "--storage.tsdb.path=/var/lib/gb10-prometheus",
        f"--storage.tsdb.retention.time={settings.days}d",
        f"--storage.tsdb.retention.size={settings.size}GB",
        f"--web.listen-address={host}{settings.port}",
    ]
    return _service("Prometheus of the GB10 clusters", argv, "gb10-prometheus", ["MemoryMax=2G", *filters])


def _alertmanager(settings: ServerSettings) -> str:
    argv = [
        "/usr/bin/prometheus-alertmanager",
        "--config.file=${CREDENTIALS_DIRECTORY}/alertmanager.yml",
        "--storage.path=/var/lib/gb10-alertmanager",
        f"--web.listen-address={_LOOPBACK}:{settings.alerts_port}",
        # Without a value, it opens no port for other Alertmanagers.
        "--cluster.listen-address=",
    ]
    credential = f"LoadCredential=alertmanager.yml:{paths.ALERTMANAGER_SETTINGS}"
    lines = ["# Only root can read it, so systemd passes a copy.", credential, "MemoryMax=256M"]
    return _service("Alertmanager of the GB10 clusters", argv, "gb10-alertmanager", lines)


def _service(description: str, argv: Sequence[str], state: str, lines: Sequence[str]) -> str:
    return unit.text(
        description,
        ["Wants=network-online.target", "After=network-online.target"],
        [
            unit.INPUTS,
            f"ExecStart={' '.join(argv)}",
            "Restart=always",
            "RestartSec=5",
            f"User={plan.USER}",
            f"StateDirectory={state}",
            "StateDirectoryMode=0700",
            "CapabilityBoundingSet=",
            *lines,
            *unit.CONFINED_SERVICE,
        ],
    )


def _hosts(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hosts of all targets."""
    targets = [target for job in jobs for each in job["static_configs"] for target in each["targets"]]
    return list(dict.fromkeys(urllib.parse.urlsplit(f"//{target}").hostname or "" for target in targets))

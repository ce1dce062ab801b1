# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders and files of this collection on a node."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Per-node overrides: one file per role, named after the role.
OVERRIDES = "/etc/gb10/overrides.d"
#: One file for each service user that this collection created, of that name.
USERS = "/etc/gb10/users.d"
#: The options of vllm serve in the container image that the head queried last.
IMAGE_OPTIONS = "/etc/gb10/image-options.json"
#: The images that the tags of the inventory are pinned to, on the head.
IMAGE_PINS = "/etc/gb10/image-pins.json"
#: The information about a model that each node downloads by itself, on the head.
HUB_MODEL = "/etc/gb10/hub-model.json"
#: The role ray_cluster generates the token there: 256 bits as hexadecimal digits.
RAY_TOKEN = "/etc/gb10/ray.token"
GENERATED_TOKEN = re.compile(r"[0-9a-f]{64}\n?")
#: The API key: for users and modules, and for the server's unit. Only the head has it.
API_KEY = ("/etc/gb10/api.key", "/etc/gb10/api.env")
#: The API's certificate, its key and its CA, on the head.
CERTIFICATE = "/etc/gb10/tls"
CA = f"{CERTIFICATE}/ca.crt"
#: The variables of the ranks, and the secret ones, which only root can read.
RANK_ENVIRONMENT, SECRET_ENVIRONMENT = "/etc/gb10/cluster.env", "/etc/gb10/secret.env"
#: The credentials of a unit with further variables of its ranks; a later one wins.
ENVIRONMENT_CREDENTIALS = ("secret.env", "api.env")
#: The watchdog: its unit, settings, webhook, state and status in memory.
WATCHDOG_UNIT = "gb10-watchdog.service"
WATCHDOG_SETTINGS = "/etc/gb10/watchdog.json"
WATCHDOG_WEBHOOK = "/etc/gb10/watchdog.webhook"
WATCHDOG_STATE = "/var/lib/gb10-watchdog"
WATCHDOG_STATUS = "/run/gb10-watchdog/status.json"
#: The socket that a resting model's head listens on, and systemd's file of it, which exists as long as it does.
WAKE_SOCKET = "gb10-wake.socket"
RESTS = f"/run/systemd/transient/{WAKE_SOCKET}"
#: The head's secret of the messages between nodes, a node's keys of them, and the token of earlier releases that all
#: nodes shared.
MESSAGE_SECRET, SHARED_TOKEN = "/etc/gb10/message.secret", "/etc/gb10/watchdog.token"
WATCHDOG_KEY, RECORDER_KEYS = "/etc/gb10/watchdog.key", "/etc/gb10/flight-recorder.keys"
#: The guard of the memory: its unit; the last starts, the present one in memory, and the stop,
#: while which the units do not start.
MEMORY_GUARD_UNIT = "gb10-memory-guard.service"
MEMORY_GUARD_STATE = "/var/lib/gb10-memory-guard"
MEMORY_GUARD_STARTS, MEMORY_GUARD_STOP = f"{MEMORY_GUARD_STATE}/starts.json", f"{MEMORY_GUARD_STATE}/stop.json"
MEMORY_GUARD_PRESENT = "/run/gb10-memory-guard/start.json"
#: The flight recorder: its unit, settings, records and newest sample; and the unit of the kernel's netconsole.
RECORDER_UNIT, NETCONSOLE_UNIT = "gb10-flight-recorder.service", "gb10-netconsole.service"
RECORDER_SETTINGS, RECORDER_STATE = "/etc/gb10/flight-recorder.json", "/var/lib/gb10-flight-recorder"
RECORDER_SAMPLE = "/run/gb10-flight-recorder/sample.json"
#: The limit of the GPU's clock.
GPU_CLOCK_UNIT = "gb10-gpu-clock.service"
#: Monitoring: the collector with its timer, settings and metrics, and the node exporter, which returns them.
METRICS_UNIT, METRICS_TIMER, EXPORTER_UNIT = "gb10-metrics.service", "gb10-metrics.timer", "gb10-node-exporter.service"
PROMETHEUS_UNIT, ALERTMANAGER_UNIT = "gb10-prometheus.service", "gb10-alertmanager.service"
#: The files of Prometheus, Alertmanager and Grafana on the host of the group monitoring. Alertmanager's has a secret.
PROMETHEUS_FOLDER = "/etc/gb10/prometheus"
ALERTMANAGER_SETTINGS = f"{PROMETHEUS_FOLDER}/alertmanager.yml"
GRAFANA_FOLDER = "/etc/grafana/provisioning"
GRAFANA_FILES = (f"{GRAFANA_FOLDER}/datasources/gb10.yaml", f"{GRAFANA_FOLDER}/dashboards/gb10.yaml")
MONITORING_SETTINGS, METRICS_FOLDER = "/etc/gb10/monitoring.json", "/run/gb10-metrics"
#: Keep the service of a package from its start while a run installs it: it answers all hosts.
CLOSED_PACKAGES = tuple(
    f"/etc/systemd/system/{package}.service.d/gb10.conf"
    for package in ("prometheus-node-exporter", "prometheus", "prometheus-alertmanager")
)
#: The settings of the gates before each start.
GATES_SETTINGS = "/etc/gb10/gates.json"
#: The fallback of the gateway: its unit, the settings of its gates, its variables, and its own key as API_KEY.
FALLBACK_UNIT, FALLBACK_SETTINGS = "gb10-fallback.service", "/etc/gb10/fallback.json"
FALLBACK_ENVIRONMENT = "/etc/gb10/fallback.env"
FALLBACK_KEY = ("/etc/gb10/fallback.key", "/etc/gb10/fallback.key.env")
#: The gateway: its unit and settings, the API keys of its models, and its user, whose home has its counts.
GATEWAY_UNIT, GATEWAY_USER, GATEWAY_FOLDER = "gb10-gateway.service", "gb10-gateway", "/etc/gb10/gateway"
GATEWAY_ENVIRONMENT = "/etc/gb10/gateway.env"
#: The packed programs: their folder, and the file below plugins/module_utils that starts each.
PROGRAM_FOLDER = "/usr/local/lib"
PROGRAMS = {
    "flight-recorder": "flight_recorder/io_recorder",
    "gates": "launch/io_gates",
    "gateway": "gateway/io_proxy",
    "memory-guard": "memory/io_guard",
    "metrics": "monitoring/io_metrics",
    "model": "model_store/io_copy",
    "netconsole": "flight_recorder/io_netconsole",
    "watchdog": "watchdog/io_watch",
}
#: The status of a model's copy in memory, in a folder that each run removes at its end.
MODEL_STATUS = "/run/gb10-model/status.json"
#: The former network, and what restores it.
NETWORK_STATE = "/var/lib/gb10-netplan"
#: systemd's folder for the administrator's units.
UNIT_FOLDER = "/etc/systemd/system"


def program(name: str) -> str:
    """Return the file of a packed program.

    It has the path of its former folder, which units in records of launches name.
    """
    return f"{PROGRAM_FOLDER}/gb10-{name}"


#: The files and folders that roles name.
OF_ROLES: Mapping[str, str] = {
    "api_key": API_KEY[0],
    "ca": CA,
    "certificate": CERTIFICATE,
    "fallback_environment": FALLBACK_ENVIRONMENT,
    "fallback_key": FALLBACK_KEY[0],
    "fallback_key_environment": FALLBACK_KEY[1],
    "fallback_settings": FALLBACK_SETTINGS,
    "gateway": GATEWAY_FOLDER,
    "gateway_environment": GATEWAY_ENVIRONMENT,
    "gateway_home": f"/var/lib/{GATEWAY_USER}",
    "gateway_program": program("gateway"),
    "gateway_unit": f"{UNIT_FOLDER}/{GATEWAY_UNIT}",
    "grafana": GRAFANA_FOLDER,
    "hub_model": HUB_MODEL,
    "image_options": IMAGE_OPTIONS,
    "image_pins": IMAGE_PINS,
    "memory_guard_stop": MEMORY_GUARD_STOP,
    "message_secret": MESSAGE_SECRET,
    "model_status": MODEL_STATUS,
    "network_state": NETWORK_STATE,
    "overrides": OVERRIDES,
    "prometheus": PROMETHEUS_FOLDER,
    "ray_token": RAY_TOKEN,
    "rests": RESTS,
    "shared_token": SHARED_TOKEN,
    "users": USERS,
    "watchdog_settings": WATCHDOG_SETTINGS,
    "watchdog_webhook": WATCHDOG_WEBHOOK,
}
#: The services, in start order; they stop in reverse order.
RAY_UNIT, VLLM_UNIT = UNITS = ("gb10-ray.service", "gb10-vllm.service")


def program_file(name: str) -> dict[str, str]:
    """Return {path, program}: the entry of the module root_files that installs a packed program."""
    return {"path": program(name), "program": PROGRAMS[name]}


def home(user: str) -> str:
    """Return the service user's folder. Root must not read, write or run anything in it (docs/security.md)."""
    return f"/var/lib/{user}"

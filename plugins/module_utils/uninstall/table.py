# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The paths and units that the collection creates on a node, in the order of their removal.

A unit test compares the table with the section Files of each role's README.md, and with the paths in the code.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    NETPLAN_FILE,
    NETWORK_MANAGER_FILE,
    SYSCTL_FILE,
)
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan

#: file: a file or a link. tree: a folder whose whole content is the collection's.
Kind = Literal["file", "tree"]
RUNTIME_RECORD = f"{paths.OVERRIDES}/vllm_runtime.json"
CONFIGURATION = "/etc/gb10"
NETWORK_STATE = paths.NETWORK_STATE
FIREWALL_UNIT = "gb10-firewall.service"
_NETPLAN_UNITS = ("gb10-netplan-restore.timer", "gb10-netplan-restore.service")
#: Units to stop, in this order. The transient units may be left from a killed run; the last two have former names.
UNITS: Sequence[str] = (
    # First: it would restart the others.
    paths.WATCHDOG_UNIT,
    paths.WAKE_SOCKET,
    paths.GATEWAY_UNIT,
    paths.FALLBACK_UNIT,
    paths.VLLM_UNIT,
    paths.RAY_UNIT,
    paths.MEMORY_GUARD_UNIT,
    # Its stop ends netconsole.
    paths.RECORDER_UNIT,
    paths.NETCONSOLE_UNIT,
    # The timer first: it would start the collector.
    paths.METRICS_TIMER,
    paths.METRICS_UNIT,
    paths.EXPORTER_UNIT,
    paths.PROMETHEUS_UNIT,
    paths.ALERTMANAGER_UNIT,
    # Its stop resets the clock.
    paths.GPU_CLOCK_UNIT,
    *(
        f"gb10-{name}.service"
        for name in (
            "model-fetch",
            "model-relay",
            "model-list",
            "image-offer",
            "nccl-offer",
            "nccl-bandwidth",
            "kernels",
            "kernels-offer",
            "wheels-offer",
            "vllm-build",
            "vllm-build-offer",
            "benchmark",
            "nccl-artifact",
            "model",
        )
    ),
)


@dataclass(frozen=True)
class Place:
    """A path, its content for a reader, and its kind."""

    path: str
    content: str
    kind: Kind


#: Below gb10_install_dir.
STORE: Sequence[Place] = (
    Place("runtime", "environments with vLLM and Ray", "tree"),
    Place("nccl", "builds and source of NCCL", "tree"),
    Place("build", "builds and source of vLLM", "tree"),
    Place("images", "copies of an image's vLLM", "tree"),
    Place("hub", "the download library", "tree"),
    Place("gateway", "environments of the gateway", "tree"),
    Place("files", "server files of models", "tree"),
    Place("models", "models", "tree"),
)
NODE: Sequence[Place] = (
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.WATCHDOG_UNIT}", "start at boot", "file"),
    Place(f"{paths.UNIT_FOLDER}/{paths.WATCHDOG_UNIT}", "unit", "file"),
    Place(paths.program("watchdog"), "the watchdog", "file"),
    Place("/run/gb10-watchdog", "status of the watchdog", "tree"),
    Place(paths.WATCHDOG_STATE, "evidence of the watchdog", "tree"),
    Place(paths.WATCHDOG_SETTINGS, "settings of the watchdog", "file"),
    Place(paths.MESSAGE_SECRET, "secret of the messages between nodes", "file"),
    Place(paths.WATCHDOG_KEY, "key of the watchdog's messages", "file"),
    Place(paths.RECORDER_KEYS, "keys of the flight recorder's messages", "file"),
    Place(paths.SHARED_TOKEN, "key of an earlier release's messages", "file"),
    Place(paths.WATCHDOG_WEBHOOK, "address of the watchdog's webhook", "file"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.MEMORY_GUARD_UNIT}", "start at boot", "file"),
    Place(f"{paths.UNIT_FOLDER}/{paths.MEMORY_GUARD_UNIT}", "unit", "file"),
    Place(paths.program("memory-guard"), "the memory guard", "file"),
    Place("/run/gb10-memory-guard", "the present start", "tree"),
    Place(paths.MEMORY_GUARD_STATE, "records of the memory guard", "tree"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.RECORDER_UNIT}", "start at boot", "file"),
    *(Place(f"{paths.UNIT_FOLDER}/{unit}", "unit", "file") for unit in (paths.RECORDER_UNIT, paths.NETCONSOLE_UNIT)),
    Place(paths.program("flight-recorder"), "the flight recorder", "file"),
    Place(paths.program("netconsole"), "the program that configures netconsole", "file"),
    Place("/run/gb10-flight-recorder", "the newest sample", "tree"),
    Place(paths.RECORDER_STATE, "link to the folder of the flight recorder", "file"),
    Place("/var/lib/private/gb10-flight-recorder", "records of silent nodes", "tree"),
    Place(paths.RECORDER_SETTINGS, "settings of the flight recorder", "file"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.GPU_CLOCK_UNIT}", "start at boot", "file"),
    Place(host_guard_plan.UNIT_FILE, "unit", "file"),
    Place(f"{paths.UNIT_FOLDER}/timers.target.wants/{paths.METRICS_TIMER}", "start at boot", "file"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.EXPORTER_UNIT}", "start at boot", "file"),
    *(
        Place(f"{paths.UNIT_FOLDER}/{unit}", "unit", "file")
        for unit in (paths.METRICS_TIMER, paths.METRICS_UNIT, paths.EXPORTER_UNIT)
    ),
    *(
        Place(f"{paths.UNIT_FOLDER}/{folder}{unit}", content, "file")
        for unit in (paths.PROMETHEUS_UNIT, paths.ALERTMANAGER_UNIT)
        for folder, content in (("multi-user.target.wants/", "start at boot"), ("", "unit"))
    ),
    *(Place(path, "settings of Grafana", "file") for path in paths.GRAFANA_FILES),
    Place(paths.PROMETHEUS_FOLDER, "settings of Prometheus and Alertmanager", "tree"),
    *(
        Place(f"/var/lib/{unit.removesuffix('.service')}", "stored metrics and alerts", "tree")
        for unit in (paths.PROMETHEUS_UNIT, paths.ALERTMANAGER_UNIT)
    ),
    *(Place(path, "a package's service does not start", "file") for path in paths.CLOSED_PACKAGES),
    Place(paths.program("metrics"), "the collector of metrics", "file"),
    Place(paths.METRICS_FOLDER, "metrics", "tree"),
    Place(paths.MONITORING_SETTINGS, "settings of the collector of metrics", "file"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.GATEWAY_UNIT}", "start at boot", "file"),
    Place(f"{paths.UNIT_FOLDER}/{paths.GATEWAY_UNIT}", "unit", "file"),
    Place(paths.program("gateway"), "the gateway", "file"),
    Place(paths.GATEWAY_FOLDER, "settings and clients of the gateway", "tree"),
    Place(paths.GATEWAY_ENVIRONMENT, "API keys of the gateway's models", "file"),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{paths.FALLBACK_UNIT}", "start at boot", "file"),
    Place(f"{paths.UNIT_FOLDER}/{paths.FALLBACK_UNIT}", "unit", "file"),
    Place(paths.FALLBACK_SETTINGS, "settings of the gates of the fallback", "file"),
    Place(paths.FALLBACK_ENVIRONMENT, "variables of the fallback", "file"),
    *(Place(path, "key of the fallback's API", "file") for path in paths.FALLBACK_KEY),
    *(Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{unit}", "start at boot", "file") for unit in paths.UNITS),
    *(Place(f"{paths.UNIT_FOLDER}/{unit}", "unit", "file") for unit in paths.UNITS),
    Place("/usr/local/lib/gb10", "the program that verifies the API key", "tree"),
    Place(paths.program("model"), "the program that copies models", "file"),
    Place("/usr/local/lib/gb10-rank.py", "the program that starts ranks", "file"),
    Place("/usr/local/lib/gb10-wait-for-ray.py", "the program that waits for Ray", "file"),
    # Its name in logs of early checkouts.
    Place("/usr/local/bin/gb10-wait-for-ray", "the program that waits for Ray", "file"),
    Place(paths.program("gates"), "the gates before each start", "file"),
    Place(paths.GATES_SETTINGS, "settings of the gates", "file"),
    Place("/run/gb10-model", "status of a model copy", "tree"),
    Place("/var/lib/gb10-vllm-build", "link to the folder of the build of vLLM", "file"),
    Place("/var/lib/private/gb10-vllm-build", "objects of the build of vLLM", "tree"),
    Place("/var/cache/gb10-kernels", "link to the folder of the compilation of kernels", "file"),
    Place("/var/cache/private/gb10-kernels", "objects of the compilation of kernels", "tree"),
    Place(f"{CONFIGURATION}/cluster.env", "environment of the ranks", "file"),
    Place(paths.SECRET_ENVIRONMENT, "secret variables of the ranks", "file"),
    Place(paths.HUB_MODEL, "information about the model", "file"),
    Place(paths.IMAGE_OPTIONS, "options of the container image", "file"),
    Place(paths.IMAGE_PINS, "images of tags", "file"),
    *(Place(path, "API key", "file") for path in paths.API_KEY),
    Place(paths.CERTIFICATE, "API certificate and its key", "tree"),
    Place(paths.RAY_TOKEN, "Ray's token", "file"),
    Place(f"{CONFIGURATION}/vllm", "settings of vLLM", "tree"),
    Place(f"{CONFIGURATION}/records", "records of launches", "tree"),
    Place(f"{CONFIGURATION}/record_secrets.json", "secret files of the last working launch", "file"),
    Place(f"{CONFIGURATION}/last_good.json", "the last working launch", "file"),
    Place(f"{CONFIGURATION}/good.json", "the last working launch", "file"),
    Place(f"{CONFIGURATION}/additions", "launch overrides", "tree"),
    # After a killed run, the record of the image leads to its containers, so it goes after them.
    Place(paths.OVERRIDES, "launch overrides", "tree"),
)
#: host_guard/io_host and os_update/io_change remove them, and restore what they changed.
HOST: Sequence[Place] = (
    Place(host_guard_plan.SYSCTL_FILE, "kernel settings", "file"),
    Place(host_guard_plan.MANAGER_FILE, "hardware watchdog", "file"),
    Place(host_guard_plan.FORMER_FILE, "the former kernel settings", "file"),
    Place(host_guard_plan.APT_FILE, "packages that do not change by themselves", "file"),
    Place(host_guard_plan.DASHBOARD_FORMER, "the Dashboard's former settings", "file"),
    Place(os_update_plan.BOOT_FILE, "the default kernel during an update", "file"),
    Place(os_update_plan.OPTIONS_FILE, "options of the kernel's command line", "file"),
    Place(os_update_plan.PAUSE_FILE, "pause of automatic updates", "file"),
    Place(os_update_plan.DASHBOARD_FORMER, "the Dashboard's settings from before an update", "file"),
)
#: firewall/io_nftables removes most of them, and the links only with their unit, which may have been removed by hand.
FIREWALL: Sequence[Place] = (
    Place(f"{CONFIGURATION}/firewall.nft", "firewall rules", "file"),
    Place(f"{paths.UNIT_FOLDER}/{FIREWALL_UNIT}", "unit", "file"),
    Place(
        f"{paths.UNIT_FOLDER}/nftables.service.d/gb10-firewall.conf",
        "firewall rules after a restart of nftables",
        "file",
    ),
    Place(f"{paths.UNIT_FOLDER}/multi-user.target.wants/{FIREWALL_UNIT}", "start at boot", "file"),
    *(
        Place(f"{paths.UNIT_FOLDER}/{unit}.requires/{FIREWALL_UNIT}", "order of the units", "file")
        for unit in paths.UNITS
    ),
)
#: Restored by the role qsfp_netplan. While one of them exists, STATE stays.
NETWORK: Sequence[Place] = (
    Place(NETPLAN_FILE, "addresses of the QSFP ports", "file"),
    Place(SYSCTL_FILE, "kernel settings of the QSFP ports", "file"),
    Place(NETWORK_MANAGER_FILE, "addresses without carrier", "file"),
    Place(f"{NETWORK_STATE}/original.json", "the former network configuration", "file"),
    Place(f"{NETWORK_STATE}/pending.json", "a network change without confirmation", "file"),
)
STATE: Sequence[Place] = (
    *(Place(f"{paths.UNIT_FOLDER}/{unit}", "unit", "file") for unit in _NETPLAN_UNITS),
    Place(f"{paths.UNIT_FOLDER}/timers.target.wants/{_NETPLAN_UNITS[0]}", "start at boot", "file"),
    Place(NETWORK_STATE, "state of the network rollback", "tree"),
    Place("/run/gb10-netplan.json", "the applied netplan files", "file"),
)
#: The users that the collection created: one file for each, of that name. It goes after the users.
USERS = Place(paths.USERS, "names of the created users", "tree")
#: Folders that go when nothing is left in them, with their content. An administrator may have other files in them.
FOLDERS: Mapping[str, str] = {
    **{
        f"{paths.UNIT_FOLDER}/{unit}.{end}": "settings of the unit" for unit in paths.UNITS for end in ("requires", "d")
    },
    **{posixpath.dirname(path): "settings of the unit" for path in paths.CLOSED_PACKAGES},
    CONFIGURATION: "configuration",
}

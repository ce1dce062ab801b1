# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services next to the ranks: the guard of the memory, and the watchdog."""

from __future__ import annotations

import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils.api import access, tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, Service, ServiceSettings


def memory_guard(plan: Plan, settings: ServiceSettings) -> Service:
    """Return the guard of the memory. A changed program is a launch input."""
    program, url = paths.program_file("memory-guard"), urllib.parse.urlsplit(plan.api.url)
    api = f" --api {url.hostname} {url.port}" if plan.node.head else ""
    limits = (
        f"--floor={settings.vllm_serve_memory_floor} --limit={settings.vllm_serve_start_timeout} "
        f"--mode={settings.vllm_serve_memory_guard} --window={plan.restart.interval}"
    )
    text = unit.text(
        "Guard of the memory on the GB10 cluster",
        [f"Before={' '.join(paths.UNITS)}", "StartLimitIntervalSec=0"],
        [
            unit.INPUTS,
            f"ExecStart=/usr/bin/python3 -I -B {program['path']} {limits}{api}",
            "Restart=always",
            "RestartSec=1",
            "# It must run when memory and CPU are exhausted. It locks its memory.",
            "OOMScoreAdjust=-1000",
            "Nice=-20",
            "LimitMEMLOCK=infinity",
            *_folders("gb10-memory-guard"),
            "# Root without most privileges: systemd stops units for CAP_SYS_ADMIN, /dev/kmsg needs CAP_SYSLOG, and "
            "the cgroups are root's.",
            "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_IPC_LOCK CAP_SYSLOG",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "ProtectKernelModules=yes",
            *unit.CONFINED,
        ],
    )
    return Service(paths.MEMORY_GUARD_UNIT, text, files=(program,), watched=(program["program"],))


def watchdog(plan: Plan, settings: ServiceSettings, learned: Learned) -> Service:
    """Return the watchdog. A changed program is a launch input, so that the run after a killed one restarts it."""
    program, node = paths.program_file("watchdog"), plan.node
    arguments = f"{paths.WATCHDOG_SETTINGS} {paths.MESSAGE_SECRET if node.head else paths.WATCHDOG_KEY}"
    given = {
        "node": node.name,
        "head": node.head,
        "head_address": plan.head.address,
        "port": settings.vllm_watchdog_port,
        "peers": {other.name: other.address for other in plan.nodes if other.name != node.name},
        "units": list(dict.fromkeys((plan.ranks_unit, paths.VLLM_UNIT))),
        "server_unit": paths.VLLM_UNIT,
        # The unit whose restart ends a rank that outlives a restart of the server.
        "follow_unit": plan.ranks_unit,
        "url": plan.api.url,
        "ca_file": tls.FILES["ca"] if plan.api_tls else "",
        "server_name": plan.api.server_name,
        "key_file": paths.API_KEY[0],
        "model": plan.served_model_name,
        "mode": settings.vllm_watchdog_mode,
        "interval": settings.vllm_watchdog_interval,
        "witness_seconds": settings.vllm_watchdog_witness_seconds,
        "stall_seconds": settings.vllm_watchdog_stall_seconds,
        "rest_after": plan.rest.after if node.head else 0,
        "wake": f"[{plan.api_host}]:{plan.rest.port}" if ":" in plan.api_host else f"{plan.api_host}:{plan.rest.port}",
        "restarts_per_hour": settings.vllm_watchdog_restarts_per_hour,
        "keep_evidence": settings.vllm_watchdog_keep_evidence,
        "notify_command": list(settings.vllm_watchdog_notify_command),
    }
    rests = (
        ["# Before a rest, the API's guard refuses new requests.", f"ReadWritePaths=-{access.CONFIG_FOLDER}"]
        if given["rest_after"]
        else []
    )
    text = unit.text(
        "Watchdog of vLLM on the GB10 cluster",
        [
            "Wants=network-online.target",
            f"After=network-online.target {' '.join(paths.UNITS)}",
            "StartLimitIntervalSec=0",
        ],
        [
            "# The program reports each sample to systemd, which restarts a hanging watchdog. The longest sample takes "
            "half a minute.",
            "Type=notify",
            "WatchdogSec=120",
            unit.INPUTS,
            f"ExecStart=/usr/bin/python3 -I -B {program['path']} {arguments}",
            "Restart=always",
            "RestartSec=5",
            "# It must run when memory is exhausted.",
            "OOMScoreAdjust=-900",
            "MemoryMax=512M",
            *_folders("gb10-watchdog"),
            "# Root without most privileges: systemd restarts units for CAP_SYS_ADMIN, and stopped ranks are killed "
            "with CAP_KILL. py-spy",
            "# and the owner of a port need the others.",
            "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_KILL CAP_SYS_PTRACE CAP_DAC_READ_SEARCH",
            *unit.CONFINED_SERVICE,
            *rests,
        ],
    )
    files = (unit.settings(paths.WATCHDOG_SETTINGS, given), program)
    return Service(
        paths.WATCHDOG_UNIT,
        text,
        [given, learned.token, *([plan.api_key] if rests else [])],
        files,
        watched=(program["program"],),
    )


def _folders(name: str) -> list[str]:
    return [
        f"StateDirectory={name}",
        "StateDirectoryMode=0700",
        f"RuntimeDirectory={name}",
        "RuntimeDirectoryMode=0700",
        "UMask=0077",
    ]

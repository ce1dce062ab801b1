# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flight recorder of a node.

Each node sends to the next one in the order of the plan, and keeps the messages of the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, Service, ServiceSettings

_CAPABILITY = "CAP_SYSLOG"


@dataclass(frozen=True)
class UdpPorts:
    """The UDP ports of a node: the recorder's, which also has the next one, and the watchdog's."""

    flight_recorder_port: int
    vllm_watchdog_port: int


def check(nodes: Sequence[UdpPorts]) -> list[Problem]:
    """Find an invalid port, one that two listeners would share, and nodes that listen on another one than the first."""
    path, fix = "flight_recorder_port", "correct flight_recorder_port"
    problems = []
    for index, ports in enumerate(nodes):
        first, other = ports.flight_recorder_port, ports.vllm_watchdog_port
        place = f"nodes[{index}].{path}"
        if not 1024 <= first <= 65534:
            problems.append(Problem(place, str(first), "1024 to 65534", fix))
        elif other in (first, first + 1):
            found = f"{other} is also vllm_watchdog_port"
            problems.append(Problem(place, found, "a separate port, and a separate next one", fix))
        elif first != nodes[0].flight_recorder_port:
            problems.append(Problem(place, str(first), f"{nodes[0].flight_recorder_port}, as on the first node", fix))
    return problems


def recorder(plan: Plan, settings: ServiceSettings, learned: Learned) -> Service:
    """Return the flight recorder. A changed program is a launch input."""
    program, sender = paths.program_file("flight-recorder"), paths.program_file("netconsole")
    given = _settings(plan, settings)
    alone = given["peer"] is None
    text = unit.text(
        "Flight recorder of the GB10 cluster",
        [
            f"After=network.target{'' if alone else f' {paths.NETCONSOLE_UNIT}'}",
            *([] if alone else [f"Wants={paths.NETCONSOLE_UNIT}"]),
            "StartLimitIntervalSec=0",
        ],
        [
            unit.INPUTS,
            f"ExecStart=/usr/bin/python3 -I -B {program['path']} {paths.RECORDER_SETTINGS}",
            "Restart=always",
            "RestartSec=2",
            "# It parses what the network sends, so it has a user without any rights, and may only read /dev/kmsg.",
            "DynamicUser=yes",
            f"AmbientCapabilities={_CAPABILITY}",
            f"CapabilityBoundingSet={_CAPABILITY}",
            *([] if alone else [f"LoadCredential=keys:{paths.RECORDER_KEYS}"]),
            "StateDirectory=gb10-flight-recorder",
            "StateDirectoryMode=0700",
            "RuntimeDirectory=gb10-flight-recorder",
            "UMask=0077",
            "# It must run when memory and CPU are exhausted.",
            "OOMScoreAdjust=-900",
            "Nice=-10",
            "MemoryMax=256M",
            "ProtectHome=yes",
            "ProtectKernelTunables=yes",
            "ProtectKernelModules=yes",
            "ProtectControlGroups=yes",
            *unit.CONFINED,
        ],
    )
    files = [unit.settings(paths.RECORDER_SETTINGS, given), program]
    if not alone:
        files += [
            sender,
            {"path": f"{paths.UNIT_FOLDER}/{paths.NETCONSOLE_UNIT}", "content": _netconsole(sender["path"])},
        ]
    watched = (program["program"], *([] if alone else [sender["program"]]))
    return Service(paths.RECORDER_UNIT, text, [given, learned.token], files, watched=watched)


def _settings(plan: Plan, settings: ServiceSettings) -> dict[str, Any]:
    node, names = plan.node, [other.name for other in plan.nodes]
    place = names.index(node.name)
    following, before = plan.nodes[(place + 1) % len(names)], plan.nodes[place - 1]
    given: dict[str, Any] = {
        "node": node.name,
        "port": settings.flight_recorder_port,
        "rails": [{"interface": rail.interface, "hca": rail.hca} for rail in node.rails],
        # Only the head's values are queried.
        "url": plan.api.url if node.head else "",
        "ca_file": tls.FILES["ca"] if plan.api_tls and node.head else "",
        "server_name": plan.api.server_name if node.head else "",
        "peer": None,
        "watched": None,
    }
    if following.name == node.name:
        return given
    interface, source, address = _way(node, following)
    given["peer"] = {
        "name": following.name,
        "interface": interface,
        "from": source,
        "address": address,
        "port": settings.flight_recorder_port + 1,
    }
    _interface, origin, listen = _way(before, node)
    addresses = sorted({origin, before.address, *(rail.address.partition("/")[0] for rail in before.rails)})
    given["watched"] = {"name": before.name, "address": origin, "addresses": addresses, "listen": listen}
    return given


def _way(sender: PlannedNode, receiver: PlannedNode) -> tuple[str, str, str]:
    """Return (interface, address) of the sender and the address of the receiver: on a rail that both have, if any."""
    for rail in sender.rails:
        if receiver.name in rail.peers:
            return rail.interface, rail.address.partition("/")[0], rail.peers[receiver.name]
    return sender.interface, sender.address, receiver.address


def _netconsole(program: str) -> str:
    modules = "modprobe@configfs.service modprobe@netconsole.service sys-kernel-config.mount"
    return "\n".join(
        [
            *unit.HEAD,
            "[Unit]",
            "Description=Kernel messages of the GB10 cluster to the peer",
            f"Wants={modules}",
            f"After=network.target {modules}",
            f"PartOf={paths.RECORDER_UNIT}",
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "# Root without privileges: the kernel's configuration in /sys/kernel/config is root's.",
            "Type=oneshot",
            "RemainAfterExit=yes",
            f"ExecStart=/usr/bin/python3 -I -B {program} on {paths.RECORDER_SETTINGS}",
            f"ExecStop=/usr/bin/python3 -I -B {program} off {paths.RECORDER_SETTINGS}",
            "# The peer may start later.",
            "Restart=on-failure",
            "RestartSec=60",
            "CapabilityBoundingSet=",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "ProtectKernelModules=yes",
            "ProtectControlGroups=yes",
            *unit.CONFINED,
            "",
        ]
    )

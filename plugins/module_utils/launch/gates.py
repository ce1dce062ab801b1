# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gates before each start of a service: what must hold on its node, from the plan, and what does not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Fallback, Plan

_RAY, _VLLM, _FALLBACK = (unit.removesuffix(".service") for unit in (*paths.UNITS, paths.FALLBACK_UNIT))
#: The start of a line in the journal: gates that are still closed, that ended the start, and that all opened.
WAIT, REFUSED, OPEN = "gb10-gates wait: ", "gb10-gates refused the start: ", "gb10-gates open after "


@dataclass(frozen=True)
class Found:
    """One observation of a node.

    ``interfaces``: as node/parse.interface_facts. ``silent``: the peers without an answer. ``gpu``: why no GPU answers,
    or "". ``missing``: the libraries that do not exist. ``processes``: {pid, name, bytes}, read if memory is short.
    """

    interfaces: Mapping[str, Mapping[str, Any]]
    silent: Sequence[Mapping[str, Any]]
    gpu: str
    missing: Sequence[str]
    available: int
    total: int
    waited: float
    processes: Sequence[Mapping[str, Any]] = ()


def argv(unit: str, engine_file: str = "", own: Sequence[str] = ()) -> list[str]:
    """Return the start of the argv of a unit whose start the gates precede. The program replaces itself by the rest.

    It gives the ranks' variables to the rest, or writes them into ``engine_file``: the unit itself has none, because
    systemd would give them to root's commands and to the engine's client too. -I: variables and files of the service
    user have no effect on Python. ``own``: options of the program for other files than the ranks'.
    """
    given = [f"--engine-file={engine_file}"] if engine_file else []
    return ["/usr/bin/python3", "-I", "-B", paths.program("gates"), *own, *given, unit, "--"]


def settings(plan: Plan, drop_caches: bool) -> dict[str, Any]:
    """Return the settings of the gates on the plan's node, for both services."""
    node = plan.node
    links = [
        {"interface": rail.interface, "address": rail.address.partition("/")[0], "mtu": plan.mtu} for rail in node.rails
    ]
    if len(plan.nodes) > 1 and node.address not in [link["address"] for link in links]:
        links.append({"interface": node.interface, "address": node.address, "mtu": 0})
    return {
        "node": node.name,
        "user": plan.user,
        "seconds": plan.restart.gate_timeout,
        "drop_caches": drop_caches,
        "links": links,
        "peers": {unit: _peers(plan, unit) for unit in (_RAY, _VLLM)},
        "gpu": plan.stack.device == "cuda",
        "libraries": sorted(
            {
                path
                for addition in node.additions.values()
                for path in addition["files"]
                if ".so" in path.rpartition("/")[2]
            }
        ),
        "memory": plan.serve.needs.get(node.name, 0),
    }


def of_fallback(plan: Plan, given: Fallback) -> dict[str, Any]:
    """Return the settings of the gates of the fallback on the plan's node, which needs neither peers nor the fabric."""
    own = {"drop_caches": False, "links": [], "peers": {_FALLBACK: []}, "libraries": [], "memory": given.needs}
    return {**settings(plan, False), **own}


def _peers(plan: Plan, unit: str) -> list[dict[str, Any]]:
    """Return {name, address, port, listens} of each peer that must answer before a start.

    A worker needs its head. The head's server needs all nodes; its Ray needs none, because the others join it. A peer
    that must not listen yet may refuse the connection, which shows that its kernel answers.
    """
    node, head, ray = plan.node, plan.head, plan.by_ray
    if node.head and unit == _RAY:
        return []
    port = plan.ray_port if ray else plan.rendezvous_port
    wanted = [other.name for other in plan.nodes if other.name != node.name and (node.head or other.name == head.name)]
    found = {(name, address): False for rail in node.rails for name, address in rail.peers.items() if name in wanted}
    found |= {(other.name, other.address): ray and not node.head for other in plan.nodes if other.name in wanted}
    return [
        {"name": name, "address": address, "port": port, "listens": listens}
        for (name, address), listens in found.items()
    ]


def problems(given: Mapping[str, Any], found: Found) -> list[Problem]:
    """Return a problem for each gate that is closed, all together."""
    where = f"{given['node']}.gates"
    result = [
        problem for link in given["links"] for problem in _link(where, link, found.interfaces.get(link["interface"]))
    ]
    if found.gpu:
        result.append(
            Problem(
                f"{where}.gpu",
                found.gpu,
                "nvidia-smi lists a GPU",
                "run nvidia-smi; if it fails or hangs, reboot the node",
            )
        )
    for path in found.missing:
        result.append(
            Problem(
                f"{where}.nccl",
                f"{path} does not exist",
                "the library that the ranks load",
                "run site.yml --tags nccl_sm121_build",
            )
        )
    for peer in found.silent:
        expected = f"Ray listens on port {peer['port']}" if peer["listens"] else "its kernel answers on this rail"
        fix = "start the node or wait for its boot; check its cable, its firewall and its gb10 services"
        result.append(Problem(f"{where}.peers.{peer['name']}", f"{peer['address']} does not answer", expected, fix))
    short = reclaim.refusal(where, given["memory"], found.available, found.total, found.waited, found.processes, ())
    return [*result, *([short] if short else [])]


def _link(where: str, link: Mapping[str, Any], found: Mapping[str, Any] | None) -> list[Problem]:
    path, fix = (
        f"{where}.fabric.{link['interface']}",
        "run site.yml --tags qsfp_netplan; ip address show lists the interfaces",
    )
    if found is None:
        return [
            Problem(
                path,
                "there is no such interface",
                f"it has {link['address']}",
                "plug in the cable, or run discover.yml; then run site.yml",
            )
        ]
    result = []
    if link["address"] not in [address.partition("/")[0] for address in found["addresses"]]:
        result.append(Problem(path, f"it has {', '.join(found['addresses']) or 'no address'}", link["address"], fix))
    if link["mtu"] and found["mtu"] != link["mtu"]:
        result.append(Problem(path, f"MTU {found['mtu']}", f"MTU {link['mtu']} (gb10_fabric_mtu)", fix))
    return result


def closed(lines: Sequence[str]) -> str:
    """Return the last report of closed gates in the log of a service, "" if they opened after it."""
    last = next((line for line in reversed(lines) if line.startswith((WAIT, REFUSED, OPEN))), OPEN)
    return "" if last.startswith(OPEN) else last.removeprefix(WAIT).removeprefix(REFUSED)

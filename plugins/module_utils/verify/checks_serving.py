# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the API, the ranks, the services, the memory, and of access to the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.api import access, tls
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, WARNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import RANKS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.existing import by_state, of_rule, of_state
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    RECORDED,
    Cluster,
    VerifiedNode,
    of_nodes,
)

_GIB, _DAY = 1 << 30, 86400
#: Names of the processes of vLLM and Ray, for clusters whose processes are in no unit of this collection.
_SERVING = ("VLLM::", "ray::", "vllm", "raylet", "gcs_server", "ray")


def _ours(node: VerifiedNode) -> bool:
    """Return whether this collection installed services on the node."""
    return any(service["load"] != "not-found" for service in node.facts.get("services") or ())


def _unreachable(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.nodes:
        if node.unreachable:
            cause = causes.find(node.unreachable)
            page = f"; {cause.page}" if cause else ""
            yield node.name, f"it cannot be read: {causes.short(node.unreachable)}{page}"


@of_nodes
def _not_ready(node: VerifiedNode) -> Iterator[str]:
    api = node.part("api")
    rests = node.facts.get("rests") is not None
    if node.head and api and not api["healthy"] and not api["reason"] and not rests:
        yield f"{api['url']}/health does not return 200"


def _missing_rank(cluster: Cluster) -> Iterator[Found]:
    """Find nodes without a rank: those of this collection by their services, others by the ranks of the other nodes."""
    yield from by_state("rank-missing")(cluster)
    healthy = any(node.part("api").get("healthy") for node in cluster.read if node.head)
    if healthy and any(_ranks(node) for node in cluster.read):
        yield from ((node.name, "it has no rank") for node in cluster.read if not _ours(node) and not _ranks(node))


def _ranks(node: VerifiedNode) -> set[int]:
    return {rank["pid"] for rank in node.facts.get("ranks") or ()}


@of_nodes
def _stale_rank(node: VerifiedNode) -> Iterator[str]:
    for process in _outside(node):
        if _ours(node) and process["name"].startswith(RANKS):
            yield f"{_described(process)} belongs to {process['unit'] or 'no unit'}"


@of_nodes
def _large(node: VerifiedNode) -> Iterator[str]:
    for process in _outside(node):
        if not process["name"].startswith(RANKS if _ours(node) else _SERVING):
            yield f"{_described(process)} of {process['unit'] or 'no unit'}"


def _outside(node: VerifiedNode) -> Iterator[Mapping[str, Any]]:
    """Yield the listed processes that are neither a rank nor of the services."""
    for process in node.facts.get("processes") or ():
        if process["pid"] not in _ranks(node) and process["unit"] not in (*paths.UNITS, paths.FALLBACK_UNIT):
            yield process


def _described(process: Mapping[str, Any]) -> str:
    return f"{process['name']} (pid {process['pid']}, {process['bytes'] / _GIB:.1f} GiB)"


@of_nodes
def _exposed(node: VerifiedNode) -> Iterator[str]:
    """Find ports of vLLM and Ray that other hosts can reach, on nodes without a firewall."""
    if node.facts.get("firewalls") != []:
        return
    rails = {address.split("/")[0] for addresses in node.rails.values() for address in addresses}
    api = (node.part("api").get("url") or "").rpartition(":")[2]
    ports = sorted(
        {
            entry["port"]
            for entry in node.facts.get("listeners") or ()
            if (entry["unit"] in paths.UNITS or entry["process"].startswith(_SERVING))
            and not access.loopback(entry["address"].removeprefix("::ffff:"))
            and entry["address"].removeprefix("::ffff:") not in rails
            and str(entry["port"]) != api
        }
    )
    if ports:
        yield f"ports {', '.join(map(str, ports))} are open without a firewall"


@of_nodes
def _open_ray(node: VerifiedNode) -> Iterator[str]:
    if node.part("ray").get("open"):
        yield "Ray's State API accepts requests without a token"


@of_nodes
def _expires(node: VerifiedNode) -> Iterator[str]:
    until = node.part("api").get("expires")
    if until is not None and until - node.finished < tls.SOON.total_seconds():
        days = max(0.0, until - node.finished) / _DAY
        yield f"the certificate of {node.facts['api']['url']} expires in {days:.1f} days"


@of_nodes
def _unwatched(node: VerifiedNode) -> Iterator[str]:
    if node.part("watchdog") and not node.part("watchdog")["active"]:
        yield "gb10-watchdog.service is installed and does not run"


@of_nodes
def _removes_ipc(node: VerifiedNode) -> Iterator[str]:
    removable = set(node.facts.get("login_users") or ()) - set(node.facts.get("lingering") or ()) - {"root"}
    users = sorted(removable & set(node.facts.get("rank_users") or ()))
    if users and node.facts.get("remove_ipc"):
        yield f"ranks run as {', '.join(users)}, whose shared memory logind removes at logout"


_serving = partial(Check[Cluster], RUNNING, topic="serving", tested=RECORDED)
_security = partial(Check[Cluster], RUNNING, topic="security", tested=RECORDED)

CHECKS = (
    of_state("node-unreachable", "serving", _unreachable),
    of_state("engine-silent", "serving"),
    of_state("rank-missing", "serving", _missing_rank),
    of_state("service-restarts", "serving"),
    of_state("service-stopped", "serving"),
    of_state("gate-closed", "serving"),
    of_state("service-down", "serving"),
    of_state("memory-exhausted", "serving"),
    of_state("memory-floor", "serving"),
    of_state("memory-short", "serving"),
    of_state("memory-guard-down", "serving"),
    of_state("memory-held", "serving"),
    of_state("key-refused", "serving"),
    of_state("port-taken", "serving"),
    _serving(
        "api-not-ready",
        WARNING,
        expected="/health returns 200",
        why="no model is served: it is loading, its start failed, or the services were stopped",
        fix="wait for the end of the load, or read the last error with playbooks/status.yml",
        source="vLLM, documentation of /health",
        detect=_not_ready,
    ),
    _serving(
        "watchdog-down",
        WARNING,
        expected="gb10-watchdog.service runs on each node that has it",
        why="a hang stays until vLLM's time-out of 300 s, and clients wait while /health returns 200",
        fix="read journalctl -u gb10-watchdog, then run site.yml --tags vllm_watchdog; mode off removes it",
        source="measured in the lab: 339 s from a stopped rank to the next answer",
        detect=_unwatched,
    ),
    _serving(
        "rank-stale",
        ERROR,
        expected="each rank belongs to gb10-ray or gb10-vllm",
        why="a rank of a former start holds memory and devices, so that the next start fails",
        fix="end the process, then run site.yml",
        source="eugr/spark-vllm-docker#257",
        detect=_stale_rank,
    ),
    _serving(
        "process-memory",
        WARNING,
        expected="less than 1 GiB of resident memory in each process that serves no model",
        why="CPU and GPU share the memory, so that the model has less, and the host can fail without a trace",
        fix="end the process, or disable its service; a desktop session counts too",
        source="reports of hosts that unified memory exhausted",
        detect=_large,
    ),
    of_rule("api-without-key", "security"),
    of_state("tls-untrusted", "security"),
    _security(
        "tls-expires",
        WARNING,
        expected=f"a certificate that is valid for {tls.SOON.days} days or more",
        why="clients reject the API after its expiry",
        fix="renew it, and run site.yml",
        source="RFC 5280, validity",
        detect=_expires,
    ),
    _security(
        "ray-open",
        ERROR,
        expected="Ray responds with 401 or 403 to a request without its token",
        why="any host that reaches Ray's ports can run code on every node",
        fix="run site.yml --tags ray_cluster; for another tool, set RAY_AUTH_MODE=token",
        source="Ray, documentation of token authentication",
        detect=_open_ray,
    ),
    _security(
        "ports-exposed",
        WARNING,
        expected="a firewall, or listeners on loopback and on the rails only",
        why="other hosts can connect to the ranks and to Ray, which trust each message",
        fix="set peer_firewall_enabled: true and run site.yml --tags peer_firewall",
        source="Ray, documentation of security; PyTorch, security policy of torch.distributed",
        detect=_exposed,
    ),
    _security(
        "remove-ipc",
        ERROR,
        expected="ranks run as a system user, or RemoveIPC=no",
        why="when the user logs out, NCCL and Ray lose their shared memory, and all ranks fail",
        fix="run the ranks as a system user, or set RemoveIPC=no in /etc/systemd/logind.conf",
        source="logind.conf(5)",
        detect=_removes_ipc,
    ),
)

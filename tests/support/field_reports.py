"""Reports of playbooks/field_report.yml as recorded machines: nodes for the planner, and facts for the checks of
verify.yml.

A report has no names and addresses, so those of the planner replace them, with their GIDs. Unknown facts are None. The
differences of a report have the values of facts that it does not have, such as variables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster_nodes import Node, cluster_plan, interface, spark
from verified_nodes import NOW, Facts, pair, service

FOLDER = Path(__file__).parents[1] / "unit" / "data" / "field_reports"
REPORTS = sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def planner_nodes(report: dict[str, Any]) -> list[Node]:
    """Return the nodes in the input format of the planner, with the report's hardware, model, stack and executor."""
    planned = report["plan"]
    settings = {"gb10_stack": planned["stack"]["name"], "gb10_distributed_executor_backend": planned["executor"]}
    if report["model"] != "MODEL":
        settings["gb10_model"] = report["model"]
    nodes = []
    for number, found in enumerate(report["nodes"], 1):
        node = spark(number, "head" if found["head"] else "worker", **settings)
        seen, facts = node["observed"], found["facts"]
        seen["gpu"] = _gpu(facts)
        seen |= {
            "kernel": facts["kernel"],
            "cma_total_bytes": facts["cma_total_bytes"],
            "interfaces": _interfaces(facts, seen["interfaces"]),
        }
        seen["rdma"] = _rdma(facts)
        nodes.append(node)
    return nodes


def verified_nodes(report: dict[str, Any]) -> list[Facts]:
    """Return the nodes in the form of the filters of verify.yml."""
    plan, problems = cluster_plan(planner_nodes({**report, "nodes": _cabled(report)}))
    assert plan, problems
    unknown = {name: None for name in pair()[0]["facts"] if name != "environments"}
    nodes = []
    for found, planned in zip(report["nodes"], plan["nodes"], strict=True):
        rails = {rail["interface"]: {"addresses": [rail["address"]], "mtu": plan["mtu"]} for rail in planned["rails"]}
        reported = found["facts"]
        ranks = [{"pid": number, "name": "rank", **each} for number, each in enumerate(reported["ranks"], 1)]
        facts = {
            **unknown,
            **reported,
            "gpu": _gpu(reported),
            "nccl_installed": None,
            "evidence": None,
            "cma_free_bytes": 0,
            "ranks": ranks,
            "services": [service(**each) for each in reported["services"]],
            "uptime": 0.0,
            "links": [],
            "error": {},
            "lock": {},
            "record": "",
            "watchdog": {},
            "memory_guard": {"active": True, **reported["memory_guard"], "stop": {}},
            "interfaces": {name: {**each, **rails.get(name, {})} for name, each in _interfaces(reported, {}).items()},
            "rdma": {hca: {**device, "gids": _gids(device, rails)} for hca, device in _rdma(reported).items()},
            "infiniband": True,
            "planned": rails,
            "clock": NOW,
            "api": {**pair()[0]["facts"]["api"], **reported["api"]} if found["head"] else None,
        }
        known = {
            "name": planned["name"],
            "head": found["head"],
            "unreachable": "",
            "facts": facts,
            "paths": [],
            "probe": found["gpu_probe"],
        }
        nodes.append({**known, "started": NOW, "finished": NOW})
    return nodes


def _cabled(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes as they were planned: each rail had its cable."""
    nodes = []
    for found, planned in zip(report["nodes"], report["plan"]["nodes"], strict=True):
        rails = {rail["interface"] for rail in planned["rails"]}
        cabled = {"carrier": True, "state": "ACTIVE"}
        links = [{**link, **(cabled if link["interface"] in rails else {})} for link in found["facts"]["links"]]
        nodes.append({**found, "facts": {**found["facts"], "links": links}})
    return nodes


def _gids(device: Facts, rails: dict[str, Facts]) -> list[Facts]:
    addresses = rails.get(device["interface"], {}).get("addresses", [])
    return [
        {"index": 3, "gid": f"::ffff:{address.split('/')[0]}", "type": "RoCE v2", "interface": device["interface"]}
        for address in addresses
    ]


def _gpu(facts: dict[str, Any]) -> Facts:
    return {**facts["gpu"], "memory_bytes": facts["total"], "reason": ""}


def _interfaces(found: dict[str, Any], others: dict[str, Facts]) -> dict[str, Facts]:
    links = {
        link["interface"]: interface(
            hca=link["hca"], carrier=link["carrier"], speed=link["speed"], link_local="", kind="physical"
        )
        for link in found["links"]
    }
    return {**{name: each for name, each in others.items() if name in ("lo", "enP7s7")}, **links}


def _rdma(found: dict[str, Any]) -> dict[str, Facts]:
    links = (link for link in found["links"] if link["hca"])
    return {
        link["hca"]: {"interface": link["interface"], "state": link["state"], "link_layer": "Ethernet", "gids": []}
        for link in links
    }

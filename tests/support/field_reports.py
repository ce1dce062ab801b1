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
    settings = {"gb10_stack": report["stack"]["name"], "gb10_distributed_executor_backend": report["plan"]["executor"]}
    if report["model"] != "MODEL":
        settings["gb10_model"] = report["model"]
    nodes = []
    for number, found in enumerate(report["nodes"], 1):
        node = spark(number, "head" if found["head"] else "worker", **settings)
        seen = node["observed"]
        seen["gpu"] = _gpu(found)
        seen |= {
            "kernel": found["kernel"],
            "cma_total_bytes": found["cma_total_bytes"],
            "interfaces": _interfaces(found, seen["interfaces"]),
        }
        seen["rdma"] = _rdma(found)
        nodes.append(node)
    return nodes


def verified_nodes(report: dict[str, Any]) -> list[Facts]:
    """Return the nodes in the form of the filters of verify.yml."""
    plan, problems = cluster_plan(planner_nodes({**report, "nodes": list(map(_cabled, report["nodes"]))}))
    assert plan, problems
    unknown = {name: None for name in pair()[0]["facts"] if name != "environments"}
    nodes = []
    for found, planned in zip(report["nodes"], plan["nodes"], strict=True):
        rails = {rail["interface"]: {"addresses": [rail["address"]], "mtu": plan["mtu"]} for rail in planned["rails"]}
        facts = {
            **unknown,
            "kernel": found["kernel"],
            "boot": found["next_kernel"],
            "product": found["product"],
            "bios": found["bios"],
            "firmware": {each["hca"]: each["version"] for each in found["firmware"]},
            "packages": dict(each.split(" ", 1) for each in found["packages"]),
            "kernels": _kernels(found["kernels"]),
            "gpu_state": found["gpu_state"],
            "gpu": _gpu(found),
            "cma_total_bytes": found["cma_total_bytes"],
            "cma_free_bytes": 0,
            "total": found["memory_bytes"],
            "available": found["available_bytes"],
            "ranks": [
                {"pid": number, "name": "rank", "bytes": size} for number, size in enumerate(found["ranks_bytes"], 1)
            ],
            "services": [service(**each) for each in found["services"]],
            "uptime": 0.0,
            "links": [],
            "error": {},
            "lock": {},
            "record": "",
            "watchdog": {},
            "memory_guard": {"active": True, "starts": found["starts"], "stop": {}},
            "interfaces": {name: {**each, **rails.get(name, {})} for name, each in _interfaces(found, {}).items()},
            "rdma": {hca: {**device, "gids": _gids(device, rails)} for hca, device in _rdma(found).items()},
            "infiniband": True,
            "planned": rails,
            "clock": NOW,
            "api": {**pair()[0]["facts"]["api"], **report["api"]} if found["head"] else None,
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


def _cabled(found: dict[str, Any]) -> dict[str, Any]:
    """Return the node as it was planned: each rail had its cable."""
    rails = {rail["interface"] for rail in found["rails"]}
    cabled = {"carrier": True, "state": "ACTIVE"}
    return {**found, "links": [{**link, **(cabled if link["interface"] in rails else {})} for link in found["links"]]}


def _gids(device: Facts, rails: dict[str, Facts]) -> list[Facts]:
    addresses = rails.get(device["interface"], {}).get("addresses", [])
    return [
        {"index": 3, "gid": f"::ffff:{address.split('/')[0]}", "type": "RoCE v2", "interface": device["interface"]}
        for address in addresses
    ]


def _kernels(found: dict[str, Any] | None) -> Facts | None:
    """Return the GPU code as verify.yml reads it: the counts by extension."""
    ways = ("native", "same_major", "ptx", "none")
    extensions = {each["name"]: {way: each[way] for way in ways} for each in (found or {}).get("extensions", ())}
    return {"capability": found["capability"], "chosen": found["planned"], "extensions": extensions} if found else None


def _gpu(found: dict[str, Any]) -> Facts:
    gpus = [{"name": name, "capability": found["capability"]} for name in found["gpus"]]
    return {"gpus": gpus, "driver_version": found["driver"], "memory_bytes": found["memory_bytes"], "reason": ""}


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

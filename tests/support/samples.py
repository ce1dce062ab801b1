"""The sample inventories as nodes of the planner, with the cables that their comments describe."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cluster_nodes import cabled, interface, spark
from repository import ROOT, tracked_files


def names() -> set[str]:
    """Return the samples of the repository, without a user's own inventory in the clone."""
    paths = map(Path, tracked_files())
    return {path.parent.name for path in paths if path.match("inventories/*/hosts.yml")}


@cache
def inventory(sample: str) -> dict[str, Any]:
    """Return a sample as Ansible parses it, which takes seconds. Do not change the result."""
    command = [Path(sys.executable).with_name("ansible-inventory"), "-i", ROOT / "inventories" / sample, "--list"]
    return dict(json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout))


def members(inventory: Mapping[str, Any], group: str) -> list[str]:
    """Return the hosts of a group, followed by those of its children."""
    entry = inventory.get(group, {})
    return [
        *entry.get("hosts", []),
        *(host for child in entry.get("children", []) for host in members(inventory, child)),
    ]


def nodes_of(inventory: Mapping[str, Any], ports: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the sample's nodes for the planner: Sparks with cables at these ports, and Thors, which have no ports."""
    found = []
    for number, name in enumerate(members(inventory, "gb10_cluster"), 1):
        settings = {
            key: value for key, value in inventory["_meta"]["hostvars"][name].items() if key.startswith("gb10_")
        }
        node = {**spark(number, "worker" if number > 1 else "head", **settings), "name": name}
        links = cabled(*ports) if name.startswith("spark") else {"interfaces": {"mgbe0_0": interface()}, "rdma": {}}
        management = {key: node["observed"]["interfaces"][key] for key in ("lo", "enP7s7")}
        node["observed"] |= {"interfaces": {**management, **links["interfaces"]}, "rdma": links["rdma"], "model": None}
        found.append(node)
    return found

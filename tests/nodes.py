"""Nodes of a cluster as the role gb10 describes them to the planner."""

from __future__ import annotations

import copy
from typing import Any

from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils import cluster, topology
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem

Node = dict[str, Any]
LOCK = "vllm==0.32.0\nray==2.60.0\n"
_VARS = load_yaml(read("roles/gb10/vars/main.yml"))
_DEFAULTS = load_yaml(read("roles/gb10/defaults/main.yml"))
KNOWN = {
    role: sorted(
        name
        for entry in load_yaml(read(f"roles/{role}/meta/argument_specs.yml"))["argument_specs"].values()
        for name in entry.get("options", {})
    )
    for role in _VARS["_gb10_roles"]
}
MODEL = "/srv/models/tiny"


def interface(*addresses: str, **facts: Any) -> dict[str, Any]:
    """One network device as node_info tells it, as far as the planner looks at it."""
    hardware = {"mac": "02:00:00:00:00:01", "driver": "", "pci": None, "speed": None, "carrier": True}
    return {"mtu": 1500, "addresses": list(addresses), "owners": [], **hardware, **facts}


def observed(management: str) -> dict[str, Any]:
    """What node_info returns of a Spark with its management interface, all four twins and a model."""
    twins = [twin.interface for port in topology.SPARK_PORTS.values() for twin in port]
    return {
        "gpu": {
            "gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}],
            "driver_version": "580.142",
            # MemTotal of a Spark, as its users report it: 119.7 GiB.
            "memory_bytes": 128_526_000_000,
            "reason": "",
        },
        "kernel": "6.17.0-1031-nvidia",
        "infiniband": True,
        "cma_free_bytes": 0,
        "cma_total_bytes": 0,
        "interfaces": {
            "lo": interface("127.0.0.1/8"),
            "enP7s7": interface(f"{management}/24"),
            **{name: interface() for name in twins},
        },
        "rdma": {},
        "netplan": [],
        "unreadable": [],
        "listeners": [{"address": "0.0.0.0", "port": 22, "pid": 7, "process": "sshd", "unit": "ssh.service"}],
        "model": {},
        "login_users": ["nvidia", "root"],
        "additions": {},
    }


def spark(number: int, group: str, **settings: Any) -> Node:
    """A valid node: the role's defaults, a model, and whatever settings the case changes."""
    address = f"192.168.1.{10 + number}"
    defaults = {name: _DEFAULTS[name] for name in _VARS["_gb10_settings"] if name in _DEFAULTS}
    return {
        "name": f"spark{number}",
        "address": address,
        "group": group,
        "settings": copy.deepcopy({**defaults, "gb10_runtime_lock": "vllm.lock", "gb10_model": MODEL, **settings}),
        "variables": ["ansible_host", "gb10_model", "gb10_plan", "inventory_hostname"],
        "nccl": "stack",
        "nccl_wanted": "auto",
        "asked": {},
        "store": {"enabled": True, "source": ""},
        "smoke_tokens": 0,
        "key_problem": "",
        "unreachable": "",
        "unrecorded": "",
        "observed": observed(address),
    }


def mistakes(nodes: list[Node], lock: str = LOCK) -> list[Problem]:
    plan, problems = cluster.plan(nodes, lock, KNOWN)
    assert plan == {}, "a plan with problems"
    return problems

"""Nodes of a cluster in the role gb10's input format of the planner."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs

Node = dict[str, Any]


#: The variables of the role vllm_build, which is off by default.
BUILD = {
    "enabled": False,
    "source": "https://github.com/vllm-project/vllm.git",
    "version": "v0.33.0",
    "commit": "",
    "checksum": "",
    "patches": [],
    "capabilities": [],
    "environment": {},
    "dependencies": [],
    "archives": {},
}


def lock_of(*pins: str) -> str:
    """Return a lock file with these pins, each with a hash."""
    return "".join(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins)


LOCK = lock_of("vllm==0.32.0", "ray==2.60.0")
KNOWN = argument_specs.known()
#: The settings of a node without a variable in its inventory.
SETTINGS = {
    name: argument_specs.default(option)
    for name, option in argument_specs.options().items()
    if not option.get("no_log")
}
MODEL = "/srv/models/tiny"
#: The controller's time when it read the nodes.
READ = 1_790_000_000.0


def interface(*addresses: str, **facts: Any) -> dict[str, Any]:
    """Return one network device as in node_info's result, with the fields that the planner reads."""
    hardware = {
        "mac": "02:00:00:00:00:01",
        "driver": "",
        "pci": None,
        "speed": None,
        "up": True,
        "carrier": True,
        "hca": "",
    }
    return {"mtu": 1500, "addresses": list(addresses), "owners": [], **hardware, **facts}


def cabled(*ports: int) -> dict[str, dict[str, Any]]:
    """Return the facts `interfaces` and `rdma` of a Spark's QSFP ports. The given ports have a cable."""
    twins = [(port, twin) for port, twins in topology.SPARK_PORTS.items() for twin in twins]
    return {
        "interfaces": {twin.interface: interface(carrier=port in ports, hca=twin.hca) for port, twin in twins},
        "rdma": {
            twin.hca: {
                "interface": twin.interface,
                "state": "ACTIVE" if port in ports else "DOWN",
                "link_layer": "Ethernet",
                "gids": [],
            }
            for port, twin in twins
        },
    }


def observed(management: str, *ports: int) -> dict[str, Any]:
    """Return node_info's result for a Spark with a management interface, cables at these QSFP ports (default: port 1),
    and a model."""
    links = cabled(*(ports or (1,)))
    return {
        "gpu": {
            "gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}],
            "driver_version": "580.142",
            # MemTotal of a Spark, as reported by users: 119.7 GiB.
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
            **links["interfaces"],
        },
        "rdma": links["rdma"],
        "netplan": [],
        "unreadable": [],
        "listeners": [{"address": "0.0.0.0", "port": 22, "pid": 7, "process": "sshd", "unit": "ssh.service"}],
        "model": {},
        "login_users": ["nvidia", "root"],
        "additions": {},
    }


def spark(number: int, group: str, **settings: Any) -> Node:
    """Return a valid node: the role's defaults, a model, and the case's settings.

    It is cabled at the ports in these settings.
    """
    address = f"192.168.1.{10 + number}"
    ports = settings.get("gb10_fabric_ports", (0, 1) if settings.get("gb10_fabric_topology") == "ring" else (1,))
    return {
        "name": f"spark{number}",
        "address": address,
        "user": "nvidia",
        "group": group,
        "settings": copy.deepcopy({**SETTINGS, "gb10_runtime_lock": "vllm.lock", "gb10_model": MODEL, **settings}),
        "variables": ["ansible_host", "gb10_model", "gb10_plan", "inventory_hostname"],
        "build": dict(BUILD),
        "nccl_patches": [{"name": "arm-send-fence", "path": "arm-send-fence.patch", "sha256": "a" * 64}],
        "queried": {},
        "refused": [],
        "gateway": False,
        "key_problem": "",
        "tls": {},
        "secrets": {"names": [], "problems": []},
        "unreachable": "",
        "unrecorded": "",
        "typical": False,
        "read": READ,
        "observed": observed(address, *(int(port) for port in ports if str(port) in "01")),
    }


def cluster_plan(
    nodes: Sequence[Node], lock: str = LOCK, recipe: Any = None, layers: Sequence[Any] = ()
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the plan as plain data, {} if there is none, and the problems.

    ``recipe`` is the data of a recipe's YAML, ``layers`` the result of the lookup image_layers.
    """
    plan, problems = cluster.plan(parse(nodes, lock, recipe, layers), KNOWN)
    return plan.facts() if plan else {}, problems


def node_plan(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fact gb10_plan of a node, as the role gb10 sets it."""
    (node,) = (each for each in plan["nodes"] if each["name"] == name)
    return {**plan, "node": node}


def mistakes(nodes: list[Node], lock: str = LOCK) -> list[Problem]:
    plan, problems = cluster_plan(nodes, lock)
    assert plan == {}, "a plan with problems"
    return problems


def sparks(count: int, **settings: Any) -> list[Node]:
    """Return a head and workers, cabled to a switch if there are more than two."""
    given = {"gb10_fabric_topology": "switch" if count > 2 else "auto", **settings}
    return [spark(number, "worker" if number > 1 else "head", **given) for number in range(1, count + 1)]


def pair(**settings: Any) -> list[Node]:
    """Return a head and a worker."""
    return sparks(2, **settings)


def planned(nodes: Sequence[Node], lock: str = LOCK, **more: Any) -> dict[str, Any]:
    """Return the plan of nodes without a mistake. ``more``: further arguments of cluster_plan()."""
    plan, problems = cluster_plan(nodes, lock, **more)
    assert problems == []
    return plan


def parts(plan: Mapping[str, Any], places: Iterable[str]) -> dict[str, Any]:
    """Return the values of a plan by their places, such as nodes.0.address. A missing one is None."""
    return {place: reduce(_part, place.split("."), plan) for place in places}


def _part(whole: Any, key: str) -> Any:
    return whole.get(key) if isinstance(whole, Mapping) else whole[int(key)]


def option(name: str, *choices: str) -> dict[str, Any]:
    """Return an option of vLLM that takes a value."""
    return {"name": name, "kind": "value", "aliases": [], "choices": list(choices), "fold": "", "open": False}


#: The options that a plan passes.
_PASSED = ("gpu-memory-utilization", "kv-cache-memory-bytes", "max-model-len", "max-num-seqs", "moe-backend")


def queried(nodes: list[Node], image: str, more: Sequence[Mapping[str, Any]] = (), **changes: Any) -> list[Node]:
    """Let the head have queried an image. ``more``: further options of its vLLM."""
    nodes[0]["observed"]["image_options"] = {
        "image": image,
        "image_id": "2" * 64,
        "version": "0.41.0+local",
        "ray": "2.60.0",
        "nccl": "",
        "options": [*(option(f"--{name}") for name in _PASSED), *more],
        "variables": ["VLLM_X"],
        **changes,
    }
    return nodes

"""The cluster plan: valid nodes give one plan, invalid ones every problem at once and no plan."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils import cluster, node_checks, topology
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem, report

Node = dict[str, Any]
SNAPSHOT = Path(__file__).parent / "data" / "plan_two_spark.json"
LOCK = "5e1f" * 16
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


def observed(management: str) -> dict[str, Any]:
    """What node_info returns of a Spark with its management interface, all four twins and a model."""
    twins = [twin.interface for port in topology.SPARK_PORTS.values() for twin in port]
    return {
        "gpu": {"gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}], "reason": ""},
        "interfaces": {
            "lo": {"mtu": 65536, "mac": "00:00:00:00:00:00", "up": True, "carrier": True, "addresses": ["127.0.0.1/8"]},
            "enP7s7": {"mtu": 1500, "mac": "02:00:00:00:00:01", "up": True, "carrier": True, "addresses": [f"{management}/24"]},
            **{name: {"mtu": 1500, "mac": "02:00:00:00:00:02", "up": True, "carrier": True, "addresses": []} for name in twins},
        },
        "listeners": [{"address": "0.0.0.0", "port": 22, "pid": 7, "process": "sshd", "unit": "ssh.service"}],
        "paths": {f"{MODEL}/config.json": True},
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
        "unreachable": "",
        "observed": observed(address),
    }


def pair(**settings: Any) -> list[Node]:
    return [spark(1, "head", **settings), spark(2, "worker", **settings)]


def planned(nodes: list[Node]) -> dict[str, Any]:
    plan, problems = cluster.plan(nodes, LOCK, KNOWN)
    assert problems == []
    return plan


def mistakes(nodes: list[Node], lock: str = LOCK) -> list[Problem]:
    plan, problems = cluster.plan(nodes, lock, KNOWN)
    assert plan == {}, "a plan with problems"
    return problems


def test_the_plan_of_a_pair_is_the_recorded_one() -> None:
    text = json.dumps(planned(pair()), indent=1, sort_keys=True) + "\n"
    if os.environ.get("GB10_RENEW"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8"), f"the plan changed; if it should, renew {SNAPSHOT.name} with GB10_RENEW=1 and review it"


def test_the_order_of_the_inventory_does_not_matter() -> None:
    assert planned(pair()[::-1]) == planned(pair())


def test_a_single_node_is_its_own_head_by_its_management_address() -> None:
    plan = planned([spark(1, "head")])
    assert (plan["tensor_parallel_size"], plan["head"]) == (1, {"name": "spark1", "address": "192.168.1.11"})
    (node,) = plan["nodes"]
    assert (node["interface"], node["rails"], node["netplan"]) == ("enP7s7", [], {})


def test_a_single_node_needs_neither_qsfp_ports_nor_a_free_pool() -> None:
    node = spark(1, "head")
    node["observed"]["interfaces"] = {"eth0": {"mtu": 1500, "mac": "", "up": True, "carrier": True, "addresses": ["10.1.2.3/8"]}}
    assert planned([node])["nodes"][0]["address"] == "192.168.1.11"


def test_text_numbers_and_booleans_are_converted() -> None:
    plan = planned(pair(gb10_api_port="8001", gb10_fabric_mtu="4200", gb10_fabric_ports=["0"], gb10_allow_restart="no"))
    assert (plan["api_port"], plan["mtu"], plan["allow_restart"]) == (8001, 4200, False)
    assert plan["nodes"][0]["interface"] == "enp1s0f0np0"


@pytest.mark.parametrize("port", [1024, 19999, 21000, 65535])
def test_every_other_port_is_free_for_the_api(port: int) -> None:
    assert planned(pair(gb10_api_port=port))["api_port"] == port


@pytest.mark.parametrize("port", [1024, 8257, 8266, 19992, 21000, 65528])
def test_every_other_range_of_ports_is_free_for_ray(port: int) -> None:
    assert planned(pair(gb10_ray_port=port))["ray_port"] == port


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("Yes", True), ("1", True), ("false", False), ("off", False), (False, False)])
def test_a_boolean_from_the_command_line(text: object, expected: bool) -> None:
    assert planned(pair(gb10_allow_restart=text))["allow_restart"] is expected


def test_a_number_as_text_on_one_node_is_no_difference() -> None:
    head, worker = pair()
    worker["settings"]["gb10_api_port"] = "8000"
    worker["settings"]["gb10_environment"] = {}
    assert planned([head, worker])["api_port"] == 8000


@pytest.mark.parametrize(
    ("model", "served", "expected"),
    [(MODEL, "", "tiny"), (f"{MODEL}/", "", "tiny"), ("org/Name-1B", "", "Name-1B"), (MODEL, "mine", "mine")],
    ids=["path", "path with slash", "hub", "given"],
)
def test_served_model_name(model: str, served: str, expected: str) -> None:
    nodes = pair(gb10_model=model, gb10_served_model_name=served)
    for node in nodes:
        node["observed"]["paths"] = {f"{model}/config.json": True}
    assert planned(nodes)["served_model_name"] == expected


def test_the_models_of_the_hub_are_not_looked_for_on_disk() -> None:
    nodes = pair(gb10_model="org/model")
    for node in nodes:
        node["observed"]["paths"] = {}
    assert "HF_HUB_OFFLINE" not in planned(nodes)["nodes"][0]["environment"]


def test_the_users_environment_reaches_every_rank() -> None:
    plan = planned(pair(gb10_environment={"OMP_NUM_THREADS": 1}))
    assert [node["environment"]["OMP_NUM_THREADS"] for node in plan["nodes"]] == ["1", "1"]


def test_pipeline_parallelism_leaves_the_rest_to_tensor_parallelism() -> None:
    plan = planned(pair(gb10_pipeline_parallel_size=2))
    assert (plan["tensor_parallel_size"], plan["pipeline_parallel_size"]) == (1, 2)


def change(nodes: list[Node], index: int, **changes: Any) -> list[Node]:
    """The nodes with one of them changed: its settings by their names, everything else by its key."""
    for name, value in changes.items():
        (nodes[index] if name in nodes[index] else nodes[index]["settings"])[name] = value
    return nodes


def seen(nodes: list[Node], index: int, **changes: Any) -> list[Node]:
    nodes[index]["observed"].update(changes)
    return nodes


def listener(port: int, process: str = "nginx", unit: str = "nginx.service") -> dict[str, Any]:
    return {"address": "0.0.0.0", "port": port, "pid": 99, "process": process, "unit": unit}


def addressed(interface: str, address: str) -> dict[str, Any]:
    found = observed("192.168.1.12")["interfaces"]
    found[interface] = {**found.get(interface, {"mtu": 1500, "mac": "", "up": True, "carrier": True}), "addresses": [address]}
    return found


def without(interface: str) -> dict[str, Any]:
    return {name: value for name, value in observed("192.168.1.12")["interfaces"].items() if name != interface}


#: name -> (nodes, path, found, expected, fix): each a single mistake; the last three are parts of the text.
BAD: dict[str, tuple[Callable[[], list[Node]], str, str, str, str]] = {
    "empty": (list, "nodes", "no host in the group gb10_cluster", "a head and its workers", "add hosts"),
    "no head": (lambda: change(pair(), 0, group="worker"), "groups.head", "no node is the head", "exactly one host", "move one host"),
    "two heads": (lambda: change(pair(), 1, group="head"), "groups.head", "2 heads: spark1, spark2", "exactly one host", "to worker"),
    "neither": (lambda: change(pair(), 1, group=""), "nodes[1]", "spark2 is neither in head nor in worker", "one of the two", "to worker"),
    "misspelt": (
        lambda: change(pair(), 1, variables=["gb10_fabric_mtuu"]),
        "nodes[1].gb10_fabric_mtuu",
        "gb10_fabric_mtuu, set for spark2, is no variable of this collection",
        "gb10_fabric_mtu",
        "rename it to gb10_fabric_mtu",
    ),
    "misspelt, of another role": (
        lambda: change(pair(), 0, variables=["vllm_serve_arg"]),
        "nodes[0].vllm_serve_arg",
        "vllm_serve_arg, set for spark1",
        "vllm_serve_args",
        "rename it to vllm_serve_args",
    ),
    "misspelt in the role's name": (
        lambda: change(pair(), 0, variables=["vllm_server_args"]),
        "nodes[0].vllm_server_args",
        "vllm_server_args, set for spark1",
        "vllm_serve_args",
        "rename it to vllm_serve_args",
    ),
    "differs": (
        lambda: change(pair(), 1, gb10_fabric_mtu=1500),
        "nodes[1].gb10_fabric_mtu",
        "spark2 has 1500, spark1 has 9000",
        "the same on every node",
        "set gb10_fabric_mtu for the group gb10_cluster",
    ),
    "TP too large": (
        lambda: pair(gb10_tensor_parallel_size=4),
        "gb10_tensor_parallel_size",
        "tensor 4 x pipeline 1 needs 4 GPUs; 2 nodes have 2",
        "at most 2",
        "or add nodes",
    ),
    "TP too small": (
        lambda: pair(gb10_tensor_parallel_size=1),
        "gb10_tensor_parallel_size",
        "uses 1 GPUs; 2 nodes have 2",
        "no node is idle",
        "leave nodes out",
    ),
    "TP negative": (lambda: pair(gb10_tensor_parallel_size=-1), "gb10_tensor_parallel_size", "tensor -1", "at most 2", "gb10_tensor_parallel"),
    "PP 0": (lambda: pair(gb10_pipeline_parallel_size=0), "gb10_pipeline_parallel_size", "0", "1 or more", "use 1"),
    "PP too large": (lambda: pair(gb10_pipeline_parallel_size=3), "gb10_tensor_parallel_size", "pipeline 3 needs 3 GPUs", "at most 2", "lower"),
    "executor": (lambda: pair(gb10_executor="mp"), "gb10_executor", "'mp'", "ray", "correct gb10_executor"),
    "API on Ray's port": (lambda: pair(gb10_api_port=6379), "gb10_api_port", "6379 is Ray's port too", "of its own", "change gb10_api_port"),
    "API on Ray's second port": (lambda: pair(gb10_api_port=6380), "gb10_api_port", "Ray's node-manager-port", "of its own", "change"),
    "API on the dashboard": (lambda: pair(gb10_api_port=8265), "gb10_api_port", "8265 is Ray's dashboard too", "of its own", "change"),
    "API among the workers": (lambda: pair(gb10_api_port=20500), "gb10_api_port", "one of Ray's worker ports", "of its own", "change"),
    "API on the last worker port": (lambda: pair(gb10_api_port=20999), "gb10_api_port", "one of Ray's worker ports", "of its own", "change"),
    "Ray over the dashboard": (lambda: pair(gb10_ray_port=8260), "gb10_ray_port", "8265, Ray's", "of their own", "change gb10_ray_port"),
    "Ray among the workers": (lambda: pair(gb10_ray_port=20996), "gb10_ray_port", "20996, Ray's port", "of their own", "change gb10_ray_port"),
    "privileged port": (lambda: pair(gb10_api_port=80), "gb10_api_port", "80", "1024 to 65535", "correct gb10_api_port"),
    "beyond the last port": (lambda: pair(gb10_ray_port=65530), "gb10_ray_port", "65530", "1024 to 65528", "correct gb10_ray_port"),
    "VLLM_HOST_IP": (
        lambda: pair(gb10_environment={"VLLM_HOST_IP": "10.0.0.1"}),
        "gb10_environment.VLLM_HOST_IP",
        "it is set",
        "each node has its own",
        "gb10_fabric_addresses",
    ),
    "environment": (
        lambda: pair(gb10_environment={"NO-NAME": "x", "LINES": "a\nb"}),
        "gb10_environment",
        "the value of LINES contains a line break; 'NO-NAME' is not the name of an environment variable",
        "one-line values",
        "correct gb10_environment",
    ),
    "model missing on one node": (
        lambda: seen(pair(), 1, paths={f"{MODEL}/config.json": False}),
        "nodes[1].model",
        "/srv/models/tiny/config.json is missing on spark2",
        "at the same path on every node",
        "copy it to spark2",
    ),
    "no GPU": (
        lambda: seen(pair(), 1, gpu={"gpus": [], "reason": "nvidia-smi is not installed"}),
        "nodes[1].gpu",
        "spark2 shows no GPU: nvidia-smi is not installed",
        "nvidia-smi that lists one",
        "the driver",
    ),
    "API port in use": (
        lambda: seen(pair(), 0, listeners=[listener(8000)]),
        "nodes[0].gb10_api_port",
        "port 8000 of spark1 is in use by nginx",
        "a free port",
        "stop that process or change gb10_api_port",
    ),
    "Ray's port in use on a worker": (
        lambda: seen(pair(), 1, listeners=[listener(6380, "", "")]),
        "nodes[1].gb10_ray_port.node-manager-port",
        "port 6380 of spark2 is in use by an unknown process",
        "a free port",
        "change gb10_ray_port",
    ),
    "dashboard in use": (
        lambda: seen(pair(), 0, listeners=[listener(8265, "ray", "user@1000.service")]),
        "nodes[0].gb10_ray_port.dashboard",
        "port 8265 of spark1 is in use by ray",
        "a free port",
        "stop that process",
    ),
    "unreachable": (
        lambda: change(pair(), 1, unreachable="Failed to connect\n via ssh: No route to host", observed={}),
        "nodes[1]",
        ": Failed to connect via ssh: No route to host",
        "an SSH login and sudo",
        "try: ssh 192.168.1.12",
    ),
    "no such interface": (
        lambda: seen(pair(), 1, interfaces=without("enP2p1s0f1np1")),
        "nodes[1].ports[0]",
        "spark2 has no interface enP2p1s0f1np1 for QSFP port 1",
        "one of enP2p1s0f0np0, enP7s7, enp1s0f0np0, enp1s0f1np1",
        "ConnectX-7 driver",
    ),
    "pool overlaps": (
        lambda: seen(pair(), 1, interfaces=addressed("enP7s7", "10.110.200.5/24")),
        "gb10_fabric_pool",
        "10.110.0.0/16 overlaps with 10.110.200.5/24 on enP7s7 of spark2",
        "a network that nothing else uses",
        "choose another gb10_fabric_pool",
    ),
    "pool within a wider network": (
        lambda: seen(pair(), 1, interfaces=addressed("tun0", "10.8.0.2/8")),
        "gb10_fabric_pool",
        "overlaps with 10.8.0.2/8 on tun0",
        "nothing else uses",
        "choose another",
    ),
    "no pool": (lambda: pair(gb10_fabric_pool="ten"), "gb10_fabric_pool", "'ten'", "10.110.0.0/16", "correct gb10_fabric_pool"),
    "fabric": (lambda: pair(gb10_fabric_mtu=70000), "gb10_fabric_mtu", "70000", "1280 to 9216", "9000"),
}


@pytest.mark.parametrize(("nodes", "path", "found", "expected", "fix"), BAD.values(), ids=BAD)
def test_one_mistake_is_one_problem(nodes: Callable[[], list[Node]], path: str, found: str, expected: str, fix: str) -> None:
    problems = mistakes(nodes())
    assert len(problems) == 1, report(problems)
    (problem,) = problems
    assert problem.path == path
    assert found in problem.found
    assert expected in problem.expected
    assert fix in problem.fix


def test_a_lock_that_cannot_be_read() -> None:
    (problem,) = mistakes(pair(), lock="")
    assert (problem.path, problem.found) == ("gb10_runtime_lock", "'vllm.lock' is not a readable file on the controller")


@pytest.mark.parametrize(
    "name",
    ["my_gb10_setting", "company_ray_cluster_name", "vllm_version", "ray_version", "gb10", "http_port", "lab_name", "__gb10_info", "gb10_plan"],
)
def test_a_foreign_variable_is_left_alone(name: str) -> None:
    nodes = pair()
    nodes[0]["variables"].append(name)
    assert planned(nodes)


def test_every_public_variable_is_known() -> None:
    nodes = pair()
    nodes[0]["variables"] += [name for names in KNOWN.values() for name in names]
    assert len(nodes[0]["variables"]) > 40
    assert planned(nodes)


def test_settings_of_a_node_may_differ() -> None:
    head, worker = pair()
    head["settings"] |= {"gb10_fabric_ports": [0], "gb10_fabric_addresses": ["10.110.5.1/24", "10.110.6.1/24"]}
    worker["settings"] |= {"gb10_fabric_ports": [1], "gb10_fabric_addresses": ["10.110.5.2/24", "10.110.6.2/24"]}
    assert [node["address"] for node in planned([head, worker])["nodes"]] == ["10.110.5.1", "10.110.5.2"]


OURS = [listener(port, "ray", "gb10-ray.service") for port in (6379, 6380, 6381, 8265)] + [listener(8000, "vllm", "gb10-vllm.service")]


def test_a_cluster_that_is_up_can_be_planned_again() -> None:
    nodes = seen(pair(), 0, listeners=OURS, interfaces=addressed("enp1s0f1np1", "10.110.0.1/24"))
    assert planned(nodes) == planned(pair())


def test_a_worker_may_use_the_heads_ports_for_itself() -> None:
    assert planned(seen(pair(), 1, listeners=[listener(8000), listener(8265), listener(6379)]))


def test_listeners_of_head_and_worker() -> None:
    settings = pair()[0]["settings"]
    head, worker = (node_checks.listeners(settings, head=is_head) for is_head in (True, False))
    assert head["gb10_api_port"] == 8000
    assert worker.keys() < head.keys()
    assert head.keys() - worker.keys() == {"gb10_api_port", "gb10_ray_port.dashboard", "gb10_ray_port.port", "gb10_ray_port.ray-client-server-port"}


def test_every_problem_of_one_inventory_is_in_one_list() -> None:
    common = {
        "gb10_fabric_mtu": 70000,
        "gb10_api_port": 8265,
        "gb10_tensor_parallel_size": 4,
        "gb10_environment": {"VLLM_HOST_IP": "10.0.0.1"},
        "gb10_executor": "mp",
    }
    head, worker = pair(**common)
    head["settings"]["gb10_fabric_addresses"] = ["10.110.0.1/24", "10.110.1.1/24"]
    worker["settings"] |= {"gb10_fabric_addresses": ["10.110.0.1/24", "192.168.9.2/24"], "gb10_model": "/srv/models/other"}
    worker |= {"group": "head", "variables": ["gb10_modle"]}
    worker["observed"] |= {
        "paths": {},
        "listeners": [listener(6380)],
        "interfaces": addressed("enP7s7", "10.110.200.5/24"),
        "gpu": {"gpus": [], "reason": "nvidia-smi is not installed"},
    }
    third = {**spark(3, "", **common), "unreachable": "timed out", "observed": {}}
    third["settings"]["gb10_fabric_ports"] = [7]
    problems = mistakes([head, worker, third], lock="")
    assert {problem.path for problem in problems} == {
        "gb10_api_port",
        "gb10_environment.VLLM_HOST_IP",
        "gb10_executor",
        "gb10_fabric_mtu",
        "gb10_fabric_pool",
        "gb10_fabric_topology",
        "gb10_runtime_lock",
        "gb10_tensor_parallel_size",
        "groups.head",
        "nodes[1].fabric_addresses[0]",
        "nodes[1].fabric_addresses[1]",
        "nodes[1].gb10_model",
        "nodes[1].gb10_modle",
        "nodes[1].gb10_ray_port.node-manager-port",
        "nodes[1].gpu",
        "nodes[1].model",
        "nodes[2]",
        "nodes[2].ports[0]",
    }
    text = report(problems)
    assert text.startswith(f"{len(problems)} problems found; nothing was changed.\n  1. ")
    for number, problem in enumerate(problems, 1):
        assert f"\n  {number}. {problem.path}: {problem.found}. Expected: {problem.expected}. Fix: {problem.fix}." in text


def test_planning_leaves_its_input_alone() -> None:
    nodes = pair(gb10_api_port="8001")
    before = copy.deepcopy(nodes)
    planned(nodes)
    assert nodes == before

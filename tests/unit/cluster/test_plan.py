"""Tests of the cluster plan: valid nodes give one plan, invalid nodes give all problems at once and no plan."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import KNOWN, LOCK, MODEL, Node, cluster_plan, interface, lock_of, mistakes, observed, spark
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import node_checks
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain

SNAPSHOT = Path(__file__).parents[1] / "data" / "plan_two_spark.json"


def pair(**settings: Any) -> list[Node]:
    return [spark(1, "head", **settings), spark(2, "worker", **settings)]


def planned(nodes: list[Node]) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes)
    assert problems == []
    return plan


def test_the_plan_of_a_pair_is_the_recorded_one() -> None:
    text = json.dumps(planned(pair()), indent=1, sort_keys=True) + "\n"
    assert_recorded(SNAPSHOT, text)


def test_the_order_of_the_inventory_does_not_matter() -> None:
    assert planned(pair()[::-1]) == planned(pair())


def test_a_single_node_is_its_own_head_by_its_management_address() -> None:
    plan = planned([spark(1, "head")])
    assert (plan["tensor_parallel_size"], plan["head"]) == (1, {"name": "spark1", "address": "192.168.1.11"})
    (node,) = plan["nodes"]
    assert (node["interface"], node["rails"], node["netplan"]) == ("enP7s7", [], {})


def test_ray_runs_on_several_nodes_only() -> None:
    several, alone, wanted = (
        planned(nodes)
        for nodes in (pair(), [spark(1, "head")], [spark(1, "head", gb10_distributed_executor_backend="ray")])
    )
    assert [(plan["executor"], plan["ranks_unit"]) for plan in (several, alone, wanted)] == [
        ("ray", "gb10-ray.service"),
        ("mp", "gb10-vllm.service"),
        ("ray", "gb10-ray.service"),
    ]
    settings = parse([spark(1, "head")], LOCK).head.settings
    assert node_checks.listeners(settings, True, 1) == {"gb10_api_port": 8000}
    assert planned([spark(1, "head", gb10_api_port=29501)])["api_port"] == 29501, "no rank waits on the master port"
    assert firewall_plan.needs(typed({**alone, "node": alone["nodes"][0]})) == {}
    argv = launch_argv.start_argv(typed({**alone, "node": alone["nodes"][0]}))
    assert (argv[1], [word for word in argv if "master" in word or "nnodes" in word]) == ("serve", [])


def test_a_single_node_needs_neither_qsfp_ports_nor_a_free_pool() -> None:
    node = spark(1, "head")
    node["observed"]["interfaces"] = {"eth0": interface("10.1.2.3/8")}
    assert planned([node])["nodes"][0]["address"] == "192.168.1.11"


def test_text_numbers_and_booleans_are_converted() -> None:
    plan = planned(pair(gb10_api_port="8001", gb10_fabric_mtu="4200", gb10_fabric_ports=["0"], gb10_allow_restart="no"))
    assert (plan["api_port"], plan["mtu"], plan["allow_restart"]) == (8001, 4200, False)
    assert plan["nodes"][0]["interface"] == "enp1s0f0np0"


def test_a_number_in_place_of_a_name_is_an_unknown_name() -> None:
    (problem,) = mistakes(pair(gb10_model=3))
    assert str(problem).startswith("gb10_model: unknown model '3'.")
    problems = {problem.path: problem for problem in mistakes(pair(gb10_stack=["current"]))}
    assert problems["nodes[0].gb10_stack"].expected == "a text"


def test_values_of_another_type_are_listed_together() -> None:
    nodes = pair(gb10_api_port="many", gb10_extra_env=["A=1"], gb10_vllm_extra_args="--a --b")
    problems = parse(nodes[:1], LOCK).problems
    assert [problem.path for problem in problems] == [
        f"nodes[0].gb10_{name}" for name in ("api_port", "extra_env", "vllm_extra_args")
    ]
    assert str(problems[0]) == "nodes[0].gb10_api_port: 'many'. Expected: a number. Fix: correct gb10_api_port."
    assert set(problems) <= set(mistakes(nodes))


@pytest.mark.parametrize("port", [1024, 19999, 21000, 65535])
def test_every_other_port_is_free_for_the_api(port: int) -> None:
    assert planned(pair(gb10_api_port=port))["api_port"] == port


@pytest.mark.parametrize("port", [1024, 8257, 8266, 19992, 21000, 65528])
def test_every_other_range_of_ports_is_free_for_ray(port: int) -> None:
    assert planned(pair(gb10_ray_port=port))["ray_port"] == port


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("Yes", True), ("1", True), ("false", False), ("off", False), (False, False)]
)
def test_a_boolean_from_the_command_line(text: object, expected: bool) -> None:
    assert planned(pair(gb10_allow_restart=text))["allow_restart"] is expected


def test_a_number_as_text_on_one_node_is_no_difference() -> None:
    head, worker = pair()
    worker["settings"]["gb10_api_port"] = "8000"
    worker["settings"]["gb10_extra_env"] = {}
    assert planned([head, worker])["api_port"] == 8000


@pytest.mark.parametrize(
    ("model", "served", "expected"),
    [(MODEL, "", "tiny"), (f"{MODEL}/", "", "tiny"), ("org/Name-1B", "", "Name-1B"), (MODEL, "mine", "mine")],
    ids=["path", "path with slash", "hub", "given"],
)
def test_served_model_name(model: str, served: str, expected: str) -> None:
    assert planned(pair(gb10_model=model, gb10_served_model_name=served))["served_model_name"] == expected


def test_the_models_of_the_hub_are_not_looked_for_on_disk() -> None:
    nodes = pair(gb10_model="org/model")
    for node in nodes:
        node["observed"]["model"] = None
        node["settings"]["model_store_enabled"] = False
    plan = planned(nodes)
    assert "HF_HUB_OFFLINE" not in plan["nodes"][0]["environment"]
    assert (plan["model"], plan["store"]) == ("org/model", {})


def test_a_model_of_the_hub_is_served_from_the_store() -> None:
    nodes = pair(gb10_model="mine", gb10_models={"mine": {"hub": "org/model", "revision": "abc"}})
    for node in nodes:
        node["observed"]["model"] = None
    plan = planned(nodes)
    folder = "/opt/gb10/models/org--model/abc"
    assert (plan["model"], plan["served_model_name"], plan["store"]["folder"]) == (folder, "model", folder)
    assert plan["store"] == {"folder": folder, "hub": "org/model", "revision": "abc", "source": ""}
    assert not any(word.startswith("--revision") for word in plan["serve"]["args"])
    assert {node["environment"]["HF_HUB_OFFLINE"] for node in plan["nodes"]} == {"1"}


def test_a_folder_that_is_filled_from_another_need_not_be_there() -> None:
    nodes = pair()
    for node in nodes:
        node["observed"]["model"] = None
        node["settings"]["model_store_source"] = "/mnt/tiny"
    assert planned(nodes)["store"] == {"folder": MODEL, "hub": "", "revision": "", "source": "/mnt/tiny"}


def test_the_users_environment_reaches_every_rank() -> None:
    plan = planned(pair(gb10_extra_env={"OMP_NUM_THREADS": 1}))
    assert [node["environment"]["OMP_NUM_THREADS"] for node in plan["nodes"]] == ["1", "1"]


def test_pipeline_parallelism_leaves_the_rest_to_tensor_parallelism() -> None:
    plan = planned(pair(gb10_pipeline_parallel_size=2))
    assert (plan["tensor_parallel_size"], plan["pipeline_parallel_size"]) == (1, 2)


def change(nodes: list[Node], index: int, **changes: Any) -> list[Node]:
    """Return the nodes with one of them changed: settings by name, everything else by key."""
    for name, value in changes.items():
        (nodes[index] if name in nodes[index] else nodes[index]["settings"])[name] = value
    return nodes


def seen(nodes: list[Node], index: int, **changes: Any) -> list[Node]:
    nodes[index]["observed"].update(changes)
    return nodes


def copied_from(source: str) -> list[Node]:
    return [{**node, "settings": {**node["settings"], "model_store_source": source}} for node in pair()]


def listener(port: int, process: str = "nginx", unit: str = "nginx.service") -> dict[str, Any]:
    return {"address": "0.0.0.0", "port": port, "pid": 99, "process": process, "unit": unit}


def addressed(name: str, *addresses: str, **facts: Any) -> dict[str, Any]:
    return {**observed("192.168.1.12")["interfaces"], name: interface(*addresses, **facts)}


def without(name: str) -> dict[str, Any]:
    return {other: value for other, value in observed("192.168.1.12")["interfaces"].items() if other != name}


def owned(file: str, by: str = "name", kind: str = "ethernets") -> dict[str, Any]:
    return addressed("enP2p1s0f1np1", owners=[{"file": file, "id": "cx7", "kind": kind, "by": by}])


SOCKETS = [(1, "head", "eth9"), (2, "worker", "enp1s0f0np0")]
CX7, PROFILE = "/etc/netplan/40-cx7.yaml", "/etc/NetworkManager/system-connections/fast.nmconnection"


#: name -> (nodes, path, found, expected, fix): one mistake each; the last three are parts of the text.
BAD: dict[str, tuple[Callable[[], list[Node]], str, str, str, str]] = {
    "empty": (list, "nodes", "no host in the group gb10_cluster", "a head and its workers", "add hosts"),
    "no head": (
        lambda: change(pair(), 0, group="worker"),
        "groups.head",
        "no host is in the group head",
        "exactly one host",
        "move one host",
    ),
    "two heads": (
        lambda: change(pair(), 1, group="head"),
        "groups.head",
        "2 heads: spark1, spark2",
        "exactly one host",
        "to worker",
    ),
    "neither": (
        lambda: change(pair(), 1, group=""),
        "nodes[1]",
        "spark2 is neither in head nor in worker",
        "one of the two",
        "to worker",
    ),
    "misspelt": (
        lambda: change(pair(), 1, variables=["gb10_fabric_mtuu"]),
        "nodes[1].gb10_fabric_mtuu",
        "gb10_fabric_mtuu, set for spark2, is not a variable of this collection",
        "gb10_fabric_mtu",
        "rename it to gb10_fabric_mtu",
    ),
    "renamed": (
        lambda: change(pair(), 1, variables=["gb10_serve_args"]),
        "nodes[1].gb10_serve_args",
        "gb10_serve_args, set for spark2, is the former name of gb10_vllm_extra_args",
        "gb10_vllm_extra_args",
        "rename it to gb10_vllm_extra_args",
    ),
    "removed": (
        lambda: change(pair(), 0, variables=["gateway_cooldown"]),
        "nodes[0].gateway_cooldown",
        (
            "gateway_cooldown, set for spark1, was removed: a failed request takes no server away any more; the "
            "health checks decide"
        ),
        "no such variable",
        "remove it",
    ),
    "renamed, without a role's name": (
        lambda: change(pair(), 0, variables=["plan_record"]),
        "nodes[0].plan_record",
        "plan_record, set for spark1, is the former name of gb10_plan_save_facts",
        "gb10_plan_save_facts",
        "rename it to gb10_plan_save_facts",
    ),
    "misspelt, of another role": (
        lambda: change(pair(), 0, variables=["vllm_serve_smoke_token"]),
        "nodes[0].vllm_serve_smoke_token",
        "vllm_serve_smoke_token, set for spark1",
        "vllm_serve_smoke_tokens",
        "rename it to vllm_serve_smoke_tokens",
    ),
    "misspelt in the role's name": (
        lambda: change(pair(), 0, variables=["vllm_server_smoke_tokens"]),
        "nodes[0].vllm_server_smoke_tokens",
        "vllm_server_smoke_tokens, set for spark1",
        "vllm_serve_smoke_tokens",
        "rename it to vllm_serve_smoke_tokens",
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
        lambda: pair(gb10_tensor_parallel_size=1, gb10_pipeline_parallel_size=1),
        "gb10_tensor_parallel_size",
        "uses 1 GPUs; 2 nodes have 2",
        "every node is used",
        "remove nodes",
    ),
    "TP negative": (
        lambda: pair(gb10_tensor_parallel_size=-1),
        "gb10_tensor_parallel_size",
        "-1",
        "0 for automatic",
        "correct",
    ),
    "PP negative": (
        lambda: pair(gb10_pipeline_parallel_size=-2),
        "gb10_pipeline_parallel_size",
        "-2",
        "1 or more",
        "correct",
    ),
    "PP too large": (
        lambda: pair(gb10_pipeline_parallel_size=3),
        "gb10_tensor_parallel_size",
        "pipeline 3 needs 3 GPUs",
        "at most 2",
        "lower",
    ),
    "replicas for a part of the nodes": (
        lambda: pair(gb10_data_parallel_size=3),
        "gb10_data_parallel_size",
        "3",
        "1, or 2, a replica on each node",
        "correct gb10_data_parallel_size",
    ),
    "a split replica": (
        lambda: pair(gb10_data_parallel_size=2, gb10_tensor_parallel_size=2),
        "gb10_tensor_parallel_size",
        "2 within a replica",
        "0 or 1 with gb10_data_parallel_size 2",
        "remove one of the two",
    ),
    "executor": (
        lambda: pair(gb10_distributed_executor_backend="uni"),
        "gb10_distributed_executor_backend",
        "'uni'",
        "auto, ray, mp",
        "correct gb10_distributed_executor_backend",
    ),
    "API where ranks meet": (
        lambda: pair(gb10_distributed_executor_backend="mp", gb10_api_port=29502),
        "gb10_api_port",
        "29502 is also the ranks' master port",
        "separate port",
        "change gb10_api_port",
    ),
    "no port to meet": (
        lambda: pair(gb10_distributed_executor_backend="mp", gb10_master_port=65535),
        "gb10_master_port",
        "65535",
        "1024 to 65534",
        "correct gb10_master_port",
    ),
    "API on Ray's port": (
        lambda: pair(gb10_api_port=6379),
        "gb10_api_port",
        "6379 is also Ray's port",
        "separate port",
        "change gb10_api_port",
    ),
    "API on Ray's second port": (
        lambda: pair(gb10_api_port=6380),
        "gb10_api_port",
        "Ray's node-manager-port",
        "separate port",
        "change",
    ),
    "API on the dashboard": (
        lambda: pair(gb10_api_port=8265),
        "gb10_api_port",
        "8265 is also Ray's dashboard",
        "separate port",
        "change",
    ),
    "API among the workers": (
        lambda: pair(gb10_api_port=20500),
        "gb10_api_port",
        "one of Ray's worker ports",
        "separate port",
        "change",
    ),
    "API on the last worker port": (
        lambda: pair(gb10_api_port=20999),
        "gb10_api_port",
        "one of Ray's worker ports",
        "separate port",
        "change",
    ),
    "Ray over the dashboard": (
        lambda: pair(gb10_ray_port=8260),
        "gb10_ray_port",
        "8265, Ray's",
        "separate ports",
        "change gb10_ray_port",
    ),
    "Ray among the workers": (
        lambda: pair(gb10_ray_port=20996),
        "gb10_ray_port",
        "20996, Ray's port",
        "separate ports",
        "change gb10_ray_port",
    ),
    "privileged port": (
        lambda: pair(gb10_api_port=80),
        "gb10_api_port",
        "80",
        "1024 to 65535",
        "correct gb10_api_port",
    ),
    "beyond the last port": (
        lambda: pair(gb10_ray_port=65530),
        "gb10_ray_port",
        "65530",
        "1024 to 65528",
        "correct gb10_ray_port",
    ),
    "restarts without end": (
        lambda: pair(gb10_restart_interval=3600),
        "gb10_restart_interval",
        "3600 is too short for 5 starts of 720 s each, so they would never end",
        "more than 3600",
        "raise it, or lower gb10_gate_timeout",
    ),
    "all memory": (
        lambda: pair(gb10_service_memory_max=101),
        "gb10_service_memory_max",
        "101",
        "50 to 100",
        "correct gb10_service_memory_max",
    ),
    "negative reserve": (
        lambda: pair(gb10_memory_reserve=-1),
        "gb10_memory_reserve",
        "-1",
        "0 or more",
        "correct gb10_memory_reserve",
    ),
    "no restarts": (
        lambda: pair(gb10_restart_attempts=0),
        "gb10_restart_attempts",
        "0",
        "1 or more",
        "correct gb10_restart_attempts",
    ),
    "VLLM_HOST_IP": (
        lambda: pair(gb10_extra_env={"VLLM_HOST_IP": "10.0.0.1"}),
        "gb10_extra_env.VLLM_HOST_IP",
        "it is set",
        "each node has its own",
        "gb10_fabric_addresses",
    ),
    "environment": (
        lambda: pair(gb10_extra_env={"NO-NAME": "x", "LINES": "a\nb"}),
        "gb10_extra_env",
        "the value of LINES contains a line break; 'NO-NAME' is not the name of an environment variable",
        "one-line values",
        "correct gb10_extra_env",
    ),
    "model missing on one node": (
        lambda: seen(pair(), 1, model=None, model_at="/srv/models/tiny"),
        "nodes[1].model",
        "/srv/models/tiny/config.json is missing on spark2",
        "at the same path on every node",
        "copy the model to spark2",
    ),
    "a model of gb10_models missing on one node": (
        lambda: seen(
            pair(gb10_model="mine", gb10_models={"mine": {"path": "/srv/mine"}}), 1, model=None, model_at="/srv/mine"
        ),
        "nodes[1].model",
        "/srv/mine/config.json is missing on spark2",
        "at the same path on every node",
        "copy the model to spark2",
    ),
    "weights missing on one node": (
        lambda: seen(
            pair(), 1, model_at="/srv/models/tiny", model_reason="1 of 2 files in the index are missing: b.safetensors"
        ),
        "nodes[1].model",
        "vLLM cannot load /srv/models/tiny on spark2: 1 of 2 files in the index are missing: b.safetensors",
        "the complete model at the same path on every node",
        "copy the model to spark2",
    ),
    "weights missing in the source of the store": (
        lambda: seen(copied_from("/mnt/usb"), 0, model_at="/mnt/usb", model_reason="it is cut"),
        "nodes[0].model",
        "vLLM cannot load /mnt/usb on spark1: it is cut",
        "a complete model in model_store_source",
        "complete /mnt/usb on spark1",
    ),
    "no GPU": (
        lambda: seen(pair(), 1, gpu={"gpus": [], "reason": "nvidia-smi is not installed"}),
        "nodes[1].gpu",
        "spark2 has no visible GPU: nvidia-smi is not installed",
        "a GPU that nvidia-smi lists",
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
        "SSH login and sudo",
        "run 'ping 192.168.1.12'",
    ),
    "no such interface": (
        lambda: seen(pair(), 1, interfaces=without("enP2p1s0f1np1")),
        "nodes[1].ports[0]",
        "spark2 has no interface enP2p1s0f1np1 for QSFP port 1",
        "one of enP2p1s0f0np0, enP7s7, enp1s0f0np0, enp1s0f1np1",
        "power supply for a minute",
    ),
    "pool overlaps": (
        lambda: seen(pair(), 1, interfaces=addressed("enP7s7", "10.110.200.5/24")),
        "gb10_fabric_cidr",
        "10.110.0.0/16 overlaps with 10.110.200.5/24 on enP7s7 of spark2",
        "an unused network",
        "choose another gb10_fabric_cidr",
    ),
    "pool within a wider network": (
        lambda: seen(pair(), 1, interfaces=addressed("tun0", "10.8.0.2/8")),
        "gb10_fabric_cidr",
        "overlaps with 10.8.0.2/8 on tun0",
        "an unused network",
        "choose another",
    ),
    "another netplan file": (
        lambda: seen(pair(), 1, interfaces=owned(CX7)),
        "nodes[1].ports[0]",
        "enP2p1s0f1np1 of spark2 is configured by /etc/netplan/40-cx7.yaml",
        "only this collection's configuration",
        "gb10_fabric_replace_existing: true",
    ),
    "a profile of NetworkManager": (
        lambda: seen(pair(), 1, interfaces=owned(PROFILE, kind="NetworkManager")),
        "nodes[1].ports[0]",
        f"enP2p1s0f1np1 of spark2 is configured by {PROFILE}",
        "only this collection's configuration",
        "gb10_fabric_replace_existing: true",
    ),
    "a pattern cannot be taken over": (
        lambda: seen(pair(gb10_fabric_replace_existing=True), 1, interfaces=owned(CX7, "match")),
        "nodes[1].ports[0]",
        "configured by /etc/netplan/40-cx7.yaml with a pattern",
        "only this collection's configuration",
        "remove enP2p1s0f1np1 from the file",
    ),
    "a bond cannot be taken over": (
        lambda: seen(pair(gb10_fabric_replace_existing=True), 1, interfaces=owned(CX7, "member", "bonds")),
        "nodes[1].ports[0]",
        "as a member of cx7",
        "only this collection's configuration",
        "remove enP2p1s0f1np1 from the file",
    ),
    "netplan that cannot be read": (
        lambda: seen(pair(), 0, unreadable=[{"file": CX7, "reason": "line 3 is no YAML"}]),
        "nodes[0].netplan",
        "/etc/netplan/40-cx7.yaml of spark1: line 3 is no YAML",
        "a valid configuration",
        "remove it with `sudo mv /etc/netplan/40-cx7.yaml /etc/netplan/40-cx7.yaml.off`",
    ),
    "the device that Ansible comes over": (
        lambda: seen(pair(), 1, interfaces=addressed("enp1s0f1np1", "192.168.1.12/24")),
        "nodes[1].ports[0]",
        "enp1s0f1np1 of spark2 has 192.168.1.12",
        "only the fabric uses",
        "another network",
    ),
    "no such device": (
        lambda: [
            spark(n, group, gb10_fabric_topology="socket", gb10_fabric_ports=[0], gb10_fabric_interface=d)
            for n, group, d in SOCKETS
        ],
        "nodes[0].interface",
        "spark1 has no interface eth9",
        "enP7s7",
        "correct gb10_fabric_interface",
    ),
    "no model": (lambda: pair(gb10_model=" "), "gb10_model", "unknown model ' '", "Hugging Face Hub", "docs/models.md"),
    "the runtime where the services write": (
        lambda: pair(gb10_install_dir="/var/lib/gb10/opt"),
        "gb10_install_dir",
        "/var/lib/gb10/opt overlaps with /var/lib/gb10, the folder of gb10",
        "only root can change",
        "outside /var/lib/gb10",
    ),
    "the services' folder in the runtime": (
        lambda: pair(gb10_install_dir="/var/lib", gb10_service_user="vllm"),
        "gb10_install_dir",
        "/var/lib overlaps with /var/lib/vllm, the folder of vllm",
        "only root can change",
        "outside /var/lib/vllm",
    ),
    "a folder of the services' in the runtime": (
        lambda: pair(gb10_service_read_write_paths=["/data", "/opt/gb10/cache"]),
        "gb10_service_read_write_paths[1]",
        "/opt/gb10/cache overlaps with /opt/gb10, which belongs to root",
        "only the services use",
        "outside /opt/gb10",
    ),
    "a folder of the services' around root's": (
        lambda: pair(gb10_service_read_write_paths=["/data/.//", "/var//lib/"]),
        "gb10_service_read_write_paths[1]",
        "/var//lib/ overlaps with /var/lib/gb10-netplan, which belongs to root",
        "only the services use",
        "outside /var/lib/gb10-netplan",
    ),
    "a folder that climbs": (
        lambda: pair(gb10_service_read_write_paths=["/data/../etc"]),
        "gb10_service_read_write_paths[0]",
        "'/data/../etc'",
        "absolute path",
        "gb10_service_read_write_paths",
    ),
    "a model that the services can change": (
        lambda: pair(gb10_service_read_write_paths=["/data"], gb10_model="/data/models/tiny"),
        "gb10_model",
        "root reads /data/models/tiny",
        "the services cannot change",
        "out of /data",
    ),
    "a user of others": (
        lambda: pair(gb10_service_user="nobody"),
        "gb10_service_user",
        "'nobody'",
        "dedicated user name",
        "correct",
    ),
    "a user that is a path": (
        lambda: pair(gb10_service_user="../etc"),
        "gb10_service_user",
        "'../etc'",
        "dedicated user name",
        "correct",
    ),
    "no pool": (
        lambda: pair(gb10_fabric_cidr="ten"),
        "gb10_fabric_cidr",
        "'ten'",
        "10.110.0.0/16",
        "correct gb10_fabric_cidr",
    ),
    "fabric": (lambda: pair(gb10_fabric_mtu=70000), "gb10_fabric_mtu", "70000", "1280 to 9216", "9000"),
}


@pytest.mark.parametrize(("nodes", "path", "found", "expected", "fix"), BAD.values(), ids=BAD)
def test_one_mistake_is_one_problem(
    nodes: Callable[[], list[Node]], path: str, found: str, expected: str, fix: str
) -> None:
    problems = mistakes(nodes())
    assert len(problems) == 1, report(problems)
    (problem,) = problems
    assert problem.path == path
    assert found in problem.found
    assert expected in problem.expected
    assert fix in problem.fix


def test_a_lock_that_cannot_be_read() -> None:
    (problem,) = mistakes(pair(), lock="")
    assert (problem.path, problem.found) == (
        "gb10_runtime_lock",
        "'vllm.lock' is not a readable file on the controller",
    )


@pytest.mark.parametrize(
    "name",
    [
        "my_gb10_set",
        "company_ray_cluster_name",
        "vllm_version",
        "ray_version",
        "gb10",
        "http_port",
        "lab_name",
        "__vllm_serve_rollbc",
        "gb10_plan",
    ],
)
def test_a_foreign_variable_is_left_alone(name: str) -> None:
    nodes = pair()
    nodes[0]["variables"].append(name)
    assert planned(nodes)


def test_a_refused_value_is_one_problem_or_one_for_each_node() -> None:
    """All nodes have most variables from the same place."""
    both = {"name": "vllm_serve_rollback", "found": "'perhaps'", "expected": "a value of type bool"}
    one = {"name": "x", "found": "1", "expected": "2"}
    nodes = pair()
    for node in nodes:
        node["refused"] = [both]
    nodes[1]["refused"] = [both, one]
    assert [str(problem) for problem in mistakes(nodes)] == [
        "vllm_serve_rollback: 'perhaps'. Expected: a value of type bool. Fix: correct vllm_serve_rollback.",
        "nodes[1].x: 1. Expected: 2. Fix: correct x.",
    ]


def test_every_public_variable_is_known() -> None:
    nodes = pair()
    nodes[0]["variables"] += [name for names in KNOWN.values() for name in names]
    assert len(nodes[0]["variables"]) > 40
    assert planned(nodes)


def test_settings_of_a_node_may_differ() -> None:
    head = spark(1, "head", gb10_fabric_ports=[0], gb10_fabric_addresses=["10.110.5.1/24", "10.110.6.1/24"])
    worker = spark(2, "worker", gb10_fabric_ports=[1], gb10_fabric_addresses=["10.110.5.2/24", "10.110.6.2/24"])
    assert [node["address"] for node in planned([head, worker])["nodes"]] == ["10.110.5.1", "10.110.5.2"]


OURS = [listener(port, "ray", "gb10-ray.service") for port in (6379, 6380, 6381, 8265)] + [
    listener(8000, "vllm", "gb10-vllm.service")
]


def test_a_cluster_that_is_up_can_be_planned_again() -> None:
    nodes = seen(pair(), 0, listeners=OURS, interfaces=addressed("enp1s0f1np1", "10.110.0.1/24"))
    assert planned(nodes) == planned(pair())


def test_a_worker_may_use_the_heads_ports_for_itself() -> None:
    assert planned(seen(pair(), 1, listeners=[listener(8000), listener(8265), listener(6379)]))


def test_listeners_of_head_and_worker() -> None:
    settings = parse(pair(), LOCK).head.settings
    head, worker = (node_checks.listeners(settings, is_head, 2) for is_head in (True, False))
    assert head["gb10_api_port"] == 8000
    assert worker.keys() < head.keys()
    assert head.keys() - worker.keys() == {
        "gb10_api_port",
        "gb10_ray_port.dashboard",
        "gb10_ray_port.port",
        "gb10_ray_port.ray-client-server-port",
    }


def test_every_problem_of_one_inventory_is_in_one_list() -> None:
    common = {
        "gb10_fabric_mtu": 70000,
        "gb10_api_port": 8265,
        "gb10_tensor_parallel_size": 4,
        "gb10_extra_env": {"VLLM_HOST_IP": "10.0.0.1"},
        "gb10_distributed_executor_backend": "uni",
        "gb10_fabric_ports": [1],
    }
    head, worker = pair(**common)
    head["settings"]["gb10_fabric_addresses"] = ["10.110.0.1/24", "10.110.1.1/24"]
    worker["settings"] |= {
        "gb10_fabric_addresses": ["10.110.0.1/24", "192.168.9.2/24"],
        "gb10_model": "/srv/models/other",
    }
    worker |= {"group": "head", "variables": ["gb10_modle"]}
    worker["observed"] |= {
        "model": None,
        "model_at": "/srv/models/tiny",
        "listeners": [listener(6380)],
        "interfaces": addressed("enP7s7", "10.110.200.5/24"),
        "gpu": {"gpus": [], "reason": "nvidia-smi is not installed"},
    }
    third = {**spark(3, "", **common), "unreachable": "timed out", "observed": {}}
    third["settings"]["gb10_fabric_ports"] = [7]
    problems = mistakes([head, worker, third], lock="")
    assert {problem.path for problem in problems} == {
        "gb10_api_port",
        "gb10_extra_env.VLLM_HOST_IP",
        "gb10_distributed_executor_backend",
        "gb10_fabric_mtu",
        "gb10_fabric_cidr",
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
        assert (
            f"\n  {number}. {problem.path}: {problem.found}. Expected: {problem.expected}. Fix: {problem.fix}." in text
        )


def test_planning_leaves_its_input_alone() -> None:
    nodes = pair(gb10_api_port="8001")
    before = copy.deepcopy(nodes)
    planned(nodes)
    assert nodes == before


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(owned("/etc/netplan/60-gb10-qsfp.yaml"), id="our own file"),
        # netplan keeps NetworkManager away from networkd's devices.
        pytest.param(owned(PROFILE, "match", "NetworkManager"), id="a profile for every device"),
    ],
)
def test_what_may_configure_a_device_of_the_fabric(owner: dict[str, Any]) -> None:
    assert planned(seen(pair(), 1, interfaces=owner))


@pytest.mark.parametrize(("file", "kind"), [(CX7, "ethernets"), (PROFILE, "NetworkManager")])
def test_a_takeover_is_done_on_request(file: str, kind: str) -> None:
    assert (
        planned(seen(pair(gb10_fabric_replace_existing="yes"), 1, interfaces=owned(file, kind=kind)))["takeover"]
        is True
    )


def test_what_an_earlier_plan_addressed_is_no_overlap() -> None:
    """After a change of gb10_fabric_ports the old port still has its address when the new plan is computed."""
    ours = [{"file": "/etc/netplan/60-gb10-qsfp.yaml", "id": "enp1s0f0np0", "kind": "ethernets", "by": "name"}]
    assert planned(seen(pair(), 1, interfaces=addressed("enp1s0f0np0", "10.110.0.2/24", owners=ours)))


def rdma(*indices: int) -> dict[str, Any]:
    """The RDMA devices of spark2's rails: a RoCE v2 GID of the address at the given index, a link-local GID at 1."""
    hosts = ("10.110.0.2", "10.110.1.2")
    return {
        hca: {
            "interface": "",
            "state": "ACTIVE",
            "link_layer": "Ethernet",
            "gids": [
                {"index": 1, "gid": "fe80::1", "type": "RoCE v2"},
                {"index": index, "gid": f"::ffff:{host}", "type": "RoCE v2"},
            ],
        }
        for hca, host, index in zip(("rocep1s0f1", "roceP2p1s0f1"), hosts, indices, strict=True)
    }


LIVE = {
    **observed("192.168.1.12")["interfaces"],
    "enp1s0f1np1": interface("10.110.0.2/24", mtu=9000, hca="rocep1s0f1"),
    "enP2p1s0f1np1": interface("10.110.1.2/24", mtu=9000, hca="roceP2p1s0f1"),
}


def test_the_gid_index_is_pinned_on_request_where_the_fabric_is_live() -> None:
    plan = planned(seen(pair(gb10_fabric_pin_gid_index=True), 1, interfaces=LIVE, rdma=rdma(3, 3)))
    assert [node["environment"].get("NCCL_IB_GID_INDEX") for node in plan["nodes"]] == [None, "3"]
    plan = planned(seen(pair(), 1, interfaces=LIVE, rdma=rdma(3, 3)))
    assert "NCCL_IB_GID_INDEX" not in plan["nodes"][1]["environment"]


def test_rails_with_different_gid_indices_cannot_be_pinned() -> None:
    (problem,) = mistakes(seen(pair(gb10_fabric_pin_gid_index=True), 1, interfaces=LIVE, rdma=rdma(3, 5)))
    assert problem.path == "nodes[1].rdma.gids"
    assert "rocep1s0f1 has 3, roceP2p1s0f1 has 5" in problem.found


def test_a_slow_link_is_a_warning() -> None:
    slow = {"driver": "mlx5_core", "pci": {"address": "0002:01:00.1", "width": 2, "speed": "32.0 GT/s PCIe"}}
    nodes = seen(pair(), 1, interfaces=addressed("enP2p1s0f1np1", **slow))
    assert planned(nodes)
    (sentence,) = node_checks.warnings(parse(nodes, LOCK).nodes)
    assert sentence.startswith("spark2: enP2p1s0f1np1: the PCIe link of 0002:01:00 runs x2")


DIGEST = "vllm/vllm-openai@sha256:" + "1" * 64


def test_a_container_in_place_of_an_environment() -> None:
    native, inside = (
        planned(pair()),
        planned(pair(gb10_runtime="container", gb10_container_image=DIGEST, gb10_container_args=["--env=A=1"])),
    )
    assert inside["runtime"] == {
        "kind": "container",
        "name": DIGEST,
        "image": DIGEST,
        "engine": "docker",
        "engine_args": ["--env=A=1"],
        "options_of": "",
        "base": DIGEST,
        "tag": "",
        "pins": {},
        "builds": [],
        "lock": "vllm.lock",
    }
    assert {key for key in native if native[key] != inside[key]} == {"runtime", "serve", "nccl", "nodes", "node"}
    for own, other in zip(native["nodes"], inside["nodes"], strict=True):
        # An image has its own PATH, and its vLLM, which the patches depend on, is unknown before a query.
        tools = {"PATH": f"{native['runtime']['path']}/bin:{toolchain.SYSTEM_PATH}"}
        assert (own["foreseen"].keys(), other["foreseen"]) == ({"vllm_patch"}, {})
        assert own == {**other, "environment": {**other["environment"], **tools}, "foreseen": own["foreseen"]}
    # The serving plan is the same, except for the image's options, which are unknown too.
    assert {key for key in native["serve"] if native["serve"][key] != inside["serve"][key]} == {"why", "compiled"}
    assert (native["runtime"]["kind"], native["runtime"]["name"]) == ("native", native["runtime"]["path"])


def test_additions_of_another_runtime_do_not_count() -> None:
    nodes = pair(gb10_runtime="container", gb10_container_image=DIGEST)
    addition = {"environment": {}, "flags": [], "files": {}, "mounts": []}
    for node in nodes:
        node["observed"]["additions"] = {
            "vllm_runtime": {**addition, "runtime": DIGEST},
            "of_old": {**addition, "runtime": "/opt/gb10/runtime/x"},
        }
    assert [list(node["additions"]) for node in planned(nodes)["nodes"]] == [["vllm_runtime"], ["vllm_runtime"]]


@pytest.mark.parametrize(
    "image",
    [DIGEST, "sha256:" + "1" * 64, "nvcr.io/nvidia/vllm:26.04-py3", "localhost:5000/a/b_c:v1@sha256:" + "1" * 64],
)
def test_images(image: str) -> None:
    assert planned(pair(gb10_runtime="container", gb10_container_image=image))["runtime"]["image"] == image


def test_everything_wrong_with_a_container_at_once() -> None:
    settings = {
        "gb10_runtime": "docker",
        "gb10_container_image": "vllm/vllm-openai@sha256:12",
        "gb10_container_engine": "containerd",
        "gb10_container_args": ["--env=A=1", "--name=mine", "--privileged", "-d"],
    }
    problems = {problem.path: str(problem) for problem in mistakes(pair(**settings))}
    assert list(problems) == [
        "gb10_runtime",
        "gb10_container_engine",
        "gb10_container_image",
        "gb10_container_args[1]",
        "gb10_container_args[2]",
        "gb10_container_args[3]",
    ]
    assert "'docker'. Expected: '' for gb10_stack's runtime or native or container." in problems["gb10_runtime"]
    assert "Expected: docker or podman." in problems["gb10_container_engine"]
    assert "with 64 digits" in problems["gb10_container_image"]
    assert "the container gets only the devices that it needs" in problems["gb10_container_args[2]"]


def test_a_container_without_an_image() -> None:
    (problem,) = mistakes(pair(gb10_runtime="container"))
    assert problem.path == "gb10_container_image"


def test_an_image_that_is_known_to_have_no_ray() -> None:
    image = "docker.io/vllm/vllm-openai:v0.32.0@sha256:" + "1" * 64
    (problem,) = mistakes(pair(gb10_runtime="container", gb10_container_image=image))
    assert (problem.path, "gb10_distributed_executor_backend: mp" in problem.fix) == ("image", True)
    assert (
        planned(pair(gb10_runtime="container", gb10_container_image=image, gb10_distributed_executor_backend="mp"))[
            "runtime"
        ]["image"]
        == image
    )


OLD_RAY = lock_of("vllm==0.32.0", "ray==2.48.0")
IMAGE = "sha256:" + "1" * 64


def test_a_ray_without_a_token_is_refused_where_it_runs() -> None:
    (problem,) = mistakes(pair(), OLD_RAY)
    assert (problem.path, problem.found.split(",")[0]) == ("gb10_runtime_lock", "Ray 2.48.0 has no RAY_AUTH_MODE")
    plan, problems = cluster_plan(pair(gb10_distributed_executor_backend="mp"), OLD_RAY)
    assert (plan["executor"], problems) == ("mp", [])


def option(name: str, *choices: str) -> dict[str, Any]:
    return {"name": name, "kind": "value", "aliases": [], "choices": list(choices), "fold": "", "open": False}


def queried(*options: dict[str, Any], ray: str = "2.60.0", **settings: Any) -> list[Node]:
    """Return two nodes whose image was queried: it has a later release, and more options than the table's vLLM."""
    nodes = pair(gb10_runtime="container", gb10_container_image=IMAGE, **settings)
    usual = [
        option(f"--{name}")
        for name in ("gpu-memory-utilization", "kv-cache-memory-bytes", "max-model-len", "max-num-seqs", "moe-backend")
    ]
    found = {"image": IMAGE, "image_id": "1" * 64, "version": "0.41.0+local", "ray": ray, "nccl": ""}
    found |= {"options": [*usual, *options], "variables": ["VLLM_X"]}
    nodes[0]["observed"]["image_options"] = found
    return nodes


def test_the_options_of_a_queried_image_count() -> None:
    given = {"gb10_vllm_extra_args": ["--load-format", "b12x", "--own", "1"], "gb10_extra_env": {"VLLM_X": "1"}}
    plan = planned(queried(option("--load-format", "auto", "b12x"), option("--own"), **given))
    assert (plan["stack"]["vllm"], plan["runtime"]["options_of"]) == ("0.41.0", "1" * 64)
    given = {"gb10_vllm_extra_args": ["--load-format", "c12x", "--other", "1"], "gb10_extra_env": {"VLLM_Y": "1"}}
    paths = [problem.path for problem in mistakes(queried(option("--load-format", "auto", "b12x"), **given))]
    assert paths == ["gb10_vllm_extra_args[1]", "gb10_vllm_extra_args[2]", "gb10_extra_env.VLLM_Y"]


def test_the_options_of_an_image_that_is_not_queried_yet_are_not_checked() -> None:
    nodes = queried(gb10_vllm_extra_args=["--own", "1", "--max-model-len", "4096"], gb10_extra_env={"VLLM_Y": "1"})
    nodes[0]["observed"]["image_options"]["image"] = "sha256:" + "2" * 64
    plan = planned(nodes)
    assert plan["runtime"]["options_of"] == ""
    assert (
        f"the release in {IMAGE} is unknown, so arguments are checked and patches chosen when the image is on the head"
        in plan["serve"]["why"]
    )


@pytest.mark.parametrize(("ray", "paths"), [("2.48.0", ["gb10_container_image"]), ("", ["image"]), ("2.60.0", [])])
def test_the_ray_of_a_queried_image_counts(ray: str, paths: list[str]) -> None:
    plan, problems = cluster_plan(queried(ray=ray))
    assert ([problem.path for problem in problems], bool(plan)) == (paths, not paths)
    planned(queried(ray=ray, gb10_distributed_executor_backend="mp"))


@pytest.mark.parametrize(
    ("owner", "kept"), [("990:980", "990:980"), ("0 --privileged", ""), ("990:980\nExecStartPre=/x", ""), ("", "")]
)
def test_only_numbers_of_a_node_reach_its_unit(owner: str, kept: str) -> None:
    nodes = pair()
    nodes[0]["observed"]["state"] = {"service_user": owner, "service_user_ready": "yes", "of_a_later_release": 1}
    state = planned(nodes)["nodes"][0]["state"]
    assert (state["service_user"], state["service_user_ready"], "of_a_later_release" in state) == (kept, False, False)


HOSTILE_OPTIONS: dict[str, Any] = {
    "no list": {"options": {}},
    "a name with blanks": {"options": [option("--a b")]},
    "no options": {"options": []},
    "a variable of two lines": {"variables": ["A\nB"]},
    "another form": {"options": [7]},
}


@pytest.mark.parametrize("changes", HOSTILE_OPTIONS.values(), ids=HOSTILE_OPTIONS)
def test_options_that_the_head_reports_have_their_form(changes: dict[str, Any]) -> None:
    """Those of an image are queried again, because the head keeps them in a file."""
    nodes = queried()
    nodes[0]["observed"]["image_options"] |= changes
    assert planned(nodes)["runtime"]["options_of"] == ""
    nodes = pair()
    nodes[0]["queried"] = {"options": [option("--a")], "variables": [], **changes}
    assert "nodes[0].queried" in [problem.path for problem in mistakes(nodes)]


@pytest.mark.parametrize("release", [{"version": "1 2"}, {"ray": "$(x)"}, {"version": 7}])
def test_releases_that_the_head_reports_have_their_form(release: dict[str, Any]) -> None:
    nodes = queried()
    nodes[0]["observed"]["image_options"] |= release
    assert planned(nodes)["runtime"]["options_of"] == ""


def _pair_with(**variables: str) -> dict[str, Any]:
    return planned(pair(gb10_extra_env=variables))


def _lines(plan: dict[str, Any], rule: str) -> list[str]:
    return [line for line in plan["serve"]["findings"] if f" {rule}, " in line]


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"), ("NCCL_NET", "socket")])
def test_sockets_of_a_users_variable_are_reported_with_their_cost(name: str, value: str) -> None:
    plan = _pair_with(**{name: value})
    (line,) = _lines(plan, "roce-disabled")
    assert line.startswith(
        f"warning roce-disabled, gb10_extra_env.{name}: '{value}' on spark1, spark2, with 2 pipeline stages. "
    )
    assert "half of the speed" in line and (plan["tensor_parallel_size"], plan["pipeline_parallel_size"]) == (1, 2)
    assert line in plan["serve"]["warnings"]
    fast = planned(pair())["serve"]["expected"]["tokens_per_second"]
    assert plan["serve"]["expected"]["tokens_per_second"] == pytest.approx(fast / 2, rel=0.1)


def test_the_lan_of_a_users_variable_is_reported() -> None:
    assert (
        _lines(_pair_with(NCCL_IB_DISABLE="0", NCCL_NET="IB", NCCL_SOCKET_IFNAME="=enp1s0f1np1"), "socket-interface")
        == []
    )
    plan = _pair_with(NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="enP7s7", GLOO_SOCKET_IFNAME="enP7s7")
    assert len(_lines(plan, "roce-disabled")) == 1
    lines = _lines(plan, "socket-interface")
    assert [line.split(". ")[0] for line in lines] == [
        f"warning socket-interface, gb10_extra_env.{name}: 'enP7s7' instead of 'enp1s0f1np1' on {node}"
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        for node in ("spark1", "spark2")
    ]


def test_planned_sockets_are_no_finding() -> None:
    for settings in ({"gb10_fabric_transport": "socket"}, {"gb10_fabric_topology": "socket"}, {}):
        plan = planned(pair(**settings))
        assert _lines(plan, "roce-disabled") == _lines(plan, "socket-interface") == []
    assert _lines(planned([spark(1, "head", gb10_extra_env={"NCCL_IB_DISABLE": "1"})]), "roce-disabled") == []

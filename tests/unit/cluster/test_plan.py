"""Tests of the cluster plan: valid nodes give one plan, invalid nodes give all problems at once and no plan."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import (
    KNOWN,
    LOCK,
    MODEL,
    Node,
    interface,
    lock_of,
    mistakes,
    node_plan,
    observed,
    option,
    pair,
    parts,
    planned,
    queried,
    spark,
)
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import node_checks
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import of_plan as firewall_of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain

SNAPSHOT = Path(__file__).parents[1] / "data" / "plan_two_spark.json"
DIGEST = "vllm/vllm-openai@sha256:" + "1" * 64
NO_RAY = "docker.io/vllm/vllm-openai:v0.32.0@sha256:" + "1" * 64
OLD_RAY = lock_of("vllm==0.32.0", "ray==2.48.0")


def change(nodes: list[Node], index: int, **changes: Any) -> list[Node]:
    """Return the nodes with one of them changed: settings by name, everything else by key."""
    for name, value in changes.items():
        (nodes[index] if name in nodes[index] else nodes[index]["settings"])[name] = value
    return nodes


def seen(nodes: list[Node], *indices: int, **changes: Any) -> list[Node]:
    """Return the nodes with other facts of some of them."""
    for index in indices:
        nodes[index]["observed"].update(changes)
    return nodes


EXPORTER = "gb10-node-exporter.service"


def listener(port: int, process: str = "nginx", unit: str = "nginx.service") -> dict[str, Any]:
    return {"address": "0.0.0.0", "port": port, "pid": 99, "process": process, "unit": unit}


def addressed(name: str, *addresses: str, **facts: Any) -> dict[str, Any]:
    return {**observed("192.168.1.12")["interfaces"], name: interface(*addresses, **facts)}


def without(name: str) -> dict[str, Any]:
    return {other: value for other, value in observed("192.168.1.12")["interfaces"].items() if other != name}


def owned(file: str, by: str = "name", kind: str = "ethernets") -> dict[str, Any]:
    return addressed("enP2p1s0f1np1", owners=[{"file": file, "id": "cx7", "kind": kind, "by": by}])


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

SOCKETS = [(1, "head", "eth9"), (2, "worker", "enp1s0f0np0")]
CX7, PROFILE = "/etc/netplan/40-cx7.yaml", "/etc/NetworkManager/system-connections/fast.nmconnection"


def inside(image: str = DIGEST, **settings: Any) -> list[Node]:
    """Return two nodes whose ranks run in containers."""
    return pair(gb10_runtime="container", gb10_container_image=image, **settings)


def with_addition(nodes: list[Node]) -> list[Node]:
    addition = {"environment": {}, "flags": [], "files": {}, "mounts": []}
    given = {"vllm_runtime": {**addition, "runtime": DIGEST}, "of_old": {**addition, "runtime": "/opt/gb10/runtime/x"}}
    return seen(nodes, 0, 1, additions=given)


OURS = [listener(port, "ray", "gb10-ray.service") for port in (6379, 6380, 6381, 8265)] + [
    listener(8000, "vllm", "gb10-vllm.service")
]
#: After a change of gb10_fabric_ports the old port still has its address when the new plan is computed.
FORMER = [{"file": "/etc/netplan/60-gb10-qsfp.yaml", "id": "enp1s0f0np0", "kind": "ethernets", "by": "name"}]
MP = {"gb10_distributed_executor_backend": "mp"}
STORED = {"gb10_model": "mine", "gb10_models": {"mine": {"hub": "org/model", "revision": "abc"}}}
FOLDER = "/opt/gb10/models/org--model/abc"
#: Nodes, and parts of their plan.
PLANS: dict[str, tuple[list[Node], dict[str, Any]]] = {
    "one node by its management address": (
        [spark(1, "head")],
        {
            "tensor_parallel_size": 1,
            "head": {"name": "spark1", "address": "192.168.1.11"},
            "nodes.0.interface": "enP7s7",
            "nodes.0.rails": [],
            "nodes.0.netplan": {},
            "executor": "mp",
            "ranks_unit": "gb10-vllm.service",
        },
    ),
    "one node needs neither QSFP ports nor a free pool": (
        seen([spark(1, "head")], 0, interfaces={"eth0": interface("10.1.2.3/8")}),
        {"nodes.0.address": "192.168.1.11"},
    ),
    "one node may have Ray": (
        [spark(1, "head", gb10_distributed_executor_backend="ray")],
        {"executor": "ray", "ranks_unit": "gb10-ray.service"},
    ),
    "no rank of one node waits on the master port": ([spark(1, "head", gb10_api_port=29501)], {"api_port": 29501}),
    "Ray on several nodes": (pair(), {"executor": "ray", "ranks_unit": "gb10-ray.service"}),
    "text for numbers and booleans": (
        pair(gb10_api_port="8001", gb10_fabric_mtu="4200", gb10_fabric_ports=["0"], gb10_allow_restart="no"),
        {"api_port": 8001, "mtu": 4200, "allow_restart": False, "nodes.0.interface": "enp1s0f0np0"},
    ),
    "a number as text on one node is no difference": (
        change(pair(), 1, gb10_api_port="8000", gb10_extra_env={}),
        {"api_port": 8000},
    ),
    **{
        f"{text!r} as a boolean": (pair(gb10_allow_restart=text), {"allow_restart": expected})
        for text, expected in (
            ("true", True),
            ("Yes", True),
            ("1", True),
            ("false", False),
            ("off", False),
            (False, False),
        )
    },
    **{f"the API on {port}": (pair(gb10_api_port=port), {"api_port": port}) for port in (1024, 19999, 21000, 65535)},
    **{
        f"Ray from {port}": (pair(gb10_ray_port=port), {"ray_port": port})
        for port in (1024, 8257, 8266, 19992, 21000, 65528)
    },
    **{
        f"the name of {model} is {expected}": (
            pair(gb10_model=model, gb10_served_model_name=served),
            {"served_model_name": expected},
        )
        for model, served, expected in (
            (MODEL, "", "tiny"),
            (f"{MODEL}/", "", "tiny"),
            ("org/Name-1B", "", "Name-1B"),
            (MODEL, "mine", "mine"),
        )
    },
    "a model of the Hub without the store": (
        seen(pair(gb10_model="org/model", model_store_enabled=False), 0, 1, model=None),
        {"nodes.0.environment.HF_HUB_OFFLINE": None, "model": "org/model", "store": {}},
    ),
    "a model of the Hub from the store": (
        seen(pair(**STORED), 0, 1, model=None),
        {
            "model": FOLDER,
            "served_model_name": "model",
            "store": {"folder": FOLDER, "hub": "org/model", "revision": "abc", "source": ""},
            "nodes.0.environment.HF_HUB_OFFLINE": "1",
            "nodes.1.environment.HF_HUB_OFFLINE": "1",
        },
    ),
    "a folder that is filled from another need not be there": (
        seen(pair(model_store_source="/mnt/tiny"), 0, 1, model=None),
        {"store": {"folder": MODEL, "hub": "", "revision": "", "source": "/mnt/tiny"}},
    ),
    "the user's environment reaches every rank": (
        pair(gb10_extra_env={"OMP_NUM_THREADS": 1}),
        {f"nodes.{index}.environment.OMP_NUM_THREADS": "1" for index in (0, 1)},
    ),
    "pipeline parallelism leaves the rest to tensor parallelism": (
        pair(gb10_pipeline_parallel_size=2),
        {"tensor_parallel_size": 1, "pipeline_parallel_size": 2},
    ),
    "settings of a node may differ": (
        [
            spark(1, "head", gb10_fabric_ports=[0], gb10_fabric_addresses=["10.110.5.1/24", "10.110.6.1/24"]),
            spark(2, "worker", gb10_fabric_ports=[1], gb10_fabric_addresses=["10.110.5.2/24", "10.110.6.2/24"]),
        ],
        {"nodes.0.address": "10.110.5.1", "nodes.1.address": "10.110.5.2"},
    ),
    "a worker may use the head's ports": (
        seen(pair(), 1, listeners=[listener(8000), listener(8265), listener(6379)]),
        {},
    ),
    "our own netplan file": (seen(pair(), 1, interfaces=owned("/etc/netplan/60-gb10-qsfp.yaml")), {}),
    # netplan keeps NetworkManager away from networkd's devices.
    "a profile for every device": (seen(pair(), 1, interfaces=owned(PROFILE, "match", "NetworkManager")), {}),
    **{
        f"a takeover from {kind}": (
            seen(pair(gb10_fabric_replace_existing="yes"), 1, interfaces=owned(file, kind=kind)),
            {"takeover": True},
        )
        for file, kind in ((CX7, "ethernets"), (PROFILE, "NetworkManager"))
    },
    "an address of an earlier plan is no overlap": (
        seen(pair(), 1, interfaces=addressed("enp1s0f0np0", "10.110.0.2/24", owners=FORMER)),
        {},
    ),
    "a pinned GID index where the fabric is live": (
        seen(pair(gb10_fabric_pin_gid_index=True), 1, interfaces=LIVE, rdma=rdma(3, 3)),
        {"nodes.0.environment.NCCL_IB_GID_INDEX": None, "nodes.1.environment.NCCL_IB_GID_INDEX": "3"},
    ),
    "no pinned GID index": (
        seen(pair(), 1, interfaces=LIVE, rdma=rdma(3, 3)),
        {"nodes.1.environment.NCCL_IB_GID_INDEX": None},
    ),
    "additions of this runtime only": (
        with_addition(inside()),
        {
            f"nodes.{index}.additions": {
                "vllm_runtime": {"runtime": DIGEST, "environment": {}, "flags": [], "files": {}, "mounts": []}
            }
            for index in (0, 1)
        },
    ),
    **{
        f"the image {image}": (inside(image), {"runtime.image": image})
        for image in (
            DIGEST,
            "sha256:" + "1" * 64,
            "nvcr.io/nvidia/vllm:26.04-py3",
            "localhost:5000/a/b_c:v1@sha256:" + "1" * 64,
        )
    },
    "an image without Ray": (inside(NO_RAY, **MP), {"runtime.image": NO_RAY}),
    "the options of a queried image": (
        queried(
            inside(gb10_vllm_extra_args=["--load-format", "b12x", "--own", "1"], gb10_extra_env={"VLLM_X": "1"}),
            DIGEST,
            more=[option("--load-format", "auto", "b12x"), option("--own")],
        ),
        {"stack.vllm": "0.41.0", "runtime.options_of": "2" * 64},
    ),
    "the options of another image are not checked": (
        queried(inside(gb10_vllm_extra_args=["--own", "1"], gb10_extra_env={"VLLM_Y": "1"}), "sha256:" + "2" * 64),
        {
            "runtime.options_of": "",
            "serve.why.-1": f"the release in {DIGEST} is unknown, so arguments are checked and patches chosen when the "
            "image is on the head",
        },
    ),
    **{
        f"an image with Ray {ray!r} and without its use": (queried(inside(**MP), DIGEST, ray=ray), {"executor": "mp"})
        for ray in ("2.48.0", "")
    },
    "an image with Ray": (queried(inside(), DIGEST), {"executor": "ray"}),
    **{
        f"the owner {owner!r}": (
            seen(pair(), 0, state={"service_user": owner, "service_user_ready": "yes", "of_a_later_release": 1}),
            {
                "nodes.0.state.service_user": kept,
                "nodes.0.state.service_user_ready": False,
                "nodes.0.state.of_a_later_release": None,
            },
        )
        for owner, kept in (
            ("990:980", "990:980"),
            ("0 --privileged", ""),
            ("990:980\nExecStartPre=/x", ""),
            ("", ""),
        )
    },
    # The head keeps the answer in a file. An invalid one is queried again.
    **{
        f"an image's query with {changes}": (queried(inside(), DIGEST, **changes), {"runtime.options_of": ""})
        for changes in (
            {"options": {}},
            {"options": [option("--a b")]},
            {"options": []},
            {"variables": ["A\nB"]},
            {"options": [7]},
            {"version": "1 2"},
            {"ray": "$(x)"},
            {"version": 7},
        )
    },
    "one node without InfiniBand": (
        seen([spark(1, "head")], 0, infiniband=False),
        {"nodes.0.infiniband": False},
    ),
    "names of other programs": (
        change(
            pair(),
            0,
            variables=[
                *("my_gb10_set", "company_ray_cluster_name", "vllm_version", "ray_version", "gb10", "http_port"),
                *(
                    "lab_name",
                    "__vllm_serve_rollbc",
                    "gb10_plan",
                    *(name for names in KNOWN.values() for name in names),
                ),
            ],
        ),
        {},
    ),
}


@pytest.mark.parametrize(("nodes", "expected"), PLANS.values(), ids=PLANS)
def test_parts_of_a_plan(nodes: list[Node], expected: dict[str, Any]) -> None:
    assert parts(planned(nodes), expected) == expected


def test_the_plan_of_a_pair_is_the_recorded_one_in_any_order() -> None:
    nodes = pair()
    before = copy.deepcopy(nodes)
    plan = planned(nodes)
    assert_recorded(SNAPSHOT, json.dumps(plan, indent=1, sort_keys=True) + "\n")
    assert nodes == before, "planning leaves its input alone"
    running = seen(nodes, 0, listeners=OURS, interfaces=addressed("enp1s0f1np1", "10.110.0.1/24"))
    assert planned(running[::-1]) == plan, "a cluster that is up can be planned again"


def test_a_single_node_has_neither_peers_nor_ranks_to_meet() -> None:
    alone = typed(node_plan(planned([spark(1, "head")]), "spark1"))
    assert firewall_of_plan.needs(alone) == {}
    argv = launch_argv.start_argv(alone)
    assert (argv[1], [word for word in argv if "master" in word or "nnodes" in word]) == ("serve", [])
    stored = planned(seen(pair(**STORED), 0, 1, model=None))["serve"]["args"]
    assert not any(word.startswith("--revision") for word in stored), "the store has the revision"


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
    "two nodes at one address": (
        lambda: change(pair(), 1, address="192.168.1.11"),
        "nodes[1].ansible_host",
        "192.168.1.11, the address of spark1",
        "a separate address",
        "correct ansible_host of spark2",
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
    "nowhere": (
        lambda: change(change(pair(), 0, group=""), 1, group=""),
        "groups",
        "spark1, spark2 are in no child group",
        "one host in the group head",
        "move the first host",
    ),
    "misspelt": (
        lambda: change(pair(), 1, variables=["gb10_fabric_mtuu"]),
        "nodes[1].gb10_fabric_mtuu",
        "gb10_fabric_mtuu, set for spark2, is not a variable of this collection",
        "gb10_fabric_mtu",
        "rename it to gb10_fabric_mtu",
    ),
    "misspelt on all nodes": (
        lambda: change(change(pair(), 0, variables=["gb10_fabric_mtuu"]), 1, variables=["gb10_fabric_mtuu"]),
        "gb10_fabric_mtuu",
        "gb10_fabric_mtuu, set for all nodes, is not a variable of this collection",
        "gb10_fabric_mtu",
        "rename it to gb10_fabric_mtu",
    ),
    "a word of vLLM's users": (
        lambda: change(pair(), 1, variables=["vllm_serve_port"]),
        "nodes[1].vllm_serve_port",
        "vllm_serve_port, set for spark2, is not a variable of this collection",
        "gb10_api_port",
        "rename it to gb10_api_port",
    ),
    "near to none": (
        lambda: change(pair(), 1, variables=["vllm_serve_flags"]),
        "nodes[1].vllm_serve_flags",
        "vllm_serve_flags, set for spark2, is not a variable of this collection",
        "a variable that a role's argument_specs list",
        "remove it",
    ),
    "another type on all nodes": (
        lambda: pair(gb10_fabric_ports="[1]"),
        "gb10_fabric_ports",
        "'[1]'",
        "auto, or a list such as [1]",
        "correct gb10_fabric_ports",
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
    "a rest without a unit": (
        lambda: pair(gb10_idle_stop="30"),
        "gb10_idle_stop",
        "'30'",
        "a number and its unit, such as 30m or 2h, at least 30s; empty for never",
        "correct gb10_idle_stop",
    ),
    "a rest between two requests": (
        lambda: pair(gb10_idle_stop="29s"),
        "gb10_idle_stop",
        "'29s'",
        "a number and its unit, such as 30m or 2h, at least 30s; empty for never",
        "correct gb10_idle_stop",
    ),
    "a name on which systemd cannot listen": (
        lambda: pair(gb10_idle_stop="30s", gb10_api_host="localhost"),
        "gb10_api_host",
        "'localhost'",
        "an address, because systemd listens on it while the model rests",
        "set an address, or leave gb10_idle_stop empty",
    ),
    "a port for two": (
        lambda: pair(gb10_idle_stop="30s", gb10_wake_port=8000),
        "gb10_wake_port",
        "8000 is also gb10_api_port",
        "a separate port",
        "change gb10_wake_port",
    ),
    "a privileged port that wakes": (
        lambda: pair(gb10_wake_port=1023),
        "gb10_wake_port",
        "1023",
        "1024 to 65535",
        "correct gb10_wake_port",
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
        lambda: seen(pair(model_store_source="/mnt/usb"), 0, model_at="/mnt/usb", model_reason="it is cut"),
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
    "the node exporter's port in use": (
        lambda: seen(
            pair(monitoring_enabled=True), 1, listeners=[listener(9100, "exporter", EXPORTER), listener(9100)]
        ),
        "nodes[1].monitoring_port",
        "port 9100 of spark2 is in use by nginx",
        "a free port",
        "stop that process or change monitoring_port",
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
    assert [problem.path for problem in problems] == [path], report(problems)
    (problem,) = problems
    assert found in problem.found and expected in problem.expected and fix in problem.fix, problem


BOTH = {"name": "vllm_serve_rollback", "found": "'perhaps'", "expected": "a value of type bool"}
ONE = {"name": "x", "found": "1", "expected": "2"}
OPTION = {"options": [option("--a")], "variables": []}
#: Nodes, their lock, and the begin of each problem.
PROBLEMS: dict[str, tuple[list[Node], str, list[str]]] = {
    "a number for a name": (pair(gb10_model=3), LOCK, ["gb10_model: unknown model '3'."]),
    "values of another type": (
        pair(gb10_api_port="many", gb10_extra_env=["A=1"], gb10_vllm_extra_args="--a --b"),
        LOCK,
        [
            "gb10_api_port: 'many'. Expected: a number. Fix: correct gb10_api_port.",
            "gb10_extra_env: ",
            "gb10_vllm_extra_args: ",
            "gb10_api_port: 0. Expected: 1024 to 65535.",
        ],
    ),
    "a lock that cannot be read": (
        pair(),
        "",
        ["gb10_runtime_lock: 'vllm.lock' is not a readable file on the controller."],
    ),
    # All nodes have most variables from the same place.
    "values that roles refuse": (
        change(change(pair(), 0, refused=[BOTH]), 1, refused=[BOTH, ONE]),
        LOCK,
        [
            "vllm_serve_rollback: 'perhaps'. Expected: a value of type bool. Fix: correct vllm_serve_rollback.",
            "nodes[1].x: 1. Expected: 2. Fix: correct x.",
        ],
    ),
    "different GID indices cannot be pinned": (
        seen(pair(gb10_fabric_pin_gid_index=True), 1, interfaces=LIVE, rdma=rdma(3, 5)),
        LOCK,
        ["nodes[1].rdma.gids: "],
    ),
    "everything wrong with a container": (
        pair(
            gb10_runtime="docker",
            gb10_container_image="vllm/vllm-openai@sha256:12",
            gb10_container_engine="containerd",
            gb10_container_args=["--env=A=1", "--name=mine", "--privileged", "-d"],
        ),
        LOCK,
        [
            "gb10_runtime: 'docker'. Expected: '' for gb10_stack's runtime or native or container.",
            "gb10_container_engine: 'containerd'. Expected: docker or podman.",
            "gb10_container_image: 'vllm/vllm-openai@sha256:12' is not an image reference. Expected: ",
            "gb10_container_args[1]: --name=mine. ",
            "gb10_container_args[2]: --privileged. Expected: not set, because the container gets only the devices that",
            "gb10_container_args[3]: -d. ",
        ],
    ),
    "a container without an image": (pair(gb10_runtime="container"), LOCK, ["gb10_container_image: "]),
    "an image without Ray": (inside(NO_RAY), LOCK, [f"image: {NO_RAY}"]),
    "a Ray without a token": (pair(), OLD_RAY, ["gb10_runtime_lock: Ray 2.48.0 has no RAY_AUTH_MODE"]),
    "a Ray without a token in an image": (queried(inside(), DIGEST, ray="2.48.0"), LOCK, ["gb10_container_image: "]),
    "a queried image without Ray": (queried(inside(), DIGEST, ray=""), LOCK, ["image: "]),
    "options that a queried image lacks": (
        queried(
            inside(gb10_vllm_extra_args=["--load-format", "c12x", "--other", "1"], gb10_extra_env={"VLLM_Y": "1"}),
            DIGEST,
            more=[option("--load-format", "auto", "b12x")],
        ),
        LOCK,
        ["gb10_vllm_extra_args[1]: ", "gb10_vllm_extra_args[2]: ", "gb10_extra_env.VLLM_Y: "],
    ),
    **{
        f"the options of an environment with {changes}": (
            change(pair(), 0, queried={**OPTION, **changes}),
            LOCK,
            ["nodes[0].queried: "],
        )
        for changes in (
            {"options": {}},
            {"options": [option("--a b")]},
            {"options": []},
            {"variables": ["A\nB"]},
            {"options": [7]},
        )
    },
}


@pytest.mark.parametrize(("nodes", "lock", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problems_of_nodes(nodes: list[Node], lock: str, expected: list[str]) -> None:
    problems = [str(problem) for problem in mistakes(nodes, lock)]
    assert len(problems) == len(expected), problems
    assert [text[: len(begin)] for text, begin in zip(problems, expected, strict=True)] == expected


def test_listeners_of_head_and_worker() -> None:
    settings = parse(pair(), LOCK).head.settings
    head, worker = (node_checks.listeners(settings, is_head, 2) for is_head in (True, False))
    assert (head["gb10_api_port"], head.keys() - worker.keys(), worker.keys() <= head.keys()) == (
        8000,
        {"gb10_api_port", "gb10_ray_port.dashboard", "gb10_ray_port.port", "gb10_ray_port.ray-client-server-port"},
        True,
    )
    alone = parse([spark(1, "head")], LOCK).head.settings
    assert node_checks.listeners(alone, True, 1) == {"gb10_api_port": 8000}
    without_ray = parse(pair(**MP), LOCK).head.settings
    assert node_checks.listeners(without_ray, True, 2) == {
        "gb10_api_port": 8000,
        "gb10_master_port": 29501,
        "gb10_master_port.ranks": 29502,
    }
    assert node_checks.listeners(without_ray, False, 2) == {}


def test_facts_that_a_node_lacks_are_none() -> None:
    node = spark(1, "head")
    for name in ("cma_free_bytes", "cma_total_bytes"):
        del node["observed"][name]
    facts = parse([node], LOCK).head.facts
    assert facts is not None
    assert (facts.cma_free_bytes, facts.cma_total_bytes, facts.hub) == (0, 0, None)
    node["observed"]["hub_model"] = {"name": "owner/model", "revision": "main"}
    facts = parse([node], LOCK).head.facts
    assert facts is not None and facts.hub is not None
    assert (facts.hub.name, facts.hub.revision, facts.hub.trouble) == ("owner/model", "main", "")


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


def test_an_update_plans_a_node_whose_new_driver_waits_for_the_reboot() -> None:
    waits = {"gpus": [], "reason": "nvidia-smi failed: Driver/library version mismatch"}
    assert planned(seen(pair(gb10_gpu_required=False), 1, gpu=waits))


def test_a_slow_link_is_a_warning() -> None:
    slow = {"driver": "mlx5_core", "pci": {"address": "0002:01:00.1", "width": 2, "speed": "32.0 GT/s PCIe"}}
    nodes = seen(pair(), 1, interfaces=addressed("enP2p1s0f1np1", **slow))
    assert planned(nodes)
    (sentence,) = node_checks.warnings(parse(nodes, LOCK).nodes)
    assert sentence.startswith("spark2: enP2p1s0f1np1: the PCIe link of 0002:01:00 runs x2")


def test_a_container_in_place_of_an_environment() -> None:
    native, inside_image = planned(pair()), planned(inside(gb10_container_args=["--env=A=1"]))
    assert inside_image["runtime"] == {
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
    assert {key for key in native if native[key] != inside_image[key]} == {"runtime", "serve", "nccl", "nodes", "node"}
    for own, other in zip(native["nodes"], inside_image["nodes"], strict=True):
        # An image has its own PATH, and its vLLM, which the patches depend on, is unknown before a query.
        tools = {"PATH": f"{native['runtime']['path']}/bin:{toolchain.SYSTEM_PATH}"}
        assert (own["foreseen"].keys(), other["foreseen"]) == ({"vllm_patch"}, {})
        # Its release too, so that a cache of tuning does not survive a start.
        shared = {name: text for name, text in other["environment"].items() if name != toolchain.AUTOTUNE_FOLDER}
        assert shared != other["environment"]
        assert own == {**other, "environment": {**shared, **tools}, "foreseen": own["foreseen"]}
    # The serving plan is the same, except for the image's options, which are unknown too.
    assert {key for key in native["serve"] if native["serve"][key] != inside_image["serve"][key]} == {"why", "compiled"}
    assert (native["runtime"]["kind"], native["runtime"]["name"]) == ("native", native["runtime"]["path"])


def _lines(plan: dict[str, Any], rule: str) -> list[str]:
    return [line for line in plan["serve"]["findings"] if f" {rule}, " in line]


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"), ("NCCL_NET", "socket")])
def test_sockets_of_a_users_variable_are_reported_with_their_cost(name: str, value: str) -> None:
    plan = planned(pair(gb10_extra_env={name: value}))
    (line,) = _lines(plan, "roce-disabled")
    assert line.startswith(
        f"warning roce-disabled, gb10_extra_env.{name}: '{value}' on spark1, spark2, with 2 pipeline stages. "
    )
    assert "half of the speed" in line and (plan["tensor_parallel_size"], plan["pipeline_parallel_size"]) == (1, 2)
    assert line in plan["serve"]["warnings"]
    fast = planned(pair())["serve"]["expected"]["tokens_per_second"]
    assert plan["serve"]["expected"]["tokens_per_second"] == pytest.approx(fast / 2, rel=0.1)


def test_the_lan_of_a_users_variable_is_reported() -> None:
    lan = {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "enP7s7", "GLOO_SOCKET_IFNAME": "enP7s7"}
    plan = planned(pair(gb10_extra_env=lan))
    assert len(_lines(plan, "roce-disabled")) == 1
    assert [line.split(". ")[0] for line in _lines(plan, "socket-interface")] == [
        f"warning socket-interface, gb10_extra_env.{name}: 'enP7s7' instead of 'enp1s0f1np1' on {node}"
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        for node in ("spark1", "spark2")
    ]


@pytest.mark.parametrize(
    "nodes",
    [
        pair(gb10_fabric_transport="socket"),
        pair(gb10_fabric_topology="socket"),
        pair(),
        [spark(1, "head", gb10_extra_env={"NCCL_IB_DISABLE": "1"})],
        pair(gb10_extra_env={"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB", "NCCL_SOCKET_IFNAME": "=enp1s0f1np1"}),
    ],
)
def test_planned_sockets_are_no_finding(nodes: list[Node]) -> None:
    plan = planned(nodes)
    assert _lines(plan, "roce-disabled") == _lines(plan, "socket-interface") == []

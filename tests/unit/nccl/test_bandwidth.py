"""The runs that measure the bandwidth between nodes, and their thresholds."""

from __future__ import annotations

import re
import runpy
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from decisions import decide
from repository import ROOT
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth as nccl_bandwidth
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.bandwidth import Measurement
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

Data = dict[str, Any]
PEERS = {"pair": [["b"]], "ring": [["b"], ["c"]], "switch": [["b", "c"]]}
DEVICES = ("rocep1s0f0,roceP2p1s0f0", "rocep1s0f1,roceP2p1s0f1")


def plan(shape: str, devices: tuple[str, ...] = DEVICES, node: int = 0, functions: str = "both") -> Plan:
    """Return a plan of nodes a, b (and c), with each node's NCCL_IB_HCA ("" for none)."""
    names = ["a", "b"] if shape == "pair" else ["a", "b", "c"]
    rails = [{"interface": "x", "peers": dict.fromkeys(peers, "10.0.0.2")} for peers in PEERS[shape]]
    nodes = [
        {
            "name": name,
            "rails": rails,
            "environment": {"GLOO_SOCKET_IFNAME": "x", "HF_TOKEN": "secret", **({"NCCL_IB_HCA": hca} if hca else {})},
            "additions": {"nccl_sm121_build": {"environment": {"LD_PRELOAD": "/opt/libnccl.so.2"}}},
        }
        for name, hca in zip(names, (*devices, devices[-1]), strict=False)
    ]
    head = {"name": "a", "address": "10.0.0.1"}
    return typed({"functions": functions, "nodes": nodes, "node": nodes[node], "head": head})


def result(*numbers: float, collective: str = "all_reduce") -> list[Measurement]:
    """Return measurements with message sizes that start at 4096 bytes and double."""
    return [Measurement(collective, 4096 << index, 0.5, number) for index, number in enumerate(numbers)]


def test_together_and_each_device_alone_with_every_nodes_own_name_of_it() -> None:
    together, *alone = nccl_bandwidth.runs(plan("pair", node=1), "nccl", 8471)
    # The token is left out.
    environment = {
        "GLOO_SOCKET_IFNAME": "x",
        "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1",
        "LD_PRELOAD": "/opt/libnccl.so.2",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "8471",
    }
    assert together == {"name": "together", "environment": environment}
    assert alone == [
        {"name": "rocep1s0f0", "environment": {**environment, "NCCL_IB_HCA": "rocep1s0f1"}},
        {"name": "roceP2p1s0f0", "environment": {**environment, "NCCL_IB_HCA": "roceP2p1s0f1"}},
    ]


def test_whole_names_stay_whole() -> None:
    runs = nccl_bandwidth.runs(plan("pair", ("=a,b", "=c,d"), node=1), "nccl", 8471)
    assert [run["environment"]["NCCL_IB_HCA"] for run in runs] == ["=c,d", "=c", "=d"]


@pytest.mark.parametrize(
    ("given", "backend"),
    [
        (plan("pair"), "gloo"),
        (plan("ring"), "nccl"),
        (plan("pair", ("rocep1s0f0", "rocep1s0f0")), "nccl"),
        (plan("pair", ("", "")), "nccl"),
        (plan("pair", ("rocep1s0f0,roceP2p1s0f0", "rocep1s0f0")), "nccl"),
        # An exclusion means all other devices.
        (plan("pair", ("^a,b", "^a,b")), "nccl"),
    ],
    ids=["Gloo", "a ring", "one device", "no device", "another number of devices", "an exclusion"],
)
def test_only_together_where_a_device_alone_says_nothing(given: Plan, backend: str) -> None:
    assert [run["name"] for run in nccl_bandwidth.runs(given, backend, 8471)] == ["together"]


@pytest.mark.parametrize(
    ("given", "backend", "wanted", "least"),
    [
        (plan("pair"), "nccl", 0.0, 21.875),
        (plan("switch"), "nccl", 0.0, 21.875),
        (plan("ring"), "nccl", 0.0, 10.0),
        (plan("pair", functions="first"), "nccl", 0.0, 21.875 / 2),
        (plan("pair", functions="second"), "nccl", 0.0, 21.875 / 2),
        (plan("pair", ("", "")), "nccl", 0.0, 0.0),
        (plan("pair"), "gloo", 0.0, 0.0),
        (plan("pair"), "gloo", 3.5, 3.5),
        (plan("ring"), "nccl", 12.0, 12.0),
    ],
)
def test_what_is_expected(given: Plan, backend: str, wanted: float, least: float) -> None:
    assert nccl_bandwidth.expected(given, backend, wanted) == least


def test_the_largest_message_is_judged() -> None:
    assert nccl_bandwidth.findings({"together": result(0.1, 22.0)}, 21.875) == []
    (finding,) = nccl_bandwidth.findings({"together": result(30.0, 3.04)}, 21.875)
    assert finding.path == "bandwidth.all_reduce"
    assert finding.found == "3.040 GB/s of bus bandwidth with 8192 bytes"
    assert finding.expected.startswith("21.875 GB/s")


def test_a_finding_tells_what_each_device_did_alone() -> None:
    (finding,) = nccl_bandwidth.findings(
        {"together": result(12.0), "rocep1s0f0": result(11.9), "roceP2p1s0f0": result(0.2)}, 21.875
    )
    assert finding.found.endswith("with 4096 bytes (11.900 by rocep1s0f0 alone, 0.200 by roceP2p1s0f0 alone)")


def test_every_measurement_is_a_line() -> None:
    assert nccl_bandwidth.lines({"together": result(1.5), "d": result(0.75, collective="all_gather")}) == [
        "together: all_reduce of 4096 bytes: 1.500 GB/s on the bus, 500000 us",
        "d: all_gather of 4096 bytes: 0.750 GB/s on the bus, 500000 us",
    ]


@pytest.mark.parametrize(
    ("given", "backend", "microseconds", "found"),
    [
        (plan("pair"), "nccl", 72, []),
        (plan("pair"), "nccl", 201, ["201 us with 10240 bytes"]),
        (plan("ring"), "nccl", 900, ["900 us with 10240 bytes"]),
        # Over sockets no figure is published.
        (plan("pair", ("", "")), "nccl", 900, []),
        (plan("pair"), "gloo", 900, []),
    ],
)
def test_a_slow_small_message_is_a_finding(given: Plan, backend: str, microseconds: int, found: list[str]) -> None:
    # With three ranks, the size is a multiple of 12.
    sizes = {8: 1.0, 10236 if given.nodes[2:] else 10240: microseconds * 1e-6, 65536: 1.0}
    entries = [Measurement("all_reduce", size, each, 1.0) for size, each in sizes.items()]
    delays = nccl_bandwidth.delays({"together": entries}, given, backend)
    assert [delay.found for delay in delays] == found
    assert all(delay.expected.startswith("200 us or less; ") for delay in delays)


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """nccl_bandwidth.py, whose arithmetic needs no PyTorch."""
    torch = ModuleType("torch")
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": torch}):
        return runpy.run_path(str(ROOT / "roles/nccl_sm121_build/files/nccl_bandwidth.py"))


@pytest.mark.parametrize("largest", [1, 4096, 5000, 10**6, 1024**3])
@pytest.mark.parametrize("ranks", [2, 3])
def test_sizes_end_at_the_bound_and_are_whole_for_every_rank(program: Data, largest: int, ranks: int) -> None:
    found = program["sizes"](largest, ranks)
    assert found == sorted(found)
    assert all(size % (4 * ranks) == 0 for size in found)
    assert max(4 * ranks, largest - 4 * ranks) <= found[-1] <= max(4 * ranks, largest)
    small = program["small"](largest, ranks)
    assert all(size % (4 * ranks) == 0 and size < max(largest, 4 * ranks) for size in small)
    assert not {*small} & {*found}
    if largest == 1024**3:
        assert small == ([8, 1024, 10240, 65536] if ranks == 2 else [12, 1020, 10236, 65532])
    assert [program["bus_factor"](name, 4) for name in ("all_reduce", "all_gather")] == [1.5, 0.75]


OPTIONS: Data = {"backend": "nccl", "port": 8471, "bytes": 1 << 30, "timeout": 300, "expected": 0.0}


def act(arguments: Data, recorded: Data, **changes: Any) -> Data:
    """Run the action with these values of the role's variables."""
    variables = {f"nccl_sm121_build_bandwidth_{name}": value for name, value in {**OPTIONS, **changes}.items()}
    answer, calls = decide("nccl_bandwidth", arguments, recorded, variables=variables)
    assert calls == []
    return answer


def test_the_action_plans_the_ranks_of_its_node() -> None:
    recorded = fact({"runtime": {"path": "/opt/gb10/runtime/1"}})
    recorded["node"] = recorded["nodes"][1]
    # Values of the command line are text.
    answer = act({}, recorded, bytes="4096", timeout="7")
    devices = [rail["hca"] for rail in recorded["node"]["rails"]]
    assert answer["unit"] == "gb10-nccl-bandwidth.service"
    assert [run["name"] for run in answer["runs"]] == ["together", *devices]
    for run, used in zip(answer["runs"], [",".join(devices), *devices], strict=True):
        assert {f"--setenv=NCCL_IB_HCA={used}", "--setenv=RANK=1", "--bytes=4096", "--timeout=7"} <= set(run["argv"])


def test_the_command_of_a_rank() -> None:
    settings = nccl_bandwidth.BandwidthSettings(**OPTIONS)
    recorded = typed({"user": "gb10", "runtime": {"path": "/opt/gb10/runtime/1"}})
    assert nccl_bandwidth.argv(recorded, {"RANK": "0", "NCCL_IB_HCA": "a,b"}, settings) == [
        *("systemd-run", "--wait", "--pipe", "--quiet", "--collect", "--unit=gb10-nccl-bandwidth.service"),
        *("--uid=gb10", "--property=LimitMEMLOCK=infinity", "--property=RuntimeMaxSec=300"),
        *("--setenv=RANK=0", "--setenv=NCCL_IB_HCA=a,b", "/opt/gb10/runtime/1/bin/python", "-"),
        *("--bytes=1073741824", "--backend=nccl", "--timeout=300"),
    ]


def test_the_action_evaluates_a_measurement() -> None:
    entry = {"collective": "all_gather", "bytes": 8, "seconds": 1.0, "bus_gbps": 21.0}
    measured = {"measured": {"together": {"results": [entry]}}}
    answer = act(measured, fact({}))
    assert answer["expected"] == 21.875
    assert len(answer["lines"]) == len(answer["findings"]) == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer["record"]["date"])
    slow = act(measured, fact({}), expected=20.0)
    assert (slow["expected"], slow["findings"]) == (20.0, [])

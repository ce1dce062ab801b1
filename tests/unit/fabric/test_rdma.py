"""GID indices and degraded links, on the simulated machines and with one fact changed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from recorded_hosts import plant

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.rdma import degraded, pinned
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import interfaces, network

RING = ["rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"]
RING_ADDRESSES = ["10.20.0.11/24", "10.20.1.11/24", "10.20.2.11/24", "10.20.3.11/24"]
PAIR, PAIR_ADDRESSES = ["rocep1s0f1", "roceP2p1s0f1"], ["192.168.100.10/24", "192.168.101.10"]


def index_of(facts: dict[str, Any], hcas: list[str], addresses: list[str]) -> tuple[str | None, list[Problem]]:
    variables, problems = pinned(zip(hcas, addresses, strict=True), network(facts).rdma)
    return variables.get("NCCL_IB_GID_INDEX"), problems


@cache
def recorded(name: str) -> str:
    with TemporaryDirectory() as root:
        return json.dumps(fabric_io_facts.read(lambda argv: (127, "", argv[0]), str(plant(name, Path(root)))))


def machine(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recorded(name))
    return found


@pytest.mark.parametrize(
    ("host", "hcas", "addresses", "expected"),
    [
        pytest.param("spark_pair", PAIR, PAIR_ADDRESSES, "3", id="as everywhere without IPv6"),
        pytest.param("spark_ring", RING[::2], RING_ADDRESSES[::2], "3", id="first halves"),
        pytest.param("spark_ring", RING[1::2], RING_ADDRESSES[1::2], "5", id="second halves, moved by IPv6"),
        pytest.param("thor", [], [], None, id="no RDMA device"),
        pytest.param("spark_pair", [""], ["10.0.0.1/24"], None, id="a rail without RDMA"),
    ],
)
def test_gid_index(host: str, hcas: list[str], addresses: list[str], expected: str | None) -> None:
    assert index_of(machine(host), hcas, addresses) == (expected, [])


@pytest.mark.parametrize(
    ("host", "hcas", "addresses", "said"),
    [
        pytest.param(
            "spark_ring",
            RING,
            RING_ADDRESSES,
            ["rocep1s0f0 has 3, roceP2p1s0f0 has 5, rocep1s0f1 has 3, roceP2p1s0f1 has 5"],
            id="indices that differ",
        ),
        pytest.param(
            "spark_pair",
            PAIR,
            ["10.110.0.1/24", "10.110.1.1/24"],
            ["no RoCE v2 GID of 10.110.0.1 on rocep1s0f1", "no RoCE v2 GID of 10.110.1.1 on roceP2p1s0f1"],
            id="addresses that are not there",
        ),
        pytest.param(
            "spark_bond",
            ["rocep1s0f1"],
            ["10.30.0.11/24"],
            ["(its RoCE v2 GIDs: 1: fe80::4ebb:47ff:fe0e:3)"],
            id="only link-local",
        ),
        pytest.param(
            "thor", ["rocep1s0f1"], ["10.110.0.1/24"], ["there is no rocep1s0f1, only none"], id="no such device"
        ),
    ],
)
def test_no_gid_index(host: str, hcas: list[str], addresses: list[str], said: list[str]) -> None:
    index, problems = index_of(machine(host), hcas, addresses)
    assert index is None
    assert [text in problem.found for text, problem in zip(said, problems, strict=True)] == [True] * len(said), problems


def test_gid_index_takes_neither_version_1_nor_another_place() -> None:
    fabric = machine("spark_pair")
    for hca in PAIR:
        gids = fabric["rdma"][hca]["gids"]
        gids[3]["type"] = "RoCE v1"
    assert index_of(fabric, PAIR, PAIR_ADDRESSES)[0] is None
    # The same GID twice, as while an address moves: the result is the common index.
    for hca, indices in zip(PAIR, [(3, 7), (5, 7)], strict=True):
        gids = fabric["rdma"][hca]["gids"]
        gids[:] = [{**gids[3], "type": "RoCE v2", "index": index} for index in indices]
    assert index_of(fabric, PAIR, PAIR_ADDRESSES) == ("7", [])
    fabric["rdma"][PAIR[0]]["gids"].append({**fabric["rdma"][PAIR[0]]["gids"][0], "index": 5})
    assert index_of(fabric, PAIR, PAIR_ADDRESSES) == ("5", [])


@pytest.mark.parametrize("host", ["spark_pair", "spark_sync", "spark_ring", "spark_bond", "thor"])
def test_whole_links(host: str) -> None:
    assert degraded(network(machine(host)).interfaces) == []


def test_degraded_links() -> None:
    pcie, first, second = degraded(network(machine("spark_x2")).interfaces)
    assert first.startswith("enP2p1s0f1np1: the link has 100000 Mb/s; 200000 are expected.")
    assert second.startswith("enp1s0f1np1: the link has 100000 Mb/s; 200000 are expected.")
    assert pcie.startswith(
        "enP2p1s0f0np0 and enP2p1s0f1np1: the PCIe link of 0002:01:00 runs x2 at 32.0 GT/s PCIe; x4 at 32.0 "
        "GT/s is expected."
    )
    assert "fwupdmgr update" in pcie and "a reboot is not enough" in pcie


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        pytest.param({"pci": {"width": 4, "speed": "16.0 GT/s PCIe"}}, 1, id="PCIe generation 4"),
        pytest.param({"pci": {"width": 8, "speed": "64.0 GT/s PCIe"}}, 0, id="more than expected"),
        pytest.param({"pci": {"width": None, "speed": "Unknown"}}, 0, id="unknown"),
        pytest.param({"pci": {"width": 2, "speed": "Unknown"}}, 1, id="rate unknown"),
        pytest.param({"speed": 100000}, 1, id="half the speed"),
        pytest.param({"speed": 100000, "carrier": False}, 0, id="no carrier, no judgement of the speed"),
        pytest.param({"speed": None}, 0, id="speed unknown"),
        pytest.param({"speed": 100000, "driver": "r8127"}, 0, id="another driver"),
        pytest.param({"speed": 100000, "pci": {"address": "0000:41:00.0"}}, 0, id="a ConnectX that is no Spark's"),
    ],
)
def test_what_is_degraded(changes: dict[str, Any], sentences: int) -> None:
    twin = machine("spark_pair")["interfaces"]["enp1s0f1np1"]
    changed = {**twin, **changes, "pci": {**twin["pci"], **changes.get("pci", {})}}
    assert len(degraded(interfaces({"enp1s0f1np1": changed}))) == sentences

"""Diagrams, compared with recorded drawings of each kind of cabling, and the sentences about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.diagram import DrawnNode, DrawnRail, Fabric
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

DRAWINGS = Path(__file__).parents[1] / "data" / "diagrams"


def port(number: int, *subnets: int, host: int, state: str = "", note: str = "") -> list[DrawnRail]:
    """Return the rails of a port, one in each subnet."""
    twins = SPARK_PORTS[number]
    return [
        DrawnRail(twin.interface, twin.hca, f"10.110.{subnet}.{host}/24", (note,) if note else (), state)
        for twin, subnet in zip(twins, subnets, strict=False)
    ]


def node(
    number: int, *ports: list[DrawnRail], state: str = "", more: tuple[str, ...] = (), address: str = "10.110.0.1"
) -> DrawnNode:
    rails = tuple(rail for each in ports for rail in each)
    return DrawnNode(
        f"spark{number}",
        ("head" if number == 1 else "worker", *more),
        address,
        "enp1s0f1np1" if address else "",
        rails,
        state,
    )


def ring(count: int) -> tuple[DrawnNode, ...]:
    """In a ring, port 0 leads to the next node, and port 1 to the previous one."""
    return tuple(
        node(
            number + 1,
            port(0, 2 * number, 2 * number + 1, host=number + 1),
            port(1, 2 * ((number - 1) % count), 2 * ((number - 1) % count) + 1, host=number + 1),
        )
        for number in range(count)
    )


ETHERNET = [DrawnRail("eno1", "", "192.168.9.7/24")]
BAD = tuple(port(1, 0, 1, host=2, state="bad", note="no carrier"))
NAMED = DrawnNode("a-name-that-is-too-long-for-its-box", ("x" * 60,), "10.110.0.2", "enp1s0f1np1", BAD)
FABRICS = {
    "single": (DrawnNode("spark1", ("head",), "", "", ()),),
    "pair": (node(1, port(1, 0, host=1), state="good", more=("verified",)), NAMED),
    "two_cables": (
        node(1, port(0, 0, 1, host=1), port(1, 2, 3, host=1)),
        node(2, port(0, 2, 3, host=2), port(1, 0, 1, host=2)),
    ),
    "ring": ring(3),
    "switch": tuple(node(number, port(0, 0, 1, host=number), port(1, 2, 3, host=number)) for number in (1, 2, 3)),
    "device": (
        node(1, [DrawnRail("eno1", "", "192.168.9.1/24")]),
        node(2, ETHERNET),
        DrawnNode("thor", ("worker",), "", "", tuple(ETHERNET), empty="x"),
    ),
}


@pytest.mark.parametrize("name", FABRICS)
def test_the_drawing_is_the_recorded_one(name: str) -> None:
    assert_recorded(DRAWINGS / f"{name}.svg", diagram.svg(Fabric(FABRICS[name], 9000), name, f"Diagram <{name}>"))


def test_the_sentences() -> None:
    assert diagram.description(Fabric(FABRICS["single"], 9000)) == "No node is connected to another."
    pair = diagram.description(Fabric(FABRICS["pair"], 1500))
    assert pair.endswith(
        "Cable 1 joins spark1 QSFP port 1, a-name-that-is-too-long-for-its-box QSFP port 1: 10.110.0.0/24, "
        "10.110.1.0/24, MTU 1500."
    )
    assert "10.110.0.2/24 (no carrier)" in pair
    assert diagram.description(Fabric(FABRICS["device"], 1500)).endswith(
        "The switch joins spark1 network device, spark2 network device, thor network device: 192.168.9.0/24, MTU 1500."
    )
    assert diagram.description(Fabric(FABRICS["ring"], 9000)).count("Cable ") == 3


@pytest.mark.parametrize(
    ("interface", "function"),
    [
        ("enp1s0f1np1", "0000:01:00.1"),
        ("enP2p1s0f0np0", "0002:01:00.0"),
        ("enP18p171s3f0", "0012:ab:03.0"),
        ("eno1", ""),
        ("enp1s0", ""),
    ],
)
def test_the_function_of_a_device(interface: str, function: str) -> None:
    assert diagram.pcie_function(interface) == function

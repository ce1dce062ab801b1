"""Drawings of each kind of cabling: ports, and the cables and networks that join them."""

from __future__ import annotations

from typing import Any

import pytest
from drawings import SVG, parsed, texts

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

View = diagram.View


def port(number: int, *subnets: int, host: int, state: str = "") -> list[View]:
    """Return the rails of a port, one in each subnet."""
    twins = SPARK_PORTS[number]
    return [
        diagram.rail(twin.interface, twin.hca, f"10.110.{subnet}.{host}/24", state=state)
        for twin, subnet in zip(twins, subnets, strict=False)
    ]


def node(number: int, *ports: list[View], address: str = "10.110.0.1") -> View:
    rails = [rail for each in ports for rail in each]
    return diagram.node(f"spark{number}", number == 1, [], address, "enp1s0f1np1", rails)


ETHERNET = diagram.rail("eno1", "", "192.168.9.7/24")
BROKEN = port(1, 0, 1, host=2, state="error")
#: Nodes, and the ports and subnets of each network.
FABRICS: dict[str, tuple[list[View], list[Any]]] = {
    "single": ([node(1, address="")], []),
    "pair": (
        [node(1, port(1, 0, host=1)), node(2, BROKEN)],
        [("Cable 1", ((0, 0), (1, 0)), ["10.110.0.0/24", "MTU 9000"], "error")],
    ),
    "two cables": (
        [node(1, port(0, 0, 1, host=1), port(1, 2, 3, host=1)), node(2, port(0, 2, 3, host=2), port(1, 0, 1, host=2))],
        [
            ("Cable 1", ((0, 0), (1, 1)), ["10.110.0.0/24", "10.110.1.0/24", "MTU 9000"], ""),
            ("Cable 2", ((0, 1), (1, 0)), ["10.110.2.0/24", "10.110.3.0/24", "MTU 9000"], ""),
        ],
    ),
    "ring": (
        [
            node(each + 1, port(0, 2 * each, host=each + 1), port(1, 2 * (each - 1) % 6, host=each + 1))
            for each in range(3)
        ],
        [
            ("Cable 1", ((0, 0), (1, 1)), ["10.110.0.0/24", "MTU 9000"], ""),
            ("Cable 2", ((1, 0), (2, 1)), ["10.110.2.0/24", "MTU 9000"], ""),
            ("Cable 3", ((0, 1), (2, 0)), ["10.110.4.0/24", "MTU 9000"], ""),
        ],
    ),
    "switch": (
        [node(each, port(0, 0, host=each), port(1, 2, host=each)) for each in (1, 2, 3)],
        [
            ("Switch, network 1", ((0, 0), (1, 0), (2, 0)), ["10.110.0.0/24", "MTU 9000"], ""),
            ("Switch, network 2", ((0, 1), (1, 1), (2, 1)), ["10.110.2.0/24", "MTU 9000"], ""),
        ],
    ),
    "another device": (
        [node(1, [ETHERNET]), node(2, [ETHERNET])],
        [("Cable 1", ((0, 0), (1, 0)), ["192.168.9.0/24", "MTU 9000"], "")],
    ),
}


@pytest.mark.parametrize(("nodes", "networks"), FABRICS.values(), ids=FABRICS)
def test_a_network_joins_the_ports_that_share_its_subnets(nodes: list[View], networks: list[Any]) -> None:
    drawn = diagram.fabric(nodes, 9000)
    assert [tuple(each.values()) for each in drawn["networks"]] == networks
    root = parsed(drawn)
    assert sum(each.get("class") == "cable" for each in root.iter(f"{SVG}path")) == len(networks)
    assert sum(len(ports) for _name, ports, _words, _state in networks) == len(list(root.iter(f"{SVG}circle")))


def test_the_sentences() -> None:
    nodes = [node(1, port(1, 0, host=1)), node(2, [diagram.rail("eno1", "", "10.110.0.2/24", ["no carrier"], "error")])]
    (found,) = (each.text for each in parsed(diagram.fabric(nodes, 1500)).iter(f"{SVG}desc"))
    assert str(found).split("\n")[:3] == [
        "spark1, QSFP port 1: 0000:01:00.1 enp1s0f1np1 rocep1s0f1 10.110.0.1/24.",
        "spark2, network device: eno1 without RDMA 10.110.0.2/24 no carrier.",
        "Cable 1 joins spark1 QSFP port 1, spark2 network device: 10.110.0.0/24, MTU 1500.",
    ]
    (found,) = (each.text for each in parsed(diagram.fabric([node(1)], 9000)).iter(f"{SVG}desc"))
    assert str(found).strip() == "No node is connected to another."


def test_long_and_hostile_names_are_cut_texts() -> None:
    drawn = diagram.node("<x onload='1'>" * 9, True, ["\u202e" * 60], "", "", [diagram.rail("<b>" * 9, "", "")], 'a"b')
    found = texts(parsed(diagram.fabric([drawn], 9000)))
    assert found[0] == ("<x onload='1'>" * 9)[:26] + "\N{HORIZONTAL ELLIPSIS}" and max(map(len, found)) <= 31


@pytest.mark.parametrize(
    ("interface", "function"),
    [
        ("enp1s0f1np1", "0000:01:00.1"),
        ("enP2p1s0f0np0", "0002:01:00.0"),
        ("enP18p171s3f0", "0012:ab:03.0"),
        ("enp12s0f0", "0000:0c:00.0"),
        ("mgbe0_0", ""),
        ("enp1s0", ""),
    ],
)
def test_the_function_of_a_device(interface: str, function: str) -> None:
    assert diagram.pcie_function(interface) == function

"""Mistakes in the settings of a fabric: each is one problem with its place, and all are listed together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sparks import fabric_nodes

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Network
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import Fabric, FabricNode, resolve_topology

RING, SWITCH, SOCKET = Fabric("ring"), Fabric("switch"), Fabric("socket")
#: Valid addresses from the user.
MINE = ("10.110.7.11/24", "10.110.8.11/24")
YOURS = ("10.110.7.12/24", "10.110.8.12/24")


def ports(*each: tuple[int, ...]) -> list[FabricNode]:
    return [replace(node, ports=some) for node, some in zip(fabric_nodes(len(each)), each, strict=True)]


def user(mine: tuple[str, ...], yours: tuple[str, ...] = YOURS) -> list[FabricNode]:
    return [replace(node, addresses=some) for node, some in zip(fabric_nodes(2), (mine, yours), strict=True)]


def ring(index: int, **changes: object) -> list[FabricNode]:
    nodes = fabric_nodes(3, (0, 1))
    nodes[index] = replace(nodes[index], **changes)  # type: ignore[arg-type]
    return nodes


def devices(*names: str) -> list[FabricNode]:
    return [replace(node, interface=name) for node, name in zip(fabric_nodes(4), names, strict=True)]


def mistakes(nodes: list[FabricNode], cabling: Fabric) -> list[Problem]:
    shares, problems = fabric_plan.plan(nodes, cabling, resolve_topology(cabling.topology, len(nodes)))
    assert shares == [], "a plan with problems"
    return problems


#: name -> (nodes, cabling, path, found, expected, fix): the last three as parts of the text.
BAD: dict[str, tuple[list[FabricNode], Fabric, str, str, str, str]] = {
    "duplicate address": (
        user(MINE, (MINE[0], YOURS[1])),
        Fabric(),
        "nodes[1].fabric_addresses[0]",
        "10.110.7.11 of spark2 is also nodes[0].fabric_addresses[0] of spark1",
        "a unique address",
        "change one of the two",
    ),
    "outside the pool": (
        user(("192.168.7.11/24", MINE[1]), ("192.168.7.12/24", YOURS[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "192.168.7.11/24 of spark1 is outside gb10_fabric_cidr 10.110.0.0/16",
        "10.110.0.0/16",
        "change",
    ),
    "a subnet wider than the pool": (
        user(("10.110.7.11/8", MINE[1]), ("10.110.7.12/8", YOURS[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "10.110.7.11/8 of spark1 is outside gb10_fabric_cidr 10.110.0.0/16",
        "10.110.0.0/16",
        "change",
    ),
    "twins in one subnet": (
        user(("10.110.7.11/24", "10.110.7.13/24"), ("10.110.7.12/24", "10.110.7.14/24")),
        Fabric(),
        "nodes[0].fabric_addresses[1]",
        "10.110.7.13/24 of spark1 is in the same subnet as its fabric_addresses[0]",
        "each PCIe function in its own subnet",
        "different subnets",
    ),
    "a twin within the other's subnet": (
        user(("10.110.7.11/24", "10.110.4.11/22"), ("10.110.7.12/24", "10.110.4.12/22")),
        Fabric(),
        "nodes[0].fabric_addresses[1]",
        "10.110.4.11/22 of spark1 is in the same subnet as its fabric_addresses[0]",
        "each PCIe function in its own subnet",
        "different subnets",
    ),
    "network address": (
        user(("10.110.7.0/24", MINE[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "10.110.7.0/24 of spark1 is not a host address",
        "a host address",
        "last octet",
    ),
    "broadcast address": (
        user(("10.110.7.255/24", MINE[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "10.110.7.255/24 of spark1 is not a host address",
        "a host address",
        "last octet",
    ),
    "no prefix length": (
        user(("10.110.7.11", MINE[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "'10.110.7.11' has no prefix length",
        "10.110.0.1/24",
        "correct gb10_fabric_addresses",
    ),
    "no address": (
        user(("10.110.7.300/24", MINE[1])),
        Fabric(),
        "nodes[0].fabric_addresses[0]",
        "10.110.7.300",
        "10.110.0.1/24",
        "correct gb10_fabric_addresses",
    ),
    "too few addresses": (
        user(MINE[:1]),
        Fabric(),
        "nodes[0].fabric_addresses",
        "1 for spark1",
        "2, one for each PCIe function of each cabled port",
        "gb10_fabric_addresses",
    ),
    "another subnet than the peer's": (
        user(MINE, ("10.110.9.12/24", YOURS[1])),
        Fabric(),
        "nodes[1].fabric_addresses[0]",
        "10.110.9.12/24 of spark2 cannot reach 10.110.7.11/24 of spark1",
        "an address in 10.110.7.0/24",
        "one subnet per rail",
    ),
    "unknown port": (
        ports((1,), (7,)),
        Fabric(),
        "nodes[1].ports[0]",
        "QSFP port 7 of spark2 does not exist",
        "0 (next to the RJ45 socket) or 1",
        "correct gb10_fabric_ports",
    ),
    "unknown port of all nodes": (
        ports((1, 7), (1, 7)),
        Fabric(),
        "gb10_fabric_ports[1]",
        "QSFP port 7 of all nodes does not exist",
        "0 (next to the RJ45 socket) or 1",
        "correct gb10_fabric_ports",
    ),
    "port twice": (
        ports((1, 1), (0, 1)),
        Fabric(),
        "nodes[0].ports[1]",
        "port 1 of spark1 is listed twice",
        "each port once",
        "correct gb10_fabric_ports",
    ),
    "no port": (
        ports((1,), ()),
        Fabric(),
        "nodes[1].ports",
        "spark2 has no cabled port",
        "port 0, 1 or both",
        "gb10_fabric_ports",
    ),
    "one end without a cable": (
        ports((1,), (0, 1)),
        Fabric(),
        "nodes[1].ports",
        "2 of spark2, 1 of spark1",
        "as many as on the other end",
        "correct gb10_fabric_ports",
    ),
    "MTU above": (fabric_nodes(2), Fabric(mtu=70000), "gb10_fabric_mtu", "70000", "1280 to 9216 bytes", "9000"),
    "MTU below": (fabric_nodes(2), Fabric(mtu=1279), "gb10_fabric_mtu", "1279", "1280 to 9216 bytes", "9000"),
    "pool too small": (
        fabric_nodes(2),
        Fabric(pool="10.110.0.0/24"),
        "gb10_fabric_cidr",
        "10.110.0.0/24 has no room for 2 subnets",
        "room for 2 /24 networks",
        "/16",
    ),
    "pool below a subnet": (
        fabric_nodes(2),
        Fabric(pool="10.110.0.0/30"),
        "gb10_fabric_cidr",
        "no room for 2",
        "2 /24 networks",
        "/16",
    ),
    "no pool": (
        fabric_nodes(2),
        Fabric(pool="ten"),
        "gb10_fabric_cidr",
        "'ten'",
        "10.110.0.0/16",
        "correct gb10_fabric_cidr",
    ),
    "pool with host bits": (
        fabric_nodes(2),
        Fabric(pool="10.110.0.1/16"),
        "gb10_fabric_cidr",
        "host bits",
        "10.110.0.0/16",
        "correct",
    ),
    "three on one cable": (
        fabric_nodes(3),
        Fabric(topology="direct"),
        "gb10_fabric_topology",
        "direct with 3 nodes",
        "two nodes on one cable",
        "another topology",
    ),
    "two without a fabric": (
        fabric_nodes(2),
        Fabric(topology="none"),
        "gb10_fabric_topology",
        "none with 2 nodes",
        "a topology that connects them",
        "direct",
    ),
    "unknown topology": (
        fabric_nodes(2),
        Fabric(topology="star"),
        "gb10_fabric_topology",
        "'star'",
        "auto or direct or ring",
        "gb10_fabric_topology",
    ),
    "unknown transport": (
        fabric_nodes(2),
        Fabric(transport="tcp"),
        "gb10_fabric_transport",
        "'tcp'",
        "roce or socket",
        "roce",
    ),
    "three, not said how": (
        fabric_nodes(3),
        Fabric(),
        "gb10_fabric_topology",
        "auto with 3 nodes",
        "ring or switch",
        "set gb10_fabric_topology",
    ),
    "three as a pair": (
        fabric_nodes(3),
        Fabric("direct"),
        "gb10_fabric_topology",
        "direct with 3 nodes",
        "two nodes",
        "another topology",
    ),
    "ring of two": (
        fabric_nodes(2, (0, 1)),
        RING,
        "gb10_fabric_topology",
        "ring with 2 nodes",
        "three nodes or more",
        "direct",
    ),
    "switch of one": (
        fabric_nodes(1),
        SWITCH,
        "gb10_fabric_topology",
        "switch with 1 nodes",
        "two nodes or more",
        "auto",
    ),
    "too many for a /24": (fabric_nodes(255), SWITCH, "nodes", "255 nodes", "at most 254", "fewer"),
    "missing cable": (
        ring(2, ports=(0,)),
        RING,
        "nodes[2].ports",
        "1 of spark3",
        "the one cabled to spark1, then the one cabled to spark2",
        "plug",
    ),
    "no cable": (
        ring(1, ports=()),
        RING,
        "nodes[1].ports",
        "spark2 has no cabled port",
        "port 0, 1 or both",
        "gb10_fabric_ports",
    ),
    "more than the others": (
        ports((1,), (1,), (1,), (0, 1)),
        SWITCH,
        "nodes[3].ports",
        "2 of spark4, 1 of",
        "each switch",
        "correct",
    ),
    "sockets in a ring": (
        fabric_nodes(3, (0, 1)),
        Fabric("ring", transport="socket"),
        "gb10_fabric_transport",
        "socket with ring",
        "roce",
        "auto",
    ),
    "RoCE without ConnectX": (
        devices("enp1s0f0np0", "eth1", "eth1", "eth1"),
        Fabric("socket", transport="roce"),
        "gb10_fabric_transport",
        "roce with socket",
        "socket",
        "auto",
    ),
    "device of one node missing": (
        devices("", "eth1", "eth1", "eth1"),
        SOCKET,
        "nodes[0].interface",
        "spark1 has none",
        "the others' network",
        "gb10_fabric_interface",
    ),
    "pool too small for a ring": (
        fabric_nodes(3, (0, 1)),
        Fabric("ring", "10.110.0.0/22"),
        "gb10_fabric_cidr",
        "no room for 6 subnets",
        "6 /24 networks",
        "/16",
    ),
    "unknown renderer": (
        fabric_nodes(2),
        Fabric(renderer="ifupdown"),
        "gb10_fabric_renderer",
        "'ifupdown'",
        "networkd or NetworkManager",
        "networkd",
    ),
    "name instead of an address": (
        ring(1, management="spark2.local"),
        RING,
        "nodes[1].address",
        "'spark2.local'",
        "IPv4 address",
        "ansible_host",
    ),
    "address of nobody": (
        ring(1, network=Network({}, {})),
        RING,
        "nodes[1].address",
        "no interface of spark2",
        "nodes reach it",
        "ansible_host",
    ),
    "twins in one subnet of a ring": (
        ring(0, addresses=("10.110.0.1/24", "10.110.1.1/24", "10.110.4.1/24", "10.110.4.9/24")),
        RING,
        "nodes[0].fabric_addresses[3]",
        "in the same subnet as its fabric_addresses[2]",
        "each PCIe function in its own subnet",
        "different subnets",
    ),
}
#: Mistakes that cause another problem too.
NOT_ALONE = {
    "outside the pool",
    "a subnet wider than the pool",
    "twins in one subnet",
    "a twin within the other's subnet",
    "twins in one subnet of a ring",
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_problem(name: str) -> None:
    nodes, cabling, path, found, expected, fix = BAD[name]
    problems = mistakes(nodes, cabling)
    (problem,) = (problem for problem in problems if problem.path == path)
    assert (problems == [problem]) is (name not in NOT_ALONE), "\n".join(map(str, problems))
    assert (found in problem.found, expected in problem.expected, fix in problem.fix) == (True, True, True), problem


@pytest.mark.parametrize(
    ("nodes", "cabling", "paths"),
    [
        pytest.param(
            [
                replace(fabric_nodes(1)[0], addresses=("10.110.7.11/24", "nonsense/24")),
                replace(fabric_nodes(2)[1], ports=(7,), addresses=("10.110.7.11/24", "10.111.8.12/24")),
            ],
            Fabric(mtu=70000, transport="tcp"),
            {
                "gb10_fabric_mtu",
                "gb10_fabric_transport",
                "nodes[0].fabric_addresses[1]",
                "nodes[1].fabric_addresses[0]",
                "nodes[1].fabric_addresses[1]",
                "nodes[1].ports[0]",
            },
            id="pair",
        ),
        pytest.param(
            [
                replace(node, management="", ports=ports, addresses=addresses)
                for node, ports, addresses in zip(
                    fabric_nodes(3), [(0, 1), (0, 7), (0, 1)], [(), (), ("nonsense",)], strict=True
                )
            ],
            Fabric("ring", "10.0.0.0/24", 100, "socket"),
            {
                "gb10_fabric_mtu",
                "gb10_fabric_cidr",
                "gb10_fabric_transport",
                "nodes[0].address",
                "nodes[1].address",
                "nodes[1].ports[1]",
                "nodes[2].address",
                "nodes[2].fabric_addresses",
                "nodes[2].fabric_addresses[0]",
            },
            id="ring",
        ),
        # A wrong port does not make the addresses of its node wrong.
        pytest.param(
            [
                replace(fabric_nodes(1)[0], ports=(1, 7), addresses=(*MINE, "10.110.9.11/24", "10.110.10.11/24")),
                fabric_nodes(2)[1],
            ],
            Fabric(),
            {"nodes[0].ports[1]", "nodes[1].ports", "nodes[1].fabric_addresses[0]", "nodes[1].fabric_addresses[1]"},
            id="wrong port with addresses",
        ),
        *(
            pytest.param(
                [
                    replace(node, ports=ports, addresses=(f"10.110.0.{node.name[-1]}/24",))
                    for node in fabric_nodes(count)
                ],
                Fabric(topology),
                {f"nodes[{index}].fabric_addresses" for index in range(count)},
                id=f"addresses without a device: {topology}, {ports}",
            )
            for topology, count in (("none", 1), ("socket", 2))
            for ports in (None, (1,))
        ),
    ],
)
def test_all_mistakes_are_listed_together(nodes: list[FabricNode], cabling: Fabric, paths: set[str]) -> None:
    assert {problem.path for problem in mistakes(nodes, cabling)} == paths


WHY = {"none": (1, "it has no fabric address"), "ring": (3, "the nodes reach each other at it")}


@pytest.mark.parametrize("topology", WHY)
@pytest.mark.parametrize("management", ["", "spark1.local", "127.0.0.1", "fe80::1"])
def test_a_node_is_called_by_an_address_of_its_own(topology: str, management: str) -> None:
    count, why = WHY[topology]
    nodes = [replace(node, management=management) for node in fabric_nodes(count, (0, 1))]
    assert mistakes(nodes, Fabric(topology)) == [
        Problem(
            f"nodes[{index}].address",
            f"the management address of spark{index + 1} is {management!r}",
            f"an IPv4 address of one of its interfaces, because {why}",
            "set ansible_host to it",
        )
        for index in range(count)
    ]

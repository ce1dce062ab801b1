"""The fabric of rings, switches, machines without ConnectX and single nodes, and the problems of each."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.plan import NodeFabric
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    SPARK_PORTS,
    Fabric,
    FabricNode,
    resolve_topology,
    twins,
)

RING, SWITCH, SOCKET = Fabric("ring"), Fabric("switch"), Fabric("socket")


def sparks(count: int, ports: tuple[int, ...] = (1,)) -> list[FabricNode]:
    return [FabricNode(f"spark{n}", ports, (), f"192.168.1.{10 + n}", "enP7s7") for n in range(1, count + 1)]


def resolved(nodes: list[FabricNode], cabling: Fabric) -> tuple[list[NodeFabric], list[Problem]]:
    """Return the plan of the resolved topology."""
    return fabric_plan.plan(nodes, cabling, resolve_topology(cabling.topology, len(nodes)))


def planned(nodes: list[FabricNode], cabling: Fabric) -> list[NodeFabric]:
    shares, problems = resolved(nodes, cabling)
    assert problems == []
    return shares


def mistakes(nodes: list[FabricNode], cabling: Fabric) -> list[Problem]:
    shares, problems = resolved(nodes, cabling)
    assert shares == [], "a plan with problems"
    return problems


def links(shares: list[NodeFabric]) -> set[tuple[str, str, str, str]]:
    """(node, interface, peer, the peer's interface) of every connected pair."""
    where = {str(rail.address.ip): rail.interface for share in shares for rail in share.rails}
    return {
        (share.name, rail.interface, peer, where[ip])
        for share in shares
        for rail in share.rails
        for peer, ip in rail.peers.items()
    }


def test_a_ring_of_three_has_six_subnets_as_nvidias_table() -> None:
    """NVIDIA's connect-three-sparks: port 0 of each node to port 1 of the next, two /24 per cable."""
    shares = planned(sparks(3, (0, 1)), RING)
    table = {share.name: {rail.interface: str(rail.address) for rail in share.rails} for share in shares}
    assert table == {
        "spark1": {
            "enp1s0f0np0": "10.110.0.1/24",
            "enP2p1s0f0np0": "10.110.1.1/24",
            "enp1s0f1np1": "10.110.4.1/24",
            "enP2p1s0f1np1": "10.110.5.1/24",
        },
        "spark2": {
            "enp1s0f0np0": "10.110.2.2/24",
            "enP2p1s0f0np0": "10.110.3.2/24",
            "enp1s0f1np1": "10.110.0.2/24",
            "enP2p1s0f1np1": "10.110.1.2/24",
        },
        "spark3": {
            "enp1s0f0np0": "10.110.4.3/24",
            "enP2p1s0f0np0": "10.110.5.3/24",
            "enp1s0f1np1": "10.110.2.3/24",
            "enP2p1s0f1np1": "10.110.3.3/24",
        },
    }


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_ring_joins_neighbors_port_0_to_port_1(count: int) -> None:
    shares = planned(sparks(count, (0, 1)), RING)
    names = [share.name for share in shares]
    following = dict(zip(names, names[1:] + names[:1], strict=True))
    expected = set()
    for name, peer in following.items():
        for mine, theirs in zip(SPARK_PORTS[0], SPARK_PORTS[1], strict=True):
            expected |= {(name, mine.interface, peer, theirs.interface), (peer, theirs.interface, name, mine.interface)}
    assert links(shares) == expected


@pytest.mark.parametrize("count", [3, 4])
def test_a_ring_calls_its_nodes_by_the_network_that_reaches_all(count: int) -> None:
    for number, share in enumerate(planned(sparks(count, (0, 1)), RING), 1):
        assert (share.address, share.interface) == (f"192.168.1.{10 + number}", "enP7s7")
        given = share.environment
        assert given["VLLM_HOST_IP"] == share.address
        assert {
            given[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")
        } == {"enP7s7"}
        assert given["NCCL_IB_HCA"] == "rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"
        assert (given["NCCL_IB_SUBNET_AWARE_ROUTING"], given["NCCL_NET_PLUGIN"], given["NCCL_IB_MERGE_NICS"]) == (
            "1",
            "none",
            "0",
        )
        # From four nodes on, not every pair has a cable.
        assert given.get("NCCL_ALGO") == ("Ring" if count > 3 else None)


def test_the_ring_may_run_the_other_way_round() -> None:
    shares = planned(sparks(3, (1, 0)), RING)
    assert ("spark1", "enp1s0f1np1", "spark2", "enp1s0f0np0") in links(shares)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("ports", [(1,), (0, 1)])
def test_a_switch_joins_all_with_all_on_every_rail(count: int, ports: tuple[int, ...]) -> None:
    shares = planned(sparks(count, ports), SWITCH)
    twins = [twin for port in ports for twin in SPARK_PORTS[port]]
    pairs = list(combinations([share.name for share in shares], 2))
    assert links(shares) == {
        (a, t.interface, b, t.interface) for pair in pairs for a, b in (pair, pair[::-1]) for t in twins
    }
    assert len({rail.address.network for share in shares for rail in share.rails}) == len(twins)
    for share in shares:
        assert (share.address, share.interface) == (str(share.rails[0].address.ip), twins[0].interface)
        assert share.environment["NCCL_IB_HCA"] == ",".join(twin.hca for twin in twins)
        assert not {"NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN", "NCCL_ALGO"} & set(share.environment)


def test_nodes_may_use_different_ports_of_a_switch() -> None:
    first, *others = sparks(4)
    shares = planned([replace(first, ports=(0,)), *others], SWITCH)
    assert ("spark1", "enp1s0f0np0", "spark4", "enp1s0f1np1") in links(shares)


def mixed() -> list[FabricNode]:
    return [
        replace(node, interface="mgbe0_0" if number > 1 else "enp1s0f0np0") for number, node in enumerate(sparks(4))
    ]


def test_a_mixed_cluster_has_one_rail_of_sockets() -> None:
    shares = planned(mixed(), Fabric("socket", mtu=1500))
    assert [[(rail.interface, rail.hca, str(rail.address)) for rail in share.rails] for share in shares] == [
        [("enp1s0f0np0", "", "10.110.0.1/24")],
        [("enp1s0f0np0", "", "10.110.0.2/24")],
        [("mgbe0_0", "", "10.110.0.3/24")],
        [("mgbe0_0", "", "10.110.0.4/24")],
    ]
    assert shares[0].rails[0].peers == {"spark2": "10.110.0.2", "spark3": "10.110.0.3", "spark4": "10.110.0.4"}
    for share in shares:
        # The distributed-vllm notes: every node must use the same transport and protocol.
        assert {name: value for name, value in share.environment.items() if name.startswith("NCCL")} == {
            "NCCL_SOCKET_IFNAME": share.interface,
            "NCCL_IB_DISABLE": "1",
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1",
            "NCCL_PROTO": "Simple",
        }


def test_a_mixed_cluster_may_use_the_network_that_is_there() -> None:
    for number, share in enumerate(planned(sparks(4), SOCKET), 1):
        assert (share.address, share.interface, share.rails, share.netplan) == (
            f"192.168.1.{10 + number}",
            "enP7s7",
            (),
            {},
        )
        assert (share.environment["NCCL_SOCKET_IFNAME"], share.environment["NCCL_IB_DISABLE"]) == ("enP7s7", "1")


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("topology", ["direct", "ring", "switch", "socket"])
def test_the_gid_index_stays_unset(count: int, topology: str) -> None:
    shares, _problems = resolved(sparks(count, (0, 1)), Fabric(topology))
    assert not [share for share in shares if "NCCL_IB_GID_INDEX" in share.environment]


def test_the_renderer_is_named_for_each_interface() -> None:
    (head, *_rest) = planned(sparks(2), Fabric(renderer="NetworkManager"))
    for definition in head.netplan["network"]["ethernets"].values():
        assert definition["renderer"] == "NetworkManager"
        # Only for networkd; NetworkManager has a configuration setting instead.
        assert "ignore-carrier" not in definition


def ring(index: int, **changes: object) -> list[FabricNode]:
    nodes = sparks(3, (0, 1))
    nodes[index] = replace(nodes[index], **changes)  # type: ignore[arg-type]
    return nodes


#: name -> (nodes, cabling, path, found, expected, fix); the last three as parts of the text.
BAD: dict[str, tuple[list[FabricNode], Fabric, str, str, str, str]] = {
    "three, not said how": (
        sparks(3),
        Fabric(),
        "gb10_fabric_topology",
        "auto with 3 nodes",
        "ring or switch",
        "set gb10_fabric_topology",
    ),
    "three as a pair": (
        sparks(3),
        Fabric("direct"),
        "gb10_fabric_topology",
        "direct with 3 nodes",
        "two nodes",
        "another topology",
    ),
    "ring of two": (
        sparks(2, (0, 1)),
        RING,
        "gb10_fabric_topology",
        "ring with 2 nodes",
        "three nodes or more",
        "direct",
    ),
    "switch of one": (sparks(1), SWITCH, "gb10_fabric_topology", "switch with 1 nodes", "two nodes or more", "auto"),
    "too many for a /24": (sparks(255), SWITCH, "nodes", "255 nodes", "at most 254", "fewer"),
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
        [*sparks(3), FabricNode("spark4", (0, 1))],
        SWITCH,
        "nodes[3].ports",
        "2 of spark4, 1 of",
        "each switch",
        "correct",
    ),
    "sockets in a ring": (
        sparks(3, (0, 1)),
        Fabric("ring", transport="socket"),
        "gb10_fabric_transport",
        "socket with ring",
        "roce",
        "auto",
    ),
    "RoCE without ConnectX": (
        mixed(),
        Fabric("socket", transport="roce"),
        "gb10_fabric_transport",
        "roce with socket",
        "socket",
        "auto",
    ),
    "device of one node missing": (
        [replace(mixed()[0], interface=""), *mixed()[1:]],
        SOCKET,
        "nodes[0].interface",
        "spark1 has none",
        "the others' network",
        "gb10_fabric_interface",
    ),
    "pool too small for a ring": (
        sparks(3, (0, 1)),
        Fabric("ring", "10.110.0.0/22"),
        "gb10_fabric_cidr",
        "no room for 6 subnets",
        "6 /24 networks",
        "/16",
    ),
    "renderer": (
        sparks(2),
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
        ring(1, management_interface=""),
        RING,
        "nodes[1].address",
        "no interface of spark2",
        "nodes reach it",
        "ansible_host",
    ),
    "twins in one subnet": (
        ring(0, addresses=("10.110.0.1/24", "10.110.1.1/24", "10.110.4.1/24", "10.110.4.9/24")),
        RING,
        "nodes[0].fabric_addresses[3]",
        "in the same subnet as its fabric_addresses[2]",
        "each PCIe function in its own subnet",
        "different subnets",
    ),
}


@pytest.mark.parametrize(("nodes", "cabling", "path", "found", "expected", "fix"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_once(
    nodes: list[FabricNode], cabling: Fabric, path: str, found: str, expected: str, fix: str
) -> None:
    (problem,) = [problem for problem in mistakes(nodes, cabling) if problem.path == path]
    assert found in problem.found
    assert expected in problem.expected
    assert fix in problem.fix


@pytest.mark.parametrize("name", sorted(BAD.keys() - {"twins in one subnet"}))
def test_one_mistake_is_one_problem(name: str) -> None:
    nodes, cabling, *_rest = BAD[name]
    assert len(mistakes(nodes, cabling)) == 1


def test_a_cable_between_equal_ports_is_found_at_both_ends_of_the_node() -> None:
    """Swapping the cables of one node breaks both."""
    problems = mistakes(ring(1, ports=(1, 0)), RING)
    assert [problem.path for problem in problems] == ["nodes[1].ports[1]", "nodes[2].ports[1]"]
    assert "port 0 of spark2 is cabled to port 0 of spark1" in problems[0].found


def test_an_unreachable_node_does_not_make_its_address_wrong() -> None:
    assert planned(ring(1, management_interface=None), RING)


def test_all_mistakes_of_a_ring_are_listed_together() -> None:
    nodes = [
        replace(node, management="", addresses=("nonsense",) if index == 2 else ())
        for index, node in enumerate(sparks(3, (0, 1)))
    ]
    nodes[1] = replace(nodes[1], ports=(0, 7))
    problems = mistakes(nodes, Fabric("ring", "10.0.0.0/24", 100, "socket"))
    assert {problem.path for problem in problems} == {
        "gb10_fabric_mtu",
        "gb10_fabric_cidr",
        "gb10_fabric_transport",
        "nodes[0].address",
        "nodes[1].address",
        "nodes[1].ports[1]",
        "nodes[2].address",
        "nodes[2].fabric_addresses",
        "nodes[2].fabric_addresses[0]",
    }


@given(st.integers(2, 12), st.sampled_from(["ring", "switch"]), st.integers(1280, 9216))
def test_every_plan_is_sound(count: int, topology: str, mtu: int) -> None:
    if topology == "ring" and count < 3:
        count = 3
    nodes, cabling = sparks(count, (0, 1)), Fabric(topology, mtu=mtu)
    shares = planned(nodes, cabling)
    assert shares == planned(nodes, cabling), "the same input gives the same plan"
    ips = [rail.address.ip for share in shares for rail in share.rails]
    assert len(set(ips)) == len(ips)
    for share in shares:
        assert len({rail.address.network for rail in share.rails}) == 4, "PCIe functions share a subnet"
        assert all(rail.peers for rail in share.rails), "a rail without peers"
    assert all((b, j, a, i) in links(shares) for a, i, b, j in links(shares)), "a path without a reverse path"
    written = [
        replace(node, addresses=tuple(str(rail.address) for rail in share.rails))
        for node, share in zip(nodes, shares, strict=True)
    ]
    assert planned(written, cabling) == shares, "the chosen addresses are valid as the user's addresses"


@pytest.mark.parametrize(
    ("topology", "counts"),
    [("direct", [2]), ("ring", [3, 4]), ("switch", [2, 3, 4]), ("socket", [2, 3, 4]), ("none", [1])],
)
def test_the_numbers_of_nodes(topology: str, counts: list[int]) -> None:
    ports = (0, 1) if topology == "ring" else (1,)
    found = {
        count: [problem.path for problem in resolved(sparks(count, ports), Fabric(topology))[1]]
        for count in range(1, 5)
    }
    assert [count for count, places in found.items() if not places] == counts
    assert all("gb10_fabric_topology" in places for places in found.values() if places)


def test_a_switch_joins_as_many_nodes_as_a_subnet_has_hosts() -> None:
    assert str(planned(sparks(254), Fabric("switch"))[-1].rails[0].address) == "10.110.0.254/24"


@pytest.mark.parametrize(
    ("pool", "fits"),
    [("10.110.0.0/23", True), ("10.110.0.0/24", False), ("10.110.0.0/25", False), ("10.0.0.0/8", True)],
)
def test_a_pool_has_room_for_a_subnet_of_each_rail(pool: str, fits: bool) -> None:
    assert (resolved(sparks(2), Fabric(pool=pool))[1] == []) is fits


@pytest.mark.parametrize("mtu", [1280, 9216])
def test_the_least_and_the_greatest_mtu(mtu: int) -> None:
    assert planned(sparks(2), Fabric(mtu=mtu))


def test_an_invalid_choice_of_functions_means_both_until_it_is_reported() -> None:
    assert [len(twins(0, functions)) for functions in ("both", "first", "second", "other")] == [2, 1, 1, 2]

"""The fabric of each topology: its plan, its limits, and the drift of a node from it (test_mistakes.py has the problems)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sparks import fabric_nodes

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment, netplan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.links import Ports
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import drift
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import interfaces as typed
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    SPARK_PORTS,
    Fabric,
    FabricNode,
    resolve_topology,
    twins,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NodeFabric

PAIR, RING, SWITCH, SOCKET = Fabric(), Fabric("ring"), Fabric("switch"), Fabric("socket")


def pair(*ports: tuple[int, ...]) -> list[FabricNode]:
    """A pair with these ports, the same for both if there is one entry."""
    return [replace(node, ports=some) for node, some in zip(fabric_nodes(2), ports * 2, strict=False)]


def resolved(nodes: Sequence[FabricNode], cabling: Fabric) -> tuple[list[NodeFabric], list[Problem]]:
    """Return the plan of the resolved topology."""
    return fabric_plan.plan(nodes, cabling, resolve_topology(cabling.topology, len(nodes)))


def planned(nodes: Sequence[FabricNode], cabling: Fabric) -> list[NodeFabric]:
    shares, problems = resolved(nodes, cabling)
    assert problems == []
    return shares


def links(shares: list[NodeFabric]) -> set[tuple[str, str, str, str]]:
    """(node, interface, peer, the peer's interface) of every connected pair."""
    where = {rail.address.split("/")[0]: rail.interface for share in shares for rail in share.rails}
    return {
        (share.name, rail.interface, peer, where[ip])
        for share in shares
        for rail in share.rails
        for peer, ip in rail.peers.items()
    }


def on(interface: str, address: str) -> dict[str, str]:
    """The variables that keep every library on an interface."""
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")
    return {"VLLM_HOST_IP": address, **dict.fromkeys(names, interface)}


def rails(share: NodeFabric) -> list[tuple[str, str, str, dict[str, str]]]:
    return [(rail.interface, rail.hca, rail.address, dict(rail.peers)) for rail in share.rails]


def test_a_port_is_two_rails() -> None:
    head, worker = planned(fabric_nodes(2), Fabric(mtu=4200))
    assert rails(head) == [
        ("enp1s0f1np1", "rocep1s0f1", "10.110.0.1/24", {"spark2": "10.110.0.2"}),
        ("enP2p1s0f1np1", "roceP2p1s0f1", "10.110.1.1/24", {"spark2": "10.110.1.2"}),
    ]
    assert rails(worker) == [
        ("enp1s0f1np1", "rocep1s0f1", "10.110.0.2/24", {"spark1": "10.110.0.1"}),
        ("enP2p1s0f1np1", "roceP2p1s0f1", "10.110.1.2/24", {"spark1": "10.110.1.1"}),
    ]
    assert (head.address, worker.address) == ("10.110.0.1", "10.110.0.2")
    addresses = {rail.interface: rail.address for rail in head.rails}
    assert head.netplan == netplan.document(addresses, 4200, "networkd")
    assert head.files == netplan.files(list(addresses), "networkd")


FIRST, SECOND = ["enp1s0f0np0", "enP2p1s0f0np0"], ["enp1s0f1np1", "enP2p1s0f1np1"]


@pytest.mark.parametrize(
    ("ports", "interfaces"),
    [
        # Each rank uses its own interface; the other node's would not exist.
        (((0,), (1,)), (FIRST, SECOND)),
        (((0, 1),), (FIRST + SECOND, FIRST + SECOND)),
        (((1, 0), (0, 1)), (SECOND + FIRST, FIRST + SECOND)),
    ],
    ids=["a cable between different ports", "two cables", "crossed cables"],
)
def test_cables_follow_the_order_of_the_ports(
    ports: tuple[tuple[int, ...], ...], interfaces: tuple[list[str], ...]
) -> None:
    shares = planned(pair(*ports), PAIR)
    hcas = {twin.interface: twin.hca for both in SPARK_PORTS.values() for twin in both}
    for share, other, names in zip(shares, reversed(shares), interfaces, strict=True):
        assert [rail.interface for rail in share.rails] == names
        assert [dict(rail.peers) for rail in share.rails] == [
            {other.name: rail.address.split("/")[0]} for rail in other.rails
        ]
        found = share.environment["NCCL_SOCKET_IFNAME"], share.environment["NCCL_IB_HCA"]
        assert found == (names[0], ",".join(hcas[name] for name in names))


@pytest.mark.parametrize(
    ("mine", "yours"),
    [
        (("10.110.7.11/24", "10.110.8.11/24"), ("10.110.7.12/24", "10.110.8.12/24")),
        # Both addresses of a /31 are hosts.
        (("10.110.0.0/31", "10.110.0.2/31"), ("10.110.0.1/31", "10.110.0.3/31")),
    ],
)
def test_the_users_addresses_win(mine: tuple[str, ...], yours: tuple[str, ...]) -> None:
    nodes = [replace(node, addresses=some) for node, some in zip(fabric_nodes(2), (mine, yours), strict=True)]
    head, worker = planned(nodes, PAIR)
    assert [rail.address for rail in head.rails] == list(mine)
    assert [rail.peers for rail in head.rails] == [{"spark2": text.split("/")[0]} for text in yours]
    assert worker.address == worker.environment["VLLM_HOST_IP"] == yours[0].split("/")[0]


def test_a_single_node_needs_no_fabric() -> None:
    (only,) = planned([FabricNode("spark1", management="192.168.1.11")], PAIR)
    assert only == NodeFabric("spark1", "192.168.1.11", "", (), {}, {}, {})


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        ("auto", {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1", "NCCL_IB_MERGE_NICS": "1"}),
        ("roce", {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1", "NCCL_IB_MERGE_NICS": "1"}),
        ("socket", {"NCCL_IB_DISABLE": "1"}),
    ],
)
def test_transport(transport: str, expected: dict[str, str]) -> None:
    head, _worker = planned(fabric_nodes(2), Fabric(transport=transport))
    assert head.environment == on("enp1s0f1np1", "10.110.0.1") | expected


def test_a_ring_of_three_has_six_subnets_as_nvidias_table() -> None:
    """NVIDIA's connect-three-sparks: port 0 of each node to port 1 of the next, two /24 per cable."""
    shares = planned(fabric_nodes(3, (0, 1)), RING)
    table = {share.name: {rail.interface: rail.address for rail in share.rails} for share in shares}
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
    shares = planned(fabric_nodes(count, (0, 1)), RING)
    names = [share.name for share in shares]
    following = dict(zip(names, names[1:] + names[:1], strict=True))
    expected = set()
    for name, peer in following.items():
        for mine, theirs in zip(SPARK_PORTS[0], SPARK_PORTS[1], strict=True):
            expected |= {(name, mine.interface, peer, theirs.interface), (peer, theirs.interface, name, mine.interface)}
    assert links(shares) == expected


@pytest.mark.parametrize(
    ("count", "more"), [(3, {}), (4, {"NCCL_ALGO": "Ring", "NCCL_RUNTIME_CONNECT": "1", "NCCL_CUMEM_ENABLE": "1"})]
)
def test_a_ring_calls_its_nodes_by_the_network_that_reaches_all(count: int, more: dict[str, str]) -> None:
    """From four nodes on, not every pair has a cable."""
    for number, share in enumerate(planned(fabric_nodes(count, (0, 1)), RING), 1):
        assert (share.address, share.interface) == (f"192.168.1.{10 + number}", "enP7s7")
        assert share.environment == {
            **on("enP7s7", share.address),
            "NCCL_IB_DISABLE": "0",
            "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1",
            "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
            "NCCL_NET_PLUGIN": "none",
            "NCCL_IB_MERGE_NICS": "0",
            **more,
        }


@pytest.mark.parametrize(
    ("ports", "merged"),
    [([(0, 1)] * 4, "0"), ([(1, 0)] * 3, "0"), ([(1, 0), (0, 1)] * 2, "1"), ([(0, 1), (0, 1), (1, 0)], "1")],
)
def test_devices_of_a_ring_are_merged_where_a_cable_joins_equal_ports(
    ports: list[tuple[int, int]], merged: str
) -> None:
    """tests/gpu/ring.py saw the connections of both kinds."""
    nodes = [replace(node, ports=own) for node, own in zip(fabric_nodes(len(ports)), ports, strict=True)]
    assert {share.environment["NCCL_IB_MERGE_NICS"] for share in planned(nodes, RING)} == {merged}


@pytest.mark.parametrize(
    ("nodes", "cabling", "link"),
    [
        (fabric_nodes(3, (1, 0)), RING, ("spark1", "enp1s0f1np1", "spark2", "enp1s0f0np0")),
        (
            [replace(fabric_nodes(1)[0], ports=(0,)), *fabric_nodes(4)[1:]],
            SWITCH,
            ("spark1", "enp1s0f0np0", "spark4", "enp1s0f1np1"),
        ),
    ],
    ids=["a ring the other way round", "different ports of a switch"],
)
def test_other_ports(nodes: list[FabricNode], cabling: Fabric, link: tuple[str, str, str, str]) -> None:
    assert link in links(planned(nodes, cabling))


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("ports", [(1,), (0, 1)])
def test_a_switch_joins_all_with_all_on_every_rail(count: int, ports: tuple[int, ...]) -> None:
    shares = planned(fabric_nodes(count, ports), SWITCH)
    twins = [twin for port in ports for twin in SPARK_PORTS[port]]
    pairs = list(combinations([share.name for share in shares], 2))
    assert links(shares) == {
        (a, t.interface, b, t.interface) for pair in pairs for a, b in (pair, pair[::-1]) for t in twins
    }
    assert len({IPv4Interface(rail.address).network for share in shares for rail in share.rails}) == len(twins)
    for share in shares:
        assert (share.address, share.interface) == (share.rails[0].address.split("/")[0], twins[0].interface)
        hcas = {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(twin.hca for twin in twins)}
        assert share.environment == on(share.interface, share.address) | hcas


#: The distributed-vllm notes: every node must use the same transport and protocol.
SOCKETS = {"NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_PROTO": "Simple"}
DEVICES = ["enp1s0f0np0", "enp1s0f0np0", "mgbe0_0", "mgbe0_0"]


@pytest.mark.parametrize("interfaces", [DEVICES, [""] * 4], ids=["one rail", "the network that is there"])
def test_a_mixed_cluster_uses_sockets(interfaces: list[str]) -> None:
    nodes = [replace(node, interface=interface) for node, interface in zip(fabric_nodes(4), interfaces, strict=True)]
    shares = planned(nodes, Fabric("socket", mtu=1500))
    for number, (share, interface) in enumerate(zip(shares, interfaces, strict=True), 1):
        peers = {f"spark{n}": f"10.110.0.{n}" for n in range(1, 5) if n != number}
        assert rails(share) == ([(interface, "", f"10.110.0.{number}/24", peers)] if interface else [])
        address = f"10.110.0.{number}" if interface else f"192.168.1.{10 + number}"
        assert (share.address, share.interface) == (address, interface or "enP7s7")
        assert share.environment == on(share.interface, address) | SOCKETS
        assert bool(share.netplan) is bool(interface)


def test_an_unreachable_node_does_not_make_its_address_wrong() -> None:
    assert planned([replace(node, network=None) for node in fabric_nodes(3, (0, 1))], RING)


PORTS = st.sampled_from([(0,), (1,), (0, 1), (1, 0)])


@st.composite
def cabled(draw: st.DrawFn) -> tuple[list[FabricNode], Fabric]:
    topology = draw(st.sampled_from(["direct", "ring", "switch"]))
    count = 2 if topology == "direct" else draw(st.integers(3, 12))
    first = draw(PORTS)
    ports = [draw(PORTS.filter(lambda some: len(some) == len(first))) for _node in range(count)]
    nodes = [
        replace(node, ports=(0, 1) if topology == "ring" else some)
        for node, some in zip(fabric_nodes(count), ports, strict=True)
    ]
    base = draw(st.integers(min_value=1 << 24, max_value=(224 << 24) - 1))
    pool = IPv4Network((base, draw(st.integers(8, 19))), strict=False)
    return nodes, Fabric(topology, str(pool), draw(st.integers(1280, 9216)), draw(st.sampled_from(["roce", "auto"])))


@pytest.mark.slow
@given(cabled())
def test_every_plan_is_sound(given_: tuple[list[FabricNode], Fabric]) -> None:
    nodes, cabling = given_
    shares, pool = planned(nodes, cabling), IPv4Network(cabling.pool)
    assert shares == planned(nodes, cabling), "the same input gives the same plan"
    addresses = [IPv4Interface(rail.address) for share in shares for rail in share.rails]
    assert len({address.ip for address in addresses}) == len(addresses)
    assert all(address.network.subnet_of(pool) and address.ip in list(address.network.hosts()) for address in addresses)
    for share, node in zip(shares, nodes, strict=True):
        assert len({IPv4Interface(rail.address).network for rail in share.rails}) == 2 * len(node.ports or ()), (
            "they share a subnet"
        )
        assert all(rail.peers for rail in share.rails), "a rail without peers"
    assert all((b, j, a, i) in links(shares) for a, i, b, j in links(shares)), "a path without a reverse path"
    written = [
        replace(node, addresses=tuple(rail.address for rail in share.rails))
        for node, share in zip(nodes, shares, strict=True)
    ]
    assert planned(written, cabling) == shares, "the chosen addresses are valid as the user's addresses"


COUNTS = {"direct": [2], "ring": [3, 4], "switch": [2, 3, 4, 254], "socket": [2, 3, 4], "none": [1]}


@pytest.mark.parametrize(
    ("count", "cabling", "place"),
    [
        *(
            (count, Fabric(topology), "" if count in counts else "gb10_fabric_topology")
            for topology, counts in COUNTS.items()
            for count in {1, 2, 3, 4, *counts}
        ),
        *((2, Fabric(pool=f"10.0.0.0/{prefix}"), "") for prefix in (8, 23)),
        *((2, Fabric(pool=f"10.0.0.0/{prefix}"), "gb10_fabric_cidr") for prefix in (24, 25)),
        *((2, Fabric(mtu=mtu), "") for mtu in (1280, 9216)),
    ],
)
def test_the_limits_of_nodes_pools_and_mtu(count: int, cabling: Fabric, place: str) -> None:
    shares, problems = resolved(fabric_nodes(count, (0, 1) if cabling.topology == "ring" else (1,)), cabling)
    assert place in [problem.path for problem in problems] if place else problems == []
    assert len(shares) == (0 if place else count)


def test_an_invalid_choice_of_functions_means_both_until_it_is_reported() -> None:
    assert [len(twins(0, functions)) for functions in ("both", "first", "second", "other")] == [2, 1, 1, 2]


RAILS = {"enp1s0f1np1": "10.110.0.1/24", "enP2p1s0f1np1": "10.110.1.1/24"}


def live(**changes: object) -> dict[str, dict[str, object]]:
    found = {name: {"mtu": 9000, "addresses": [address]} for name, address in RAILS.items()}
    return {**found, "enp1s0f1np1": {**found["enp1s0f1np1"], **changes}}


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        pytest.param(live(), [], id="as planned"),
        pytest.param(live(addresses=["169.254.3.4/16", "10.110.0.1/24"]), [], id="an address more"),
        pytest.param(live(addresses=[]), ["enp1s0f1np1 has no address instead of 10.110.0.1/24"], id="no address"),
        pytest.param(
            live(addresses=["10.110.0.1/16"]),
            ["enp1s0f1np1 has 10.110.0.1/16 instead of 10.110.0.1/24"],
            id="other prefix",
        ),
        pytest.param(live(mtu=1500), ["enp1s0f1np1 has MTU 1500 instead of 9000"], id="MTU"),
        pytest.param({}, ["enp1s0f1np1 does not exist", "enP2p1s0f1np1 does not exist"], id="no interfaces"),
    ],
)
def test_drift(interfaces: dict[str, dict[str, object]], expected: list[str]) -> None:
    assert drift(RAILS, 9000, typed(interfaces)) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "roce"),
        ({"NCCL_IB_DISABLE": "0"}, "roce"),
        ({"NCCL_IB_DISABLE": "1"}, "socket"),
        ({"NCCL_NET": "Socket"}, "socket"),
        ({"NCCL_NET": "IB"}, "roce"),
    ],
)
def test_the_transport_that_variables_select(variables: dict[str, str], expected: str) -> None:
    assert environment.transport(variables) == expected


@pytest.mark.parametrize(
    ("shape", "ports", "warned"),
    [
        ("ring", [(1, 0), (0, 1), (1, 0), (0, 1)], True),
        ("ring", [(0, 1), (0, 1), (1, 0)], True),
        ("ring", [(0, 1)] * 4, False),
        ("ring", [(1, 0)] * 3, False),
        ("ring", ["auto", None, (0,), (0, 1)], False),
        ("switch", [(1, 0), (0, 1)], False),
    ],
)
def test_cables_between_equal_ports_of_a_ring_are_a_warning(shape: str, ports: list[Ports], warned: bool) -> None:
    found = fabric_plan.warnings("both", shape, ports, 9000)
    assert [text.split(":")[0] for text in found] == ["gb10_fabric_ports"] * warned


@pytest.mark.parametrize(
    ("shape", "mtu", "warns"),
    [
        ("direct", 1500, True),
        ("ring", 8999, True),
        ("direct", 9000, False),
        ("switch", 1500, False),
        ("none", 1500, False),
    ],
)
def test_an_mtu_that_a_cable_exceeds_is_a_warning(shape: str, mtu: int, warns: bool) -> None:
    found = fabric_plan.warnings("both", shape, [(1,), (1,)], mtu)
    assert [text.startswith(f"gb10_fabric_mtu: {mtu}, but a direct cable carries 9000") for text in found] == [
        True
    ] * warns

"""The fabric of a pair (test_topologies.py has the others): its plan, and its problems, all listed together."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.plan import NodeFabric
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import drift
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import interfaces as typed
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import Fabric, FabricNode, resolve_topology

ONE = FabricNode("spark1")
TWO = FabricNode("spark2")
#: Valid addresses from the user.
MINE = ("10.110.7.11/24", "10.110.8.11/24")
YOURS = ("10.110.7.12/24", "10.110.8.12/24")


def resolved(nodes: Sequence[FabricNode], cabling: Fabric) -> tuple[list[NodeFabric], list[Problem]]:
    """Return the plan of the resolved topology."""
    return fabric_plan.plan(nodes, cabling, resolve_topology(cabling.topology, len(nodes)))


def planned(*nodes: FabricNode, cabling: Fabric | None = None) -> list[NodeFabric]:
    shares, problems = resolved(nodes, cabling or Fabric())
    assert problems == []
    return shares


def mistakes(*nodes: FabricNode, cabling: Fabric | None = None) -> list[Problem]:
    shares, problems = resolved(nodes, cabling or Fabric())
    assert shares == [], "a plan with problems"
    return problems


def rails(share: NodeFabric) -> list[tuple[str, str, str, dict[str, str]]]:
    return [(rail.interface, rail.hca, str(rail.address), dict(rail.peers)) for rail in share.rails]


def test_a_port_is_two_rails() -> None:
    head, worker = planned(ONE, TWO)
    assert rails(head) == [
        ("enp1s0f1np1", "rocep1s0f1", "10.110.0.1/24", {"spark2": "10.110.0.2"}),
        ("enP2p1s0f1np1", "roceP2p1s0f1", "10.110.1.1/24", {"spark2": "10.110.1.2"}),
    ]
    assert rails(worker) == [
        ("enp1s0f1np1", "rocep1s0f1", "10.110.0.2/24", {"spark1": "10.110.0.1"}),
        ("enP2p1s0f1np1", "roceP2p1s0f1", "10.110.1.2/24", {"spark1": "10.110.1.1"}),
    ]
    assert (head.address, worker.address) == ("10.110.0.1", "10.110.0.2")


def test_both_ports_are_four_rails() -> None:
    head, worker = planned(replace(ONE, ports=(0, 1)), replace(TWO, ports=(0, 1)))
    assert [rail.interface for rail in head.rails] == ["enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1"]
    assert head.environment["NCCL_IB_HCA"] == "rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"
    assert [rail.peers["spark1"] for rail in worker.rails] == [str(rail.address.ip) for rail in head.rails]


def test_a_cable_may_join_different_ports() -> None:
    head, worker = planned(replace(ONE, ports=(0,)), replace(TWO, ports=(1,)))
    assert [rail.interface for rail in head.rails] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert [rail.interface for rail in worker.rails] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert [dict(rail.peers) for rail in head.rails] == [{"spark2": "10.110.0.2"}, {"spark2": "10.110.1.2"}]
    # Each rank uses its own interface; the other node's would not exist.
    assert (head.environment["NCCL_SOCKET_IFNAME"], worker.environment["NCCL_SOCKET_IFNAME"]) == (
        "enp1s0f0np0",
        "enp1s0f1np1",
    )


def test_crossed_ports_follow_the_order_of_the_list() -> None:
    head, worker = planned(replace(ONE, ports=(1, 0)), replace(TWO, ports=(0, 1)))
    assert [rail.interface for rail in head.rails][::2] == ["enp1s0f1np1", "enp1s0f0np0"]
    assert [str(rail.address.network) for rail in head.rails] == [str(rail.address.network) for rail in worker.rails]


def test_the_users_addresses_win() -> None:
    head, worker = planned(replace(ONE, addresses=MINE), replace(TWO, addresses=YOURS))
    assert [str(rail.address) for rail in head.rails] == list(MINE)
    assert head.rails[1].peers == {"spark2": "10.110.8.12"}
    assert worker.address == worker.environment["VLLM_HOST_IP"] == "10.110.7.12"


def test_both_addresses_of_a_31_are_hosts() -> None:
    head, worker = planned(
        replace(ONE, addresses=("10.110.0.0/31", "10.110.0.2/31")),
        replace(TWO, addresses=("10.110.0.1/31", "10.110.0.3/31")),
    )
    assert (head.rails[0].peers, worker.rails[1].peers) == ({"spark2": "10.110.0.1"}, {"spark1": "10.110.0.2"})


def test_a_single_node_needs_no_fabric() -> None:
    (only,) = planned(replace(ONE, management="192.168.1.11"))
    assert only == NodeFabric("spark1", "192.168.1.11")


@pytest.mark.parametrize("management", ["", "spark1.local", "127.0.0.1", "fe80::1"])
def test_a_single_node_is_called_by_an_address_of_its_own(management: str) -> None:
    nodes, (problem,) = resolved([replace(ONE, management=management)], Fabric())
    assert nodes == []
    assert problem.path == "nodes[0].address"
    assert repr(management) in problem.found
    assert "ansible_host" in problem.fix


def test_the_netplan_document_touches_only_the_rails_and_stays_static() -> None:
    (head, _worker) = planned(ONE, TWO, cabling=Fabric(mtu=4200))
    ethernets = head.netplan["network"]["ethernets"]
    assert list(ethernets) == ["enp1s0f1np1", "enP2p1s0f1np1"]
    for rail in head.rails:
        document = ethernets[rail.interface]
        assert (document["addresses"], document["mtu"]) == ([str(rail.address)], 4200)
        assert (document["dhcp4"], document["dhcp6"], document["link-local"]) == (False, False, [])
        # Keep the address while the peer reboots, and do not delay a boot without a cable.
        assert (document["ignore-carrier"], document["optional"]) == (True, True)


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        ("auto", {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1", "NCCL_IB_MERGE_NICS": "1"}),
        ("roce", {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1", "NCCL_IB_MERGE_NICS": "1"}),
        ("socket", {"NCCL_IB_DISABLE": "1"}),
    ],
)
def test_transport(transport: str, expected: dict[str, str]) -> None:
    (head, _worker) = planned(ONE, TWO, cabling=Fabric(transport=transport))
    assert {name: value for name, value in head.environment.items() if name.startswith("NCCL_IB")} == expected


def user(mine: tuple[str, ...], yours: tuple[str, ...] = YOURS) -> tuple[FabricNode, FabricNode]:
    return replace(ONE, addresses=mine), replace(TWO, addresses=yours)


#: name -> (nodes, cabling, path, found, expected, fix): the last three as parts of the text.
BAD: dict[str, tuple[tuple[FabricNode, ...], Fabric, str, str, str, str]] = {
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
        (ONE, replace(TWO, ports=(7,))),
        Fabric(),
        "nodes[1].ports[0]",
        "spark2 has no QSFP port 7",
        "0 (next to the RJ45 socket) or 1",
        "correct gb10_fabric_ports",
    ),
    "port twice": (
        (replace(ONE, ports=(1, 1)), replace(TWO, ports=(0, 1))),
        Fabric(),
        "nodes[0].ports[1]",
        "port 1 of spark1 is listed twice",
        "each port once",
        "correct gb10_fabric_ports",
    ),
    "no port": (
        (ONE, replace(TWO, ports=())),
        Fabric(),
        "nodes[1].ports",
        "spark2 has no cabled port",
        "port 0, 1 or both",
        "gb10_fabric_ports",
    ),
    "one end without a cable": (
        (ONE, replace(TWO, ports=(0, 1))),
        Fabric(),
        "nodes[1].ports",
        "2 of spark2, 1 of spark1",
        "as many as on the other end",
        "correct gb10_fabric_ports",
    ),
    "MTU above": ((ONE, TWO), Fabric(mtu=70000), "gb10_fabric_mtu", "70000", "1280 to 9216 bytes", "9000"),
    "MTU below": ((ONE, TWO), Fabric(mtu=1279), "gb10_fabric_mtu", "1279", "1280 to 9216 bytes", "9000"),
    "pool too small": (
        (ONE, TWO),
        Fabric(pool="10.110.0.0/24"),
        "gb10_fabric_cidr",
        "10.110.0.0/24 has no room for 2 subnets",
        "room for 2 /24 networks",
        "/16",
    ),
    "pool below a subnet": (
        (ONE, TWO),
        Fabric(pool="10.110.0.0/30"),
        "gb10_fabric_cidr",
        "no room for 2",
        "2 /24 networks",
        "/16",
    ),
    "no pool": (
        (ONE, TWO),
        Fabric(pool="ten"),
        "gb10_fabric_cidr",
        "'ten'",
        "10.110.0.0/16",
        "correct gb10_fabric_cidr",
    ),
    "pool with host bits": (
        (ONE, TWO),
        Fabric(pool="10.110.0.1/16"),
        "gb10_fabric_cidr",
        "host bits",
        "10.110.0.0/16",
        "correct",
    ),
    "three on one cable": (
        (ONE, TWO, FabricNode("spark3")),
        Fabric(topology="direct"),
        "gb10_fabric_topology",
        "direct with 3 nodes",
        "two nodes on one cable",
        "another topology",
    ),
    "two without a fabric": (
        (ONE, TWO),
        Fabric(topology="none"),
        "gb10_fabric_topology",
        "none with 2 nodes",
        "a topology that connects them",
        "direct",
    ),
    "unknown topology": (
        (ONE, TWO),
        Fabric(topology="star"),
        "gb10_fabric_topology",
        "'star'",
        "auto or direct or ring",
        "gb10_fabric_topology",
    ),
    "unknown transport": (
        (ONE, TWO),
        Fabric(transport="tcp"),
        "gb10_fabric_transport",
        "'tcp'",
        "roce or socket",
        "roce",
    ),
}


@pytest.mark.parametrize(("nodes", "cabling", "path", "found", "expected", "fix"), BAD.values(), ids=BAD)
def test_a_mistake_is_named(
    nodes: tuple[FabricNode, ...], cabling: Fabric, path: str, found: str, expected: str, fix: str
) -> None:
    at_path = [problem for problem in mistakes(*nodes, cabling=cabling) if problem.path == path]
    assert len(at_path) == 1, at_path
    assert found in at_path[0].found
    assert expected in at_path[0].expected
    assert fix in at_path[0].fix


#: Mistakes of one value, which must not cause a second, unfounded problem.
ALONE = sorted(
    BAD.keys()
    - {"outside the pool", "a subnet wider than the pool", "twins in one subnet", "a twin within the other's subnet"}
)


@pytest.mark.parametrize("name", ALONE)
def test_one_mistake_is_one_problem(name: str) -> None:
    nodes, cabling, *_rest = BAD[name]
    problems = mistakes(*nodes, cabling=cabling)
    assert len(problems) == 1, "\n".join(map(str, problems))


def test_a_wrong_port_does_not_make_the_addresses_wrong() -> None:
    problems = mistakes(replace(ONE, ports=(1, 7), addresses=(*MINE, "10.110.9.11/24", "10.110.10.11/24")), TWO)
    assert [problem.path for problem in problems if "addresses" in problem.path and "nodes[0]" in problem.path] == []


def test_all_mistakes_are_listed_together() -> None:
    problems = mistakes(
        replace(ONE, ports=(1,), addresses=("10.110.7.11/24", "nonsense/24")),
        replace(TWO, ports=(7,), addresses=("10.110.7.11/24", "10.111.8.12/24")),
        cabling=Fabric(mtu=70000, transport="tcp"),
    )
    assert sorted(problem.path for problem in problems) == [
        "gb10_fabric_mtu",
        "gb10_fabric_transport",
        "nodes[0].fabric_addresses[1]",
        "nodes[1].fabric_addresses[0]",
        "nodes[1].fabric_addresses[1]",
        "nodes[1].ports[0]",
    ]


PORTS = st.sampled_from([(0,), (1,), (0, 1), (1, 0)])


@st.composite
def cabled_pairs(draw: st.DrawFn) -> tuple[tuple[FabricNode, FabricNode], Fabric]:
    first = draw(PORTS)
    second = draw(PORTS.filter(lambda ports: len(ports) == len(first)))
    base = draw(st.integers(min_value=1 << 24, max_value=(224 << 24) - 1))
    pool = ipaddress.IPv4Network((base, draw(st.integers(8, 22))), strict=False)
    cabling = Fabric(
        draw(st.sampled_from(["auto", "direct"])),
        str(pool),
        draw(st.integers(1280, 9216)),
        draw(st.sampled_from(["roce", "socket"])),
    )
    return (replace(ONE, ports=first), replace(TWO, ports=second)), cabling


@given(cabled_pairs())
def test_every_plan_of_a_pair_is_sound(pair: tuple[tuple[FabricNode, FabricNode], Fabric]) -> None:
    nodes, cabling = pair
    shares = planned(*nodes, cabling=cabling)
    assert shares == planned(*nodes, cabling=cabling)
    pool = ipaddress.IPv4Network(cabling.pool)
    addresses = [rail.address for share in shares for rail in share.rails]
    assert len({address.ip for address in addresses}) == len(addresses)
    assert all(address.network.subnet_of(pool) and address.ip in list(address.network.hosts()) for address in addresses)
    for share, other in zip(shares, reversed(shares), strict=True):
        networks = [rail.address.network for rail in share.rails]
        assert len(set(networks)) == len(networks), "PCIe functions share a subnet"
        assert [rail.peers for rail in share.rails] == [{other.name: str(rail.address.ip)} for rail in other.rails]


def test_what_is_chosen_is_accepted_when_the_user_writes_it_down() -> None:
    shares = planned(replace(ONE, ports=(0, 1)), replace(TWO, ports=(0, 1)))
    written = [FabricNode(share.name, (0, 1), tuple(str(rail.address) for rail in share.rails)) for share in shares]
    assert planned(*written) == shares


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


@pytest.mark.parametrize(("topology", "count"), [("none", 1), ("socket", 2)])
@pytest.mark.parametrize("ports", [None, (1,)])
def test_addresses_without_a_device_are_reported(topology: str, count: int, ports: tuple[int, ...] | None) -> None:
    nodes = [
        FabricNode(f"spark{n}", ports, (f"10.110.0.{n}/24",), f"192.168.1.{n}", "eth0") for n in range(1, count + 1)
    ]
    shares, problems = resolved(nodes, Fabric(topology))
    assert shares == []
    assert [problem.path for problem in problems] == [f"nodes[{index}].fabric_addresses" for index in range(count)]


def test_the_default_mtu_is_that_of_the_cables() -> None:
    (head, _worker) = planned(ONE, TWO)
    assert {document["mtu"] for document in head.netplan["network"]["ethernets"].values()} == {9000}


@pytest.mark.parametrize(
    ("topology", "count", "why"),
    [("none", 1, "it has no fabric address"), ("ring", 3, "the nodes reach each other at it")],
)
def test_why_a_management_address_is_needed(topology: str, count: int, why: str) -> None:
    nodes = [FabricNode(f"spark{number}", (0, 1)) for number in range(count)]
    found = [
        problem.expected
        for problem in mistakes(*nodes, cabling=Fabric(topology=topology))
        if problem.path.endswith(".address")
    ]
    assert found == [f"an IPv4 address of one of its interfaces, because {why}"] * count


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

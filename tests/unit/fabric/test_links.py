"""The links of a fabric: the ports of gb10_fabric_ports: auto, and problems of ports and RDMA devices."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import KNOWN, LOCK, Node, cluster_plan, interface, mistakes, spark
from hypothesis import given
from hypothesis import strategies as st
from recorded_hosts import plant
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import links as fabric_links
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import interfaces, network
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import NETPLAN_FILE, SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth

OURS = [{"file": NETPLAN_FILE, "id": "x", "kind": "ethernets", "by": "name"}]
#: A port's devices: with a cable, up without a cable, down, or configured by an earlier run and now without a cable.
LIT, EMPTY, DOWN, LOST = (
    {"up": True, "carrier": True},
    {"up": True, "carrier": False},
    {"up": False, "carrier": False},
    {"up": True, "carrier": False, "owners": OURS},
)


def sparks(*ports: tuple[dict[str, Any], dict[str, Any]], **settings: Any) -> list[Node]:
    """A node for each pair of facts: port 0, port 1."""
    nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, len(ports) + 1)]
    for node, both in zip(nodes, ports, strict=True):
        for facts, (number, twins) in zip(both, SPARK_PORTS.items(), strict=True):
            change(node, number, **facts)
            for twin in twins:
                node["observed"]["rdma"][twin.hca]["state"] = "ACTIVE" if facts["carrier"] else "DOWN"
    return nodes


def change(node: Node, port: int, *, twins: slice = slice(2), **facts: Any) -> None:
    for twin in SPARK_PORTS[port][twins]:
        node["observed"]["interfaces"][twin.interface].update(copy.deepcopy(facts))


def with_facts(nodes: list[Node], index: int, port: int = 1, twins: slice = slice(2), **facts: Any) -> list[Node]:
    """The nodes with changed devices of one node's port."""
    change(nodes[index], port, twins=twins, **facts)
    return nodes


def observed(nodes: list[Node], index: int, **facts: Any) -> list[Node]:
    """The nodes with other facts of one node."""
    nodes[index]["observed"] |= facts
    return nodes


def rdma(index: int, settings: dict[str, Any] | None = None, **facts: str) -> list[Node]:
    """A pair with other facts of one RDMA device."""
    nodes = sparks((EMPTY, LIT), (EMPTY, LIT), **(settings or {}))
    nodes[index]["observed"]["rdma"]["rocep1s0f1"] |= facts
    return nodes


def planned(nodes: list[Node]) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes)
    assert problems == [], report(problems)
    return plan


def taken(plan: dict[str, Any]) -> list[list[int]]:
    """The ports of each node's rails, in order."""
    port = {twin.interface: number for number, twins in SPARK_PORTS.items() for twin in twins}
    return [[port[rail["interface"]] for rail in node["rails"][::2]] for node in plan["nodes"]]


@pytest.mark.parametrize(
    ("nodes", "expected", "why"),
    [
        pytest.param(
            sparks((EMPTY, LIT), (EMPTY, LIT)), [[1], [1]], "port 1, with carrier on every node", id="a cable at port 1"
        ),
        pytest.param(
            sparks((LIT, EMPTY), (LIT, EMPTY)), [[0], [0]], "port 0, with carrier on every node", id="a cable at port 0"
        ),
        pytest.param(
            sparks((LIT, LIT), (LIT, LIT)),
            [[0, 1], [0, 1]],
            "ports 0 and 1, with carrier on every node",
            id="two cables",
        ),
        pytest.param(
            sparks((LIT, EMPTY), (EMPTY, LIT)),
            [[0], [1]],
            "the only port with carrier on each node: port 0 of spark1, port 1 of spark2",
            id="a cable between different ports",
        ),
        pytest.param(
            sparks((LIT, LIT), (EMPTY, LIT)),
            [[1], [1]],
            "port 1, with carrier on every node; not port 0 of spark1, which others lack",
            id="a port that leads elsewhere",
        ),
        pytest.param(
            sparks((DOWN, LIT), (DOWN, LIT)),
            [[1], [1]],
            "port 1, with carrier on every node",
            id="the other port is down",
        ),
        pytest.param(
            sparks((LIT, DOWN), (LIT, EMPTY)), [[0], [0]], "port 0, with carrier on every node", id="down on one node"
        ),
        pytest.param(
            sparks(*[(EMPTY, LIT)] * 4, gb10_fabric_topology="switch"),
            [[1]] * 4,
            "port 1, with carrier on every node",
            id="a switch",
        ),
        pytest.param(
            sparks(*[(LIT, LIT)] * 4, gb10_fabric_topology="switch"),
            [[0, 1]] * 4,
            "ports 0 and 1, with carrier on every node",
            id="two switches",
        ),
        pytest.param(
            sparks((LIT, EMPTY), (EMPTY, LIT), (EMPTY, LIT), gb10_fabric_topology="switch"),
            [[0], [1], [1]],
            "the only port with carrier on each node: port 0 of spark1, port 1 of spark2, port 1 of spark3",
            id="different ports of a switch",
        ),
        pytest.param(
            sparks(*[(LIT, LIT)] * 3, gb10_fabric_topology="ring"),
            [[0, 1]] * 3,
            "port 0 to the next node and port 1 to the previous",
            id="a ring",
        ),
        *(
            pytest.param(
                sparks((LIT, LIT), (LIT, LIT), gb10_fabric_ports=ports), [ports] * 2, "", id=f"a list: {ports}"
            )
            for ports in ([0], [1], [0, 1], [1, 0])
        ),
        # Some renderers leave unconfigured ports down: the change sets them up, and its check finds a missing cable.
        pytest.param(
            sparks((EMPTY, EMPTY), (EMPTY, DOWN), gb10_fabric_ports=[1]), [[1], [1]], "", id="a listed port is down"
        ),
        pytest.param(
            sparks((EMPTY, LIT), (LIT, DOWN), (LIT, LIT), gb10_fabric_topology="ring"),
            [[0, 1]] * 3,
            "port 0 to the next node and port 1 to the previous",
            id="a port of a ring is down, which darkens the other end",
        ),
    ],
)
def test_the_ports_are_those_that_are_cabled_or_listed_and_the_plan_says_so(
    nodes: list[Node], expected: list[list[int]], why: str
) -> None:
    plan = planned(nodes)
    assert taken(plan) == expected
    rails = [
        ", ".join("{interface} {address} ({hca})".format(**rail) for rail in node["rails"]) for node in plan["nodes"]
    ]
    assert plan["fabric"] == [
        f"{plan['topology']}, MTU 9000{why and f'; gb10_fabric_ports: auto takes {why}'}",
        *(f"{node['name']}: {text}" for node, text in zip(plan["nodes"], rails, strict=True)),
    ]


def after(nodes: list[Node]) -> list[Node]:
    """The same nodes with a live plan: its devices are up and configured, and both ends of each cable have carrier."""
    nodes, plan = copy.deepcopy(nodes), planned(nodes)
    for node, share in zip(nodes, plan["nodes"], strict=True):
        for rail in share["rails"]:
            live = {"owners": OURS, "addresses": [rail["address"]], "mtu": plan["mtu"]}
            node["observed"]["interfaces"][rail["interface"]] |= {**LIT, **live}
            node["observed"]["rdma"][rail["hca"]]["state"] = "ACTIVE"
    return nodes


@pytest.mark.parametrize(
    "nodes",
    [
        sparks((EMPTY, LIT), (EMPTY, LIT)),
        sparks((LIT, LIT), (EMPTY, LIT)),
        sparks((LIT, EMPTY), (EMPTY, LIT)),
        sparks((DOWN, LIT), (DOWN, LIT)),
        sparks(*[(DOWN, DOWN)] * 3, gb10_fabric_topology="ring"),
        sparks((DOWN, DOWN), (DOWN, DOWN), gb10_fabric_ports=[1]),
    ],
)
def test_the_second_run_plans_the_same(nodes: list[Node]) -> None:
    assert planned(after(nodes)) == planned(nodes)


def test_a_cable_that_falls_out_of_a_live_fabric_is_an_error_and_no_other_network() -> None:
    nodes = after(sparks((LIT, LIT), (LIT, LIT)))
    for node in nodes:
        change(node, 0, carrier=False)
    problems = mistakes(nodes)
    assert [problem.path for problem in problems] == ["nodes[0].ports[0]", "nodes[1].ports[0]"]
    assert problems[0].found == "port 0 of spark1 has no carrier"
    assert problems[0].fix.endswith("list only the cabled ports in gb10_fabric_ports")
    assert taken(planned([{**node, "settings": {**node["settings"], "gb10_fabric_ports": [1]}} for node in nodes])) == [
        [1],
        [1],
    ]


def half(dead: slice, **settings: Any) -> list[Node]:
    """Two Sparks, cabled at port 1, with a PCIe function without carrier."""
    nodes = sparks((EMPTY, LIT), (EMPTY, LIT), **settings)
    for node in nodes:
        change(node, 1, twins=dead, carrier=False)
        for twin in SPARK_PORTS[1][dead]:
            node["observed"]["rdma"][twin.hca]["state"] = "DOWN"
    return nodes


FIRST, SECOND = slice(1), slice(1, 2)


@pytest.mark.parametrize("ports", ["auto", [1]])
@pytest.mark.parametrize(
    ("dead", "live", "dark", "wanted"),
    [(SECOND, "enp1s0f1np1", "enP2p1s0f1np1", "first"), (FIRST, "enP2p1s0f1np1", "enp1s0f1np1", "second")],
)
def test_a_port_with_one_function_has_its_causes_and_a_way_out(
    ports: Any, dead: slice, live: str, dark: str, wanted: str
) -> None:
    problems = mistakes(half(dead, gb10_fabric_ports=ports))
    assert [problem.path.startswith(f"nodes[{index}].ports") for index, problem in enumerate(problems)] == [True, True]
    assert problems[0].found == f"port 1 of spark1 has carrier on {live} only, not on {dark}, its other PCIe function"
    for cause in (
        "another cable",
        "BIOS to 2026-04",
        "power supply for a minute",
        f"gb10_fabric_functions: {wanted}, for one rail",
    ):
        assert cause in problems[0].fix
    nodes = half(dead, gb10_fabric_ports=ports, gb10_fabric_functions=wanted)
    plan = planned(nodes)
    assert [[(rail["interface"], rail["address"]) for rail in node["rails"]] for node in plan["nodes"]] == [
        [(live, "10.110.0.1/24")],
        [(live, "10.110.0.2/24")],
    ]
    assert "," not in plan["nodes"][0]["environment"]["NCCL_IB_HCA"]
    assert planned(after(nodes)) == plan


def test_a_fabric_of_one_function_is_a_warning_and_has_half_the_bandwidth() -> None:
    for functions, expected in (("both", 21.875), ("first", 10.9375)):
        inputs = parse(sparks((EMPTY, LIT), (EMPTY, LIT), gb10_fabric_functions=functions), LOCK)
        plan, _problems = cluster.plan(inputs, KNOWN)
        assert plan is not None
        assert any("half of its bandwidth" in line for line in cluster.warnings(inputs, plan)) == (functions == "first")
        assert bandwidth.expected(typed(plan.facts()), "nccl", 0.0) == expected


def without_functions() -> list[Node]:
    nodes = sparks((EMPTY, LIT), (EMPTY, LIT))
    for node in nodes:
        del node["observed"]["interfaces"]["enP2p1s0f1np1"]
    return nodes


@pytest.mark.parametrize("value", ["", "1", "0,1", "Auto", 1, ["x"], [None], {"0": 1}, None, [[1]]])
def test_what_is_neither_auto_nor_a_list_is_refused(value: Any) -> None:
    nodes = sparks((LIT, LIT), (LIT, LIT))
    for node in nodes:
        node["settings"]["gb10_fabric_ports"] = value
    assert [problem.path for problem in mistakes(nodes)] == ["gb10_fabric_ports"]


def test_the_interface_of_a_machine_without_connectx_needs_a_link_too() -> None:
    nodes = sparks((LIT, EMPTY), (LIT, EMPTY), gb10_fabric_topology="socket", gb10_fabric_interface="enp1s0f0np0")
    planned(nodes)
    change(nodes[1], 0, carrier=False)
    (problem,) = mistakes(nodes)
    assert (problem.path, problem.found) == ("nodes[1].interface", "enp1s0f0np0 of spark2 has no carrier")
    change(nodes[1], 0, up=False)
    planned(nodes)


def test_a_fabric_is_taken_away_without_a_cable() -> None:
    """With qsfp_netplan_state: absent. The node has a record of everything that a removal restores."""
    nodes = sparks((LOST, EMPTY), (LOST, EMPTY))
    assert [problem.path for problem in mistakes(nodes)] == ["nodes[0].ports[0]", "nodes[1].ports[0]"]
    for node in nodes:
        node["settings"]["qsfp_netplan_state"] = "absent"
        node["observed"]["rdma"] = {}
    assert taken(planned(nodes)) == [[0], [0]]
    for node in nodes:
        change(node, 0, owners=[])
    assert taken(planned(nodes)) == [[1], [1]]


MLX5 = {"rocep1s0f0": "mlx5_0", "rocep1s0f1": "mlx5_1", "roceP2p1s0f0": "mlx5_2", "roceP2p1s0f1": "mlx5_3"}


def renamed() -> list[Node]:
    """A pair whose second node has the names of RDMA devices that a kernel without udev's persistent names gives."""
    nodes = sparks((EMPTY, LIT), (EMPTY, LIT))
    found = nodes[1]["observed"]
    found["rdma"] = {MLX5.get(hca, hca): port for hca, port in found["rdma"].items()}
    for facts in found["interfaces"].values():
        facts["hca"] = MLX5.get(facts["hca"], facts["hca"])
    return nodes


def with_settings(nodes: list[Node], **settings: Any) -> list[Node]:
    for node in nodes:
        node["settings"] |= settings
    return nodes


def without_rdma() -> list[Node]:
    nodes = sparks((EMPTY, LIT), (EMPTY, LIT))
    for port in SPARK_PORTS:
        change(nodes[1], port, hca="")
    nodes[1]["observed"] |= {"rdma": {}, "infiniband": False}
    return nodes


BOTH, OWN = "rocep1s0f1,roceP2p1s0f1", "mlx5_1,mlx5_3"


@pytest.mark.parametrize(
    ("nodes", "hcas"),
    [
        pytest.param(renamed(), [BOTH, OWN], id="the names that each node has"),
        # An RDMA device that only names its interface is found.
        pytest.param(with_facts(renamed(), 1, hca=""), [BOTH, OWN], id="no name at the interface"),
        pytest.param(with_settings(without_rdma(), gb10_fabric_transport="socket"), [None, None], id="sockets"),
        pytest.param(with_settings(without_rdma(), gb10_fabric_rdma_required="no"), [BOTH, BOTH], id="not required"),
        pytest.param(
            with_settings(without_functions(), gb10_fabric_functions="first"),
            ["rocep1s0f1"] * 2,
            id="a function is gone",
        ),
        pytest.param(
            sparks(*[(LIT, LIT)] * 3, gb10_fabric_topology="ring", gb10_fabric_functions="first"),
            ["rocep1s0f0,rocep1s0f1"] * 3,
            id="one function of a ring",
        ),
        pytest.param(
            sparks(*[(EMPTY, LIT)] * 4, gb10_fabric_topology="switch", gb10_fabric_functions="second"),
            ["roceP2p1s0f1"] * 4,
            id="one function of a switch",
        ),
    ],
)
def test_nccl_gets_the_devices_of_the_rails(nodes: list[Node], hcas: list[str | None]) -> None:
    plan = planned(nodes)
    assert [node["environment"].get("NCCL_IB_HCA") for node in plan["nodes"]] == hcas
    for node in plan["nodes"]:
        assert hcas[0] is None or ",".join(rail["hca"] for rail in node["rails"]) == node["environment"]["NCCL_IB_HCA"]
        assert all(rail["peers"] for rail in node["rails"])


def ring_without_a_device() -> list[Node]:
    nodes = with_facts(sparks(*[(LIT, LIT)] * 3, gb10_fabric_topology="ring"), 2, twins=slice(1), hca="")
    del nodes[2]["observed"]["rdma"]["rocep1s0f1"]
    return nodes


def with_a_list(nodes: list[Node]) -> list[Node]:
    nodes[1]["settings"]["gb10_fabric_ports"] = [1]
    return nodes


CAUSES = "power supply for a minute"


@pytest.mark.parametrize(
    ("nodes", "problems"),
    [
        pytest.param(
            sparks((EMPTY, LIT), (EMPTY, EMPTY)),
            [("nodes[1].ports", "no QSFP port of spark2 has carrier", "plug in the cable")],
            id="no cable",
        ),
        pytest.param(
            sparks((EMPTY, LIT), (DOWN, DOWN)),
            [
                (
                    "nodes[1].ports",
                    "no QSFP port of spark2 shows carrier; enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1, enP2p1s0f1np1 are "
                    "down, so carrier is unknown",
                    "`sudo ip link set dev enp1s0f0np0 up` for each, or list gb10_fabric_ports",
                )
            ],
            id="down",
        ),
        pytest.param(
            with_facts(sparks((EMPTY, LIT), (EMPTY, EMPTY)), 1, 0, slice(1), **DOWN),
            [
                (
                    "nodes[1].ports",
                    "no QSFP port of spark2 shows carrier; enp1s0f0np0 is down, so carrier is unknown",
                    "`sudo ip link set dev enp1s0f0np0 up` for each, or list gb10_fabric_ports",
                )
            ],
            id="one down",
        ),
        pytest.param(
            sparks((LIT, EMPTY), (EMPTY, LIT), (LIT, LIT), gb10_fabric_topology="switch"),
            [
                (
                    "gb10_fabric_ports",
                    "no port has carrier on every node: port 0 of spark1; port 1 of spark2; ports 0 and 1 of spark3",
                    "list the ports of each node",
                )
            ],
            id="ambiguous",
        ),
        pytest.param(
            observed(sparks((EMPTY, LIT), (EMPTY, LIT)), 1, interfaces={"eth0": interface("192.168.1.12/24")}, rdma={}),
            [("nodes[1].ports", "spark2 has no QSFP port", "gb10_fabric_topology: socket")],
            id="no QSFP port",
        ),
        pytest.param(
            with_a_list(sparks((LIT, LIT), (LIT, LIT))),
            [("nodes[0].gb10_fabric_ports", "auto for spark1, a list for spark2", "set gb10_fabric_ports alike")],
            id="auto and a list",
        ),
        # The user cabled port 0, but the list, a former default, has port 1.
        pytest.param(
            sparks((LIT, EMPTY), (LIT, EMPTY), gb10_fabric_ports=[1]),
            [
                (f"nodes[{index}].ports[0]", f"port 1 of {name} has no carrier, port 0 has", "gb10_fabric_ports: [0]")
                for index, name in enumerate(("spark1", "spark2"))
            ],
            id="a listed port without carrier",
        ),
        pytest.param(
            sparks((EMPTY, LIT), (LIT, EMPTY), (LIT, LIT), gb10_fabric_topology="ring"),
            [
                (
                    "nodes[0].ports[0]",
                    "port 0 of spark1 has no carrier",
                    "Expected: a link on every port of the fabric. Fix: check the cable and the port at its other end, or "
                    "list only the cabled ports",
                ),
                ("nodes[1].ports[1]", "port 1 of spark2 has no carrier", "list only the cabled ports"),
            ],
            id="a missing cable of a ring",
        ),
        # A switch provides carrier by itself.
        pytest.param(
            sparks((EMPTY, EMPTY), (EMPTY, DOWN), gb10_fabric_ports=[1], gb10_fabric_topology="switch"),
            [("nodes[0].ports[0]", "port 1 of spark1 has no carrier", "gb10_fabric_ports")],
            id="no carrier of a switch",
        ),
        pytest.param(
            without_functions(),
            [
                (f"nodes[{index}].ports[0]", f"{name} has no interface enP2p1s0f1np1 for QSFP port 1", CAUSES)
                for index, name in enumerate(("spark1", "spark2"))
            ],
            id="a function is gone",
        ),
        pytest.param(
            rdma(1, state="DOWN"),
            [
                (
                    "nodes[1].ports[0]",
                    "rocep1s0f1, the RDMA device of enp1s0f1np1 of spark2, is DOWN",
                    "Expected: ACTIVE, as the link has carrier. Fix: check `rdma link show rocep1s0f1/1`",
                )
            ],
            id="RDMA device down",
        ),
        pytest.param(
            rdma(0, state=""),
            [
                (
                    "nodes[0].ports[0]",
                    "rocep1s0f1, the RDMA device of enp1s0f1np1 of spark1, is in an unknown state",
                    "rdma link show rocep1s0f1/1",
                )
            ],
            id="RDMA device in an unknown state",
        ),
        pytest.param(
            rdma(0, link_layer="InfiniBand"),
            [
                (
                    "nodes[0].ports[0]",
                    "rocep1s0f1, the RDMA device of enp1s0f1np1 of spark1, has the link layer InfiniBand",
                    "set its port to Ethernet",
                )
            ],
            id="InfiniBand",
        ),
        pytest.param(
            observed(sparks((EMPTY, LIT), (EMPTY, LIT)), 1, infiniband=False),
            [("nodes[1].infiniband", "spark2 has no /dev/infiniband", "modprobe ib_uverbs")],
            id="no program can open RDMA",
        ),
        pytest.param(
            without_rdma(),
            [
                (
                    "nodes[1].ports[0]",
                    f"{twin.interface} of spark2 has no RDMA device",
                    f"Expected: one, such as {twin.hca}. Fix: load its driver: `sudo modprobe mlx5_ib`, or set "
                    "gb10_fabric_transport: socket.",
                )
                for twin in SPARK_PORTS[1]
            ],
            id="no RDMA devices",
        ),
        # Problems of settings, links and RDMA are reported together.
        pytest.param(
            rdma(1, {"gb10_fabric_mtu": 70000}, state="INIT"),
            [
                ("gb10_fabric_mtu", "70000", "Expected: 1280 to 9216 bytes"),
                ("nodes[1].ports[0]", "rocep1s0f1, the RDMA device of enp1s0f1np1 of spark2, is INIT", "ACTIVE"),
            ],
            id="together",
        ),
        # A ring is not told of sockets.
        pytest.param(
            ring_without_a_device(),
            [
                (
                    "nodes[2].ports[1]",
                    "enp1s0f1np1 of spark3 has no RDMA device",
                    "load its driver: `sudo modprobe mlx5_ib`",
                )
            ],
            id="no RDMA device in a ring",
        ),
        pytest.param(
            half(SECOND, gb10_fabric_functions="second"),
            [
                (
                    f"nodes[{index}].ports",
                    f"port 1 of {name} has carrier on enp1s0f1np1 only, not on enP2p1s0f1np1, its other PCIe function",
                    "set gb10_fabric_functions: first",
                )
                for index, name in enumerate(("spark1", "spark2"))
            ],
            id="the other function is the wrong one",
        ),
    ],
)
def test_a_link_that_cannot_carry_the_fabric_has_its_reason_and_fix(
    nodes: list[Node], problems: list[tuple[str, str, str]]
) -> None:
    found = mistakes(nodes)
    assert [(problem.path, problem.found) for problem in found] == [(path, text) for path, text, _fix in problems]
    missing = [fix for problem, (_path, _text, fix) in zip(found, problems, strict=True) if fix not in str(problem)]
    assert missing == [], found


def test_a_node_that_was_not_read_leaves_auto_undecided_without_a_word() -> None:
    nodes = sparks((LIT, LIT), (LIT, LIT))
    nodes[1] |= {"unreachable": "no route", "observed": {}}
    assert [problem.path for problem in mistakes(nodes)] == ["nodes[1]"]


@pytest.mark.parametrize(
    ("host", "carriers", "hca"),
    [
        ("spark_pair", [False, True], "rocep1s0f1"),
        ("spark_ring", [True, True], "rocep1s0f1"),
        ("thor", [None, None], None),
    ],
)
def test_what_is_read_of_a_machine_is_enough(
    tmp_path: Path, host: str, carriers: list[bool | None], hca: str | None
) -> None:
    found = network(fabric_io_facts.read(lambda argv: (127, "", argv[0]), str(plant(host, tmp_path))))
    assert [fabric_links.carrier(found.interfaces, port) for port in SPARK_PORTS] == carriers
    assert found.hcas.get("enp1s0f1np1") == hca


FACTS = st.sampled_from([LIT, EMPTY, DOWN, LOST])


@given(st.lists(st.tuples(FACTS, FACTS), min_size=2, max_size=4), st.sampled_from(["direct", "ring", "switch"]))
def test_auto_never_guesses(ports: list[tuple[dict[str, Any], dict[str, Any]]], topology: str) -> None:
    """The result is a plan of ports with carrier (a ring leaves no choice), or a problem."""
    nodes = sparks(*ports, gb10_fabric_topology=topology)
    plan, problems = cluster_plan(nodes)
    assert bool(plan) != bool(problems)
    if plan and topology != "ring":
        chosen = zip(nodes, taken(plan), strict=True)
        assert all(
            fabric_links.carrier(interfaces(node["observed"]["interfaces"]), port)
            for node, some in chosen
            for port in some
        )

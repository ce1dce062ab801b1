"""The drawing of a verified cluster, and the plots of its benchmarks."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from verified_nodes import Facts, healthy, pair

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.plot import plot
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"


def drawn(nodes: list[Facts], waivers: dict[str, str] | None = None) -> tuple[diagram.Fabric, ElementTree.Element]:
    """Return the fabric, and its drawing."""
    known = report.cluster(nodes)
    fabric = drawing.fabric(known, report.findings(known, GROUPS, waivers or {}))
    return fabric, ElementTree.fromstring(diagram.svg(fabric, "x", "A cluster"))


def notes(fabric: diagram.Fabric) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(node.name, rail.interface): (*rail.notes, rail.state) for node in fabric.nodes for rail in node.rails}


@pytest.mark.parametrize(
    ("nodes", "cables", "switched"),
    [
        (pair(), 1, False),
        (healthy(3, ring=True), 3, False),
        (healthy(4), 4, True),
        (healthy(8), 8, True),
        (healthy(1), 0, False),
    ],
    ids=["pair", "ring", "four", "eight", "one"],
)
def test_a_healthy_cluster(nodes: list[Facts], cables: int, switched: bool) -> None:
    fabric, root = drawn(nodes)
    paths = [element for element in root.iter() if element.get("class") == "cable"]
    assert (len(paths), fabric.switched) == (cables, switched)
    assert set(notes(fabric).values()) == {("200 Gb/s", "MTU 9000", "up", "")}
    assert [node.lines[-1] for node in fabric.nodes] == ["ok"] * len(nodes)
    assert [node.lines[0] for node in fabric.nodes] == ["head"] + ["worker"] * (len(nodes) - 1)
    assert fabric.nodes[0].lines[1] == "tiny", "the served model"
    assert (fabric.nodes[0].address, fabric.nodes[0].interface)[1] == RAIL
    assert {element.get("class") for element in root.iter()} <= {None, "topology", "cable"}


def test_a_state_is_a_color_and_a_text() -> None:
    nodes = pair()
    facts = nodes[1]["facts"]
    facts["interfaces"][RAIL]["mtu"] = 1500
    facts["interfaces"][TWIN] |= {"carrier": False, "addresses": []}
    fabric, root = drawn(nodes)
    assert notes(fabric) == {
        ("spark1", RAIL): ("200 Gb/s", "MTU 9000", "up", ""),
        ("spark1", TWIN): ("200 Gb/s", "MTU 9000", "up", ""),
        ("spark2", RAIL): ("200 Gb/s", "MTU 1500", "up, error", "error"),
        ("spark2", TWIN): ("200 Gb/s", "MTU 9000", "no carrier, error", "error"),
    }
    assert fabric.nodes[1].lines == ("worker", "3 errors")
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"3 errors", "up, error", "no carrier, error", "cable 1, MTU 9000, error"} <= set(texts)
    # The planned address of the rail that is down still draws the cable with both subnets.
    assert fabric.segments[0].subnets == ("10.110.0.0/24", "10.110.1.0/24")


def test_a_waived_finding_has_no_state() -> None:
    nodes = pair()
    nodes[1]["facts"]["interfaces"][RAIL]["mtu"] = 1500
    fabric, _root = drawn(nodes, {"rail-mtu": "a test", "mtu-differs": "a test"})
    assert {states[-1] for states in notes(fabric).values()} == {""}
    assert fabric.nodes[1].lines == ("worker", "ok")


def test_a_finding_of_the_cluster_marks_the_named_rails_only() -> None:
    nodes = pair()
    planned = nodes[1]["facts"]["planned"]
    interfaces = nodes[1]["facts"]["interfaces"]
    planned[RAIL], planned[TWIN] = planned[TWIN], planned[RAIL]
    interfaces[RAIL]["addresses"], interfaces[TWIN]["addresses"] = (
        interfaces[TWIN]["addresses"],
        interfaces[RAIL]["addresses"],
    )
    fabric, _root = drawn(nodes)
    assert {states[-1] for states in notes(fabric).values()} == {"error"}
    assert [(len(segment.ports), segment.state) for segment in fabric.segments] == [(2, "error")]


def test_nodes_without_facts_or_rails() -> None:
    nodes = pair()
    nodes[1] |= {"facts": {}, "unreachable": "no route"}
    nodes[0]["facts"] |= {"planned": {}, "interfaces": {}, "rdma": {}, "infiniband": False}
    fabric, _root = drawn(nodes)
    assert [node.empty for node in fabric.nodes] == ["no rail found", "not read"]
    assert fabric.nodes[1].lines == ("worker", "1 error")
    assert diagram.description(fabric) == "No node is connected to another."
    missing = pair()
    missing[1]["facts"]["interfaces"].pop(RAIL)
    assert notes(drawn(missing)[0])["spark2", RAIL] == ("missing, error", "error")


def test_long_names_and_addresses_fit() -> None:
    nodes = healthy(3, ring=True)
    for number, node in enumerate(nodes):
        node["name"] = f"gpu-node-{number}.rack-17.building-9.example.com"
    interface = nodes[0]["facts"]["interfaces"]["enp1s0f0np0"]
    interface["addresses"] = ["192.168.177.111/24"]
    _fabric, root = drawn(nodes)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "192.168.177.111/24" in texts
    assert sum(str(text).endswith("\N{HORIZONTAL ELLIPSIS}") for text in texts) == 3
    _left, _top, width, height = (float(word) for word in root.attrib["viewBox"].split())
    for box in (element for element in root.iter() if element.tag.endswith("rect")):
        x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert min(x, y) >= 0 and x + wide <= width and y + high <= height


def test_two_cables_of_one_pair() -> None:
    nodes = pair()
    for number, node in enumerate(nodes, 1):
        for half, name in enumerate(("enp1s0f0np0", "enP2p1s0f0np0")):
            node["facts"]["interfaces"][name] |= {"addresses": [f"10.111.{half}.{number}/24"], "carrier": True}
            node["facts"]["planned"][name] = {"addresses": [f"10.111.{half}.{number}/24"], "mtu": 9000}
    fabric, _root = drawn(nodes)
    assert [segment.subnets for segment in fabric.segments] == [
        ("10.110.0.0/24", "10.110.1.0/24"),
        ("10.111.0.0/24", "10.111.1.0/24"),
    ]


def test_a_plot_has_a_place_for_each_value() -> None:
    found = plot(
        {f"line <{number}>": [(1, 5.0 * number), (32, 0.0), (4, 700.0)] for number in range(1, 7)}, "x", "y", "z"
    )
    spots = [[(float(x), float(y)) for x, y in line["spots"]] for line in found["lines"]]
    assert len(spots) == 6
    assert all(0 < x < found["width"] and 0 < y < found["height"] for line in spots for x, y in line)
    # A larger value is higher, and the positions are in the order of the numbers.
    one, thirty_two, four = spots[0]
    assert four[1] < one[1] < thirty_two[1] and one[0] < four[0] < thirty_two[0]
    assert [label for _y, label in found["grid"]] == ["0", "200", "400", "600", "800"]
    assert [label for _x, label in found["ticks"]] == [1, 4, 32]


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, "1"), (0.3, "0.4"), (1.0, "1"), (9.9, "10"), (35.0, "40"), (12345.0, "20000")]
)
def test_the_axis_ends_above_the_largest_value(value: float, top: str) -> None:
    assert plot({"a": [(1, value)]}, "x", "y", "z")["grid"][-1][1] == top

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
def test_a_healthy_cluster_is_drawn_with_its_cables(nodes: list[Facts], cables: int, switched: bool) -> None:
    fabric, root = drawn(nodes)
    paths = [element for element in root.iter() if element.get("class") == "cable"]
    assert (len(paths), fabric.switched) == (cables, switched)
    assert set(notes(fabric).values()) == {("200 Gb/s", "MTU 9000", "up", "")}
    # The head has the served model.
    assert [node.lines for node in fabric.nodes] == [("head", "tiny", "ok"), *[("worker", "ok")] * (len(nodes) - 1)]
    assert fabric.nodes[0].interface == RAIL
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
    texts = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"3 errors", "up, error", "no carrier, error", "cable 1, MTU 9000, error"} <= texts
    # The planned address of the rail that is down still draws the cable with both subnets.
    assert fabric.segments[0].subnets == ("10.110.0.0/24", "10.110.1.0/24")
    waived, _root = drawn(nodes, dict.fromkeys(("rail-down", "rail-mtu", "mtu-differs", "rail-address"), "a test"))
    assert {states[-1] for states in notes(waived).values()} == {""}


def test_a_finding_of_the_cluster_marks_the_named_rails_only() -> None:
    nodes = pair()
    facts = nodes[1]["facts"]
    for part, key in ((facts["planned"], "addresses"), (facts["interfaces"], "addresses")):
        part[RAIL][key], part[TWIN][key] = part[TWIN][key], part[RAIL][key]
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


def test_a_pair_can_have_two_cables() -> None:
    nodes = pair()
    for number, node in enumerate(nodes, 1):
        for half, name in enumerate(("enp1s0f0np0", "enP2p1s0f0np0")):
            addresses = [f"10.111.{half}.{number}/24"]
            node["facts"]["interfaces"][name] |= {"addresses": addresses, "carrier": True}
            node["facts"]["planned"][name] = {"addresses": addresses, "mtu": 9000}
    fabric, _root = drawn(nodes)
    assert [segment.subnets for segment in fabric.segments] == [
        ("10.110.0.0/24", "10.110.1.0/24"),
        ("10.111.0.0/24", "10.111.1.0/24"),
    ]


def test_a_plot_has_a_place_for_each_value() -> None:
    series = {f"line <{number}>": [(1, 5.0 * number), (32, 0.0), (4, 700.0)] for number in range(1, 7)}
    found = plot(series, "x", "y", "z")
    # The positions are in the order of the numbers, and a larger value is higher.
    assert [line["spots"] for line in found["lines"]] == [
        [("64.0", f"{200 - 190 * 5 * number / 800:.1f}"), ("416.0", "200.0"), ("240.0", "33.8")]
        for number in range(1, 7)
    ]
    assert (found["width"], found["height"], [line["below"] for line in found["lines"]][:2]) == (440, 364, [250, 270])
    assert found["grid"] == [("200", "0"), ("152.5", "200"), ("105", "400"), ("57.5", "600"), ("10", "800")]
    assert found["ticks"] == [("64.0", 1), ("240.0", 4), ("416.0", 32)]
    assert found["description"].startswith("y by z. line <1>: 5 at 1, 0 at 32, 700 at 4; line <2>: 10 at 1")


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, "1"), (0.3, "0.4"), (1.0, "1"), (9.9, "10"), (35.0, "40"), (12345.0, "20000")]
)
def test_the_axis_ends_above_the_largest_value(value: float, top: str) -> None:
    assert plot({"a": [(1, value)]}, "x", "y", "z")["grid"][-1][1] == top

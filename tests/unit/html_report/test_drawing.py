"""The drawing of a verified cluster: the state of each node and rail."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from drawings import parsed, texts
from verified_nodes import Facts, cluster, healthy, pair

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.diagram import View
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"


def drawn(nodes: list[Facts], waivers: dict[str, str] | None = None) -> tuple[View, ElementTree.Element]:
    """Return the fabric, and its drawing."""
    known = cluster(nodes)
    found = report.findings(known, GROUPS, waivers or {})
    fabric = drawing.fabric(known, [each for each in found if not each.waived])
    return fabric, parsed(fabric)


def notes(fabric: View) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the lines after the address of each rail, and its state."""
    return {
        (node["name"], rail["lines"][1]): (*rail["lines"][4:], rail["state"])
        for node in fabric["nodes"]
        for rails in node["ports"].values()
        for rail in rails
    }


@pytest.mark.parametrize(
    ("nodes", "networks"),
    [(pair(), 1), (healthy(3, ring=True), 3), (healthy(4), 1), (healthy(8), 1), (healthy(1), 0)],
    ids=["pair", "ring", "four", "eight", "one"],
)
def test_a_healthy_cluster_is_drawn_with_its_cables(nodes: list[Facts], networks: int) -> None:
    fabric, root = drawn(nodes)
    assert len(fabric["networks"]) == networks
    assert set(notes(fabric).values()) == {("200 Gb/s", "MTU 9000", "up", "")}
    # The head has the served model.
    first = [node["lines"][:-3] for node in fabric["nodes"]]
    assert first == [["head", "tiny", "ok"], *[["worker", "ok"]] * (len(nodes) - 1)]
    assert fabric["nodes"][0]["lines"][-1] == RAIL
    assert {element.get("class") for element in root.iter()} <= {None, "", "topology", "cable"}


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
    assert fabric["nodes"][1]["lines"][:2] == ["worker", "3 errors"] and fabric["nodes"][1]["state"] == "error"
    # The planned address of the rail that is down still draws the cable with both subnets.
    line = "Cable 1: 10.110.0.0/24, 10.110.1.0/24, MTU 9000, error"
    assert {"3 errors", "up, error", "no carrier, error", line} <= set(texts(root))
    waived, _root = drawn(nodes, dict.fromkeys(("rail-down", "rail-mtu", "mtu-differs", "rail-address"), "a test"))
    assert {states[-1] for states in notes(waived).values()} == {""}


def test_a_finding_of_the_cluster_marks_the_named_rails_only() -> None:
    nodes = pair()
    facts = nodes[1]["facts"]
    for part, key in ((facts["planned"], "addresses"), (facts["interfaces"], "addresses")):
        part[RAIL][key], part[TWIN][key] = part[TWIN][key], part[RAIL][key]
    fabric, _root = drawn(nodes)
    assert {states[-1] for states in notes(fabric).values()} == {"error"}
    assert [(len(each["ports"]), each["state"]) for each in fabric["networks"]] == [(2, "error")]


def test_nodes_without_facts_or_rails() -> None:
    nodes = pair()
    nodes[1] |= {"facts": {}, "unreachable": "no route"}
    nodes[0]["facts"] |= {"planned": {}, "interfaces": {}, "rdma": {}, "infiniband": False}
    fabric, root = drawn(nodes)
    assert texts(root).count("no rail") == 2 and fabric["networks"] == []
    assert fabric["nodes"][1]["lines"] == ["worker", "1 error"]
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
    found = texts(root)
    assert "192.168.177.111/24" in found
    assert sum(text.endswith("\N{HORIZONTAL ELLIPSIS}") for text in found) == 3


def test_a_pair_can_have_two_cables() -> None:
    nodes = pair()
    for number, node in enumerate(nodes, 1):
        for half, name in enumerate(("enp1s0f0np0", "enP2p1s0f0np0")):
            addresses = [f"10.111.{half}.{number}/24"]
            node["facts"]["interfaces"][name] |= {"addresses": addresses, "carrier": True}
            node["facts"]["planned"][name] = {"addresses": addresses, "mtu": 9000}
    fabric, _root = drawn(nodes)
    assert [each["words"] for each in fabric["networks"]] == [
        ["10.110.0.0/24", "10.110.1.0/24", "MTU 9000"],
        ["10.111.0.0/24", "10.111.1.0/24", "MTU 9000"],
    ]

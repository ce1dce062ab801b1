"""Diagrams of the sample inventories, drawn from the planner's result."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from cluster_nodes import cluster_plan
from repository import ROOT, read
from samples import inventory, nodes_of
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.diagram import (
    description,
    of_plan,
    pcie_function,
    svg,
)

SVG = "{http://www.w3.org/2000/svg}"


#: Diagram in docs/diagrams -> the sample, the cabled ports of each Spark, and the title.
DIAGRAMS = {
    "single-spark": ("single-spark", (), "One Spark"),
    "two-spark": ("two-spark", (1,), "Two Sparks with one cable"),
    "two-spark-two-cables": ("two-spark", (0, 1), "Two Sparks with two cables"),
    "three-spark-ring": ("three-spark-ring", (0, 1), "Three Sparks in a ring"),
    "four-spark-switch": ("four-spark-switch", (0,), "Four Sparks on a switch"),
    "spark-thor": ("spark-thor", (0,), "Two Sparks and two Thors on a switch"),
}
#: An image of a page has no color of the page.
DARK = "<style>@media (prefers-color-scheme: dark) { .topology { color: #ddd } }</style>"


def drawn(sample: str, ports: tuple[int, ...]) -> tuple[dict[str, Any], ElementTree.Element]:
    """Return the plan of a sample and its diagram."""
    plan, problems = cluster_plan(nodes_of(inventory(sample), ports))
    assert problems == []
    return plan, ElementTree.fromstring(svg(of_plan(typed(plan)), "x", "A <title>"))


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_pages_show_the_planners_diagrams(name: str) -> None:
    sample, ports, title = DIAGRAMS[name]
    plan, problems = cluster_plan(nodes_of(inventory(sample), ports))
    assert problems == []
    head, _newline, rest = svg(of_plan(typed(plan)), name, title).partition("\n")
    assert_recorded(ROOT / "docs" / "diagrams" / f"{name}.svg", f"{head}\n{DARK}\n{rest}")
    assert f"![{title}](diagrams/{name}.svg)" in read("docs/networking.md")


@pytest.mark.parametrize(
    ("sample", "ports", "cables"),
    [
        ("single-spark", (), 0),
        ("two-spark", (1,), 1),
        ("two-spark", (0, 1), 2),
        ("three-spark-ring", (0, 1), 3),
        ("four-spark-switch", (0,), 4),
        ("four-spark-switch", (0, 1), 8),
        ("spark-thor", (0,), 4),
    ],
)
def test_a_diagram_shows_the_plan(sample: str, ports: tuple[int, ...], cables: int) -> None:
    plan, root = drawn(sample, ports)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    for node in plan["nodes"]:
        assert {node["name"], node["address"], node["interface"]} <= set(texts)
        for rail in node["rails"]:
            for text in (rail["interface"], rail["address"], pcie_function(rail["interface"]), rail["hca"]):
                assert not text or text in texts
    assert sum("cable" in element.get("class", "") for element in root.iter(f"{SVG}path")) == cables
    assert any(f"MTU {plan['mtu']}" in str(text) for text in texts) == bool(cables)
    assert ("switch" in texts) == (cables >= 4)


def test_all_is_inside_the_image() -> None:
    for sample in ("three-spark-ring", "four-spark-switch"):
        _plan, root = drawn(sample, (0, 1))
        _left, _top, width, height = (float(word) for word in root.attrib["viewBox"].split())
        for box in root.iter(f"{SVG}rect"):
            x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
            assert min(x, y) >= 0
            assert x + wide <= width and y + high <= height
        assert all(
            0 <= float(text.attrib[name]) <= limit
            for text in root.iter(f"{SVG}text")
            for name, limit in (("x", width), ("y", height))
        )


def test_it_has_the_color_of_the_page_and_a_text_for_readers_of_the_screen() -> None:
    plan, root = drawn("two-spark", (1,))
    colors = {element.get(name) for element in root.iter() for name in ("fill", "stroke")}
    assert colors <= {None, "none", "currentColor"}
    named = {element.attrib["id"]: element.text for element in root if "id" in element.attrib}
    assert root.attrib["role"] == "img"
    assert [named[name] for name in root.attrib["aria-labelledby"].split()] == [
        "A <title>",
        description(of_plan(typed(plan))),
    ]
    assert description(of_plan(typed(plan))).endswith(
        "Cable 1 joins spark1 QSFP port 1, spark2 QSFP port 1: 10.110.0.0/24, 10.110.1.0/24, MTU 9000."
    )


def test_the_last_cable_of_a_ring_returns_to_the_first_node() -> None:
    plan, _root = drawn("three-spark-ring", (0, 1))
    for number, ends in enumerate(
        [
            "spark1 QSFP port 0, spark2 QSFP port 1",
            "spark2 QSFP port 0, spark3 QSFP port 1",
            "spark1 QSFP port 1, spark3 QSFP port 0",
        ],
        1,
    ):
        assert f"Cable {number} joins {ends}: " in description(of_plan(typed(plan)))


@pytest.mark.parametrize(
    ("interface", "function"),
    [
        ("enp1s0f0np0", "0000:01:00.0"),
        ("enP2p1s0f1np1", "0002:01:00.1"),
        ("mgbe0_0", ""),
        ("enp12s0f0", "0000:0c:00.0"),
    ],
)
def test_the_pcie_function_is_in_the_name_of_the_device(interface: str, function: str) -> None:
    assert pcie_function(interface) == function

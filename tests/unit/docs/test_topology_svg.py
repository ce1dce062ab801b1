"""Diagrams of the sample inventories, drawn from the planner's result."""

from __future__ import annotations

import pytest
from cluster_nodes import cluster_plan
from drawings import SVG, parsed, svg, texts
from repository import ROOT, read
from samples import inventory, nodes_of
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.diagram import of_plan, pcie_function

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


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_pages_show_the_planners_diagrams(name: str) -> None:
    sample, ports, title = DIAGRAMS[name]
    plan, problems = cluster_plan(nodes_of(inventory(sample), ports))
    assert problems == []
    head, _newline, rest = svg(of_plan(typed(plan)), name, title).partition("\n")
    assert_recorded(ROOT / "docs" / "diagrams" / f"{name}.svg", f"{head}\n{DARK}\n{rest}")
    assert f"![{title}](diagrams/{name}.svg)" in read("docs/networking.md")


@pytest.mark.parametrize(
    ("sample", "ports", "networks"),
    [
        ("single-spark", (), 0),
        ("two-spark", (1,), 1),
        ("two-spark", (0, 1), 2),
        ("three-spark-ring", (0, 1), 3),
        ("four-spark-switch", (0,), 1),
        ("four-spark-switch", (0, 1), 2),
        ("spark-thor", (0,), 1),
    ],
)
def test_a_diagram_shows_the_plan(sample: str, ports: tuple[int, ...], networks: int) -> None:
    plan, problems = cluster_plan(nodes_of(inventory(sample), ports))
    assert problems == []
    root = parsed(of_plan(typed(plan)))
    found = texts(root)
    for node in plan["nodes"]:
        assert {node["name"], node["address"], node["interface"]} <= set(found)
        for rail in node["rails"]:
            for text in (rail["interface"], rail["address"], pcie_function(rail["interface"]), rail["hca"]):
                assert not text or text in found
    assert sum(each.get("class") == "cable" for each in root.iter(f"{SVG}path")) == networks
    assert sum(text.endswith(f", MTU {plan['mtu']}") for text in found) == networks
    assert any(text.startswith("Switch, network ") for text in found) == (len(plan["nodes"]) == 4)


def test_it_has_the_color_of_the_page_and_a_text_for_readers_of_the_screen() -> None:
    plan, _problems = cluster_plan(nodes_of(inventory("two-spark"), (1,)))
    root = parsed(of_plan(typed(plan)))
    colors = {element.get(name) for element in root.iter() for name in ("fill", "stroke")}
    assert colors <= {None, "none", "currentColor"}
    named = {element.attrib["id"]: str(element.text) for element in root if "id" in element.attrib}
    assert root.attrib["role"] == "img"
    title, sentences = (named[name] for name in root.attrib["aria-labelledby"].split())
    assert title == "A <title>"
    assert sentences.strip().endswith(
        "Cable 1 joins spark1 QSFP port 1, spark2 QSFP port 1: 10.110.0.0/24, 10.110.1.0/24, MTU 9000."
    )

"""A topology is one entry of TOPOLOGIES: here a grid of switches, which no product file mentions."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Interface

import pytest
from sparks import fabric_nodes, machines, name

from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan as discovery_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import links
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    SWITCHES,
    TOPOLOGIES,
    Fabric,
    Topology,
)
from ansible_collections.gb10.lab.plugins.module_utils import plan as lab_plan

SIDE = 3
COUNT = SIDE * SIDE
#: Port 0 of a node is on the switch of its row, port 1 on the switch of its column.
GRID = Topology(
    SWITCHES,
    least=COUNT,
    most=COUNT,
    expected="nine nodes",
    fix="add or remove nodes",
    segment=lambda index, position, _count: index // SIDE if position == 0 else SIDE + index % SIDE,
    ports=(0, 1),
    ports_text="in a grid, port 0 to the row and port 1 to the column",
    managed=True,
    variables=lambda ports: {"GRID": str(len(ports))},
)


@pytest.fixture(autouse=True)
def grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the topology."""
    monkeypatch.setitem(TOPOLOGIES, "grid", GRID)


def test_the_fabric_is_planned() -> None:
    shares, problems = fabric_plan.plan(fabric_nodes(COUNT, (0, 1)), Fabric("grid"), "grid")
    assert problems == []
    row, column = ["spark4", "spark6"], ["spark2", "spark8"]
    assert [sorted(rail.peers) for rail in shares[4].rails] == [row, row, column, column]
    assert len({IPv4Interface(rail.address).network for share in shares for rail in share.rails}) == 4 * SIDE
    assert {share.address for share in shares} == {f"192.168.1.{10 + n}" for n in range(1, COUNT + 1)}
    assert {share.environment["GRID"] for share in shares} == {"9"}


def test_the_planner_reports_another_number_of_nodes_and_lists_the_name() -> None:
    for topology, expected in [("grid", "nine nodes"), ("grd", " or grid")]:
        shares, problems = fabric_plan.plan(fabric_nodes(4, (0, 1)), Fabric(topology), topology)
        assert shares == []
        assert [problem.path for problem in problems] == ["gb10_fabric_topology"]
        assert problems[0].expected.endswith(expected)


def test_auto_selects_its_ports() -> None:
    assert links.choose(fabric_nodes(COUNT, (0, 1)), ["auto"] * COUNT, "grid") == (
        [(0, 1)] * COUNT,
        [],
        GRID.ports_text,
    )


def test_discovery_proposes_it() -> None:
    """The switches are found from the cables of machines that are listed in another order."""
    rows = [[1, 5, 9], [2, 6, 7], [3, 4, 8]]
    switches = [tuple((number, 0) for number in row) for row in rows]
    switches += [tuple((number, 1) for number in column) for column in zip(*rows, strict=True)]
    found = discovery_plan.discover(machines(*switches))
    assert [str(problem) for problem in found.problems] == []
    assert found.proposal.topology == "grid"
    ordered = [found.proposal.machines[start : start + SIDE] for start in range(0, COUNT, SIDE)]
    assert {frozenset(row) for row in ordered} == {frozenset(map(name, row)) for row in rows}
    assert {frozenset(column) for column in zip(*ordered, strict=True)} == {
        frozenset(map(name, column)) for column in zip(*rows, strict=True)
    }
    assert set(found.proposal.ports.values()) == {(0, 1)}


def test_the_lab_has_its_switches() -> None:
    planned = lab_plan.plan("demo", "10.88.0", [f"spark{n}" for n in range(1, COUNT + 1)], "grid")
    assert planned.bridges == ("mgmt", *(f"qsfp{number}" for number in range(2 * SIDE)))
    ends = [(link.b.bridge, link.a.netns, link.a.name) for link in planned.links if link.b.bridge.startswith("qsfp")]
    by_switch = {
        bridge: {netns for _bridge, netns, _name in group}
        for bridge, group in itertools.groupby(sorted(ends), key=lambda end: end[0])
    }
    assert by_switch["qsfp0"] == {"demo-spark1", "demo-spark2", "demo-spark3"}
    assert by_switch["qsfp4"] == {"demo-spark2", "demo-spark5", "demo-spark8"}
    assert len(ends) == 4 * COUNT

"""The clusters of an inventory, and the ones that a run is for."""

from __future__ import annotations

import pytest
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.select import (
    Cluster,
    chosen,
    clusters,
    conflicts,
    of_node,
)
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

GROUPS = {
    "all": ["a1", "b1", "a2"],
    "gb10_cluster": ["a1", "b1", "a2"],
    "head": ["a1", "b1"],
    "worker": ["a2"],
    "gb10_cluster_code": ["b1"],
    "gb10_cluster_chat": ["a2", "a1"],
}
ONE = {"gb10_cluster": ["a1", "a2"], "head": ["a1"], "worker": ["a2"]}


def test_an_inventory_without_such_groups_is_one_cluster_without_a_name() -> None:
    assert clusters(ONE) == (of_node(ONE, "a2"),) == (Cluster("", ("a1", "a2")),)


def test_clusters_are_in_the_order_of_their_names_and_nodes_in_that_of_the_inventory() -> None:
    """An empty group is no cluster."""
    chat, code = Cluster("chat", ("a1", "a2")), Cluster("code", ("b1",))
    assert clusters({**GROUPS, "gb10_cluster_spare": []}) == (chat, code)
    assert (chosen(GROUPS, "code"), of_node(GROUPS, "a2")) == ((code,), chat)


NO_HOST = "inventory: no host in the group gb10_cluster. Expected: hosts in its child groups"


@pytest.mark.parametrize(
    ("groups", "only", "expected"),
    [
        ({"all": [], "ungrouped": []}, "", NO_HOST),
        ({"all": ["a1"], "gb10_cluster": [], "gb10_cluster_chat": []}, "", NO_HOST),
        (
            {"all": ["a1"], "ungrouped": [], "gb10_clusters": ["a1"], "head": ["a1"], "worker": []},
            "",
            "inventory: no host in the group gb10_cluster, but in gb10_clusters, head. Expected: hosts in its child groups "
            "head and worker. Fix: name the group that contains head and worker gb10_cluster.",
        ),
        (
            ONE,
            "chat",
            "gb10_only: 'chat'. Expected: a cluster's name, but the inventory has no group gb10_cluster_NAME.",
        ),
        (
            {**GROUPS, "gb10_cluster_chat": []},
            "chat",
            "host a1: in no group gb10_cluster_NAME. Expected: each node in exactly one cluster.",
        ),
        ({**GROUPS, "gb10_cluster_code": ["b1", "a2"]}, "chat", "host a2: in gb10_cluster_chat and gb10_cluster_code."),
        ({**GROUPS, "gb10_cluster_code": ["b1", "x9"]}, "chat", "group gb10_cluster_code: x9 is not in gb10_cluster."),
        ({**GROUPS, "gb10_cluster_../x": []}, "chat", "group gb10_cluster_../x: its name is not valid."),
        (GROUPS, "cod", "gb10_only: 'cod'. Expected: one of chat, code. Fix: correct gb10_only, or leave it out."),
    ],
)
def test_wrong_groups_and_names_are_refused(groups: dict[str, list[str]], only: str, expected: str) -> None:
    with pytest.raises(ProblemsError) as caught:
        chosen(groups, only)
    assert str(caught.value.problems[0]).startswith(expected)


def planned(topology: str, *addresses: str) -> Plan:
    nodes = [{"name": f"n{address[-4:]}", "rails": [{"address": address}]} for address in addresses]
    return typed({"topology": topology, "nodes": nodes})


SWITCH = planned("switch", "192.168.177.1/24", "192.168.177.2/24")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            planned("switch", "192.168.177.2/24", "192.168.177.3/24"),
            ["gb10_fabric_cidr: 192.168.177.2 on n2/24 of code"],
        ),
        (planned("switch", "192.168.178.1/24"), []),
        (planned("direct", "192.168.177.1/24", "192.168.177.2/24"), []),
        (None, ["cluster code: it has no plan; its problems are listed above. Expected: a plan for each cluster"]),
    ],
    ids=["a shared address", "other addresses", "own cables", "no plan"],
)
def test_clusters_behind_switches_need_a_plan_and_addresses_of_their_own(
    code: Plan | None, expected: list[str]
) -> None:
    found = [str(problem) for problem in conflicts({"chat": SWITCH, "code": code})]
    assert len(found) == len(expected)
    assert [text[: len(begin)] for text, begin in zip(found, expected, strict=True)] == expected

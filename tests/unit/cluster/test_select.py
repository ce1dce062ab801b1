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


def refused(groups: dict[str, list[str]], only: str = "") -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        chosen(groups, only)
    return [str(problem) for problem in caught.value.problems]


def test_an_inventory_without_such_groups_is_one_cluster_without_a_name() -> None:
    assert clusters(ONE) == (Cluster("", ("a1", "a2")),)
    assert of_node(ONE, "a2") == Cluster("", ("a1", "a2"))


@pytest.mark.parametrize(
    "groups", [{"all": [], "ungrouped": []}, {"all": ["a1"], "gb10_cluster": [], "gb10_cluster_chat": []}]
)
def test_an_inventory_without_nodes_is_refused(groups: dict[str, list[str]]) -> None:
    assert refused(groups)[0].startswith(
        "inventory: no host in the group gb10_cluster. Expected: hosts in its child groups"
    )


def test_clusters_are_in_the_order_of_their_names_and_nodes_in_that_of_the_inventory() -> None:
    assert clusters(GROUPS) == (Cluster("chat", ("a1", "a2")), Cluster("code", ("b1",)))
    assert chosen(GROUPS, "code") == (Cluster("code", ("b1",)),)
    assert of_node(GROUPS, "a2").name == "chat"


def test_an_empty_group_is_no_cluster() -> None:
    assert [cluster.name for cluster in clusters({**GROUPS, "gb10_cluster_spare": []})] == ["chat", "code"]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (ONE, "gb10_only: 'chat'. Expected: a cluster's name, but the inventory has no group gb10_cluster_NAME."),
        (
            {**GROUPS, "gb10_cluster_chat": []},
            "host a1: in no group gb10_cluster_NAME. Expected: each node in exactly one cluster.",
        ),
        ({**GROUPS, "gb10_cluster_code": ["b1", "a2"]}, "host a2: in gb10_cluster_chat and gb10_cluster_code."),
        ({**GROUPS, "gb10_cluster_code": ["b1", "x9"]}, "group gb10_cluster_code: x9 is not in gb10_cluster."),
        ({**GROUPS, "gb10_cluster_../x": []}, "group gb10_cluster_../x: its name is not valid."),
    ],
)
def test_wrong_groups_and_names_are_refused(groups: dict[str, list[str]], expected: str) -> None:
    assert refused(groups, "chat")[0].startswith(expected)


def test_the_names_are_listed_for_a_wrong_one() -> None:
    assert refused(GROUPS, "cod") == [
        "gb10_only: 'cod'. Expected: one of chat, code. Fix: correct gb10_only, or leave it out."
    ]


def planned(topology: str, *addresses: str) -> Plan:
    changes = {
        "topology": topology,
        "nodes": [{"name": f"n{address[-4:]}", "rails": [{"address": address}]} for address in addresses],
    }
    return typed(changes)


def test_clusters_behind_switches_need_addresses_of_their_own() -> None:
    one = planned("switch", "192.168.177.1/24", "192.168.177.2/24")
    found = conflicts({"chat": one, "code": planned("switch", "192.168.177.2/24", "192.168.177.3/24")})
    assert [str(problem).partition(" and on ")[0] for problem in found] == [
        "gb10_fabric_cidr: 192.168.177.2 on n2/24 of code"
    ]
    assert not conflicts({"chat": one, "code": planned("switch", "192.168.178.1/24")})
    assert not conflicts({"chat": one, "code": planned("direct", "192.168.177.1/24", "192.168.177.2/24")})


def test_a_cluster_without_a_plan_is_named() -> None:
    found = conflicts({"chat": planned("none", "127.0.0.1"), "code": None})
    assert [problem.path for problem in found] == ["cluster code"]

"""VLLM_HOST_IP: valid addresses, and every reason to reject one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.host_ip import check

NODES = {"spark1": "10.110.0.1", "spark2": "10.110.0.2"}
INTERFACES = {
    "lo": {"addresses": ["127.0.0.1/8"]},
    "enP7s7": {"addresses": ["192.168.1.11/24"]},
    "enp1s0f1np1": {"addresses": ["169.254.9.9/16", "10.110.0.1/24"]},
    "enP2p1s0f1np1": {"addresses": []},
}
GOOD: dict[str, Any] = {
    "node": "spark1",
    "address": "10.110.0.1",
    "interface": "enp1s0f1np1",
    "ray_node_ip_address": "10.110.0.1",
    "nodes": NODES,
    "interfaces": INTERFACES,
}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="on the fabric"),
        pytest.param(
            {
                "node": "alone",
                "address": "127.0.0.1",
                "interface": "lo",
                "ray_node_ip_address": "127.0.0.1",
                "nodes": {"alone": "127.0.0.1"},
            },
            id="single node",
        ),
        pytest.param(
            {"interfaces": {**INTERFACES, "br0": {"addresses": ["10.110.0.1/24"]}}}, id="on a second interface, too"
        ),
    ],
)
def test_a_good_address(changes: dict[str, Any]) -> None:
    assert check(**{**GOOD, **changes}) == []


@pytest.mark.parametrize(
    ("changes", "found", "expected", "fix"),
    [
        pytest.param(
            {"nodes": {**NODES, "spark2": "10.110.0.1"}},
            "10.110.0.1 is also the address of spark2",
            "unique",
            "gb10_fabric_addresses",
            id="twice",
        ),
        pytest.param(
            {"nodes": {**NODES, "spark1": "10.110.0.9"}},
            "the cluster's address of spark1 is 10.110.0.9",
            "the same",
            "for all nodes",
            id="other plan",
        ),
        pytest.param(
            {"nodes": {}}, "the cluster's address of spark1 is None", "the same", "for all nodes", id="unknown node"
        ),
        pytest.param(
            {"ray_node_ip_address": "192.168.1.11"},
            "Ray uses 192.168.1.11",
            "the same",
            "remove --node-ip-address",
            id="Ray elsewhere",
        ),
        pytest.param(
            {"interface": "enP7s7"},
            "10.110.0.1 is not on enP7s7 (192.168.1.11/24); it is on enp1s0f1np1",
            "10.110.0.1 on enP7s7",
            "--tags qsfp_netplan",
            id="other interface",
        ),
        pytest.param(
            {"interface": "enP2p1s0f1np1"},
            "(which has no address); it is on enp1s0f1np1",
            "on enP2p1s0f1np1",
            "qsfp_netplan",
            id="no address",
        ),
        pytest.param(
            {"interface": "eth9"},
            "(which does not exist); it is on enp1s0f1np1",
            "on eth9",
            "qsfp_netplan",
            id="no interface",
        ),
        pytest.param(
            {"interfaces": {}},
            "(which does not exist); no interface carries it",
            "10.110.0.1 on",
            "qsfp_netplan",
            id="carried nowhere",
        ),
    ],
)
def test_a_bad_address(changes: dict[str, Any], found: str, expected: str, fix: str) -> None:
    (problem,) = check(**{**GOOD, **changes})
    assert problem.path == "nodes[spark1].VLLM_HOST_IP"
    assert found in problem.found
    assert expected in problem.expected
    assert fix in problem.fix


def test_a_part_of_an_address_is_not_the_address() -> None:
    assert len(check(**{**GOOD, "interfaces": {**INTERFACES, "enp1s0f1np1": {"addresses": ["10.110.0.11/24"]}}})) == 1


def test_all_reasons_are_listed() -> None:
    problems = check("spark1", "10.110.0.2", "enP7s7", "10.110.0.1", NODES, INTERFACES)
    assert len(problems) == 4, problems

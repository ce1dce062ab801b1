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
    "nodes": NODES,
    "interfaces": INTERFACES,
    "others": {"spark1": INTERFACES, "spark2": {"enp1s0f1np1": {"addresses": ["10.110.0.2/24"]}}},
    "of_ray": "10.110.0.1",
}
#: The other node has its own address, and this node's on another interface.
TAKEN = {**GOOD["others"]["spark2"], "enp1s0f0np0": {"addresses": ["10.110.0.1/24"]}}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="on the fabric"),
        pytest.param(
            {
                "node": "alone",
                "address": "127.0.0.1",
                "interface": "lo",
                "nodes": {"alone": "127.0.0.1"},
                "others": {},
                "of_ray": "",
            },
            id="single node",
        ),
        # The addresses are being exchanged: those facts are older than the change.
        pytest.param({"others": {"spark2": {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"]}}}}, id="old facts"),
        pytest.param({"others": {"other": TAKEN, "spark2": {}}}, id="facts of another host"),
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
            {"others": {"spark2": TAKEN}},
            "spark2 has 10.110.0.1 on enp1s0f0np0 now",
            "unique",
            "/etc/netplan on spark2 show where enp1s0f0np0 has it from",
            id="on another node now",
        ),
        pytest.param(
            {"of_ray": "192.168.1.11"},
            "10.110.0.1, but Ray registered spark1 with 192.168.1.11",
            "the same",
            "systemctl restart gb10-ray",
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
    nodes, others = (
        {**NODES, "spark3": "10.110.0.3"},
        {"spark3": {"a": {"addresses": ["10.110.0.3/24", "10.110.0.2/24"]}}},
    )
    problems = check("spark1", "10.110.0.2", "enP7s7", nodes, INTERFACES, others, "10.110.0.1")
    assert len(problems) == 4, problems

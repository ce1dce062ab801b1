"""The planned recorder: who sends to whom, over which address, and its ports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cluster_nodes import mistakes, pair
from rendered_units import planned
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.service import recorder
from ansible_collections.gb10.cluster.plugins.module_utils.service.recorder import UdpPorts

PAIR = fact({})


def settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    files = planned(plan, "gb10-flight-recorder")["files"]
    found: dict[str, Any] = json.loads(next(each["content"] for each in files if each["path"].endswith(".json")))
    return found


def test_two_nodes_watch_each_other_on_their_first_rail() -> None:
    head, worker = (settings({**PAIR, "node": node}) for node in PAIR["nodes"])
    assert head["peer"] == {
        "name": "spark2",
        "interface": "enp1s0f1np1",
        "from": "10.110.0.1",
        "address": "10.110.0.2",
        "port": 8476,
    }
    assert head["watched"]["name"] == "spark2"
    assert head["watched"]["listen"] == worker["peer"]["address"].replace("0.2", "0.1") == "10.110.0.1"
    assert worker["peer"]["address"] == "10.110.0.1"
    assert worker["watched"]["addresses"] == ["10.110.0.1", "10.110.1.1"]
    assert (head["url"], worker["url"]) == ("http://127.0.0.1:8000", "")
    assert [rail["hca"] for rail in head["rails"]] == ["rocep1s0f1", "roceP2p1s0f1"]


def ring(*edges: tuple[int, int]) -> dict[str, Any]:
    """Return a plan of three nodes, each of whose rails reaches one other node."""
    nodes = []
    for number in (1, 2, 3):
        rails = [
            {
                "interface": f"rail{one}{two}",
                "address": f"10.{one}{two}.0.{number}/24",
                "peers": {f"node{one + two - number}": f"10.{one}{two}.0.{one + two - number}"},
            }
            for one, two in edges
            if number in (one, two)
        ]
        nodes.append({"name": f"node{number}", "address": f"10.0.0.{number}", "interface": "eth0", "rails": rails})
    return fact({"nodes": nodes})


def test_in_a_ring_each_node_sends_to_the_next_one_over_their_cable() -> None:
    plan = ring((1, 2), (2, 3), (1, 3))
    found = [settings({**plan, "node": node}) for node in plan["nodes"]]
    assert [each["peer"]["name"] for each in found] == ["node2", "node3", "node1"]
    for sender, receiver in ((0, 1), (1, 2), (2, 0)):
        assert found[receiver]["watched"]["name"] == found[sender]["node"]
        assert found[sender]["peer"]["address"] == found[receiver]["watched"]["listen"]
        assert found[sender]["peer"]["from"] == found[receiver]["watched"]["address"]
        assert found[sender]["peer"]["from"] in found[receiver]["watched"]["addresses"]
    assert found[2]["peer"]["address"] == "10.13.0.1"


def test_without_a_common_rail_the_address_of_the_node_is_used() -> None:
    plan = ring((1, 2))
    found = settings({**plan, "node": plan["nodes"][2]})
    assert (found["peer"]["interface"], found["peer"]["address"]) == ("eth0", "10.0.0.1")
    assert found["watched"] == {
        "name": "node2",
        "address": "10.0.0.2",
        "addresses": ["10.0.0.2", "10.12.0.2"],
        "listen": "10.0.0.3",
    }


def test_a_single_node_has_no_listener_no_secret_and_no_netconsole() -> None:
    plan = fact({"nodes": [PAIR["nodes"][0]]})
    found = planned(plan, "gb10-flight-recorder")
    assert (settings(plan)["peer"], settings(plan)["watched"]) == (None, None)
    assert "netconsole" not in json.dumps(found)
    assert "LoadCredential" not in found["unit"]["text"]


def test_the_receiver_has_no_rights() -> None:
    text = planned(PAIR, "gb10-flight-recorder")["unit"]["text"].splitlines()
    assert "DynamicUser=yes" in text
    assert "CapabilityBoundingSet=CAP_SYSLOG" in text


@pytest.mark.parametrize(
    ("port", "watchdog", "found", "expected"),
    [
        (1024, 8474, "", ""),
        (65534, 8474, "", ""),
        (8475, 8474, "", ""),
        (8472, 8474, "", ""),
        (1023, 8474, "1023", "1024 to 65534"),
        # The next one is of the messages.
        (65535, 8474, "65535", "1024 to 65534"),
        (8474, 8474, "8474 is also vllm_watchdog_port", "a separate port, and a separate next one"),
        (8473, 8474, "8474 is also vllm_watchdog_port", "a separate port, and a separate next one"),
    ],
)
def test_a_port_that_listeners_cannot_have_is_refused(port: int, watchdog: int, found: str, expected: str) -> None:
    problems = [(each.path, each.found, each.expected) for each in recorder.check([UdpPorts(port, watchdog)] * 2)]
    assert problems == [(f"nodes[{index}].flight_recorder_port", found, expected) for index in (0, 1) if found]


def test_the_ports_are_checked_with_the_cluster() -> None:
    problems = [each for each in mistakes(pair(flight_recorder_port=80)) if "flight_recorder_port" in each.path]
    assert len(problems) == 2, "of both nodes"


def test_each_node_has_the_port_of_the_first_one() -> None:
    (problem,) = recorder.check([UdpPorts(port, 8474) for port in (8475, 9000, 8475)])
    assert (problem.path, problem.found) == ("nodes[1].flight_recorder_port", "9000")
    assert problem.expected == "8475, as on the first node"

"""The parts of a node that site.yml compares in one connection: their options, and how long a comparison holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from cluster_nodes import SETTINGS, cluster_plan, spark
from decisions import decide
from repository import load_yaml, read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.comparison import io_parts, of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch import of_plan as patch_of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

CONTROLLER = of_plan.Controller("192.168.1.200", local=False, netplan="x", copy={}, first=True, requests=True)
UNITS = ["gb10-ray.service", "gb10-vllm.service"]
COPY = {"image_id": "12", "package_dir": "/a/vllm", "config_folder": "/a/tables", "toolkit": {}, "mounts": [{}]}


def planned(name: str, changes: dict[str, Any] | None = None) -> Plan:
    """Return the plan of a running pair as the fact of a node, with changes of the plan and the node's state."""
    changes = dict(changes or {})
    state = changes.pop("state", {})
    result, problems = cluster_plan([spark(1, "head"), spark(2, "worker")])
    assert not problems
    node = next(each for each in result["nodes"] if each["name"] == name)
    node = {**node, "state": {**node["state"], "units": UNITS, "runtime_ready": True, **state}}
    return typed({**result, **changes, "node": node})


def options(
    changes: dict[str, Any] | None = None,
    node: str = "spark1",
    controller: of_plan.Controller = CONTROLLER,
    **settings: Any,
) -> dict[str, dict[str, Any]]:
    """Return the options of each part of a node of a running pair, with changes of the plan and of the settings."""
    chosen = load.chosen(of_plan.Compared, {**SETTINGS, **settings}, "settings")
    return of_plan.options(planned(node, changes), chosen, controller)


FRESH = {"units": [], "runtime_ready": False}
EVERY = {"peer_firewall", "qsfp_netplan", "vllm_patch", "ray_cluster", "vllm_serve"}


@pytest.mark.parametrize(
    ("given", "absent"),
    [
        ({}, set()),
        ({"node": "spark2"}, {"ray_cluster", "vllm_serve"}),
        # A fresh host has neither a runtime nor services.
        ({"changes": {"state": FRESH}}, {"vllm_patch", "ray_cluster", "vllm_serve"}),
        ({"changes": {"state": FRESH}, "controller": replace(CONTROLLER, first=False)}, set()),
        # A vLLM that a role will replace is compared after it.
        ({"vllm_patch_image": "x:1"}, {"vllm_patch"}),
        ({"changes": {"build": {"state": "missing"}}}, {"vllm_patch"}),
    ],
    ids=["head", "worker", "fresh", "later", "image", "build"],
)
def test_the_parts_that_exist_are_compared(given: dict[str, Any], absent: set[str]) -> None:
    assert set(of_plan.PARTS) == set(io_parts.PARTS) == EVERY
    assert set(options(**given)) == EVERY - absent


LOCAL = replace(CONTROLLER, client="", local=True)
OPEN = {"peer_firewall_gateway_port": 8080, "peer_firewall_open_ports": ["8443/tcp"], "peer_firewall_enabled": False}
#: A chosen quantization wins.
QUANTIZED = {"changes": {"quantization": "other"}, "vllm_patch_capability": "12.1"}


@pytest.mark.parametrize(
    ("given", "part", "expected"),
    [
        (
            {**OPEN, "controller": LOCAL},
            "peer_firewall",
            {"open_ports": ["8443/tcp", "8080/tcp"], "state": "absent", "client": "", "witness": "spark2"},
        ),
        ({}, "peer_firewall", {"state": "present", "client": "192.168.1.200", "witness": ""}),
        ({"monitoring_clients": ["10.0.0.5"]}, "peer_firewall", {"monitoring_ports": []}),
        (
            {"monitoring_enabled": True, "monitoring_clients": ["10.0.0.5"]},
            "peer_firewall",
            {"monitoring_ports": [9100, 6385], "monitoring_clients": ["10.0.0.5"]},
        ),
        ({}, "qsfp_netplan", {"state": "present", "probe": True, "content": "x"}),
        ({"qsfp_netplan_state": "absent"}, "qsfp_netplan", {"state": "absent", "probe": False}),
        (
            {**QUANTIZED, "vllm_patch_quantization": "auto"},
            "vllm_patch",
            {"quantization": "other", "capability": "12.1"},
        ),
        ({**QUANTIZED, "vllm_patch_quantization": "fp8"}, "vllm_patch", {"quantization": "fp8", "capability": "12.1"}),
        # Check mode sends no requests of the smoke test.
        ({"controller": replace(CONTROLLER, requests=False)}, "vllm_serve", {"smoke": {}}),
    ],
)
def test_the_options_of_a_part(given: dict[str, Any], part: str, expected: dict[str, Any]) -> None:
    found = options(**given)[part]
    assert {name: found[name] for name in expected} == expected


def test_vllm_is_in_the_environment_or_in_the_copy_of_an_image() -> None:
    plan = typed({"runtime": {"path": "/opt/gb10/runtime/1"}, "root": "/opt/gb10"})
    assert patch_of_plan.place(plan, {}) == {
        "python": "/opt/gb10/runtime/1/bin/python",
        "probe": "/opt/gb10/runtime/1/gpu-probe.json",
        "config_folder": "/opt/gb10/runtime/1/gb10_moe_configs",
    }
    assert patch_of_plan.place(plan, COPY)["probe"] == "/opt/gb10/images/12.gpu-probe.json"


def test_the_options_are_those_of_the_modules() -> None:
    every = options()
    assert every["vllm_serve"]["smoke"]["kind"] == "generate"
    for name, given in every.items():
        assert given.keys() <= io_parts.PARTS[name](lambda _argv: (0, "", ""), "")[0].keys(), name


INSTALLED = {"gb10_installed": {"files": {}}}


def act(
    action: str,
    arguments: dict[str, Any],
    result: dict[str, Any] | None = None,
    variables: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run an action on the head of a running pair. Return its result and the module's arguments."""
    answer = {"changed": False, "parts": {name: {"due": False} for name in EVERY}, **(result or {})}
    hosts = {"spark1": INSTALLED, "spark2": INSTALLED}
    given = {"gb10_inputs": {"settings": SETTINGS}, **(variables or {})}
    return decide(action, arguments, planned("spark1").facts(), hosts, answer, given)


def test_parts_are_compared_in_one_connection_and_keep_their_options() -> None:
    answer, (arguments,) = act("node_info", {"parts": ["peer_firewall", "vllm_patch", "golden"]})
    assert list(arguments["parts"]) == ["peer_firewall", "vllm_patch"] == list(answer["parts"])
    assert answer["parts"]["vllm_patch"] == {"due": False, "options": arguments["parts"]["vllm_patch"]}
    assert answer["nodes"] == ["spark1", "spark2"]


def test_a_node_passes_neither_facts_nor_hosts_nor_other_parts() -> None:
    obeyed = {"ansible_facts": {"ansible_host": "x"}, "_ansible_delegated_vars": {}, "add_host": {"host_name": "x"}}
    parts = {"peer_firewall": {"due": False, "options": {}, **obeyed}, "other": {}}
    answer, (arguments,) = act("node_info", {"part": "peer_firewall"}, {"parts": parts})
    assert answer == {"changed": False, "due": False, "options": arguments["parts"]["peer_firewall"]}


@pytest.mark.parametrize(
    ("arguments", "result", "expected", "asked"),
    [
        ({"parts": ["golden"]}, {}, {"parts": {}, "nodes": ["spark1", "spark2"]}, []),
        ({"model": "/srv/models/tiny"}, {}, {}, [{"model": "/srv/models/tiny"}]),
        ({"part": "peer_firewall"}, {"failed": True, "msg": "no"}, {"failed": True, "msg": "no"}, None),
        ({"parts": ["peer_firewall"]}, {"failed": True, "msg": "no"}, {"failed": True, "msg": "no"}, None),
    ],
    ids=["no part", "facts", "a part fails", "one of the parts fails"],
)
def test_what_is_asked_of_a_node(
    arguments: dict[str, Any], result: dict[str, Any], expected: dict[str, Any], asked: list[Any] | None
) -> None:
    answer, calls = act("node_info", arguments, result)
    assert {name: answer[name] for name in expected} == expected
    assert asked is None or calls == asked


KNOWN = {"parts": {"vllm_patch": {"written": []}, "ray_cluster": {"nodes": [1], "actors": []}}, "nodes": ["a", "b"]}
INCOMPLETE = {"parts": {"ray_cluster": {"reason": "spark2 has not joined"}}, "nodes": []}
PATCH, SERVER = ("node_info", {"part": "vllm_patch"}), ("node_info", {"part": "vllm_serve"})
RAY, UNKNOWN_RAY = ("ray_info", {"expect": {}, "known": True}), ("ray_info", {"expect": {}})


def of_server(answers: bool, message: str) -> dict[str, Any]:
    return {"parts": {"vllm_serve": {"answers": answers, "msg": message}}, "nodes": ["a"]}


@pytest.mark.parametrize(
    ("asked", "known", "of_b", "calls"),
    [
        (PATCH, KNOWN, INSTALLED, 0),
        (PATCH, KNOWN, {"gb10_installed": {}}, 1),
        (RAY, KNOWN, INSTALLED, 0),
        (RAY, KNOWN, {"gb10_installed": {}}, 1),
        (UNKNOWN_RAY, KNOWN, INSTALLED, 1),
        (SERVER, of_server(True, ""), INSTALLED, 0),
        # A server that failed is asked again, and an incomplete Ray is waited for.
        (SERVER, of_server(False, "The API is not healthy"), INSTALLED, 1),
        (RAY, INCOMPLETE, INSTALLED, 1),
    ],
)
def test_a_comparison_holds_until_a_node_changes_unless_it_failed(
    asked: tuple[str, dict[str, Any]], known: dict[str, Any], of_b: dict[str, Any], calls: int
) -> None:
    part = asked[1].get("part", "ray_cluster")
    answer, found = act(*asked, variables={"gb10_compared": known, "hostvars": {"a": INSTALLED, "b": of_b}})
    assert len(found) == calls
    assert (known["parts"][part].items() <= answer.items()) is (not calls)


def test_the_netplan_file_says_who_manages_it() -> None:
    """The text of earlier releases, so that an update changes no file."""
    _answer, (arguments,) = act("node_info", {"part": "qsfp_netplan"})
    text = arguments["parts"]["qsfp_netplan"]["content"]
    assert text.startswith("#\n# Ansible managed\n#\nnetwork:\n")
    assert yaml.safe_load(text) == planned("spark1").facts()["node"]["netplan"]
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_site_compares_what_the_tags_select() -> None:
    (task,) = (each for each in load_yaml(read("playbooks/steps/roles.yml")) if "gb10.cluster.node_info" in each)
    assert task["tags"] == task["vars"]["playbook_compared"] == list(of_plan.PARTS)

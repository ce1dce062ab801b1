"""The parts of a node that site.yml compares in one connection: their options, and how long a comparison holds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cluster_nodes import SETTINGS, cluster_plan, spark
from decisions import task
from repository import load_yaml, read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.action import node_info, ray_info
from ansible_collections.gb10.cluster.plugins.module_utils.comparison import io_parts, of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch import of_plan as patch_of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

CONTROLLER = of_plan.Controller("192.168.1.200", local=False, netplan="x", copy={}, first=True, requests=True)
UNITS = ["gb10-ray.service", "gb10-vllm.service"]
COPY = {"image_id": "12", "package_dir": "/a/vllm", "config_folder": "/a/tables", "toolkit": {}, "mounts": [{}]}


def planned(name: str, changes: dict[str, Any] | None = None, **state: Any) -> Plan:
    """Return the plan of a running pair as the fact of a node."""
    result, problems = cluster_plan([spark(1, "head"), spark(2, "worker")])
    assert not problems
    node = next(each for each in result["nodes"] if each["name"] == name)
    node = {**node, "state": {**node["state"], "units": UNITS, "runtime_ready": True, **state}}
    return typed({**result, **(changes or {}), "node": node})


def settings(**changes: Any) -> of_plan.Compared:
    return load.chosen(of_plan.Compared, {**SETTINGS, **changes}, "settings")


def test_a_running_pair_is_compared_completely_before_the_first_change() -> None:
    every = {"peer_firewall", "qsfp_netplan", "vllm_patch"}
    head = of_plan.options(planned("spark1"), settings(), CONTROLLER)
    assert set(head) == {*every, "ray_cluster", "vllm_serve"} == set(of_plan.PARTS) == set(io_parts.PARTS)
    assert set(of_plan.options(planned("spark2"), settings(), CONTROLLER)) == every


def test_a_fresh_host_has_neither_a_runtime_nor_services() -> None:
    fresh = planned("spark1", units=[], runtime_ready=False)
    assert set(of_plan.options(fresh, settings(), CONTROLLER)) == {"peer_firewall", "qsfp_netplan"}
    later = of_plan.options(fresh, settings(), replace(CONTROLLER, first=False))
    assert set(later) == set(of_plan.PARTS)


def test_a_vllm_that_a_role_will_replace_is_compared_after_it() -> None:
    assert "vllm_patch" not in of_plan.options(planned("spark1"), settings(vllm_patch_image="x:1"), CONTROLLER)
    build = {"build": {"state": "missing"}}
    assert "vllm_patch" not in of_plan.options(planned("spark1", build), settings(), CONTROLLER)


def test_the_firewall_is_open_to_the_gateway_and_watched_by_another_node_where_ansible_runs() -> None:
    found = of_plan.options(
        planned("spark1"),
        settings(peer_firewall_gateway_port=8080, peer_firewall_open_ports=["8443/tcp"], peer_firewall_enabled=False),
        replace(CONTROLLER, client="", local=True),
    )["peer_firewall"]
    assert (found["open_ports"], found["state"]) == (["8443/tcp", "8080/tcp"], "absent")
    assert (found["client"], found["witness"]) == ("", "spark2")
    assert of_plan.options(planned("spark1"), settings(), CONTROLLER)["peer_firewall"]["witness"] == ""


def test_the_rails_are_probed_unless_the_fabric_is_removed() -> None:
    def network(state: str) -> dict[str, Any]:
        return of_plan.options(planned("spark1"), settings(qsfp_netplan_state=state), CONTROLLER)["qsfp_netplan"]

    assert (network("present")["probe"], network("absent")["probe"]) == (True, False)
    assert network("present")["content"] == "x"


def test_vllm_is_in_the_environment_or_in_the_copy_of_an_image() -> None:
    plan = typed({"runtime": {"path": "/opt/gb10/runtime/1"}, "root": "/opt/gb10"})
    assert patch_of_plan.place(plan, {}) == {
        "python": "/opt/gb10/runtime/1/bin/python",
        "probe": "/opt/gb10/runtime/1/gpu-probe.json",
        "config_folder": "/opt/gb10/runtime/1/gb10_moe_configs",
    }
    assert patch_of_plan.place(plan, COPY)["probe"] == "/opt/gb10/images/12.gpu-probe.json"


@pytest.mark.parametrize(("given", "wanted"), [("auto", "other"), ("fp8", "fp8")])
def test_a_chosen_quantization_wins(given: str, wanted: str) -> None:
    found = of_plan.options(
        planned("spark1", {"quantization": "other"}),
        settings(vllm_patch_quantization=given, vllm_patch_capability="12.1"),
        CONTROLLER,
    )["vllm_patch"]
    assert (found["quantization"], found["capability"]) == (wanted, "12.1")


def test_check_mode_sends_no_requests_of_the_smoke_test() -> None:
    def server(requests: bool) -> dict[str, Any]:
        return of_plan.options(planned("spark1"), settings(), replace(CONTROLLER, requests=requests))["vllm_serve"]

    assert server(True)["smoke"]["kind"] == "generate"
    assert server(False)["smoke"] == {}


def test_the_options_are_those_of_the_modules() -> None:
    for name, given in of_plan.options(planned("spark1"), settings(), CONTROLLER).items():
        assert given.keys() <= io_parts.PARTS[name](lambda _argv: (0, "", ""), "")[0].keys(), name


def act(
    plugin: Any,
    arguments: dict[str, Any],
    result: dict[str, Any] | None = None,
    variables: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run an action on the head of a running pair. Return its result and the module's arguments."""
    action = object.__new__(plugin.ActionModule)
    action._task = task(arguments)
    action._templar = SimpleNamespace(template=lambda value: value)
    action._connection = SimpleNamespace(transport="local")
    calls: list[dict[str, Any]] = []

    def module(module_args: dict[str, Any], **_variables: Any) -> dict[str, Any]:
        calls.append(module_args)
        parts = {name: {"due": False} for name in module_args.get("parts", {})}
        return {"changed": False, "parts": parts, **(result or {})}

    action._execute_module = module
    known = {"gb10_plan": planned("spark1").facts(), "gb10_inputs": {"settings": SETTINGS}}
    hosts = {"spark1": {"gb10_installed": {"files": {}}}, "spark2": {"gb10_installed": {"files": {}}}}
    return action.decide({**known, "hostvars": hosts, **(variables or {})}), calls


def test_parts_are_compared_in_one_connection_and_keep_their_options() -> None:
    answer, (arguments,) = act(node_info, {"parts": ["peer_firewall", "vllm_patch", "golden"]})
    assert list(arguments["parts"]) == ["peer_firewall", "vllm_patch"] == list(answer["parts"])
    assert answer["parts"]["vllm_patch"] == {"due": False, "options": arguments["parts"]["vllm_patch"]}
    assert answer["nodes"] == ["spark1", "spark2"]


def test_a_node_passes_neither_facts_nor_hosts_nor_other_parts() -> None:
    obeyed = {"ansible_facts": {"ansible_host": "x"}, "_ansible_delegated_vars": {}, "add_host": {"host_name": "x"}}
    parts = {"peer_firewall": {"due": False, "options": {}, **obeyed}, "other": {}}
    answer, (arguments,) = act(node_info, {"part": "peer_firewall"}, {"parts": parts})
    assert answer == {"changed": False, "due": False, "options": arguments["parts"]["peer_firewall"]}


def test_without_a_part_nothing_connects() -> None:
    answer, calls = act(node_info, {"parts": ["golden"]})
    assert (answer["parts"], calls) == ({}, [])


def test_other_arguments_read_the_facts() -> None:
    assert act(node_info, {"model": "/srv/models/tiny"})[1] == [{"model": "/srv/models/tiny"}]


def test_a_failed_comparison_ends_the_run() -> None:
    assert act(node_info, {"part": "peer_firewall"}, {"failed": True, "msg": "no"})[0]["msg"] == "no"
    assert act(node_info, {"parts": ["peer_firewall"]}, {"failed": True, "msg": "no"})[0]["failed"]


KNOWN = {"parts": {"vllm_patch": {"written": []}, "ray_cluster": {"nodes": [1], "actors": []}}, "nodes": ["a", "b"]}


@pytest.mark.parametrize(("of_b", "calls"), [({"files": {}}, 0), ({}, 1)])
def test_a_comparison_holds_until_a_node_changes(of_b: dict[str, Any], calls: int) -> None:
    hosts = {"a": {"gb10_installed": {"files": {}}}, "b": {"gb10_installed": of_b}}
    variables = {"gb10_compared": KNOWN, "hostvars": hosts}
    answer, asked = act(node_info, {"part": "vllm_patch"}, variables=variables)
    assert len(asked) == calls
    assert ("written" in answer) is not calls
    assert len(act(ray_info, {"expect": {}, "known": True}, variables=variables)[1]) == calls


def test_a_server_that_failed_is_asked_again() -> None:
    hosts = {"a": {"gb10_installed": {"files": {}}}}
    for message, calls in (("", 0), ("The API is not healthy", 1)):
        known = {"parts": {"vllm_serve": {"answers": not message, "msg": message}}, "nodes": ["a"]}
        asked = act(node_info, {"part": "vllm_serve"}, variables={"gb10_compared": known, "hostvars": hosts})[1]
        assert len(asked) == calls


def test_an_incomplete_ray_is_waited_for() -> None:
    known = {"parts": {"ray_cluster": {"reason": "spark2 has not joined"}}, "nodes": []}
    assert len(act(ray_info, {"expect": {}, "known": True}, variables={"gb10_compared": known})[1]) == 1
    assert len(act(ray_info, {"expect": {}}, variables={"gb10_compared": KNOWN})[1]) == 1


def test_the_netplan_file_says_who_manages_it() -> None:
    """The text of earlier releases, so that an update changes no file."""
    _answer, (arguments,) = act(node_info, {"part": "qsfp_netplan"})
    text = arguments["parts"]["qsfp_netplan"]["content"]
    assert text.startswith("#\n# Ansible managed\n#\nnetwork:\n")
    assert yaml.safe_load(text) == planned("spark1").facts()["node"]["netplan"]
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_site_compares_what_the_tags_select() -> None:
    (task,) = (each for each in load_yaml(read("playbooks/steps/roles.yml")) if "gb10.cluster.node_info" in each)
    assert task["tags"] == task["vars"]["playbook_compared"] == list(of_plan.PARTS)

"""Actions that take the options of their modules from the plan: the firewall, the network and the patches."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from cluster_nodes import SETTINGS, node_plan, pair, planned
from decisions import decide
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_rules
from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_apply

COPY = {"image_id": "12", "package_dir": "/a/vllm", "config_folder": "/a/tables", "toolkit": {}, "mounts": [{}]}


def options(action: str, changes: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Return the options that an action gives to its module on the head of a pair."""
    changes = dict(changes or {})
    copy = changes.pop("copy", {})
    variables = {"gb10_inputs": {"settings": {**SETTINGS, **settings}}, "__vllm_patch_copy": copy}
    plan = typed({**node_plan(planned(pair()), "spark1"), **changes}).facts()
    answer, (arguments,) = decide(action, {"planned": True}, plan, variables=variables)
    assert answer == {"changed": False}
    return arguments


OPEN = {"peer_firewall_gateway_port": 8080, "peer_firewall_open_ports": ["8443/tcp"], "peer_firewall_enabled": False}
MONITORED = {"monitoring_enabled": True, "monitoring_clients": ["10.0.0.5"]}
#: A chosen quantization wins.
QUANTIZED = {"changes": {"quantization": "other"}, "vllm_patch_capability": "12.1"}


@pytest.mark.parametrize(
    ("action", "given", "expected"),
    [
        # Ansible runs on the node itself, so that another node must verify the rules.
        ("peer_firewall", OPEN, {"open_ports": ["8443/tcp", "8080/tcp"], "state": "absent", "witness": "spark2"}),
        ("peer_firewall", {}, {"state": "present", "client": ""}),
        ("peer_firewall", {"monitoring_clients": ["10.0.0.5"]}, {"monitoring_ports": []}),
        ("peer_firewall", MONITORED, {"monitoring_ports": [9100, 6385], "monitoring_clients": ["10.0.0.5"]}),
        ("netplan_apply", {}, {"state": "present", "probe": True}),
        ("netplan_apply", {"qsfp_netplan_state": "absent"}, {"state": "absent", "probe": False}),
        (
            "vllm_patch",
            {**QUANTIZED, "vllm_patch_quantization": "auto"},
            {"quantization": "other", "capability": "12.1"},
        ),
        ("vllm_patch", {**QUANTIZED, "vllm_patch_quantization": "fp8"}, {"quantization": "fp8", "capability": "12.1"}),
        ("vllm_patch", {"changes": {"copy": COPY}}, {"probe": "/opt/gb10/images/12.gpu-probe.json"}),
        (
            "vllm_patch",
            {"changes": {"runtime": {"path": "/opt/gb10/runtime/1"}}},
            {
                "python": "/opt/gb10/runtime/1/bin/python",
                "probe": "/opt/gb10/runtime/1/gpu-probe.json",
                "config_folder": "/opt/gb10/runtime/1/gb10_moe_configs",
            },
        ),
    ],
)
def test_the_options_of_a_planned_module(action: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = options(action, **given)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("peer_firewall", io_rules.ARGUMENTS),
        ("netplan_apply", io_compare.ARGUMENTS),
        ("vllm_patch", io_apply.ARGUMENTS),
    ],
)
def test_the_options_are_those_of_the_module(action: str, arguments: dict[str, Any]) -> None:
    assert options(action).keys() <= arguments.keys()


def test_the_netplan_file_says_who_manages_it() -> None:
    """The text of earlier releases, so that an update changes no file."""
    text = options("netplan_apply")["content"]
    assert text.startswith("#\n# Ansible managed\n#\nnetwork:\n")
    assert "ethernets" in yaml.safe_load(text)["network"]
    assert text.endswith("\n") and not text.endswith("\n\n")

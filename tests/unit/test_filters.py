"""The filters: the pure planners as templates see them, and documentation that fits their signatures."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from repository import ROOT, load_yaml, read

from ansible_collections.gb10.cluster.plugins.filter.cluster import FilterModule

FILTERS = FilterModule().filters()
SNAPSHOT = Path(__file__).parent / "data" / "plan_two_spark.json"
PLAN = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
WORKER = FILTERS["node_plan"](PLAN, "spark2")


@pytest.mark.parametrize(("name", "function"), FILTERS.items(), ids=FILTERS)
def test_documented_options_are_the_functions_parameters(name: str, function: Callable[..., Any]) -> None:
    documentation = load_yaml(read(f"plugins/filter/{name}.yml"))["DOCUMENTATION"]
    first, *parameters = inspect.signature(function).parameters.values()
    options = dict(documentation["options"])
    assert options.pop("_input")["required"] is True, first
    assert documentation["name"] == name
    assert [word for word in documentation.get("positional", "").split(", ") if word] == list(options) == [parameter.name for parameter in parameters]
    for parameter in parameters:
        option = options[parameter.name]
        assert option.get("required", False) is (parameter.default is inspect.Parameter.empty)
        assert tuple(option.get("default", ())) == (() if option.get("required") else parameter.default)


def test_node_plan_has_the_nodes_own_part() -> None:
    assert (WORKER["node"]["name"], WORKER["node"]["address"], WORKER["node"]["head"]) == ("spark2", "10.110.0.2", False)
    assert {name: value for name, value in WORKER.items() if name != "node"} == PLAN


def test_node_plan_refuses_a_stranger() -> None:
    with pytest.raises(AnsibleFilterError, match="no node 'spark9'"):
        FILTERS["node_plan"](PLAN, "spark9")


def test_cluster_plan_reports_problems() -> None:
    answer = FILTERS["cluster_plan"]([], "", {})
    assert answer["plan"] == {}
    assert len(answer["problems"]) == 1
    assert answer["problems"][0] in answer["report"]


def test_ray_and_vllm_are_quoted_for_systemd() -> None:
    assert " --address=10.110.0.1:6379 " in FILTERS["ray_exec"](WORKER, 1000, ['--labels={"a": "b"}'])
    assert FILTERS["ray_exec"](WORKER, 1000, ['--labels={"a": "b"}']).endswith(' "--labels={\\"a\\": \\"b\\"}"')
    assert FILTERS["vllm_exec"](WORKER, ["--max-model-len", "1024"]).endswith(" --max-model-len 1024")


def test_fabric_drift() -> None:
    interfaces = {rail["interface"]: {"mtu": PLAN["mtu"], "addresses": [rail["address"]]} for rail in WORKER["node"]["rails"]}
    assert FILTERS["fabric_drift"](WORKER, interfaces) == []
    assert FILTERS["fabric_drift"](WORKER, {}) == ["enp1s0f1np1 does not exist", "enP2p1s0f1np1 does not exist"]


def test_templates_hand_over_lazy_containers() -> None:
    """Ansible's own lists and mappings, which a template passes, are neither to json nor to dataclasses."""
    template = "{{ ('@inputs@' | gb10.cluster.stamped_unit(nodes)).inputs }} {{ vars | gb10.cluster.node_plan('spark2') | gb10.cluster.ray_exec(1) }}"
    answer = subprocess.run(
        [Path(sys.executable).parent / "ansible", "localhost", "-m", "debug", "-a", f'msg="{template}"', "-e", f"@{SNAPSHOT}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert FILTERS["stamped_unit"]("@inputs@", PLAN["nodes"])["inputs"] in answer.stdout
    assert FILTERS["ray_exec"](WORKER, 1) in answer.stdout

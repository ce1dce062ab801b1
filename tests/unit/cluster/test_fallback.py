"""The fallback: a small model on the gateway's node, planned in the memory that the cluster's model leaves to it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cluster_nodes import Node, node_plan, pair
from cluster_nodes import mistakes as mistakes_of
from cluster_nodes import planned as planned_of
from repository import read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv, gates
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import GIB

BIG, SMALL, SPARK = "gpt-oss-120b", "gpt-oss-20b", 128_526_000_000


#: Of a build for CUDA, whose memory is planned.
LOCK = read("roles/gb10/files/vllm-0.33.0-cu130-aarch64-py312.lock")


def planned(given: list[Node]) -> dict[str, Any]:
    return planned_of(given, LOCK)


def mistakes(given: list[Node]) -> list[Problem]:
    return mistakes_of(given, LOCK)


def nodes(gateway: int = 0, model: str = SMALL, **settings: Any) -> list[Node]:
    """Return a pair with the gateway on one node, and a fallback."""
    found = pair(gb10_model=BIG, gb10_fallback_model=model, **settings)
    for index, node in enumerate(found):
        node["gateway"] = index == gateway
        node["observed"]["model"] = None
    return found


def argument(args: list[str], name: str) -> str:
    return next(word.partition("=")[2] for word in args if word.startswith(f"{name}="))


@pytest.mark.parametrize("gateway", [0, 1])
def test_it_is_planned_for_the_gateways_node_in_its_own_memory(gateway: int) -> None:
    plan = planned(nodes(gateway))
    found = plan["fallback"]
    assert found["node"] == f"spark{gateway + 1}"
    assert (found["served_model_name"], found["port"]) == (SMALL, 8010)
    assert found["store"]["hub"] == "openai/gpt-oss-20b" and found["model"] == found["store"]["folder"]
    share = float(argument(found["args"], "--gpu-memory-utilization")) * SPARK
    # vLLM compares the share, in whole percent, with the free memory. The size of its cache is in bytes.
    assert 17 * GIB < share <= 22 * GIB and found["needs"] <= 21 * GIB, found["args"]
    assert found["context"] > 8192


def test_the_clusters_model_leaves_the_memory_on_each_node() -> None:
    with_it, without = planned(nodes()), planned(nodes(model=""))
    assert without["fallback"] == {}
    raised = planned(nodes(model="", gb10_memory_reserve=45))
    assert with_it["serve"]["args"] == raised["serve"]["args"]


def test_its_command_has_the_key_and_no_part_of_the_clusters() -> None:
    given = typed(node_plan(planned(nodes(gb10_fallback_args=["--max-model-len=16384"])), "spark1"))
    assert given.own_fallback
    words = argv.fallback_argv(given, given.own_fallback)
    assert words[:3] == [f"{given.runtime.name}/bin/vllm", "serve", given.own_fallback.model]
    assert {"--host=127.0.0.1", "--port=8010", "--max-model-len=16384"} <= {*words}
    assert any(word.startswith("--middleware=") for word in words)
    assert not [word for word in words if re.match("--(ssl|tensor|pipeline|distributed|nnodes|master)", word)]
    checked = gates.of_fallback(given, given.own_fallback)
    assert checked["peers"] == {"gb10-fallback": []} and not checked["links"]
    assert checked["memory"] == given.own_fallback.needs > 16 * GIB


def test_a_second_plan_has_the_same_variables() -> None:
    """Roles record launch overrides in the first run. They must not restart the fallback in the second one."""
    first = nodes()
    before = planned(first)
    name = before["runtime"]["name"]
    recorded = {"runtime": name, "environment": {"LD_PRELOAD": "/opt/gb10/nccl/libnccl.so.2"}, "flags": [], "files": {}}
    for node in first:
        node["observed"]["additions"] = {"nccl_sm121_build": recorded}
    assert planned(first)["fallback"] == before["fallback"]


@pytest.mark.parametrize(
    ("changed", "path", "words"),
    [
        ({"gateway": 2}, "gb10_fallback_model", "no node is in the group gateway"),
        ({"model": "gpt-oss-120b"}, "gb10_fallback_model", ""),
        ({"model": "no-such-model-xyz"}, "gb10_fallback_model", "no-such-model-xyz"),
        ({"gb10_fallback_memory": 0}, "gb10_fallback_memory", "0 GiB"),
        ({"gb10_fallback_memory": 200}, "gb10_fallback_memory", "200 GiB"),
        ({"gb10_fallback_port": 8000}, "gb10_fallback_port", "8000 is also gb10_api_port"),
        ({"gb10_fallback_port": 80}, "gb10_fallback_port", "80"),
        ({"gb10_fallback_args": ["--no-such-option=1"]}, "gb10_fallback_args[0]", "--no-such-option"),
        ({"model": "qwen3-embedding-8b"}, "gb10_fallback_model", "is of the kind embed"),
        ({"model": "/srv/models/own"}, "gb10_fallback_model", "its config.json is not known"),
        ({"model": "gemma-4-26b-a4b-nvfp4", "gb10_fallback_memory": 40}, "gb10_fallback_model", "its draft"),
        ({"gb10_fallback_args": ["--served-model-name=x"]}, "gb10_fallback_args.--served-model-name", "it is set"),
        ({"gb10_served_model_name": SMALL}, "gb10_fallback_model", "that of the cluster's model"),
    ],
)
def test_a_fallback_that_cannot_be_served_is_a_problem_of_its_variables(
    changed: dict[str, Any], path: str, words: str
) -> None:
    found = mistakes(nodes(**changed))
    assert [problem for problem in found if problem.path.startswith(path) and words in problem.found], found
    assert all(problem.path.startswith("gb10_fallback_") for problem in found), found


def test_its_port_must_be_free_on_its_node_alone() -> None:
    other = {"address": "0.0.0.0", "port": 8010, "pid": 9, "process": "grafana", "unit": "grafana.service"}
    given = nodes(1)
    given[0]["observed"]["listeners"] = [other]
    assert planned(given)
    given[1]["observed"]["listeners"] = [other]
    (problem,) = mistakes(given)
    assert problem.path == "nodes[1].gb10_fallback_port" and "grafana" in problem.found
    given[1]["observed"]["listeners"] = [{**other, "unit": "gb10-fallback.service"}]
    assert planned(given)


def test_a_node_with_a_name_as_its_address_can_have_one() -> None:
    given = nodes(1)
    given[1]["address"] = "spark2.local"
    assert planned(given)["fallback"]["node"] == "spark2"


def test_a_problem_of_its_node_alone_has_the_place_of_the_node() -> None:
    """The fallback compiles kernels, which the cluster's model does not: its node needs a compiler."""
    given = nodes(1)
    given[1]["observed"]["gpu"]["gpus"] = []
    found = mistakes(given)
    assert {problem.path for problem in found} == {"nodes[1].gpu"} and len(found) == 1


def test_the_plan_shows_it() -> None:
    lines = report.lines(typed(planned(nodes(1))), 1 << 30)
    place = lines.index(f"the fallback {SMALL} on spark2, port 8010 of loopback:")
    assert "weights" in lines[place + 1]

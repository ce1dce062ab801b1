"""The page about settings of other guides: no plan sets the variables that it lists as left out."""

from __future__ import annotations

import re

import pytest
import samples
from cluster_nodes import cluster_plan
from repository import read

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

PAGE = read("docs/left_out.md")
VARIABLES = dict(re.findall(r"^\| `(\w+)=([^`]*)`", PAGE, re.MULTILINE))


@pytest.mark.parametrize("sample", ["single-spark", "two-spark", "three-spark-ring", "four-spark-switch", "spark-thor"])
def test_no_plan_sets_a_variable_that_is_left_out(sample: str) -> None:
    ports = {"three-spark-ring": (0, 1), "spark-thor": (0,)}.get(sample, (1,))
    plan, problems = cluster_plan(samples.nodes_of(samples.inventory(sample), ports))
    assert problems == []
    found = {name for node in plan["nodes"] for name in VARIABLES if name in node["environment"]}
    assert len(VARIABLES) == 5
    assert found == ({"NCCL_P2P_DISABLE"} if sample == "spark-thor" else set())


def test_the_options_that_are_left_out_are_those_of_vllm_except_one() -> None:
    options = re.findall(r"^\| `(--[\w-]+)`", PAGE, re.MULTILINE)
    aliases = {
        alias for option in vllm_release_checks.options("0.33.0").values() for alias in (option.name, *option.aliases)
    }
    assert [option for option in options if option not in aliases] == ["--omni"]
    (problem,) = vllm_release_checks.parse(["--omni"], "0.33.0")[1]
    assert "vllm-omni" in problem.fix

"""Requirements of the units of Ray and vLLM on a Spark that no lab notices, in the rendered units of every runtime and
executor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import node_plan, sparks
from rendered_units import units as units_of

CASES = list(itertools.product(("native", "container"), ("ray", "mp"), (True, False)))
UNITS = ("gb10-ray", "gb10-vllm")


def planned(runtime: str, executor: str, key: bool) -> dict[str, Any]:
    image = {"gb10_container_image": "sha256:" + "1" * 64} if runtime == "container" else {}
    nodes = sparks(1, gb10_runtime=runtime, gb10_distributed_executor_backend=executor, **image)
    return {**node_plan(cluster_nodes.planned(nodes), "spark1"), "api_key": key}


@pytest.fixture(scope="module")
def units() -> Mapping[tuple[Any, ...], list[str]]:
    """Return the lines of each unit."""
    found = {case: units_of(planned(*case)) for case in CASES}
    return {(unit, *case): found[case][unit].splitlines() for case in CASES for unit in UNITS}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("unit", UNITS)
def test_memory_can_be_registered_and_a_hanging_rank_is_killed(
    units: Mapping[Any, list[str]], unit: str, case: tuple[Any, ...]
) -> None:
    """RoCE registers memory, and the lab has no RDMA.

    Without KillMode=mixed systemd sends SIGTERM to all processes at once.
    """
    assert {"LimitMEMLOCK=infinity", "KillMode=mixed"} <= set(units[unit, *case])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vllm_ends_and_restarts_with_the_ray_that_it_uses(
    units: Mapping[Any, list[str]], case: tuple[Any, ...]
) -> None:
    bound = {line.partition("=")[0] for line in units["gb10-vllm", *case] if line.endswith("=gb10-ray.service")}
    assert bound == ({"Requires", "PartOf", "JoinsNamespaceOf"} if case[1] == "ray" else set())
    (after,) = [line for line in units["gb10-vllm", *case] if line.startswith("After=")]
    assert "gb10-ray.service" in after


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_server_gets_the_api_key(units: Mapping[Any, list[str]], case: tuple[Any, ...]) -> None:
    assert any("/etc/gb10/api.env" in line for line in units["gb10-vllm", *case]) is case[2]

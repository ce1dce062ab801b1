"""The text of a plan: its parts that depend on one decision."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import pair, planned
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report


def lines(**changes: Any) -> list[str]:
    return report.lines(typed({**planned(pair()), **changes}), 1 << 30)


def test_each_node_has_its_part_in_the_cluster() -> None:
    found = [line for line in lines() if line.startswith("spark")]
    assert found == [
        "spark1 (head, 10.110.0.1 on enp1s0f1np1, compute capability 12.1):",
        "spark2 (worker, 10.110.0.2 on enp1s0f1np1, compute capability 12.1):",
    ]


@pytest.mark.parametrize(
    ("build", "title"), [(True, "NCCL is built:"), (False, "NCCL comes with the runtime:")], ids=str
)
def test_the_origin_of_nccl_has_its_reasons(build: bool, title: str) -> None:
    nccl = planned(pair())["nccl"] | {"build": build, "why": ["a reason"]}
    found = lines(nccl=nccl)
    assert found[found.index(title) + 1] == "  a reason"

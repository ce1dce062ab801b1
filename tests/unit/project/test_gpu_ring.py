# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the cables and the evaluation of tests/gpu/ring.py, without a GPU, on the logs of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu_program import load

ring = load("ring")
LOGS = Path(__file__).parents[1] / "data/logs"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = ring.said([(LOGS / f"{name}.log").read_text(encoding="utf-8")])
    return found


@pytest.mark.parametrize(("cabling", "equal"), [("crossed", False), ("equal", True)])
def test_each_host_has_a_cable_to_both_neighbors(cabling: str, equal: bool) -> None:
    found = ring.cables(ring.planned(cabling))
    assert len(found) == 2 * ring.HOSTS
    for first, second in found:
        assert (second.host - first.host) % ring.HOSTS in (1, ring.HOSTS - 1)
        assert (first.device == second.device) == equal
        assert first.address.rpartition(".")[0] == second.address.rpartition(".")[0]


def test_sockets_use_the_cables_and_only_the_bootstrap_uses_the_management_network() -> None:
    head, *_others = ring.planned("crossed")
    variables = ring.over_sockets(head.environment, head, head, 7)
    assert variables["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0,enP2p1s0f0np0,enp1s0f1np1,enP2p1s0f1np1"
    assert variables["NCCL_COMM_ID"] == f"{head.address}:30007"
    assert variables["GLOO_SOCKET_IFNAME"] == ring.DEVICE
    assert [name for name in variables if name.startswith("NCCL_IB_")] == ["NCCL_IB_DISABLE"]
    assert ring.SPARSE_RING.items() <= variables.items()


def test_the_log_of_a_failed_tree_names_the_opposite_host() -> None:
    found = read("ring4_trees")
    assert found["opposite"] == ["0>2", "2>0"]
    assert found["connected"] == ["all rings"]
    assert found["version"] == ["2.30.7+cuda13.3"]
    assert found["warnings"][-1].endswith("connect to 10.110.4.3<43017> failed : Network is unreachable")
    assert "nccl-unreachable" in found["explained"][0]


def test_what_has_to_hold() -> None:
    def failed(name: str, change: dict[str, str], reported: int, *opposite: str) -> int:
        result = {"name": name, "change": change, "reported": reported, "opposite": opposite}
        return [*ring.checks([result]).values()].count(False)

    unset = {"NCCL_CUMEM_ENABLE": "0"}
    assert failed("planned", {}, 4) == failed("skip", unset, 4) == failed("none", unset, 0, "0>2") == 0
    assert failed("planned", {}, 3) == failed("planned", {}, 4, "0>2") == failed("none", unset, 0) == 1
    assert failed("planned, no runtime", {"NCCL_RUNTIME_CONNECT": "0"}, 4, "0>2") == 1
    assert failed("planned, unmerged", {"NCCL_IB_MERGE_NICS": "0"}, 4) == 1

# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's own wheels, checked against the lock."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import cluster_plan, lock_of, spark

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import wheels

LOCK = "ray[default]==2.60.0 \\\n    --hash=sha256:0\nFlash_Attn==2.8.3\nvllm==0.18.1\n"
SHA = "0" * 64


def said(entry: Any) -> list[str]:
    return [
        f"{problem.path}: {problem.found}. {problem.expected}" for problem in wheels.check_wheels([entry], LOCK, "w")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "/srv/vllm-0.18.1+sm110-cp38-abi3-linux_aarch64.whl",
        "https://example.org/vllm-0.18.1-1-cp38-abi3-manylinux_2_35_aarch64.whl",
        "/srv/flash_attn-2.8.3-cp312-cp312-linux_aarch64.whl",
        "/srv/ray-2.60.0-cp312-cp312-manylinux2014_aarch64.whl",
    ],
)
def test_another_build_of_the_same_release(name: str) -> None:
    assert said({"wheel": name, "sha256": SHA}) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"wheel": "/srv/vllm-0.17.1-cp38-abi3-linux_aarch64.whl", "sha256": SHA},
            "w[0].wheel: vllm 0.17.1. 0.18.1, as on the other nodes",
        ),
        ({"wheel": "/srv/numpy-2.0.0-cp312-cp312-linux_aarch64.whl", "sha256": SHA}, "a package that the lock pins"),
        ({"wheel": "/srv/vllm.tar.gz", "sha256": SHA}, "w[0].wheel: vllm.tar.gz. NAME-VERSION-TAGS.whl"),
        (
            {"wheel": "vllm-0.18.1-cp38-abi3-linux_aarch64.whl", "sha256": SHA},
            "an absolute path on the controller, or an address",
        ),
        ({"wheel": "/srv/vllm-0.18.1-cp38-abi3-linux_aarch64.whl", "sha256": "A" * 64}, "w[0].sha256: "),
        ({"wheel": "/srv/vllm-0.18.1-cp38-abi3-linux_aarch64.whl"}, "wheel and sha256"),
        ("vllm", "wheel and sha256"),
    ],
)
def test_what_is_wrong_is_named(entry: Any, words: str) -> None:
    (found,) = said(entry)
    assert words in found


def test_they_are_a_nodes_own() -> None:
    wheel = {"wheel": "/srv/vllm-0.18.1+sm110-cp38-abi3-linux_aarch64.whl", "sha256": SHA}
    nodes = [spark(1, "head"), spark(2, "worker", gb10_runtime_wheels=[wheel])]
    lock = lock_of("vllm==0.18.1", "ray==2.55.0")
    plan, problems = cluster_plan(nodes, lock)
    assert problems == []
    assert [node["wheels"] for node in plan["nodes"]] == [[], [{**wheel, "built": False}]]
    wrong = [spark(1, "head"), spark(2, "worker", gb10_runtime_wheels=[{**wheel, "sha256": "?"}])]
    assert [problem.path for problem in cluster_plan(wrong, lock)[1]] == ["nodes[1].gb10_runtime_wheels[0].sha256"]


def test_a_wheel_and_a_build_of_vllm_exclude_each_other() -> None:
    entry = {"wheel": "/site/vllm-0.41.0-cp38-abi3-linux_aarch64.whl", "sha256": "d" * 64}
    fixes = {problem.fix for problem in wheels.check_wheels([entry], LOCK, "w", built=True)}
    assert "remove the wheel, or set vllm_build_enabled: false" in fixes

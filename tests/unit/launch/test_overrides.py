"""Launch overrides of roles, the quantization in a config.json, and rejected differences between the nodes' patches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typed_plans import typed, typed_node

from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_overrides, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.model import quantization
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import PlannedNode

Data = dict[str, Any]


def addition(**changes: Any) -> Data:
    return {"runtime": "/opt/gb10/runtime/abc", "environment": {}, "flags": [], "files": {}, **changes}


def node(environment: dict[str, str], **roles: Data) -> PlannedNode:
    return typed_node({"name": "spark1", "environment": environment, "additions": roles})


def test_only_what_was_found_out_for_this_runtime_counts() -> None:
    recorded = {"vllm_patch": addition(), "nccl": addition(runtime="/opt/gb10/runtime/old"), "broken": {}}
    assert list(overrides.for_runtime(recorded, "/opt/gb10/runtime/abc")) == ["vllm_patch"]


def test_the_users_variables_win_and_lists_are_joined() -> None:
    patch = addition(
        environment={
            "VLLM_DISABLED_KERNELS": "A,B",
            "TRITON_PTXAS_PATH": "/ours",
            "VLLM_TUNED_CONFIG_FOLDER": "/tables",
        }
    )
    own = {"VLLM_HOST_IP": "10.110.0.1", "VLLM_DISABLED_KERNELS": "C, A", "TRITON_PTXAS_PATH": "/mine"}
    assert overrides.rank_environment(node(own)) == own
    assert overrides.rank_environment(node(own, vllm_patch=patch)) == {
        "VLLM_HOST_IP": "10.110.0.1",
        "VLLM_DISABLED_KERNELS": "C,A,B",
        "TRITON_PTXAS_PATH": "/mine",
        "VLLM_TUNED_CONFIG_FOLDER": "/tables",
    }


def test_flags_of_all_nodes_come_once() -> None:
    flags = addition(flags=["--moe-backend", "triton"])
    other = addition(flags=["--moe-backend", "triton", "--x"])
    assert overrides.serve_flags([node({}, p=flags), node({}, p=flags)]) == ["--moe-backend", "triton"]
    assert overrides.serve_flags([node({}, p=flags), node({}), node({}, p=other)]) == [*flags["flags"], *other["flags"]]


def test_a_role_replaces_what_it_added_on_all_nodes() -> None:
    first, second = node({}, vllm_patch=addition(flags=["--old"]), nccl=addition()), replace(node({}), name="spark2")
    plan = replace(typed({"model": "m"}), nodes=(first, second), node=second)
    new = overrides.merge(plan, "vllm_patch", {"spark1": None, "spark2": addition(flags=["--new"])})
    assert [list(each.additions) for each in new.nodes] == [["nccl"], ["vllm_patch"]]
    assert (new.node, new.model) == (new.nodes[1], "m")
    assert list(first.additions) == ["vllm_patch", "nccl"]


FLOAT8, FLOAT4, INT8 = (
    {"weights": {"type": kind, "num_bits": bits}} for kind, bits in (("float", 8), ("float", 4), ("int", 8))
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, "unknown"),
        ({}, "other"),
        ({"quantization_config": None}, "other"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "other"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "other"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": FLOAT8}}}, "fp8"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"a": FLOAT8, "b": FLOAT4},
                }
            },
            "other",
        ),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": INT8}}}, "other"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}}, "other"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "fp8"),
        ({"text_config": 7, "quantization_config": "fp8"}, "other"),
    ],
)
def test_quantization(config: Data | None, expected: str) -> None:
    assert quantization.quantization_of(config).kind == expected


def test_the_recorded_overrides_are_those_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_overrides.paths, "OVERRIDES", str(tmp_path))
    (tmp_path / "vllm_patch.json").write_text('{"runtime": "/opt/gb10/runtime/abc"}', encoding="utf-8")
    (tmp_path / "nccl.json").write_text("{}", encoding="utf-8")
    assert io_overrides.recorded_additions() == {"nccl": {}, "vllm_patch": {"runtime": "/opt/gb10/runtime/abc"}}

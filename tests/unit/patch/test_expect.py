"""The flags and variables that the plan foresees before vLLM is installed."""

from __future__ import annotations

import pytest
from cluster_nodes import SETTINGS

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch.expect import Package, additions
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

GB10 = ComputeCapability(12, 1)
ASSEMBLERS = {"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"}


def foreseen(
    name: str, triton: str = "3.6.0", own: str = "auto", model: str = "fp8", **changes: str
) -> tuple[list[str], set[str]]:
    given = {**SETTINGS, "vllm_patch_patches": [name], "vllm_patch_quantization": own, **changes}
    options = load.chosen(PatchSettings, given, "settings")
    flags, variables = additions(options, Package("0.32.0", 13, triton, "/configs", frozenset({"sm_121"})), GB10, model)
    return flags, set(variables)


@pytest.mark.parametrize(
    ("triton", "expected"), [("3.5.1", ASSEMBLERS), ("3.6.0", set()), ("3.7.1", set()), ("4.0.0", set()), ("", set())]
)
def test_triton_has_an_assembler_for_a_gb10_since_3_6(triton: str, expected: set[str]) -> None:
    assert foreseen("triton_ptxas", triton) == ([], expected)


@pytest.mark.parametrize(
    ("own", "model", "flag"),
    [("auto", "fp8", True), ("auto", "other", False), ("fp8", "other", True), ("other", "fp8", False)],
)
def test_the_variable_precedes_the_quantization_of_the_model(own: str, model: str, flag: bool) -> None:
    assert foreseen("fp8_moe_oracle", own=own, model=model)[0] == (["--moe-backend", "triton"] if flag else [])


@pytest.mark.parametrize("changes", [{"vllm_patch_state": "absent"}, {"vllm_patch_image": "example/vllm"}])
def test_nothing_is_added_without_patches_or_to_an_unknown_vllm(changes: dict[str, str]) -> None:
    assert foreseen("fp8_moe_oracle", **changes) == ([], set())

"""Compute capabilities: parsing, names, and the binaries that they run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability, Variant

GB10, B200, THOR, RTX50, H200, A100 = (
    ComputeCapability(*pair) for pair in ((12, 1), (10, 0), (11, 0), (12, 0), (9, 0), (8, 0))
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12.1", GB10), ("11.0", THOR), (" 9.0\n", H200), ("10.0", B200)],
    ids=["GB10", "Thor", "surrounded by space", "two digits"],
)
def test_parse(text: str, expected: ComputeCapability) -> None:
    assert ComputeCapability.parse(text) == expected


@pytest.mark.parametrize("text", ["", "12", "12.1a", "sm_121", "[N/A]", "12.1.0", "12,1", "-1.0", "12.10", "121.0"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ProblemsError) as raised:
        ComputeCapability.parse(text, "gpus[0].capability")
    (problem,) = raised.value.problems
    assert problem.path == "gpus[0].capability"
    assert repr(text) in problem.found
    assert '"12.1"' in problem.expected


@given(st.integers(1, 99), st.integers(0, 9))
def test_parse_reads_what_is_written(major: int, minor: int) -> None:
    capability = ComputeCapability(major, minor)
    assert ComputeCapability.parse(str(capability)) == capability


@pytest.mark.parametrize(
    ("capability", "sm", "gencode"),
    [
        (GB10, "sm_121", "-gencode=arch=compute_121,code=sm_121"),
        (THOR, "sm_110", "-gencode=arch=compute_110,code=sm_110"),
        (A100, "sm_80", "-gencode=arch=compute_80,code=sm_80"),
        (H200, "sm_90", "-gencode=arch=compute_90,code=sm_90"),
    ],
    ids=str,
)
def test_names(capability: ComputeCapability, sm: str, gencode: str) -> None:
    assert (capability.sm, capability.gencode) == (sm, gencode)


@pytest.mark.parametrize(
    ("gpu", "built_for", "expected"),
    [
        pytest.param(GB10, GB10, True, id="its own"),
        pytest.param(GB10, RTX50, True, id="12.1 runs 12.0"),
        pytest.param(RTX50, GB10, False, id="12.0 does not run 12.1"),
        pytest.param(THOR, RTX50, False, id="11.0 does not run 12.0"),
        pytest.param(GB10, THOR, False, id="12.1 does not run 11.0"),
        pytest.param(GB10, B200, False, id="12.1 does not run 10.0"),
        pytest.param(GB10, H200, False, id="12.1 does not run 9.0"),
    ],
)
def test_runs(gpu: ComputeCapability, built_for: ComputeCapability, expected: bool) -> None:
    assert gpu.runs(built_for) is expected


@pytest.mark.parametrize(
    ("gpu", "ptx_for", "variant", "expected"),
    [
        pytest.param(GB10, GB10, "", True, id="its own"),
        pytest.param(GB10, A100, "", True, id="older"),
        pytest.param(RTX50, GB10, "", False, id="newer"),
        pytest.param(GB10, RTX50, "f", True, id="of its family"),
        pytest.param(GB10, B200, "f", False, id="of another family"),
        pytest.param(GB10, GB10, "a", True, id="of exactly this GPU"),
        pytest.param(GB10, RTX50, "a", False, id="of exactly another"),
    ],
)
def test_translates(gpu: ComputeCapability, ptx_for: ComputeCapability, variant: Variant, expected: bool) -> None:
    assert gpu.translates(ptx_for, variant) is expected


def test_order_is_by_number_not_by_text() -> None:
    assert sorted([GB10, H200, B200, RTX50]) == [H200, B200, RTX50, GB10]

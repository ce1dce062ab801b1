"""The arch lists of vLLM's CMakeLists.txt."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import cmake

GB10, THOR, RTX50, B300, ADA = (ComputeCapability.parse(text) for text in ("12.1", "11.0", "12.0", "10.3", "8.9"))
#: In the forms of vLLM 0.18.1 to 0.33.0.
TEXT = """\
cmake_minimum_required(VERSION 3.26)
project(vllm_extensions LANGUAGES CXX)
if(DEFINED CMAKE_CUDA_COMPILER_VERSION AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
  set(CUDA_SUPPORTED_ARCHS "7.5;8.0;8.6;8.7;8.9;9.0;10.0;11.0;12.0")
elseif(DEFINED CMAKE_CUDA_COMPILER_VERSION)
  set(CUDA_SUPPORTED_ARCHS "7.0;12.0;12.1")
endif()
# set(CUDA_SUPPORTED_ARCHS "12.0")
    cuda_archs_loose_intersection(SCALED_MM_ARCHS "10.0f;12.0f" "${CUDA_ARCHS}")
    cuda_archs_loose_intersection(SCALED_MM_ARCHS "9.0a;" "${CUDA_ARCHS}")
  cuda_archs_loose_intersection(FP4_ARCHS
    "10.0a;12.0a" "${CUDA_ARCHS}")
  cuda_archs_loose_intersection(MARLIN_ARCHS "8.0+PTX;12.0" "${CUDA_ARCHS}")
  cuda_archs_loose_intersection(MARLIN_FP8_ARCHS "8.9;12.0f;12.1f" "${CUDA_ARCHS}")
  cuda_archs_loose_intersection(HADACORE_ARCHS "8.0+PTX;9.0+PTX" "${CUDA_ARCHS}")
  message(STATUS "Building for archs: 12.0")
"""


def changed(*gpus: ComputeCapability) -> dict[int, str]:
    """Return {line: its quoted list} of the changed lines."""
    pairs = zip(cmake.with_gpus(TEXT, gpus).split("\n"), TEXT.split("\n"), strict=True)
    return {number: line.split('"')[1] for number, (line, was) in enumerate(pairs, 1) if line != was}


@pytest.mark.parametrize("gpus", [(), (RTX50,), (THOR,), (RTX50, THOR)], ids=["none", "12.0", "11.0", "both"])
def test_the_lists_name_a_gpu_x_0(gpus: tuple[ComputeCapability, ...]) -> None:
    assert cmake.with_gpus(TEXT, gpus) == TEXT


def test_the_rest_stays_and_a_second_time_changes_nothing() -> None:
    text = cmake.with_gpus(TEXT, [GB10])
    lines = text.splitlines()
    assert lines[8] == '    cuda_archs_loose_intersection(SCALED_MM_ARCHS "10.0f;12.0f;12.1f" "${CUDA_ARCHS}")'
    assert lines[10:12] == ["  cuda_archs_loose_intersection(FP4_ARCHS", '    "10.0a;12.0a;12.1a" "${CUDA_ARCHS}")']
    assert cmake.with_gpus(TEXT.replace("\n", "\r\n"), [GB10]) == text.replace("\n", "\r\n")
    for gpus in ([GB10], [GB10, B300, GB10], [ADA]):
        once = cmake.with_gpus(TEXT, gpus)
        assert cmake.with_gpus(once, gpus) == once


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        *((known, f"12.0;{known}") for known in ("12.1", "12.1a", "12.1f", "12.1+PTX", "12.1a+PTX")),
        *((similar, f"12.0;12.1;{similar}") for similar in ("112.1", "12.10", "12x1")),
    ],
)
def test_a_gpu_in_any_form_is_known(other: str, expected: str) -> None:
    text = 'set(CUDA_SUPPORTED_ARCHS "{}")\n'
    assert cmake.with_gpus(text.format(f"12.0;{other}"), [GB10]) == text.format(expected)


def test_a_gpu_follows_each_x_0_in_its_form() -> None:
    assert changed(GB10) == {
        4: "7.5;8.0;8.6;8.7;8.9;9.0;10.0;11.0;12.0;12.1",
        9: "10.0f;12.0f;12.1f",
        12: "10.0a;12.0a;12.1a",
        13: "8.0+PTX;12.0;12.1",
    }
    both = {
        4: "7.5;8.0;8.6;8.7;8.9;9.0;10.0;10.3;11.0;12.0;12.1",
        9: "10.0f;10.3f;12.0f;12.1f",
        12: "10.0a;10.3a;12.0a;12.1a",
        13: "8.0+PTX;12.0;12.1",
    }
    assert changed(GB10, B300) == changed(B300, GB10) == both

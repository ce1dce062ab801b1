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


def changed(*gpus: ComputeCapability, text: str = TEXT) -> dict[int, str]:
    """Return {line: its quoted list} of the changed lines."""
    new, old = cmake.with_gpus(text, gpus).split("\n"), text.split("\n")
    return {
        number: line.split('"')[1] for number, (line, was) in enumerate(zip(new, old, strict=True), 1) if line != was
    }


def test_a_spark_follows_each_12_0_in_its_form() -> None:
    assert changed(GB10) == {
        4: "7.5;8.0;8.6;8.7;8.9;9.0;10.0;11.0;12.0;12.1",
        9: "10.0f;12.0f;12.1f",
        12: "10.0a;12.0a;12.1a",
        13: "8.0+PTX;12.0;12.1",
    }


def test_the_rest_of_a_line_stays() -> None:
    lines = cmake.with_gpus(TEXT, [GB10]).splitlines()
    assert lines[8] == '    cuda_archs_loose_intersection(SCALED_MM_ARCHS "10.0f;12.0f;12.1f" "${CUDA_ARCHS}")'
    assert lines[10:12] == ["  cuda_archs_loose_intersection(FP4_ARCHS", '    "10.0a;12.0a;12.1a" "${CUDA_ARCHS}")']
    assert lines[3] == '  set(CUDA_SUPPORTED_ARCHS "7.5;8.0;8.6;8.7;8.9;9.0;10.0;11.0;12.0;12.1")'


@pytest.mark.parametrize("gpus", [(), (RTX50,), (THOR,), (RTX50, THOR)], ids=["none", "12.0", "11.0", "both"])
def test_the_lists_name_a_gpu_x_0(gpus: tuple[ComputeCapability, ...]) -> None:
    assert cmake.with_gpus(TEXT, gpus) == TEXT


def test_a_second_time_changes_nothing() -> None:
    for gpus in ([GB10], [GB10, B300, GB10], [ADA]):
        once = cmake.with_gpus(TEXT, gpus)
        assert cmake.with_gpus(once, gpus) == once


@pytest.mark.parametrize("known", ["12.1", "12.1a", "12.1f", "12.1+PTX", "12.1a+PTX"])
def test_a_gpu_in_any_form_is_known(known: str) -> None:
    text = f'set(CUDA_SUPPORTED_ARCHS "12.0;{known}")\n'
    assert cmake.with_gpus(text, [GB10]) == text


@pytest.mark.parametrize(
    ("other", "expected"), [("112.1", "12.0;12.1;112.1"), ("12.10", "12.0;12.1;12.10"), ("12x1", "12.0;12.1;12x1")]
)
def test_a_similar_entry_is_another_one(other: str, expected: str) -> None:
    assert (
        cmake.with_gpus(f'set(CUDA_SUPPORTED_ARCHS "12.0;{other}")', [GB10])
        == f'set(CUDA_SUPPORTED_ARCHS "{expected}")'
    )


def test_two_gpus() -> None:
    assert changed(B300) == {
        4: "7.5;8.0;8.6;8.7;8.9;9.0;10.0;10.3;11.0;12.0",
        9: "10.0f;10.3f;12.0f",
        12: "10.0a;10.3a;12.0a",
    }
    assert (
        changed(GB10, B300)
        == changed(B300, GB10)
        == {
            4: "7.5;8.0;8.6;8.7;8.9;9.0;10.0;10.3;11.0;12.0;12.1",
            9: "10.0f;10.3f;12.0f;12.1f",
            12: "10.0a;10.3a;12.0a;12.1a",
            13: "8.0+PTX;12.0;12.1",
        }
    )


def test_windows_line_ends_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    assert cmake.with_gpus(text, [GB10]) == cmake.with_gpus(TEXT, [GB10]).replace("\n", "\r\n")


def test_which_source_it_is() -> None:
    assert cmake.is_vllm(TEXT)
    assert not cmake.is_vllm("project(other LANGUAGES CXX)\n")
    assert not cmake.is_vllm("")

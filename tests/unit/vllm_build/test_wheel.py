"""The GPU code of a built wheel: whether the GPUs can run it, and what people and a stamp see of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import Architecture, ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.fat_binary import Code, FatBinary, Kind
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import wheel

GB10, THOR, H200 = (ComputeCapability.parse(text) for text in ("12.1", "11.0", "9.0"))


def code(text: str) -> Code:
    """Return code such as "121a" (for that GPU alone) or "ptx 80"."""
    kinds: dict[str, Kind] = {"ptx": "ptx", "lto": "lto"}
    word, _space, kind = text.rpartition(" ")[2], "", text.rpartition(" ")[0]
    number = word.rstrip("af")
    variant: Any = word[len(number) :]
    return Code(kinds.get(kind, "cubin"), Architecture(ComputeCapability(*divmod(int(number), 10)), variant))


def programs(*each: str, relocatable: bool = False) -> list[FatBinary]:
    """Return programs; each is a list of codes separated by commas."""
    return [FatBinary(relocatable, tuple(code(text.strip()) for text in one.split(","))) for one in each]


SPARK = {
    "vllm/_C": programs("121a", "121a", "121a, ptx 80"),
    "vllm/_moe_C": programs("121a"),
    "vllm/cumem_allocator": [],
    "vllm/_flashmla_C": programs("90a", "100f"),
    "vllm/vllm_flash_attn/_vllm_fa2_C": programs("120", "80, ptx 80"),
}


def test_covered() -> None:
    found = wheel.covered(SPARK, GB10)
    assert list(found) == ["vllm/_C", "vllm/_flashmla_C", "vllm/_moe_C", "vllm/vllm_flash_attn/_vllm_fa2_C"]
    assert found["vllm/_C"] == {"native": 3, "same_major": 0, "ptx": 0, "none": 0}
    assert found["vllm/_flashmla_C"] == {"native": 0, "same_major": 0, "ptx": 0, "none": 2}
    assert found["vllm/vllm_flash_attn/_vllm_fa2_C"] == {"native": 0, "same_major": 1, "ptx": 1, "none": 0}


@pytest.mark.parametrize(
    ("extensions", "gpus", "found"),
    [
        (SPARK, [GB10], []),
        # An unused extension may lack the GPU.
        ({**SPARK, "vllm/_moe_C": programs("90a")}, [GB10], []),
        (SPARK, [], []),
        ({"vllm/_C": programs("120f")}, [GB10], []),
        ({"vllm/_C": programs("ptx 80")}, [GB10, THOR, H200], []),
        ({"vllm/_C_stable_libtorch": programs("121a")}, [GB10], []),
        (SPARK, [THOR], []),
        (
            {"vllm/_C": programs("121a")},
            [GB10, THOR],
            ["vllm/_C, which each model needs, has no code for 11.0 (programs: 1)"],
        ),
        (
            {"vllm/_C": programs("90a", "120a")},
            [GB10],
            ["vllm/_C, which each model needs, has no code for 12.1 (programs: 2)"],
        ),
        ({"vllm/_moe_C": programs("121a")}, [GB10], ["vllm/_C*, which each model needs, does not exist"]),
        # A build without GPU code, one without the extension, and a wheel of another package.
        (
            {"vllm/_C": [], "vllm/cumem_allocator": []},
            [GB10],
            ["vllm/_C, which each model needs, has no code for 12.1 (programs: 0)"],
        ),
        ({}, [GB10, THOR], ["vllm/_C*, which each model needs, does not exist"] * 2),
        ({"other/_C": programs("121a")}, [GB10], ["vllm/_C*, which each model needs, does not exist"]),
    ],
)
def test_what_a_gpu_cannot_run(extensions: wheel.Extensions, gpus: list[ComputeCapability], found: list[str]) -> None:
    problems = wheel.problems(extensions, gpus)
    assert [problem.found for problem in problems] == found
    assert {problem.path for problem in problems} <= {"wheel"}


def test_the_problem_names_its_gpu() -> None:
    (problem,) = wheel.problems({"vllm/_C": programs("121a")}, [GB10, THOR])
    assert problem.expected == "code for 11.0"
    assert "vllm_build_capabilities" in problem.fix


def test_lines() -> None:
    flash = "vllm/vllm_flash_attn/_vllm_fa2_C"
    assert wheel.lines(SPARK, [GB10, THOR]) == [
        f"12.1: own code in 2 of 4 extensions; code of an older GPU in {flash}; none in vllm/_flashmla_C",
        (
            f"11.0: own code in 0 of 4 extensions; code of an older GPU in vllm/_C, {flash}; none in "
            "vllm/_flashmla_C, vllm/_moe_C"
        ),
    ]
    assert wheel.lines({"vllm/_C": programs("121a")}, [GB10]) == ["12.1: own code in 1 of 1 extensions"]
    assert wheel.lines({}, [GB10]) == ["12.1: own code in 0 of 0 extensions"]
    assert wheel.lines(SPARK, []) == []


def test_contents() -> None:
    assert wheel.contents(SPARK) == {
        "vllm/_C": {"sm_121a": 3, "sm_80 (PTX)": 1},
        "vllm/_flashmla_C": {"sm_90a": 1, "sm_100f": 1},
        "vllm/_moe_C": {"sm_121a": 1},
        "vllm/cumem_allocator": {},
        "vllm/vllm_flash_attn/_vllm_fa2_C": {"sm_80": 1, "sm_80 (PTX)": 1, "sm_120": 1},
    }


def test_input_of_a_device_link_does_not_run() -> None:
    linked = {"vllm/_C": [*programs("121a", relocatable=True), *programs("90a")]}
    assert wheel.contents(linked) == {"vllm/_C": {"sm_90a": 1}}
    assert wheel.contents({"vllm/_C": programs("lto 121")}) == {"vllm/_C": {"sm_121 (LTO)": 1}}


STAMP = {
    "wheel": "vllm-0.33.0.whl",
    "source": "vllm.git commit 73cf",
    "coverage": ["12.1: own code in 2 of 4 extensions"],
    "seconds": 5400.0,
    "jobs": 18,
    "ccache": {"direct_cache_hit": 90, "preprocessed_cache_hit": 5, "cache_miss": 5},
}


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({}, "built in 1 h with 18 compilers, 95 of 100 results from the compiler cache"),
        ({"ccache": {"cache_miss": 100}}, "built in 1 h with 18 compilers, 0 of 100 results from the compiler cache"),
        ({"ccache": {}}, "built in 1 h with 18 compilers"),
        ({"ccache": None, "seconds": None}, "built in several runs with 18 compilers"),
    ],
)
def test_the_text_of_a_stamp(changes: dict[str, Any], last: str) -> None:
    expected = ["vllm-0.33.0.whl, from vllm.git commit 73cf", "12.1: own code in 2 of 4 extensions", last]
    assert wheel.text({**STAMP, **changes}) == expected

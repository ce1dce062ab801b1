"""The GPU code of a built wheel: whether the GPUs can run it, and its text. test_io_pack.py has the files."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import wheel

OWN, OLDER, NONE = (
    {"native": native, "same_major": older, "ptx": 0, "none": 2} for native, older in ((3, 0), (0, 1), (0, 0))
)


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        ({}, []),
        ({"12.1": {"vllm/_C": OWN}, "11.0": {"vllm/_C_stable_libtorch": OLDER}}, []),
        # An unused extension may lack the GPU.
        ({"12.1": {"vllm/_C": OWN, "vllm/_moe_C": NONE}}, []),
        ({"12.1": {"vllm/_C": NONE}}, ["vllm/_C, which each model needs, has no code for 12.1 (programs: 2)"]),
        ({"12.1": {"vllm/_C": OWN}, "11.0": {}}, ["vllm/_C*, which each model needs, does not exist"]),
    ],
)
def test_what_a_gpu_cannot_run(found: wheel.Found, problems: list[str]) -> None:
    assert [problem.found for problem in wheel.problems(found)] == problems


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (["vllm/x.py", "vllm-1.dist-info/METADATA", "vllm-1.dist-info/RECORD"], []),
        (["vllm/x.py"], ["0 folders vllm-*.dist-info"]),
        (["vllm/x.py", "vllm/vllm-1.dist-info/RECORD"], ["0 folders vllm-*.dist-info"]),
        (["vllm-1.dist-info/METADATA"], ["1 folders vllm-*.dist-info"]),
        (["vllm-1.dist-info/RECORD", "vllm-2.dist-info/METADATA"], ["2 folders vllm-*.dist-info"]),
        (["vllm-1.dist-info/RECORD", "vllm/a.dist-info/RECORD"], ["1 folders vllm-*.dist-info"]),
        ([f"{number}.py" for number in range(5)], ["0.py, 1.py, 2.py, 3.py, 4.py"]),
        ([f"{number}.py" for number in range(7)], ["0.py, 1.py, 2.py, 3.py, 4.py and 2 more"]),
    ],
)
def test_a_wheel_has_one_folder_with_information(names: list[str], problems: list[str]) -> None:
    assert [problem.found for problem in wheel.member_problems(names)] == problems


def test_lines() -> None:
    found = {"12.1": {"vllm/_C": OWN, "vllm/_moe_C": OLDER}}
    assert wheel.lines(found) == [
        "12.1: vllm/_C: 3 native, 0 same major, 0 PTX, 2 none",
        "12.1: vllm/_moe_C: 0 native, 1 same major, 0 PTX, 2 none",
    ]

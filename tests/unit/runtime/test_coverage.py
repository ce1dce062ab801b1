"""Kernel coverage: the GPU code of a runtime's extensions, counted for a GPU, and the extensions that vLLM needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_libraries import code, elf, fat

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, io_coverage

GB10, THOR, H200 = ComputeCapability(12, 1), ComputeCapability(11, 0), ComputeCapability(9, 0)
DATACENTER = {"native": 0, "same_major": 0, "ptx": 0, "none": 53}
FAMILY = {"native": 0, "same_major": 85, "ptx": 6, "none": 20}
#: Counted in the wheels of vLLM 0.33.0 for aarch64.
WHEEL = {
    "vllm/_C_stable_libtorch": FAMILY,
    "vllm/_moe_C_stable_libtorch": {**FAMILY, "none": 0},
    "vllm/_flashmla_C": DATACENTER,
}
PROGRAMS = fat(code("cubin", "121")) + fat(code("ptx", "80"))


def library(*programs: bytes) -> bytes:
    return elf([(".nv_fatbin", b"".join(programs))])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A package folder with extensions: family code and PTX, datacenter code only, and none at all."""
    (tmp_path / "vllm/vllm_flash_attn").mkdir(parents=True)
    family = library(
        fat(code("cubin", "120f"), code("cubin", "90a")), fat(code("ptx", "80")), fat(code("cubin", "100a"))
    )
    (tmp_path / "vllm/_C_stable_libtorch.abi3.so").write_bytes(family)
    (tmp_path / "vllm/_flashmla_C.abi3.so").write_bytes(library(fat(code("cubin", "90a")), fat(code("cubin", "100f"))))
    (tmp_path / "vllm/vllm_flash_attn/_vllm_fa2_C.cpython-312-aarch64-linux-gnu.so").write_bytes(
        library(fat(code("cubin", "121")))
    )
    (tmp_path / "vllm/spinloop.abi3.so").write_bytes(elf([(".text", b"x")]))
    (tmp_path / "vllm/empty.so").write_bytes(b"")
    os.mkfifo(tmp_path / "vllm/pipe.so")
    return tmp_path


def counted(native: int, same_major: int, ptx: int, none: int) -> dict[str, int]:
    return {"native": native, "same_major": same_major, "ptx": ptx, "none": none}


def test_programs_are_counted_by_the_way_in_which_a_gpu_runs_them(site: Path) -> None:
    assert io_coverage.read(str(site), GB10) == {
        "vllm/_C_stable_libtorch": counted(0, 1, 1, 1),
        "vllm/_flashmla_C": counted(0, 0, 0, 2),
        "vllm/vllm_flash_attn/_vllm_fa2_C": counted(1, 0, 0, 0),
    }
    assert io_coverage.read(str(site), H200)["vllm/_C_stable_libtorch"] == counted(1, 0, 1, 1)
    assert io_coverage.read(str(site), THOR)["vllm/_C_stable_libtorch"] == counted(0, 0, 1, 2)


@pytest.mark.parametrize(
    "sections",
    [
        [(".bss", b""), (".nv_fatbin", PROGRAMS)],
        [(".nv_fatbin", fat(code("cubin", "121")) + bytes(8) + fat(code("ptx", "80")) + bytes(24))],
        # The linker's padding may be cut off at the end.
        [(".nv_fatbin", PROGRAMS + bytes(4))],
        [
            (".nv_fatbin", fat(code("cubin", "121"))),
            (".text", b"x"),
            ("__nv_fatbin", b""),
            (".nv_fatbin", fat(code("ptx", "80"))),
        ],
    ],
)
def test_code_is_counted_behind_padding_and_other_sections(tmp_path: Path, sections: list[tuple[str, bytes]]) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/_C.abi3.so").write_bytes(elf(sections))
    assert io_coverage.read(str(tmp_path), GB10) == {"vllm/_C": counted(1, 0, 1, 0)}


def test_a_damaged_extension_is_an_error_with_its_path(site: Path) -> None:
    path = site / "vllm/_flashmla_C.abi3.so"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ProblemsError, match=str(path)):
        io_coverage.read(str(site), GB10)


def test_an_empty_folder_has_no_extension(tmp_path: Path) -> None:
    assert io_coverage.read(str(tmp_path), GB10) == {}
    assert coverage.gaps({}, "12.1", {"--attention-backend": "FLASHMLA"}) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("vllm/_C.abi3.so", "vllm/_C"),
        ("vllm/_C.cpython-312-x86_64-linux-gnu.so", "vllm/_C"),
        ("nvidia/nccl/lib/libnccl.so.2", "nvidia/nccl/lib/libnccl"),
    ],
)
def test_names(path: str, name: str) -> None:
    assert coverage.name(path) == name


@pytest.mark.parametrize(
    ("changes", "chosen", "expected"),
    [
        ({}, {}, []),
        ({}, {"--attention-backend": "TRITON_ATTN", "--moe-backend": "marlin"}, []),
        ({}, {"--attention-backend": "auto", "--moe-backend": "auto"}, []),
        (
            {},
            {"--attention-backend": "FlashMLA"},
            ["vllm/_flashmla_C, which --attention-backend FlashMLA needs, has no code for 12.1 (programs: 53)"],
        ),
        ({}, {"--quantization": "fp_quant"}, ["vllm/_qutlass_C, which --quantization fp_quant needs, does not exist"]),
        (
            {"vllm/_C_stable_libtorch": DATACENTER},
            {},
            ["vllm/_C_stable_libtorch, which each model needs, has no code for 12.1 (programs: 53)"],
        ),
        # Releases before 0.24 have two files, and either may have the code.
        ({"vllm/_C_stable_libtorch": DATACENTER, "vllm/_C": FAMILY}, {}, []),
        (
            {"vllm/_moe_C_stable_libtorch": DATACENTER},
            {"--moe-backend": "triton"},
            ["vllm/_moe_C_stable_libtorch, which --moe-backend triton needs, has no code for 12.1 (programs: 53)"],
        ),
    ],
)
def test_a_needed_extension_without_code_is_a_gap(
    changes: dict[str, dict[str, int]], chosen: dict[str, str], expected: list[str]
) -> None:
    assert coverage.gaps(WHEEL | changes, "12.1", chosen) == expected


def test_a_coverage_as_text() -> None:
    assert coverage.described(FAMILY) == "0 native, 85 same major, 6 PTX, 20 none"


def test_each_need_names_an_extension_that_is_read() -> None:
    for need in coverage.NEEDS:
        assert need.extension.startswith("vllm/") and need.source.startswith("vLLM 0."), need
        assert need.option or not need.value

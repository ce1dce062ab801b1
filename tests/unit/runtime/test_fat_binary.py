"""GPU code in shared libraries: in files made here, in nvcc's files compared with cuobjdump, and in invalid files."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from gpu_libraries import code, dynamic, elf, fat
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import elf as elf_reader
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import fat_binary

GB10, RTX50, THOR, H200, B300 = (ComputeCapability.parse(text) for text in ("12.1", "12.0", "11.0", "9.0", "10.3"))
WHOLE = elf(
    [
        (".text", b"x"),
        (
            ".nv_fatbin",
            fat(code("cubin", "121"), code("ptx", "121")) + bytes(8) + fat(code("cubin", "90a"), code("lto", "120f")),
        ),
    ]
)


def held(data: bytes) -> list[str]:
    found = fat_binary.read(memoryview(data), "lib")
    return [f"{code.kind} {code.architecture}" for fat in found for code in fat.codes]


def test_what_waits_for_a_link_counts_only_where_nothing_is_linked() -> None:
    relocatable = ("__nv_relfatbin", fat(code("cubin", "90")) * 3)
    both = fat_binary.read(memoryview(elf([relocatable, (".nv_fatbin", fat(code("cubin", "121")))])), "lib")
    assert [fat.relocatable for fat in both] == [True, True, True, False]
    assert [str(code.architecture) for fat in fat_binary.loaded(both) for code in fat.codes] == ["sm_121"]
    alone = fat_binary.read(memoryview(elf([relocatable])), "lib")
    assert fat_binary.loaded(alone) == alone != []


UNKNOWN_KIND = b"\x40" + code("cubin", "121")[1:]


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (WHOLE, ["cubin sm_121", "ptx sm_121", "cubin sm_90a", "lto sm_120f"]),
        (elf([(".text", b"x")]), []),
        (elf([(".nv_fatbin", b"")]), []),
        (elf([(".nv_fatbin", fat(UNKNOWN_KIND, code("cubin", "90")))]), ["cubin sm_90"]),
    ],
    ids=["over the linker's filling", "no section", "an empty section", "an unknown kind"],
)
def test_codes_are_read_in_order(data: bytes, codes: list[str]) -> None:
    assert held(data) == codes


@pytest.mark.parametrize(
    ("built_for", "gpu", "way"),
    [
        ("cubin 121", GB10, "native"),
        ("cubin 121f", GB10, "native"),
        ("cubin 121a", GB10, "native"),
        ("cubin 120", GB10, "same_major"),
        ("cubin 120f", GB10, "same_major"),
        ("cubin 120a", GB10, "none"),
        ("cubin 121", RTX50, "none"),
        ("cubin 121f", RTX50, "none"),
        ("cubin 120", THOR, "none"),
        ("cubin 100f", THOR, "none"),
        ("cubin 100f", B300, "same_major"),
        ("cubin 90", GB10, "none"),
        ("ptx 120", GB10, "ptx"),
        ("ptx 90", GB10, "ptx"),
        ("ptx 120f", GB10, "ptx"),
        ("ptx 120a", GB10, "none"),
        ("ptx 100f", GB10, "none"),
        ("ptx 90a", H200, "ptx"),
        ("ptx 121", RTX50, "none"),
        ("lto 121", GB10, "none"),
    ],
)
def test_way(built_for: str, gpu: ComputeCapability, way: str) -> None:
    (found,) = fat_binary.read(memoryview(elf([(".nv_fatbin", fat(code(*built_for.split())))])), "lib")
    assert found.way(gpu) == way


def test_the_best_code_of_a_program_counts() -> None:
    programs = (
        fat(code("ptx", "120"), code("cubin", "120"), code("cubin", "121"))
        + fat(code("ptx", "90"), code("cubin", "120"))
        + fat(code("cubin", "90"))
    )
    found = fat_binary.read(memoryview(elf([(".nv_fatbin", programs)])), "lib")
    assert fat_binary.ways(found, GB10) == {"native": 1, "same_major": 1, "ptx": 0, "none": 1}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "does not begin with"),
        (b"#!/bin/sh\n", "does not begin with"),
        (WHOLE[:4] + b"\x01" + WHOLE[5:], "does not begin with"),
        (WHOLE[:40], "ends after 40 bytes"),
        (WHOLE[:-1], "section headers"),
        (WHOLE[:200], "exceed its 200 bytes"),
        (elf([(".nv_fatbin", fat(code("cubin", "121"))[:-1])]), "is longer than its section"),
        (elf([(".nv_fatbin", b"\x50\xed\x55\xba")]), "has no room for a header"),
        (elf([(".nv_fatbin", b"something else than code")]), "does not begin with a fat binary header"),
        (elf([(".nv_fatbin", fat(code("cubin", "121")[:40]))]), "no room for an entry"),
        (elf([(".nv_fatbin", fat(code("cubin", "121")[:-1]))]), "longer than its fat binary"),
    ],
)
def test_what_is_no_whole_library_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(ProblemsError) as raised:
        held(data)
    (problem,) = raised.value.problems
    assert problem.path == "lib"
    assert expected in problem.found


@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(ProblemsError):
        held(WHOLE[:size])


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
@example([(60, 0), (61, 0)])
@example([(62, 0xFF), (63, 0xFF)])
def test_any_other_file_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    try:
        fat_binary.read(memoryview(data), "lib")
        elf_reader.machine(memoryview(data), "lib")
    except ProblemsError as error:
        assert len(error.problems) == 1


LINKED = elf(
    dynamic(["ncclGetVersion"], ["free"], ["libnccl.so.2", "libc.so.6"], "libmine.so", "$ORIGIN/../x:/y", "/z")
) + bytes(8)


def test_what_a_library_tells_the_linker() -> None:
    found = elf_reader.dynamic(memoryview(LINKED), "lib")
    assert found == elf_reader.Dynamic(("libnccl.so.2", "libc.so.6"), ("$ORIGIN/../x", "/y"), ("/z",))
    assert elf_reader.dynamic(memoryview(WHOLE), "lib") == elf_reader.Dynamic()
    exported = {
        name: elf_reader.exports(memoryview(LINKED), "lib", name)
        for name in ("ncclGetVersion", "free", "GetVersion", "nccl")
    }
    assert exported == {"ncclGetVersion": True, "free": False, "GetVersion": False, "nccl": False}


@given(
    st.lists(st.tuples(st.integers(0, len(LINKED) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, len(LINKED)),
)
def test_what_a_mapped_file_says_is_read_or_refused(changes: list[tuple[int, int]], size: int) -> None:
    """Any user's files can be mapped by a process."""
    data = bytearray(LINKED)
    for place, value in changes:
        data[place] = value
    for given_data in (data, data[:size]):
        try:
            elf_reader.exports(memoryview(given_data), "lib", "ncclGetVersion")
            assert all(len(text) <= 4096 for text in elf_reader.dynamic(memoryview(given_data), "lib").needed)
        except ProblemsError as error:
            assert len(error.problems) == 1


SOURCE = (
    "__global__ void add(float *a, const float *b) { a[threadIdx.x] += b[threadIdx.x]; }\nvoid go(float *a) { "
    "add<<<1, 1>>>(a, a); }\n"
)
NVCC, CUOBJDUMP = (
    shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin") for name in ("nvcc", "cuobjdump")
)


def gencode(*architectures: str) -> list[str]:
    return [f"-gencode=arch=compute_{architecture},code=sm_{architecture}" for architecture in architectures]


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None or shutil.which("g++") is None, reason="nvcc or its host compiler is not installed")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["-no-compress", *gencode("120f", "121a"), "-gencode=arch=compute_120f,code=[compute_120f]"],
            {"cubin sm_120f", "cubin sm_121a", "ptx sm_120f"},
        ),
        (["-arch=sm_121", "-Xfatbin", "-compress-all"], {"cubin sm_121", "ptx sm_121"}),
        (["-rdc=true", *gencode("121"), "-gencode=arch=compute_120,code=lto_120"], {"cubin sm_121", "lto sm_120"}),
    ],
    ids=["uncompressed", "compressed", "relocatable"],
)
def test_as_nvcc_writes_it(tmp_path: Path, options: list[str], expected: set[str]) -> None:
    (tmp_path / "k.cu").write_text(SOURCE, encoding="utf-8")
    subprocess.run([str(NVCC), "-c", *options, "k.cu", "-o", "k.o"], cwd=tmp_path, check=True)
    found = held((tmp_path / "k.o").read_bytes())
    assert set(found) == expected
    if CUOBJDUMP is not None:
        command = [CUOBJDUMP, "-all", "-lelf", "-lptx", str(tmp_path / "k.o")]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        listed = re.findall(r"^(ELF|PTX) file.*\.(sm_\d+[af]?)\.\w+$", shown, re.MULTILINE)
        # cuobjdump omits the f of family cubins.
        counts = Counter(f"{'cubin' if kind == 'ELF' else 'ptx'} {name}".rstrip("f") for kind, name in listed)
        assert counts == Counter(name.rstrip("f") for name in found if not name.startswith("lto"))

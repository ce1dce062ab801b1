"""The libnccl that processes have mapped, and differences from the expected one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.nccl.process_maps import (
    Caller,
    Mapping,
    Process,
    differences,
    early,
    mapped,
    used,
)

OURS = "/opt/gb10/nccl/2.30.7-0123456789ab/lib/libnccl.so.2.30.7"
WHEELS = "/opt/gb10/runtime/x/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
#: The mappings of a vLLM worker with LD_PRELOAD on Linux, shortened.
MAPS = f"""\
558f0a000000-558f0a001000 r--p 00000000 fd:01 1311 /usr/bin/python3.12
7f0000000000-7f0000200000 r--p 00000000 fd:01 4711 {OURS}
7f0000200000-7f0003000000 r-xp 00200000 fd:01 4711 {OURS}
7f0004000000-7f0004200000 r--p 00000000 fd:01 4242 {WHEELS}
7f0005000000-7f0005001000 r-xp 00000000 fd:01 99 /usr/lib/libnccl-net.so
7f0006000000-7f0006001000 rw-p 00000000 00:00 0
7f0007000000-7f0007001000 rw-p 00000000 00:00 0 [heap]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
"""


def test_mapped_once_each_and_nothing_but_files() -> None:
    assert mapped(MAPS) == [
        Mapping("/usr/bin/python3.12", "fd:01", 1311, False, "558f0a000000-558f0a001000", size=0x1000),
        Mapping(OURS, "fd:01", 4711, False, "7f0000000000-7f0000200000", size=0x3000000),
        Mapping(WHEELS, "fd:01", 4242, False, "7f0004000000-7f0004200000", size=0x200000),
        Mapping("/usr/lib/libnccl-net.so", "fd:01", 99, False, "7f0005000000-7f0005001000", size=0x1000),
    ]


def test_what_cannot_be_read_goes_by_its_name_and_a_plugin_is_none() -> None:
    assert [file.named for file in mapped(MAPS)] == [False, True, True, False]


#: Addresses decrease in mapping order: the linker, preloaded files, the C library, and files opened later.
ADDRESSES = f"""\
7f0000000000-7f0000200000 r--p 00000000 fd:01 4242 {WHEELS}
7f0004000000-7f0004200000 r--p 00000000 fd:01 11 /usr/lib/aarch64-linux-gnu/libc.so.6
7f0004200000-7f0004201000 r--p 00000000 fd:01 99 /usr/lib/locale/small
7f0005000000-7f0005200000 r--p 00000000 fd:01 4711 {OURS}
7f0005200000-7f0006200000 r-xp 00200000 fd:01 4711 {OURS}
7f0006200000-7f0006201000 r--p 00000000 fd:01 12 /usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1
"""


def test_what_lies_between_the_linker_and_the_c_library_was_preloaded() -> None:
    assert [file.path for file in early(mapped(ADDRESSES))] == [OURS]
    assert early(mapped(MAPS)) == []
    other = ADDRESSES.replace("7f0006200000-7f0006201000", "7e0006200000-7e0006201000")
    assert early(mapped(other)) == [], "another memory layout"


def test_the_c_library_may_be_above_the_preloaded_file() -> None:
    """The layout of a process of Debian 12, from the lowest address: the C library is in the gap that alignment
    left."""
    lines = [
        ("7f0f69800000-7f0f6ac05000", WHEELS),
        ("7f0f6ad20000-7f0f6ae00000", "/usr/lib/x86_64-linux-gnu/libm.so.6"),
        ("7f0f6ae00000-7f0f6b378000", "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"),
        ("7f0f6b400000-7f0f6c805000", OURS),
        ("7f0f6c80d000-7f0f6c9e2000", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("7f0f6ca02000-7f0f6ca37000", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
    ]
    maps = "".join(f"{addresses} r--p 00000000 fd:01 {inode} {path}\n" for inode, (addresses, path) in enumerate(lines))
    assert [file.path for file in early(mapped(maps))] == [OURS]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x/libnccl.so.2 (deleted)", ("/x/libnccl.so.2", True)),
        ("/with space/libnccl.so", ("/with space/libnccl.so", False)),
        ("/line\\012end/libnccl.so.2", ("/line\nend/libnccl.so.2", False)),
    ],
)
def test_names_as_the_kernel_writes_them(path: str, expected: tuple[str, bool]) -> None:
    (found,) = mapped(f"7f00-7f01 r-xp 00000000 00:2e 12     {path}\n")
    assert (found.path, found.deleted) == expected


@pytest.mark.parametrize("text", ["", "nonsense\n", "7f00-7f01 r-xp 0 0:0 0 [anon:libnccl.so]\n"])
def test_what_is_none(text: str) -> None:
    assert mapped(text) == []


def library(path: str = OURS, sha256: str | None = "a" * 64, deleted: bool = False) -> Mapping:
    return Mapping(path, "fd:01", 1, deleted, "0-1", sha256)


BOTH = (library(), library(WHEELS, "b" * 64))
WORKER = Process(7, "VLLM::Worker_TP0", BOTH, preload=(OURS,))
OTHER = Process(8, "ray::IDLE")
TORCH = "/opt/gb10/runtime/x/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"


def test_with_a_preload_both_may_be_mapped() -> None:
    assert differences("spark1", [WORKER, OTHER], OURS, "a" * 64) == []
    assert differences("spark1", [WORKER], OURS) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"preload": (OURS,), "callers": (Caller(TORCH, (WHEELS,)),)}, OURS),
        ({"preload": ("/usr/lib/libjemalloc.so", WHEELS, OURS)}, WHEELS),
        # The link was deleted together with its folder.
        ({"preload": (OURS.removesuffix(".30.7"),)}, OURS),
        ({"early": BOTH[:1], "callers": (Caller(TORCH, (WHEELS,)),)}, OURS),
        ({"callers": (Caller(TORCH, ("/nowhere/libnccl.so.2", WHEELS, OURS)),)}, WHEELS),
        ({"callers": (Caller(TORCH, (WHEELS,)), Caller("/x/libmine.so", (WHEELS,)))}, WHEELS),
        # Unknown.
        ({}, None),
        ({"callers": (Caller(TORCH),)}, None),
        ({"callers": (Caller(TORCH, (WHEELS,)), Caller("/x/libmine.so", (OURS,)))}, None),
        ({"callers": (Caller(TORCH, (WHEELS,)), Caller("/x/libmine.so"))}, None),
        ({"libraries": BOTH[1:]}, WHEELS),
    ],
    ids=str,
)
def test_of_several_one_is_used_or_nobody_can_say(changes: dict[str, Any], path: str | None) -> None:
    process = Process(**{"pid": 7, "name": "x", "libraries": BOTH, **changes})
    found, why = used(process)
    assert (found.path if found else None) == path
    assert bool(why) == (path is None)
    assert process.facts()["used"] == path


def test_none_is_used_where_none_is_mapped() -> None:
    assert used(OTHER) == (None, "")


def test_mapped_beside_the_one_that_is_used_is_not_used() -> None:
    """ctypes opened our library, as VLLM_NCCL_SO_PATH does. PyTorch continues to use the wheel's."""
    beside = Process(7, "x", BOTH, callers=(Caller(TORCH, (WHEELS,)),))
    (problem,) = differences("spark1", [beside], OURS, "a" * 64)
    assert problem.found == f"it uses {WHEELS} (sha256 bbbbbbbbbbbb…), while {OURS} is only mapped"


def test_what_cannot_be_told_is_no_proof() -> None:
    (problem,) = differences("spark1", [Process(7, "x", BOTH)], OURS, "a" * 64)
    assert problem.found.startswith("the used library is unknown: 2 are mapped")
    assert "no mapped file shows which one is called" in problem.found


def test_vllms_own_communicator_may_have_another() -> None:
    (problem,) = differences("spark1", [Process(7, "x", BOTH, preload=(OURS,), vllm_library=WHEELS)], OURS, "a" * 64)
    assert problem.found == f"vLLM's own communicator uses {WHEELS} (sha256 bbbbbbbbbbbb…), from VLLM_NCCL_SO_PATH"


def test_alone_nothing_else_may_be() -> None:
    (problem,) = differences("spark1", [WORKER, OTHER], OURS, "a" * 64, alone=True)
    assert problem.path == "spark1, process 7 (VLLM::Worker_TP0)"
    assert problem.found == f"it has mapped {WHEELS} (sha256 bbbbbbbbbbbb…) in addition to {OURS}"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (library(WHEELS, "b" * 64), f"it has mapped {WHEELS} (sha256 bbbbbbbbbbbb…)"),
        (library(OURS, "b" * 64), f"it has mapped {OURS} (sha256 bbbbbbbbbbbb…)"),
        (library(OURS, "b" * 64, deleted=True), f"it has mapped {OURS} (deleted, sha256 bbbbbbbbbbbb…)"),
        (library(OURS, None), f"it has mapped {OURS} (its content could not be read)"),
    ],
    ids=["the wheel's", "another one of that name", "the one before", "unknown"],
)
def test_another_library_is_named_with_process_and_node(found: Mapping, said: str) -> None:
    (problem,) = differences("spark2", [Process(7, "VLLM::Worker_TP1", (found,)), OTHER], OURS, "a" * 64)
    assert (problem.path, problem.found) == ("spark2, process 7 (VLLM::Worker_TP1)", said)
    assert problem.expected == f"{OURS} (sha256 aaaaaaaaaaaa…)"


def test_a_container_sees_the_same_file_by_another_name() -> None:
    assert differences("spark1", [Process(7, "python3", (library("/mnt/libnccl.so.2"),))], OURS, "a" * 64) == []


def test_without_a_hash_a_name_that_is_gone_is_another_file() -> None:
    assert differences("spark1", [Process(7, "x", (library(OURS, None),))], OURS) == []
    assert len(differences("spark1", [Process(7, "x", (library(OURS, None, deleted=True),))], OURS)) == 1


def test_all_are_listed() -> None:
    ranks = [Process(number, "x", (library(WHEELS, "b" * 64),)) for number in (1, 2)]
    assert len(differences("spark1", [*ranks, WORKER], OURS, "a" * 64)) == 2


def test_a_service_that_has_loaded_none_is_no_proof() -> None:
    (problem,) = differences("spark1", [OTHER, OTHER], OURS)
    assert (problem.path, problem.found) == ("spark1", "none of 2 processes has mapped a libnccl")


def test_what_cannot_be_read_is_no_proof() -> None:
    (problem,) = differences("spark1", [WORKER, Process(9, "x", unreadable="/proc/9/maps: Permission denied")], OURS)
    assert problem.path == "spark1, process 9 (x)"
    assert "Permission denied" in problem.found

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
    found = mapped(MAPS)
    assert found == [
        Mapping("/usr/bin/python3.12", "fd:01", 1311, False, "558f0a000000-558f0a001000", size=0x1000),
        Mapping(OURS, "fd:01", 4711, False, "7f0000000000-7f0000200000", size=0x3000000),
        Mapping(WHEELS, "fd:01", 4242, False, "7f0004000000-7f0004200000", size=0x200000),
        Mapping("/usr/lib/libnccl-net.so", "fd:01", 99, False, "7f0005000000-7f0005001000", size=0x1000),
    ]
    # What cannot be read goes by its name, and a plugin is no libnccl.
    assert [file.named for file in found] == [False, True, True, False]
    assert mapped("nonsense\n7f00-7f01 r-xp 0 0:0 0 [anon:libnccl.so]\n") == []


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


def library(path: str = OURS, sha256: str | None = "a" * 64, deleted: bool = False) -> Mapping:
    return Mapping(path, "fd:01", 1, deleted, "0-1", sha256)


BOTH = (library(), library(WHEELS, "b" * 64))
WORKER = Process(7, "VLLM::Worker_TP0", BOTH, preload=(OURS,))
OTHER = Process(8, "ray::IDLE")
TORCH = "/opt/gb10/runtime/x/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"


@pytest.mark.parametrize(
    ("processes", "sha256"),
    [
        ([WORKER, OTHER], "a" * 64),
        ([WORKER], None),
        ([Process(7, "x", (library(OURS, None),))], None),
        # A container sees the same file by another name.
        ([Process(7, "python3", (library("/mnt/libnccl.so.2"),))], "a" * 64),
    ],
)
def test_with_a_preload_both_may_be_mapped(processes: list[Process], sha256: str | None) -> None:
    assert differences("spark1", processes, OURS, sha256) == []


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
        ({"libraries": ()}, None),
    ],
    ids=str,
)
def test_of_several_one_is_used_or_nobody_can_say(changes: dict[str, Any], path: str | None) -> None:
    process = Process(**{"pid": 7, "name": "x", "libraries": BOTH, **changes})
    facts = process.facts()
    assert (facts["used"], bool(facts["undecided"])) == (path, path is None and bool(process.libraries))


@pytest.mark.parametrize(
    ("changes", "alone", "said"),
    [
        ({"libraries": BOTH[1:]}, False, f"it has mapped {WHEELS} (sha256 bbbbbbbbbbbb…)"),
        ({"libraries": (library(OURS, "b" * 64),)}, False, f"it has mapped {OURS} (sha256 bbbbbbbbbbbb…)"),
        (
            {"libraries": (library(OURS, "b" * 64, deleted=True),)},
            False,
            f"it has mapped {OURS} (deleted, sha256 bbbbbbbbbbbb…)",
        ),
        ({"libraries": (library(OURS, None),)}, False, f"it has mapped {OURS} (its content could not be read)"),
        ({"preload": (OURS,)}, True, f"it has mapped {WHEELS} (sha256 bbbbbbbbbbbb…) in addition to {OURS}"),
        # ctypes opened our library, as VLLM_NCCL_SO_PATH does. PyTorch continues to use the wheel's.
        (
            {"callers": (Caller(TORCH, (WHEELS,)),)},
            False,
            f"it uses {WHEELS} (sha256 bbbbbbbbbbbb…), while {OURS} is only mapped",
        ),
        (
            {"preload": (OURS,), "vllm_library": WHEELS},
            False,
            f"vLLM's own communicator uses {WHEELS} (sha256 bbbbbbbbbbbb…), from VLLM_NCCL_SO_PATH",
        ),
        (
            {},
            False,
            f"the used library is unknown: 2 are mapped ({OURS}, {WHEELS}), and no mapped file shows which one is called",
        ),
    ],
    ids=["the wheel's", "that name", "the one before", "unreadable", "alone", "beside", "vLLM's own", "unknown"],
)
def test_another_library_is_named_with_process_and_node(changes: dict[str, Any], alone: bool, said: str) -> None:
    process = Process(**{"pid": 7, "name": "VLLM::Worker_TP1", "libraries": BOTH, **changes})
    (problem,) = differences("spark2", [process, OTHER], OURS, "a" * 64, alone)
    assert (problem.path, problem.found) == ("spark2, process 7 (VLLM::Worker_TP1)", said)
    assert problem.expected == f"{OURS} (sha256 aaaaaaaaaaaa…)"


def test_each_process_is_listed_also_without_a_hash() -> None:
    # A deleted name is another file.
    ranks = [Process(number, "x", (library(OURS, None, deleted=True),)) for number in (1, 2)]
    assert [problem.path for problem in differences("spark1", [*ranks, WORKER], OURS)] == [
        f"spark1, process {number} (x)" for number in (1, 2)
    ]


def test_what_cannot_be_read_or_has_loaded_none_is_no_proof() -> None:
    (problem,) = differences("spark1", [OTHER, OTHER], OURS)
    assert (problem.path, problem.found) == ("spark1", "none of 2 processes has mapped a libnccl")
    denied = "/proc/9/maps: Permission denied"
    (problem,) = differences("spark1", [WORKER, Process(9, "", unreadable=denied)], OURS)
    assert (problem.path, problem.found) == ("spark1, process 9", denied)

"""What killed ranks leave: real shared memory and sockets, used and unused."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_leftovers


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path has at most 107 characters.
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_unused_shared_memory_is_removed_and_the_rest_stays(folder: Path) -> None:
    left = {
        "psm_0a1b2c3d",
        "nccl-AbCdEf",
        "sem.mp-x1y2z3",
        "torch_12_34",
        "vllm_offload_0f3c-11ee.mmap",
        "vllm_offload_0f3c-11ee.mmap.1",
        "vllm_ec_0f3c-11ee.mmap",
        "vllm_mm_q83vASNFZ4mrze8BI0VniQ",
    }
    for name in (
        *left,
        "psm_ffffffff",
        "psm_eeeeeeee",
        "somebodys",
        "psm_other.txt",
    ):
        (folder / name).write_bytes(bytes(mmap.PAGESIZE))
    (folder / "psm_abcdef").symlink_to(folder / "somebodys")
    with (folder / "psm_eeeeeeee").open("rb"), (folder / "psm_ffffffff").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
        removed = io_leftovers.remove(os.geteuid(), str(folder), str(folder))
        mapped.close()
    assert {Path(path).name for path in removed} == left
    assert names(folder) == {"psm_ffffffff", "psm_eeeeeeee", "somebodys", "psm_other.txt", "psm_abcdef"}


def test_files_of_another_user_stay(folder: Path) -> None:
    (folder / "psm_0a1b2c3d").write_bytes(b"x")
    assert io_leftovers.remove(os.geteuid() + 1, str(folder), str(folder)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_root_removes_those_of_the_user_whose_container_it_starts(folder: Path) -> None:
    for name in ("psm_0a1b2c3d", "vllm_offload_0f3c.mmap"):
        (folder / name).write_bytes(b"x")
    os.chown(folder / "psm_0a1b2c3d", 65534, 65534)
    assert io_leftovers.remove(65534, str(folder), str(folder)) == [str(folder / "psm_0a1b2c3d")]
    assert names(folder) == {"vllm_offload_0f3c.mmap"}


def test_sockets_without_a_listener_are_removed(folder: Path) -> None:
    dead, alive, other = (folder / str(uuid.uuid4()) for _number in range(3))
    with socket.socket(socket.AF_UNIX) as ended, socket.socket(socket.AF_UNIX) as listening:
        ended.bind(str(dead))
        ended.close()
        listening.bind(str(alive))
        other.write_text("no socket")
        assert io_leftovers.remove(os.geteuid(), str(folder), str(folder)) == [str(dead)]
    assert names(folder) == {alive.name, other.name}


def test_files_that_are_only_mapped_are_in_use(folder: Path) -> None:
    """A process may close a file that it has mapped. The kernel prints the device in hexadecimal numbers."""
    process, hidden = folder / "7", folder / "8"
    process.mkdir()
    hidden.mkdir()
    (process / "fd").mkdir()
    (process / "fd" / "3").symlink_to(folder / "none")
    line = "7f{0}0000-7f{0}1000 rw-s 00000000 {1} {2}                         /dev/shm/psm_0a (deleted)\n"
    (process / "maps").write_text(
        line.format("a", "fe:1f", 123) + line.format("b", "00:00", 0) + "x\n", encoding="ascii"
    )
    (folder / "self").symlink_to(process)
    assert io_leftovers._used(str(folder)) == {(os.makedev(0xFE, 0x1F), 123), (os.makedev(0, 0), 0)}

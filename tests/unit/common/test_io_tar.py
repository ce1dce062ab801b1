"""Entries of a tar file that are files as a whole."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import sparse_tar

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_tar


@pytest.mark.parametrize("content", [b"", b"four"])
def test_only_a_whole_file_has_content(content: bytes) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("a")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        (entry,) = archive.getmembers()
        found = io_tar.plain(archive, entry, entry.offset_data + len(content))
        assert found is not None and found.read() == content
        assert io_tar.plain(archive, entry, entry.offset_data + len(content) - 1) is None, "cut off"
        entry.size = -1
        assert io_tar.plain(archive, entry, 10**6) is None
        entry.size, entry.type = 0, tarfile.DIRTYPE
        assert io_tar.plain(archive, entry, 10**6) is None


def test_a_sparse_file_is_no_file_as_a_whole(tmp_path: Path) -> None:
    sparse_tar.add_sparse(tmp_path / "a.tar", "a", 0)
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert io_tar.plain(archive, archive.getmembers()[0], 10**6) is None

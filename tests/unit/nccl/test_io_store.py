"""A packed build of NCCL from a head that may be hostile: its SHA-256 comes from the head too."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from sparse_tar import add_sparse

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store

LIBRARY = "lib/libnccl.so.2.30.7"


def packed(path: Path, entries: Sequence[tuple[str, str]]) -> str:
    """Write an archive with files, or links to what begins with ->, and return its SHA-256."""
    with tarfile.open(path, "w") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o4755
            if content.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[2:]
            entry.size = 0 if entry.linkname else len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unpacked(tmp_path: Path, entries: Sequence[tuple[str, str]]) -> Path:
    folder = tmp_path / "store/part"
    (folder / "lib").mkdir(parents=True)
    io_store.unpack(str(tmp_path / "a.tar"), packed(tmp_path / "a.tar", entries), str(folder))
    return folder


def test_only_the_library_and_its_stamp_are_written(tmp_path: Path) -> None:
    outside = f"{tmp_path}/outside"
    hostile = [
        ("../../PLANTED", "x"),
        (f"{tmp_path}/PLANTED", "x"),
        ("lib/up", f"->{tmp_path}"),
        ("lib/up/PLANTED", "x"),
        ("lib/libnccl.so.2", f"->{outside}"),
        ("lib/other", "x"),
    ]
    folder = unpacked(tmp_path, [*hostile, (LIBRARY, "library"), ("stamp.json", "{}")])
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert found == {"lib", LIBRARY, "lib/libnccl.so.2", "lib/libnccl.so", "stamp.json"}
    assert str((folder / "lib/libnccl.so.2").readlink()) == "libnccl.so.2.30.7"
    assert (folder / "lib/libnccl.so").read_text() == "library"
    assert (folder / LIBRARY).stat().st_mode & 0o7777 == 0o755
    assert not list(tmp_path.rglob("PLANTED"))


@pytest.mark.parametrize(
    "entries",
    [
        [(LIBRARY, "x")],
        [("stamp.json", "{}")],
        [(LIBRARY, "->/etc/passwd"), ("stamp.json", "{}")],
        [(LIBRARY, "x"), ("lib/libnccl.so.2.9.9", "x"), ("stamp.json", "{}")],
    ],
    ids=["no stamp", "no library", "a link", "two libraries"],
)
def test_another_content_is_refused(tmp_path: Path, entries: Sequence[tuple[str, str]]) -> None:
    with pytest.raises(ProblemsError, match=r"stamp\.json and one library"):
        unpacked(tmp_path, entries)


@pytest.mark.parametrize("name", [LIBRARY, "stamp.json"])
def test_a_sparse_file_is_refused(tmp_path: Path, name: str) -> None:
    """2,560 bytes took 1.1 GB."""
    sha256 = add_sparse(tmp_path / "a.tar", name, 1 << 33)
    with pytest.raises(ProblemsError, match=r"stamp\.json and one library"):
        io_store.unpack(str(tmp_path / "a.tar"), sha256, str(tmp_path / "part"))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (json.dumps({"sha256": hashlib.sha256(b"library").hexdigest()}), True),
        (json.dumps({"sha256": hashlib.sha256(b"other").hexdigest()}), False),
        ("{}", False),
        ("[]", False),
        ("{", False),
        ("[" * 5000, False),
        ("", False),
    ],
    ids=["whole", "another library", "no hash", "a list", "no JSON", "too many levels", "empty"],
)
def test_a_build_without_its_stamp_counts_as_missing(tmp_path: Path, text: str, whole: bool) -> None:
    (tmp_path / "build/lib").mkdir(parents=True)
    (tmp_path / "build" / io_store.LIBRARY).write_bytes(b"library")
    (tmp_path / "build/stamp.json").write_text(text, encoding="utf-8")
    assert io_store.stamp(str(tmp_path), "build") == (json.loads(text) if whole else None)
    (tmp_path / "build" / io_store.LIBRARY).unlink()
    assert io_store.stamp(str(tmp_path), "build") is None


@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])
def test_a_compressed_or_large_archive_is_refused(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """890 bytes took 2 GB."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, f"w:{form}") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ProblemsError, match="a packed build"):
        io_store.unpack(str(path), digest, str(tmp_path))
    monkeypatch.setattr(io_store, "_MOST_ARCHIVE", 10)
    with pytest.raises(ProblemsError, match="at most 10 bytes"):
        io_store.unpack(str(path), digest, str(tmp_path))


def test_other_users_can_load_a_library_of_a_host_with_a_strict_umask(tmp_path: Path) -> None:
    (tmp_path / LIBRARY.rpartition("/")[2]).write_bytes(b"code")
    before = os.umask(0o077)
    try:
        with io_store.part(str(tmp_path), "built") as part:
            io_store.fill(part, str(tmp_path / LIBRARY.rpartition("/")[2]), {"sha256": ""})
    finally:
        os.umask(before)
    built = tmp_path / "built"
    assert [path.stat().st_mode & 0o777 for path in (built, built / "lib", built / LIBRARY)] == [0o755] * 3

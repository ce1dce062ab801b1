"""Files are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import (
    differs,
    exposed,
    install,
    read_file,
    write_file,
)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_content_and_mode(tmp_path: Path, mode: int, umask: int) -> None:
    path = tmp_path / "cluster.env"
    before = os.umask(umask)
    try:
        write_file(str(path), "A=grün\n", mode)
    finally:
        os.umask(before)
    assert read_file(str(path)) == ("A=grün\n", mode)
    assert names(tmp_path) == ["cluster.env"]


def test_an_old_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer text than the new one", encoding="utf-8")
    path.chmod(0o666)
    inode = path.stat().st_ino
    write_file(str(path), "new", 0o600)
    assert read_file(str(path)) == ("new", 0o600)
    assert path.stat().st_ino != inode, "a reader of the old file keeps it"


def test_a_secret_is_never_readable_by_others_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    before = os.umask(0)
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        modes.extend(entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    try:
        write_file(str(tmp_path / "secret"), "token", 0o600)
    finally:
        os.umask(before)
    assert set(modes) == {0o600}


@pytest.mark.parametrize("function", ["fsync", "replace", "fchmod"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)

    def fail(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="No space left"):
            write_file(str(path), "new", 0o600)
    assert read_file(str(path)) == ("old", 0o640)
    assert names(tmp_path) == ["file"]


def test_a_run_that_is_killed_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")

    def interrupt(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_file(str(path), "new", 0o600)
    assert path.read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["file"]


def test_the_folder_is_synchronised_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        fsync(descriptor)

    def record_replace(source: str, target: str) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_file(str(tmp_path / "file"), "new", 0o600)
    assert calls == ["file", "rename", "folder"]


def test_a_bare_name_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("file", "new", 0o600)
    assert read_file("file") == ("new", 0o600)


def test_a_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file(str(tmp_path / "none" / "file"), "new", 0o600)
    assert read_file(str(tmp_path / "none" / "file")) == (None, None)


def test_a_folder_in_the_files_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_file(str(tmp_path))
    with pytest.raises(OSError, match=r"directory|exists"):
        write_file(str(tmp_path / "."), "new", 0o600)


def test_what_is_no_text_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"A=\xff\xfe\n")
    text, _mode = read_file(str(path))
    assert text is not None and text.startswith("A=") and text != "A=\n"


# --- who can change a folder ---


def test_what_root_and_this_user_alone_can_change_is_not_exposed(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert exposed(str(tmp_path / "a/b")) == "", "below /tmp, which is sticky"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("which", ["a", "a/b"])
def test_a_folder_that_others_can_change_is_exposed(tmp_path: Path, which: str, mode: int) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / which).chmod(mode)
    sticky_above = which == "a" and mode & 0o1000
    assert exposed(str(tmp_path / "a/b")) == (
        "" if sticky_above else f"other users can write to {tmp_path / which} (mode {mode:04o})"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder")
@pytest.mark.parametrize("which", ["a", "a/b"])
def test_a_folder_of_somebody_else_is_exposed(tmp_path: Path, which: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    os.chown(tmp_path / which, 12345, 12345)
    assert exposed(str(tmp_path / "a/b")) == f"{tmp_path / which} belongs to user 12345"


def test_a_link_and_a_file_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        assert exposed(str(tmp_path / name)) == f"{tmp_path / name} is not a folder"
    with pytest.raises(FileNotFoundError):
        exposed(str(tmp_path / "none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder")
def test_the_folders_above_are_those_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "theirs/state").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path / "theirs")
    os.chown(tmp_path / "theirs", 12345, 12345)
    assert exposed(str(tmp_path / "way/state")) == f"{tmp_path}/theirs belongs to user 12345"


@pytest.mark.parametrize("content", ["a\r\nb\n", "\u00e9", b"\x00\xff\r\n", b"", ""])
def test_an_installed_file_does_not_differ(tmp_path: Path, content: str | bytes) -> None:
    path = str(tmp_path / "file")
    assert differs(path, content)
    install(path, content)
    assert not differs(path, content)
    assert differs(path, content + ("x" if isinstance(content, str) else b"x"))

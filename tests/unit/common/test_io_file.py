"""Files are written completely or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import (
    differs,
    exposed,
    install,
    read,
    read_file,
    write_file,
)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.env"
    path.write_text("a longer text than the new one", encoding="utf-8")
    path.chmod(0o666)
    return path


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_file_is_replaced_with_its_content_and_mode(file: Path, mode: int, umask: int) -> None:
    inode = file.stat().st_ino
    os.umask(umask)
    write_file(str(file), "A=grün\n", mode)
    assert read_file(str(file)) == ("A=grün\n", mode)
    assert names(file.parent) == ["cluster.env"]
    assert file.stat().st_ino != inode, "a reader of the old file keeps it"


@pytest.mark.usefixtures("open_umask")
def test_a_secret_is_never_readable_by_others_and_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, modes = list[str](), set[int]()
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        modes.update(entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir())
        fsync(descriptor)

    def record_replace(source: str, target: str) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_file(str(tmp_path / "secret"), "token", 0o600)
    assert (calls, modes) == (["file", "rename", "folder"], {0o600})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"])
@pytest.mark.parametrize("function", ["fsync", "replace", "fchmod"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    before = read_file(str(file))
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(os, function, Mock(side_effect=error))
        write_file(str(file), "new", 0o600)
    assert (read_file(str(file)), names(file.parent)) == (before, ["cluster.env"])


def test_a_bare_name_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("file", "new", 0o600)
    assert read_file("file") == ("new", 0o600)


def test_what_cannot_be_written_or_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file(str(tmp_path / "none" / "file"), "new", 0o600)
    assert read_file(str(tmp_path / "none" / "file")) == (None, None)
    with pytest.raises(IsADirectoryError):
        read_file(str(tmp_path))
    with pytest.raises(OSError, match=r"directory|exists"):
        write_file(str(tmp_path / "."), "new", 0o600)


def test_what_is_no_text_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"A=\xff\xfe\n")
    assert read_file(str(tmp_path / "file"))[0] == "A=\ufffd\ufffd\n"


# --- who can change a folder ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in another one, below /tmp, which is sticky."""
    (tmp_path / "a/b").mkdir(parents=True)
    assert exposed(str(tmp_path / "a/b")) == ""
    return tmp_path / "a/b"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("up", [0, 1])
def test_a_folder_that_others_can_change_is_exposed(folder: Path, up: int, mode: int) -> None:
    place = (folder, folder.parent)[up]
    place.chmod(mode)
    sticky_above = up and mode & 0o1000
    assert exposed(str(folder)) == ("" if sticky_above else f"other users can write to {place} (mode {mode:04o})")


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder")
@pytest.mark.parametrize("up", [0, 1])
def test_a_folder_of_somebody_else_is_exposed(folder: Path, up: int) -> None:
    link = folder.parents[1] / "way"
    link.symlink_to(folder.parent)
    os.chown((folder, folder.parent)[up], 12345, 12345)
    assert exposed(str(folder)) == f"{(folder, folder.parent)[up]} belongs to user 12345"
    assert exposed(str(link / "b")) == f"{(link / 'b', folder.parent)[up]} belongs to user 12345"


def test_a_link_and_a_file_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        assert exposed(str(tmp_path / name)) == f"{tmp_path / name} is not a folder"
    with pytest.raises(FileNotFoundError):
        exposed(str(tmp_path / "none"))


@pytest.mark.parametrize("content", ["a\r\nb\n", "\u00e9", b"\x00\xff\r\n", b"", ""])
def test_an_installed_file_does_not_differ(tmp_path: Path, content: str | bytes) -> None:
    path = str(tmp_path / "file")
    assert differs(path, content)
    install(path, content)
    assert not differs(path, content)
    assert differs(path, content + ("x" if isinstance(content, str) else b"x"))


def test_a_carriage_return_in_the_name_of_a_process_starts_no_line(tmp_path: Path) -> None:
    (tmp_path / "status").write_bytes(b"Name:\tx\rVmRSS: 9 kB\nVmRSS:\t 4 kB\n")
    assert read(str(tmp_path / "status")) == "Name:\tx\rVmRSS: 9 kB\nVmRSS:\t 4 kB\n"
    assert read(str(tmp_path / "none")) == ""


def test_a_lock_of_another_process_ends_with_an_error(tmp_path: Path) -> None:
    """Any user who can read a folder can lock it, and root waited for ever."""
    held = io_file.lock(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(TimeoutError, match=r"is locked by another process for 0\.3 s; find it: fuser"):
        io_file.lock(str(tmp_path), 0.3)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    os.close(held)
    os.close(io_file.lock(str(tmp_path), 0.3))


def test_a_new_folder_is_closed_to_others_until_its_files_are_roots(tmp_path: Path) -> None:
    """An engine or an archive brings modes such as 0777, and a file that others have opened stays writable for them."""
    old = tmp_path / "folder"
    with io_file.new_folder(str(old), str(tmp_path / "part")) as part:
        assert stat.S_IMODE(Path(part).stat().st_mode) == 0o700
        for name, mode in {"open": 0o666, "run": 0o777, "secret": 0o600}.items():
            (Path(part) / name).touch()
            (Path(part) / name).chmod(mode)
        (Path(part) / "below").mkdir()
        (Path(part) / "below").chmod(0o777)
        (Path(part) / "link").symlink_to(tmp_path)
        io_file.own(part)
        assert stat.S_IMODE(Path(part).stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in old.iterdir() if not path.is_symlink()}
    assert modes == {"open": 0o644, "run": 0o755, "secret": 0o644, "below": 0o755}
    assert stat.S_IMODE(old.stat().st_mode) == 0o755


@pytest.mark.usefixtures("open_umask")
def test_an_added_folder_is_open_to_all_users_and_an_existing_one_stays(tmp_path: Path) -> None:
    """A hardened host has the umask 077, and services of other users read what root installs."""
    os.umask(0o077)
    io_file.add_folder(str(tmp_path / "a/b"))
    assert [folder.stat().st_mode & 0o777 for folder in (tmp_path / "a", tmp_path / "a/b")] == [0o755, 0o755]
    (tmp_path / "a").chmod(0o750)
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "link"):
        io_file.add_folder(str(tmp_path / name))
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750


def test_an_untrusted_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\xffd")
    assert io_file.read_bounded(str(path), 4) == "ab\ufffdd"
    with pytest.raises(ValueError, match="it is longer than 3 bytes"):
        io_file.read_bounded(str(path), 3)
    assert io_file.read_bounded(str(tmp_path / "none"), 3) is None
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="it is not a regular file"):
        io_file.read_bounded(str(tmp_path / "pipe"), 3)
    assert io_file.sha256(str(path)) == hashlib.sha256(b"ab\xffd").hexdigest()


@pytest.mark.usefixtures("open_umask")
def test_an_installed_folder_is_the_callers_and_open_to_all(tmp_path: Path) -> None:
    os.umask(0o077)
    path = tmp_path / "a/b"
    assert not io_file.installed_folder(str(path))
    for mode in (0o755, 0o700, 0o777):
        io_file.install_folder(str(path))
        assert io_file.installed_folder(str(path)) and stat.S_IMODE(path.stat().st_mode) == 0o755
        path.chmod(mode)
        assert io_file.installed_folder(str(path)) is (mode == 0o755)
    (tmp_path / "file").touch(0o755)
    (tmp_path / "link").symlink_to("a")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for name in ("file", "link"):
        with pytest.raises(OSError, match=r"Not a directory|symbolic"):
            io_file.install_folder(str(tmp_path / name))
        assert not io_file.installed_folder(str(tmp_path / name))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files")
def test_an_installed_file_is_roots_and_a_replaced_one_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def found() -> tuple[str, int, int, int]:
        facts = path.stat()
        return path.read_text(encoding="utf-8"), stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_gid

    io_file.replace(str(path), "new")
    assert found() == ("new", 0o644, 0, 0)
    os.chown(path, 12345, 54321)
    assert differs(str(path), "new"), "the owner"
    path.chmod(0o640)
    io_file.replace(str(path), "newer")
    assert found() == ("newer", 0o640, 12345, 54321)
    install(str(path), "newest")
    assert found() == ("newest", 0o644, 0, 0) and not differs(str(path), "newest")
    path.chmod(0o600)
    assert differs(str(path), "newest"), "the mode"
    os.chown(tmp_path, 12345, 54321)
    path.chmod(0o666)
    io_file.own(str(tmp_path))
    assert found() == ("newest", 0o644, 0, 0) and tmp_path.stat().st_uid == 12345
    io_file.install_folder(str(tmp_path))
    assert io_file.owned(str(tmp_path)) == (stat.S_IFDIR | 0o755, 0, 0)
    for remove in (io_file.replace, install):
        remove(str(path), None)
        assert not path.exists() and not differs(str(path), None) and io_file.owned(str(path)) is None
        path.symlink_to("none")
        assert differs(str(path), None), "a link to nothing"
    remove(str(path), None)


def test_a_failed_new_folder_or_part_leaves_the_old_one(tmp_path: Path) -> None:
    folder, part = tmp_path / "folder", tmp_path / "folder.new"
    for path in (folder, part):
        path.mkdir()
        (path / "old").touch()
    with pytest.raises(KeyError), io_file.new_folder(str(folder), str(part)) as found:
        assert (found, os.listdir(found)) == (str(part), []), "that of a killed run"  # noqa: PTH208
        raise KeyError
    assert sorted(names(tmp_path)) == ["folder"] and names(folder) == ["old"]
    with io_file.new_folder(str(folder), str(part)):
        (part / "new").touch()
    assert names(tmp_path) == ["folder"] and names(folder) == ["new"]
    file = tmp_path / "file"
    with io_file.part(str(file)) as temporary:
        Path(temporary).write_text("new", encoding="utf-8")
    (tmp_path / "file.part").symlink_to(file)
    with pytest.raises(KeyError), io_file.part(str(file)) as temporary:
        assert not os.path.lexists(temporary)
        Path(temporary).write_text("half", encoding="utf-8")
        raise KeyError
    assert (file.read_text(encoding="utf-8"), sorted(names(tmp_path))) == ("new", ["file", "folder"])


def test_the_free_bytes_are_those_that_a_user_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the free blocks is for root."""
    asked: list[str] = []
    status = SimpleNamespace(f_bavail=3, f_bfree=5, f_frsize=4096, f_bsize=1)
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or status)
    assert io_file.free_bytes(str(tmp_path / "a/b")) == io_file.free_bytes(str(tmp_path)) == 3 * 4096
    assert asked == [str(tmp_path)] * 2


def test_a_lock_is_tried_again_for_two_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = SimpleNamespace(now=5.0), list[float]()
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: pauses.append(seconds) or setattr(clock, "now", clock.now + 60)
    monkeypatch.setattr(io_file, "time", clock)
    held = io_file.lock(str(tmp_path))
    assert not os.get_inheritable(held) and pauses == []
    with pytest.raises(TimeoutError, match=" for 120 s; "):
        io_file.lock(str(tmp_path))
    assert pauses == [0.1] * 3
    os.close(held)

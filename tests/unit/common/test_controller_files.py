"""Files that a role writes on the controller."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from decisions import decide
from repository import files, read


def write(path: Path, text: str, check: bool = False, **inputs: Any) -> dict[str, Any]:
    """Return the step's result for one file."""
    return decide("controller_files", {"files": {str(path): text}, **inputs}, {}, check=check)[0]


def mode(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_with_its_folders_and_once(tmp_path: Path) -> None:
    path = tmp_path / "a/b/result.json"
    first = write(path, "{}\n")
    assert (first["changed"], path.read_text(), mode(path), mode(path.parent)) == (True, "{}\n", 0o644, 0o755)
    assert [(each["before"], each["after"]) for each in first["diff"]] == [("", "{}\n")]
    assert write(path, "{}\n") == {"changed": False, "diff": []}


@pytest.mark.parametrize("before", [None, "old\n"])
def test_check_mode_reports_the_difference_and_writes_nothing(before: str | None, tmp_path: Path) -> None:
    path = tmp_path / "folder/result"
    if before:
        path.parent.mkdir()
        path.write_text(before)
    found = write(path, "new\n", check=True)
    assert (found["changed"], found["diff"][0]["before"]) == (True, before or "")
    assert (path.read_text() if path.exists() else None) == before


def test_a_private_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a/b/client.key"
    write(path, "secret\n", private=True)
    assert [mode(each) for each in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]
    path.chmod(0o644)
    assert write(path, "secret\n", private=True)["changed"] and mode(path) == 0o600


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = write(tmp_path / "file/inside", "x")
    assert found["failed"] and str(tmp_path / "file") in found["msg"]


@pytest.mark.parametrize(
    "path", [path for path in files("roles/*/tasks/*.yml") if "name: controller_files" in read(path)]
)
def test_a_role_ends_a_file_with_a_line_break(path: str) -> None:
    """Ansible keeps a backslash in a text of a template, so an escaped one would be in the file."""
    assert r"~ '\\n'" not in read(path)


def test_a_link_in_a_files_place_is_replaced(tmp_path: Path) -> None:
    path, target = tmp_path / "client.key", tmp_path / "target"
    path.symlink_to(target)
    write(path, "secret\n", private=True)
    assert not path.is_symlink() and path.read_text() == "secret\n" and not target.exists()

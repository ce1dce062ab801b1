# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module root_files and its action: several small files in one call, atomically, with programs of the
collection."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from packed import packed
from repository import read
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common.program import content, pack, sources
from ansible_collections.gb10.cluster.plugins.plugin_utils import program


def install(*files: dict[str, Any], folders: Sequence[Path] = (), check: bool = False) -> dict[str, Any]:
    return run_module("root_files", {"files": list(files), "directories": [str(path) for path in folders]}, check=check)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_are_written_once_with_their_folders(tmp_path: Path) -> None:
    one, two = tmp_path / "a/b/one", tmp_path / "two"
    files = [{"path": str(one), "content": "1\n"}, {"path": str(two), "content": "2\n"}]
    before = os.umask(0o077)
    try:
        planned = install(*files, folders=[one.parent], check=True)
        assert not one.exists() and not two.exists()
        first = install(*files, folders=[one.parent])
    finally:
        os.umask(before)
    assert planned["changed"] and first["changed"]
    assert planned["diff"] == first["diff"]
    assert first["changed_paths"] == [str(one.parent), str(one), str(two)]
    assert (one.read_text(encoding="utf-8"), two.read_text(encoding="utf-8")) == ("1\n", "2\n")
    assert [mode(path) for path in (one, one.parent, one.parent.parent, two)] == [0o644, 0o755, 0o755, 0o644]
    again = install(*files, folders=[one.parent])
    assert (again["changed"], again["diff"]) == (False, [])


def test_only_what_differs_is_changed(tmp_path: Path) -> None:
    same, other, closed, gone = (tmp_path / name for name in ("same", "other", "closed", "gone"))
    for path in (same, other, closed, gone):
        path.write_text("old\n", encoding="utf-8")
        path.chmod(0o600 if path == closed else 0o644)
    result = install(
        {"path": str(same), "content": "old\n"},
        {"path": str(other), "content": "new\n"},
        {"path": str(closed), "content": "old\n"},
        {"path": str(gone), "state": "absent"},
        {"path": str(tmp_path / "never"), "state": "absent"},
    )
    assert result["changed_paths"] == [str(other), str(closed), str(gone)]
    assert result["diff"][0] == {
        "before_header": str(other),
        "after_header": str(other),
        "before": "old\n",
        "after": "new\n",
    }
    assert mode(closed) == 0o644
    assert not gone.exists()


@pytest.mark.parametrize("content", ["other\n", "same\n"])
def test_a_link_is_replaced_and_not_followed(tmp_path: Path, content: str) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("same\n", encoding="utf-8")
    target.chmod(0o644)
    link.symlink_to(target)
    result = install({"path": str(link), "content": content})
    assert result["changed"] and (content == "same\n" or "same" not in str(result["diff"]))
    assert not link.is_symlink() and target.read_text(encoding="utf-8") == "same\n"
    assert not install({"path": str(link), "content": content})["changed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")
def test_the_owner_of_a_planted_file_or_folder_loses_it(tmp_path: Path) -> None:
    file, folder = tmp_path / "planted/file", tmp_path / "planted"
    folder.mkdir()
    file.write_text("same\n", encoding="utf-8")
    file.chmod(0o644)
    folder.chmod(0o755)
    for path in (file, folder):
        os.chown(path, 65534, 65534)
    given = {"path": str(file), "content": "same\n"}
    assert install(given, folders=[folder], check=True)["changed_paths"] == [str(folder), str(file)]
    assert install(given, folders=[folder])["changed"]
    assert [(path.stat().st_uid, path.stat().st_gid) for path in (file, folder)] == [(0, 0), (0, 0)]
    assert not install(given, folders=[folder])["changed"]


def test_a_folder_that_others_may_write_to_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert install({"path": str(folder / "file"), "content": "x"}, folders=[folder])["changed_paths"][0] == str(folder)
    assert mode(folder) == 0o755


def test_a_link_in_a_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert install({"path": str(tmp_path / "link/file"), "content": "x"}, folders=[tmp_path / "link"])["failed"]
    assert not (tmp_path / "elsewhere/file").exists()


@pytest.mark.parametrize("entry", [{}, {"content": "x", "program": "launch/io_ray.py"}], ids=["neither", "both"])
def test_an_entry_has_one_source(tmp_path: Path, entry: dict[str, str]) -> None:
    assert install({"path": str(tmp_path / "x"), **entry})["failed"]


def packed_file(path: Path, name: str = "gates") -> dict[str, str]:
    return {"path": str(path), "packed": base64.b64encode(packed(name)).decode()}


def test_a_packed_program_is_installed_once_and_its_difference_shows_the_changed_sources(tmp_path: Path) -> None:
    path, given = tmp_path / "gb10-gates", packed_file(tmp_path / "gb10-gates")
    planned = install(given, check=True)
    assert planned["changed"] and not path.exists()
    assert len(planned["diff"]) == len(sources(packed("gates"))) > 10
    first = install(given)
    assert (first["diff"], first["changed_paths"], path.read_bytes(), mode(path)) == (
        planned["diff"],
        [str(path)],
        packed("gates"),
        0o644,
    )
    assert not install(given)["changed"]
    path.write_bytes(pack("a/start", {"a/start.py": b"import sys\n"}.get))
    new = pack("a/start", {"a/start.py": b"import os\n"}.get)
    result = install({"path": str(path), "packed": base64.b64encode(new).decode()}, check=True)
    name = f"{path}/ansible_collections/gb10/cluster/plugins/module_utils/a/start.py"
    assert result["diff"] == [
        {"before_header": name, "after_header": name, "before": "import sys\n", "after": "import os\n"}
    ]


def test_no_file_replaces_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "gb10-gates"
    path.mkdir()
    for entry in ({"path": str(path), "content": "x"}, packed_file(path)):
        assert "Is a directory" in install(entry)["msg"] and path.is_dir()


def test_a_program_is_one_of_the_collection_and_packed_without_a_suffix() -> None:
    absent = {"path": "/y", "state": "absent"}
    given = [{"path": f"/{name}", "program": f"launch/{name}"} for name in ("io_ray.py", "io_gates")]
    text = read("plugins/module_utils/launch/io_ray.py")
    plain, packed_one, other = program.with_contents([*given, absent])
    assert (plain, other) == ({"path": "/io_ray.py", "content": text}, absent)
    assert packed_one == packed_file(Path("/io_gates")) and content(packed_one) == packed("gates")


@pytest.mark.parametrize(
    "path",
    ["../modules/root_files.py", "../modules/root_files", "launch", "launch/none.py", "launch/none", "/etc/passwd", ""],
)
def test_another_program_is_refused(path: str) -> None:
    with pytest.raises(AnsibleActionFail, match="is not a file of this collection"):
        program.with_contents([{"path": "/x", "program": path}])

"""The difference of root's files, and their change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_root_files, program

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")


def packed(text: str) -> bytes:
    files = {"a/io_start.py": text, "a/__init__.py": ""}
    return program.pack("a/io_start", lambda path: files[path].encode() if path in files else None)


def test_what_differs_is_shown_and_then_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old text\n", encoding="utf-8")
    (tmp_path / "secret").write_text("planted\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "program").write_bytes(packed("def main(): return 1\n"))
    wanted = io_root_files.wanted(
        [
            {"path": f"{tmp_path}/new", "content": "new\n", "state": "present"},
            {"path": f"{tmp_path}/old", "content": "", "state": "absent"},
            {"path": f"{tmp_path}/none", "content": "", "state": "absent"},
            {"path": f"{tmp_path}/link", "content": "text\n", "state": "present"},
        ]
    )
    wanted |= {
        f"{tmp_path}/program": packed("def main(): return 2\n"),
        f"{tmp_path}/first": packed("def main(): ...\n"),
    }
    change = io_root_files.change([f"{tmp_path}/folder"], wanted)
    assert change.due
    names = ["folder", "new", "old", "link", "program", "first"]
    assert [Path(path).name for path in change.paths] == names
    shown = [
        (each["after_header"].removeprefix(f"{tmp_path}/").rpartition("/")[2], each["before"], each["after"])
        for each in change.difference()
    ]
    assert shown[:5] == [
        ("folder", "", "folder, mode 0755\n"),
        ("new", "", "new\n"),
        ("old", "old text\n", ""),
        # The target of a link may be a secret.
        ("link", "", "text\n"),
        # Of a packed program, its changed sources.
        ("io_start.py", "def main(): return 1\n", "def main(): return 2\n"),
    ]
    assert ("io_start.py", "", "def main(): ...\n") in shown[5:] and not any(
        before for _name, before, _after in shown[5:]
    )
    change.install()
    assert not io_root_files.change([f"{tmp_path}/folder"], wanted).due
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "planted\n"

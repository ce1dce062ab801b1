"""The program with which the lab's test compares a host with a fresh one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import host_state
import pytest


def test_every_difference_of_a_file_is_found(tmp_path: Path) -> None:
    for name in ("same", "content", "mode", "gone", "folder/type"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to("/nonexistent")
    (tmp_path / "loop").symlink_to(".")
    before = dict(host_state.files([str(tmp_path), "/nonexistent"]))
    assert host_state.differences(before, dict(host_state.files([str(tmp_path)]))) == {}
    (tmp_path / "content").write_text("y", encoding="utf-8")
    (tmp_path / "mode").chmod(0o600)
    (tmp_path / "gone").unlink()
    (tmp_path / "folder/type").unlink()
    (tmp_path / "folder/type").mkdir()
    (tmp_path / "new").touch()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/nowhere")
    found = host_state.differences(before, dict(host_state.files([str(tmp_path)])))
    assert sorted(found) == [str(tmp_path / name) for name in ("content", "folder/type", "gone", "link", "mode", "new")]
    assert (found[str(tmp_path / "new")][0], found[str(tmp_path / "gone")][1]) == (None, None)


@pytest.mark.parametrize(
    ("left_out", "paths"),
    [
        (True, "/var/log/journal/x /etc/passwd- /home/nvidia/.ansible /usr/lib/python3/x/__pycache__/y.pyc"),
        (True, "/var/lib/systemd/timers/z"),
        (False, "/etc/passwd /etc/gb10 /var/lib/gb10 /var/lib/systemd/linger/gb10 /home/nvidia/.bashrc"),
        (False, "/opt/gb10/runtime /var/logs"),
    ],
)
def test_logs_and_caches_are_left_out_and_files_of_the_collection_count(left_out: bool, paths: str) -> None:
    assert {bool(host_state._SKIP.fullmatch(path)) for path in paths.split()} == {left_out}


def test_units_of_logins_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {
        "list-unit-files": "gb10-ray.service enabled enabled\nuser@.service static -\n",
        "list-units": "gb10-ray.service loaded active running Ray\nsession-3.scope loaded active running Session\n",
    }
    monkeypatch.setattr(subprocess, "run", lambda argv, **_options: SimpleNamespace(stdout=shown[argv[1]]))
    assert host_state.units("list-unit-files") == {"gb10-ray.service": "enabled"}
    assert host_state.units("list-units") == {"gb10-ray.service": "active"}

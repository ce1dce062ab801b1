"""Old environments are removed, but not one in use, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_environments


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An environment."""
    folder = tmp_path / "runtime/0123456789ab"
    folder.mkdir(parents=True)
    (folder / ".complete").write_text("mark", encoding="utf-8")
    (folder / "program.py").write_text("import sys; print(flush=True); sys.stdin.read()", encoding="utf-8")
    return folder


def test_an_unused_environment_is_removed_once(old: Path) -> None:
    assert io_environments.unused([str(old)]) == [str(old)]
    io_environments.remove([str(old)])
    assert not old.exists() and old.parent.is_dir()
    assert io_environments.unused([str(old)]) == []


def test_a_half_removed_environment_is_removed(old: Path) -> None:
    (old / ".complete").unlink()
    io_environments.remove(io_environments.unused([str(old)]))
    assert not old.exists()


def test_the_environment_of_the_link_stays(old: Path) -> None:
    (old.parent / "current").symlink_to(old)
    assert io_environments.unused([str(old)]) == []


def test_the_environment_of_a_process_stays(old: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(old / "program.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline()
        assert io_environments.unused([str(old)]) == []
    assert io_environments.unused([str(old)]) == [str(old)]


@pytest.mark.parametrize(
    "name", ["runtime/current", "runtime/0123456789abc", "models/0123456789ab", "runtime/../0123456789ab"]
)
def test_other_folders_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / name).mkdir(parents=True)
    assert io_environments.unused([str(tmp_path / name)]) == []
    (tmp_path / "target").mkdir()
    (tmp_path / "runtime/0123456789ab").symlink_to(tmp_path / "target")
    assert io_environments.unused([f"{tmp_path}/runtime/0123456789ab"]) == []

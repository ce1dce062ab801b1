"""The commit of a checkout, with a real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_git
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError


def run(argv: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def git(folder: Path, *words: str) -> str:
    status, stdout, reported = run(["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", *words])
    assert status == 0, reported
    return stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    git(tmp_path, "init", "--quiet")
    for name in ("a", "b"):
        (tmp_path / name).write_text("one\n", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def problem(folder: Path) -> str:
    with pytest.raises(ProblemsError) as raised:
        io_git.commit(run, str(folder), "remove it")
    (found,) = raised.value.problems
    return str(found)


def test_the_commit_of_a_checkout(source: Path) -> None:
    head = git(source, "rev-parse", "HEAD")
    assert io_git.commit(run, str(source), "") == head
    (source / "untracked").touch()
    assert io_git.commit(run, str(source), "") == head
    (source / "a").write_text("changed\n", encoding="utf-8")
    assert "has uncommitted changes" in problem(source)
    git(source, "checkout", "--quiet", ".")
    git(source, "rm", "--quiet", "b")
    assert "has uncommitted changes" in problem(source)


def test_what_is_no_checkout(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        found = problem(folder)
        assert found.startswith(f"source: git failed in {folder}: ")
        assert found.endswith("Fix: remove it.")


def test_another_commit_than_the_wanted_one() -> None:
    assert io_git.moved("commit", "/s", "a" * 40, "") == io_git.moved("commit", "/s", "a" * 40, "a" * 40) == []
    (found,) = io_git.moved("commit", "/s", "a" * 40, "b" * 40)
    assert (found.path, found.expected, "a" * 40 in found.found) == ("commit", "b" * 40, True)

"""The source of a build with a real git, the unit of systemd, and the wheel in its user's folder."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from built_wheels import WHEEL, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store

GB10 = ComputeCapability(12, 1)
NAME = "0.33.0-0123456789ab"
CMAKE = 'project(vllm_extensions LANGUAGES CXX)\nset(CUDA_SUPPORTED_ARCHS "9.0;12.0")\n'
PROJECT = 'requires = ["torch == 2.14.0"]\n'
PATCH = """\
diff --git a/csrc/x.cu b/csrc/x.cu
index 5626abf..814f4a4 100644
--- a/csrc/x.cu
+++ b/csrc/x.cu
@@ -1 +1 @@
-one
+two
diff --git a/csrc/new.cu b/csrc/new.cu
new file mode 100644
index 0000000..3e75765
--- /dev/null
+++ b/csrc/new.cu
@@ -0,0 +1 @@
+new
"""


def run(argv: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a checkout of vLLM in miniature."""
    folder = tmp_path / "source"
    (folder / "csrc").mkdir(parents=True)
    (folder / ".git").mkdir()
    files = {
        "CMakeLists.txt": (CMAKE, 0o644),
        "pyproject.toml": (PROJECT, 0o644),
        "csrc/x.cu": ("one\n", 0o600),
        "tool.sh": ("#!/bin/sh\n", 0o700),
    }
    for name, (text, mode) in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(mode)
    (folder / "link").symlink_to("/etc/hostname")
    return folder


def patch(folder: Path, text: str = PATCH, name: str = "two.patch") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def prepare(source: Path, *patches: str) -> Path:
    """Return the patched tree."""
    store = source.parent / "store"
    store.mkdir(exist_ok=True)
    assert io_build.prepare(run, str(store), str(source), patches, [GB10]) == (PROJECT, CMAKE)
    return store / "tree"


def problem(call: Callable[[], Any]) -> str:
    with pytest.raises(ProblemsError) as raised:
        call()
    (found,) = raised.value.problems
    return str(found)


# --- the source ---


def test_only_the_source_of_vllm_is_built(source: Path) -> None:
    (source / "CMakeLists.txt").write_text("project(other)\n", encoding="utf-8")
    for folder in (source, source / "nonexistent"):
        assert f"source: {folder} has no CMakeLists.txt of vLLM" in problem(lambda folder=folder: prepare(folder))


def test_the_patched_source_can_be_read_by_the_builds_user(source: Path, tmp_path: Path) -> None:
    # A store below a repository: without a limit of its search, git apply takes that repository's index, omits all
    # files, and reports success.
    run(["git", "-C", str(tmp_path), "init"])
    later = PATCH.partition("diff --git a/csrc/new.cu")[0].replace("-one", "-two").replace("+two", "+three")
    for _again in range(2):
        tree = prepare(source, patch(tmp_path), patch(tmp_path, later, "three.patch"))
    texts = {name: (tree / name).read_text() for name in ("csrc/x.cu", "csrc/new.cu", "CMakeLists.txt")}
    listed = CMAKE.replace("12.0", "12.0;12.1")
    assert texts == {"csrc/x.cu": "three\n", "csrc/new.cu": "new\n", "CMakeLists.txt": listed}
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in tree.rglob("*") if not path.is_symlink()}
    readable = dict.fromkeys(("CMakeLists.txt", "pyproject.toml", "x.cu", "new.cu"), 0o644)
    assert modes == {**readable, "csrc": 0o755, "tool.sh": 0o755}
    assert (str((tree / "link").readlink()), stat.S_IMODE(tree.stat().st_mode)) == ("/etc/hostname", 0o755)
    assert (source / "csrc/x.cu").read_text() == "one\n"


@pytest.mark.parametrize(
    "text",
    [
        PATCH.replace("-one", "-another"),
        "no patch\n",
        "",
        PATCH.replace("csrc/x.cu", "absent.cu"),
        PATCH.replace("csrc/new.cu", "../new.cu"),
        PATCH.replace("csrc/new.cu", "/tmp/new.cu"),
        PATCH.replace("csrc/new.cu", "csrc/x.cu/new.cu"),
        PATCH.replace("csrc/new.cu", "outside/new.cu"),
    ],
    ids=["other content", "text", "empty", "other file", "above", "absolute", "below a file", "through a link"],
)
def test_a_patch_that_does_not_apply_is_refused(source: Path, tmp_path: Path, text: str) -> None:
    (source / "outside").symlink_to(tmp_path)
    found = problem(lambda: prepare(source, patch(tmp_path), patch(tmp_path, text, "bad.patch")))
    assert found.startswith("vllm_build_patches[1]: bad.patch does not apply: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.patch", "source", "store", "two.patch"]
    assert list((tmp_path / "store").iterdir()) == []


# --- the host and the unit ---


def answers(argv: list[str]) -> tuple[int, str, str]:
    return 0, "active" if argv[-1] == "gb10-vllm.service" else "13.3.0\n" if argv[0] == "g++" else "inactive", ""


def test_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is that of systemd's folder for dynamic users, as soon as it exists."""
    asked = mock.Mock(return_value=shutil.disk_usage("/"))
    monkeypatch.setattr(io_build.shutil, "disk_usage", asked)
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "gb10-vllm-build"))
    (tmp_path / "private").mkdir()
    found = io_build.host(answers, ["gb10-ray.service", "gb10-vllm.service"])
    assert asked.mock_calls == [mock.call(f"{tmp_path}/private")]
    assert (found.serving, found.compiler, found.memory > 0) == (("gb10-vllm.service",), "13.3.0", True)
    assert {"git"} <= found.programs <= {"g++", "git", "ccache"}


# --- the folder of the build's user ---


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create systemd's folder for the unit, and return it."""
    (tmp_path / "state/dist").mkdir(parents=True)
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def add(state: Path, run_: Any = answers) -> dict[str, Any]:
    return io_build.add(run_, f"{state.parent}/store", {"name": NAME}, [GB10])


def test_the_unit_has_ended_before_its_wheel_is_read(state: Path) -> None:
    """A process of it could change the wheel meanwhile."""
    write_wheel(state / "dist" / WHEEL, "121a")
    (state / "dist" / ".gitignore").touch()

    def ended(_argv: list[str]) -> tuple[int, str, str]:
        assert not (state.parent / "store").exists()
        return 0, "", ""

    systemd = mock.Mock(side_effect=ended)
    assert add(state, systemd)["wheel"] == WHEEL
    assert systemd.call_args_list[0] == mock.call(["systemctl", "stop", "gb10-vllm-build.service"])


@pytest.mark.parametrize("kind", ["link", "folder", "link of the folder", "pipe"])
def test_a_wheel_that_is_no_file_of_the_builds_user(state: Path, tmp_path: Path, kind: str) -> None:
    """Root must not copy a file that the build's user cannot read, nor wait."""
    secret = write_wheel(tmp_path / WHEEL, "121a")
    wheel = state / "dist" / WHEEL
    if kind == "link":
        wheel.symlink_to(secret)
    elif kind == "folder":
        wheel.mkdir()
    elif kind == "pipe":
        os.mkfifo(wheel)
    else:
        (state / "dist").rmdir()
        (state / "dist").symlink_to(tmp_path)
    with pytest.raises(OutsideError):
        add(state)
    assert io_store.stamps(f"{tmp_path}/store") == []


@pytest.mark.parametrize("names", [(), (WHEEL, f"vllm-1{WHEEL}"), ("vllm-a b.whl", "uv-1.whl")], ids=len)
def test_one_wheel_of_vllm_counts(state: Path, names: tuple[str, ...]) -> None:
    for name in names:
        write_wheel(state / "dist" / name, "121a")
    assert "wheels of vLLM in" in problem(lambda: add(state))

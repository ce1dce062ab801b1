"""The source of a build with a real git, the unit of systemd, the status in its user's folder, and the finished
wheel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from built_wheels import WHEEL, packed_wheel, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.progress import Progress
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Status

GB10 = ComputeCapability(12, 1)
NAME = "0.33.0-0123456789ab"
CMAKE = 'project(vllm_extensions LANGUAGES CXX)\nset(CUDA_SUPPORTED_ARCHS "9.0;12.0")\n'
PATCH = """\
From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001
From: n <e>
Subject: [PATCH] Say two

---
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


def git(folder: Path, *arguments: str) -> str:
    return run(["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", *arguments])[1]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a checkout of vLLM in miniature."""
    folder = tmp_path / "source"
    (folder / "csrc").mkdir(parents=True)
    files = {
        "CMakeLists.txt": (CMAKE, 0o644),
        "pyproject.toml": ('requires = ["torch == 2.14.0"]\n', 0o644),
        "csrc/x.cu": ("one\n", 0o600),
        "tool.sh": ("#!/bin/sh\n", 0o700),
    }
    for name, (text, mode) in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(mode)
    (folder / "link").symlink_to("/etc/hostname")
    for command in (["init"], ["add", "."], ["commit", "-m", "all"]):
        git(folder, *command)
    return folder


def patch(folder: Path, text: str = PATCH, name: str = "two.patch") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def prepare(source: Path, *patches: str, name: str = NAME, gpus: tuple[ComputeCapability, ...] = (GB10,)) -> Path:
    store = source.parent / "store"
    store.mkdir(exist_ok=True)
    return Path(io_build.prepare(run, str(store), name, str(source), patches, gpus))


def problem(call: Callable[[], Any]) -> str:
    with pytest.raises(ProblemsError) as raised:
        call()
    (found,) = raised.value.problems
    return str(found)


# --- the source ---


def test_the_requirements_of_vllm_only(source: Path) -> None:
    assert io_build.requirements(run, str(source), []) == ('requires = ["torch == 2.14.0"]\n', CMAKE)
    (source / "CMakeLists.txt").write_text("project(other)\n", encoding="utf-8")
    message = "source: {} has no CMakeLists.txt of vLLM. Expected: the source of vLLM. Fix: correct vllm_build_source."
    for folder in (str(source), "/nonexistent"):
        assert problem(lambda folder=folder: io_build.requirements(run, folder, [])) == message.format(folder)


def test_patches_change_the_requirements(source: Path, tmp_path: Path) -> None:
    """Of each patch only the files with requirements count. The last one does not apply, so it changes nothing."""
    header = "--- a/{0}\n+++ b/{0}\n"
    torch = (
        header.format("pyproject.toml")
        + '@@ -1 +1 @@\n-requires = ["torch == 2.14.0"]\n+requires = ["torch == 2.15.0"]\n'
    )
    first, second = CMAKE.splitlines()
    gpus = header.format("CMakeLists.txt") + f"@@ -1,2 +1,2 @@\n-{first}\n+project(vllm_extensions)\n {second}\n"
    texts = (PATCH + torch, PATCH, gpus, torch)
    patches = [patch(tmp_path, text, f"{number}.patch") for number, text in enumerate(texts)]
    expected = ('requires = ["torch == 2.15.0"]\n', CMAKE.replace(" LANGUAGES CXX", ""))
    assert io_build.requirements(run, str(source), patches) == expected
    assert git(source, "status", "--porcelain") == ""


def test_the_patched_source_can_be_read_by_the_builds_user(source: Path, tmp_path: Path) -> None:
    os.utime(source / "tool.sh", (1000, 1000))
    os.utime(source / "CMakeLists.txt", (1000, 1000))
    # A store below a repository: without a limit of its search, git apply takes that repository's index, omits all
    # files, and reports success.
    git(tmp_path, "init")
    tree = prepare(source, patch(tmp_path))
    texts = {name: (tree / name).read_text() for name in ("csrc/x.cu", "csrc/new.cu", "CMakeLists.txt")}
    assert texts == {
        "csrc/x.cu": "two\n",
        "csrc/new.cu": "new\n",
        "CMakeLists.txt": CMAKE.replace("12.0", "12.0;12.1"),
    }
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in tree.rglob("*") if not path.is_symlink()}
    readable = dict.fromkeys(("CMakeLists.txt", "pyproject.toml", "x.cu", "new.cu"), 0o644)
    assert modes == {**readable, "csrc": 0o755, "tool.sh": 0o755}
    assert (str((tree / "link").readlink()), stat.S_IMODE(tree.stat().st_mode)) == ("/etc/hostname", 0o755)
    # Times decide what ninja compiles again.
    assert (tree / "tool.sh").stat().st_mtime == 1000 < (tree / "CMakeLists.txt").stat().st_mtime
    assert (prepare(source, name="other", gpus=()) / "CMakeLists.txt").stat().st_mtime == 1000
    assert git(source, "status", "--porcelain") == ""


def test_patches_are_applied_in_their_order(source: Path, tmp_path: Path) -> None:
    later = PATCH.partition("diff --git a/csrc/new.cu")[0].replace("-one", "-two").replace("+two", "+three")
    patches = [patch(tmp_path), patch(tmp_path, later, "three.patch")]
    assert (prepare(source, *patches) / "csrc" / "x.cu").read_text() == "three\n"
    found = problem(lambda: prepare(source, *reversed(patches), name="other"))
    assert found.startswith("vllm_build_patches[0]: three.patch does not apply: error: patch failed: csrc/x.cu:1")
    assert "renew the patch for this commit" in found


def test_the_source_of_the_same_build_is_kept(source: Path, tmp_path: Path) -> None:
    for left in ("tree", ".tree.part"):
        (tmp_path / "store").mkdir(exist_ok=True)
        (tmp_path / "store" / left).write_text("a file in the place of a folder", encoding="utf-8")
    (tmp_path / "store" / "tree.name").write_text(NAME, encoding="utf-8")
    tree = prepare(source)
    (tree / "mark").touch()
    assert (prepare(source) / "mark").exists()
    assert not (prepare(source, patch(tmp_path), name="other") / "mark").exists()
    assert (tmp_path / "store" / "tree.name").read_text() == "other"


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
def test_a_patch_that_does_not_apply_leaves_no_source(source: Path, tmp_path: Path, text: str) -> None:
    (source / "outside").symlink_to(tmp_path)
    good = prepare(source)
    found = problem(lambda: prepare(source, patch(tmp_path), patch(tmp_path, text, "bad.patch"), name="other"))
    assert found.startswith("vllm_build_patches[1]: bad.patch does not apply: ")
    assert (good.exists(), (tmp_path / "store" / "tree.name").exists()) == (False, False), "the source of another build"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.patch", "source", "store", "two.patch"]
    # The next run has the corrected patches.
    assert (prepare(source, patch(tmp_path), name="other") / "csrc" / "new.cu").exists()


@pytest.mark.parametrize(
    ("place", "gpus"),
    [
        ("_readable", (GB10,)),
        ("os.rename", (GB10,)),
        ("io_file.write_file", (GB10,)),
        # That of the mark.
        ("io_file.write_file", ()),
    ],
)
def test_an_interrupted_preparation_is_repeated(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, gpus: tuple[ComputeCapability, ...]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(f"{io_build.__name__}.{place}", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(source, patch(tmp_path), gpus=gpus)
    assert not (tmp_path / "store" / "tree.name").exists()
    tree = prepare(source, patch(tmp_path), gpus=gpus)
    assert {path.name for path in tree.iterdir()} == {"csrc", "link", "CMakeLists.txt", "pyproject.toml", "tool.sh"}
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["tree", "tree.name"]


# --- the host and the unit ---


class Systemd:
    """Answers the commands of a host."""

    def __init__(self, started: int = 0, **unit: str) -> None:
        self.unit = {"ActiveState": "inactive", "Result": "success", "Description": io_build.UNIT, **unit}
        self.started = started
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[:2] == ["systemctl", "show"]:
            lines = [f"{key}={value}" for key, value in self.unit.items()]
            return 0, "\n".join([*lines, "a line", ""]), ""
        if argv[:2] == ["systemctl", "is-active"]:
            return (0, "active\n", "") if argv[2] == "gb10-vllm.service" else (3, "inactive\n", "")
        return self.started, "13.3.0\n", "Failed to start transient unit.\n"


def test_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is that of systemd's folder for dynamic users, as soon as it exists."""
    asked = mock.Mock(return_value=shutil.disk_usage("/"))
    monkeypatch.setattr(io_build.shutil, "disk_usage", asked)
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "lib" / "gb10-vllm-build"))
    for folder in ("lib", "lib/private"):
        (tmp_path / folder).mkdir()
        found = io_build.host(Systemd(), ["gb10-ray.service", "gb10-vllm.service"])
    assert asked.mock_calls == [mock.call(f"{tmp_path}/lib"), mock.call(f"{tmp_path}/lib/private")]
    assert (found.cores, found.disk) == (len(os.sched_getaffinity(0)), asked.return_value.free)
    assert (found.serving, found.compiler, found.gcc) == (("gb10-vllm.service",), "13.3.0", 13)
    assert found.memory > 0
    assert {"git"} <= found.programs <= {"g++", "git", "ccache"}


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ({}, False),
        ({"ActiveState": "failed", "Description": "Build of vLLM other"}, False),
        *(
            ({"ActiveState": active, "Description": f"Build of vLLM {NAME}"}, True)
            for active in ("active", "activating", "deactivating")
        ),
    ],
)
def test_a_running_build_continues(unit: dict[str, str], expected: bool) -> None:
    assert io_build.running(Systemd(**unit), NAME) is expected


@pytest.mark.parametrize("description", ["Build of vLLM 0.32.0-x", f"{NAME} of vLLM", ""])
def test_another_build_is_not_disturbed(description: str) -> None:
    found = problem(lambda: io_build.running(Systemd(ActiveState="active", Description=description), NAME))
    assert "systemctl stop gb10-vllm-build.service" in found
    assert f"no other build than {NAME}" in found


def test_a_start_keeps_the_log_of_the_last_one(tmp_path: Path) -> None:
    log, systemd = tmp_path / "build.log", Systemd()
    for text in ("first\n", "second\n"):
        io_build.start(systemd, ["systemd-run", "x"], str(log))
        log.write_text(text, encoding="utf-8")
    assert systemd.calls == [["systemctl", "reset-failed", "gb10-vllm-build.service"], ["systemd-run", "x"]] * 2
    assert (tmp_path / "build.log.1").read_text(encoding="utf-8") == "first\n"
    found = problem(lambda: io_build.start(Systemd(started=1), ["systemd-run"], str(log)))
    assert "systemd-run failed: Failed to start transient unit" in found


# --- the folder of the build's user ---


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create systemd's folder for the unit, and return it."""
    folder = tmp_path / "state"
    (folder / "dist").mkdir(parents=True)
    monkeypatch.setattr(io_build, "STATE", str(folder))
    return folder


def finish(folder: Path, /, **changes: Any) -> None:
    content = {
        "name": NAME,
        "state": "finished",
        "seconds": 12.5,
        "wheel": WHEEL,
        "ccache": {"cache_miss": 3},
        **changes,
    }
    (folder / "status.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_status(state: Path) -> None:
    assert io_build.status() == Status()
    finish(state)
    assert io_build.status() == Status(NAME, "finished", 12.5, WHEEL, {"cache_miss": 3}, {})


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"\xff\xfe", b"[" * 50_000, b" " * (1 << 16) + b"{}", b'{"name": "x"' + b" " * (1 << 17) + b"}"],
)
def test_a_status_that_is_not_json(state: Path, content: bytes) -> None:
    (state / "status.json").write_bytes(content)
    assert io_build.status() == Status()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_status_that_is_no_file(state: Path, kind: str) -> None:
    """The build's user could make root read other files, or wait."""
    finish(state)
    if kind == "link":
        (state / "status.json").rename(state.parent / "secret.json")
        (state / "status.json").symlink_to(state.parent / "secret.json")
    else:
        (state / "status.json").unlink()
        (os.mkfifo if kind == "pipe" else os.mkdir)(state / "status.json")
    assert io_build.status() == Status()


def test_progress_comes_from_unit_log_and_status(state: Path, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    begin = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) - 200

    def progress(name: str = NAME, **unit: str) -> Progress:
        return io_build.read(Systemd(ExecMainStartTimestampMonotonic=str(int(begin * 1e6)), **unit), str(log), name)

    assert progress().state == "none"
    log.write_bytes(b"[1/500] \xff Building\n" + b"x" * 100_000 + b"\n[400/500] Building\n")
    assert progress(ActiveState="active") == Progress("running", "[400/500], 3 min, about 50 s left")
    finish(state)
    assert (progress().state, progress("other").state) == ("finished", "none")
    assert "memory limit" in progress("other", ActiveState="failed", Result="oom-kill").reason
    assert io_build.read(Systemd(ActiveState="active"), str(log), NAME).line == "[400/500], 0 s, about 0 s left"


def add(state: Path, *gpus: ComputeCapability) -> dict[str, Any]:
    return io_build.add(str(state.parent / "store"), NAME, gpus, {"version": "0.33.0", "jobs": 7})


def stored(state: Path) -> list[str]:
    folder = state.parent / "store" / "wheels"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_finished_wheel_is_added(state: Path, tmp_path: Path) -> None:
    write_wheel(state / "dist" / WHEEL, "121a", "90a")
    content = packed_wheel(tmp_path / WHEEL, "121a", "90a").read_bytes()
    finish(state)
    stamp = add(state, GB10)
    assert stored(state) == [f"{NAME}/stamp.json", f"{NAME}/{WHEEL}"]
    assert io_store.stamps(str(state.parent / "store")) == [stamp]
    assert (state.parent / "store" / "wheels" / NAME / WHEEL).read_bytes() == content
    assert stamp == {
        "version": "0.33.0",
        "jobs": 7,
        "name": NAME,
        "wheel": WHEEL,
        "seconds": 12.5,
        "ccache": {"cache_miss": 3},
        "dependencies": {},
        "extensions": {"vllm/_C": {"sm_90a": 1, "sm_121a": 1}, "vllm/cumem_allocator": {}},
        "coverage": ["12.1: own code in 1 of 1 extensions"],
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def test_a_wheel_without_gpu_code_is_added_for_no_gpu(state: Path) -> None:
    write_wheel(state / "dist" / WHEEL)
    finish(state)
    assert add(state)["coverage"] == []


@pytest.mark.parametrize(
    ("architectures", "changes", "found"),
    [
        (("90a",), {}, "Expected: code for 12.1"),
        (("120a",), {}, "Expected: code for 12.1"),
        ((), {}, "Expected: code for 12.1"),
        (("121a",), {"state": "failed"}, "the build has left no wheel"),
        (("121a",), {"state": "building"}, "the build has left no wheel"),
        (("121a",), {"name": "other"}, "the build has left no wheel"),
        (("121a",), {"wheel": ""}, "the build has left no wheel"),
        (("121a",), {"wheel": f"../{WHEEL}"}, "the build has left no wheel"),
        (("121a",), {"wheel": 3}, "the build has left no wheel"),
    ],
    ids=str,
)
def test_only_the_finished_wheel_of_this_build_with_code_for_the_gpu_counts(
    state: Path, architectures: tuple[str, ...], changes: dict[str, Any], found: str
) -> None:
    for folder in (state / "dist", state):
        write_wheel(folder / WHEEL, *architectures)
    finish(state, **changes)
    assert found in problem(lambda: add(state, GB10))
    assert stored(state) == []


@pytest.mark.parametrize("kind", ["link", "folder", "link of the folder"])
def test_a_wheel_that_is_no_file_of_the_builds_user(state: Path, tmp_path: Path, kind: str) -> None:
    """Root must not copy a file that the build's user cannot read."""
    secret = write_wheel(tmp_path / WHEEL, "121a")
    finish(state)
    if kind == "link":
        (state / "dist" / WHEEL).symlink_to(secret)
    elif kind == "folder":
        (state / "dist" / WHEEL).mkdir()
    else:
        (state / "dist").rmdir()
        (state / "dist").symlink_to(tmp_path)
    assert f"wheel: dist/{WHEEL} " in problem(lambda: add(state, GB10))
    assert stored(state) == []


def test_a_missing_or_damaged_wheel_leaves_nothing(state: Path) -> None:
    finish(state)
    with pytest.raises(FileNotFoundError):
        add(state, GB10)
    (state / "dist" / WHEEL).write_bytes(b"no zip")
    assert "a complete wheel" in problem(lambda: add(state, GB10))
    assert stored(state) == []

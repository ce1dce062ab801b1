"""The source of a build with a real git, the unit of systemd, the status in its user's folder, and the finished
wheel."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from built_wheels import WHEEL, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store
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
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a checkout of vLLM in miniature."""
    folder = tmp_path / "source"
    (folder / "csrc").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (folder / "pyproject.toml").write_text('requires = ["torch == 2.14.0"]\n', encoding="utf-8")
    (folder / "csrc" / "x.cu").write_text("one\n", encoding="utf-8")
    (folder / "tool.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "tool.sh").chmod(0o700)
    (folder / "csrc" / "x.cu").chmod(0o600)
    (folder / "link").symlink_to("/etc/hostname")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder


def patch(folder: Path, text: str = PATCH, name: str = "two.patch") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def change(name: str, old: str, new: str, below: str = "") -> str:
    """Return a patch of a file's first line, above the line ``below``."""
    count = 2 if below else 1
    return f"--- a/{name}\n+++ b/{name}\n@@ -1,{count} +1,{count} @@\n-{old}\n+{new}\n" + (
        f" {below}\n" if below else ""
    )


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
    assert f"{source} has no CMakeLists.txt of vLLM" in problem(lambda: io_build.requirements(run, str(source), []))
    assert "correct vllm_build_source" in problem(lambda: io_build.requirements(run, "/nonexistent", []))


def test_patches_change_the_requirements(source: Path, tmp_path: Path) -> None:
    """Of each patch only the files with requirements count. The last one does not apply, so it changes nothing."""
    torch = PATCH + change("pyproject.toml", 'requires = ["torch == 2.14.0"]', 'requires = ["torch == 2.15.0"]')
    gpus = change("CMakeLists.txt", *CMAKE.splitlines()[:1], "project(vllm_extensions)", below=CMAKE.splitlines()[1])
    patches = [patch(tmp_path, text, f"{number}.patch") for number, text in enumerate((torch, PATCH, gpus, torch))]
    assert io_build.requirements(run, str(source), patches) == (
        'requires = ["torch == 2.15.0"]\n',
        CMAKE.replace(" LANGUAGES CXX", ""),
    )
    assert git(source, "status", "--porcelain") == ""


def test_the_patched_source(source: Path, tmp_path: Path) -> None:
    tree = prepare(source, patch(tmp_path))
    assert tree == tmp_path / "store" / "tree"
    assert ((tree / "csrc" / "x.cu").read_text(), (tree / "csrc" / "new.cu").read_text()) == ("two\n", "new\n")
    assert (tree / "CMakeLists.txt").read_text() == CMAKE.replace("12.0", "12.0;12.1")
    assert not (tree / ".git").exists()
    assert (git(source, "status", "--porcelain"), (tmp_path / "store" / "tree.name").read_text()) == ("", NAME)


def test_the_builds_user_can_read_it(source: Path) -> None:
    tree = prepare(source)
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in tree.rglob("*") if not path.is_symlink()}
    assert modes == {"CMakeLists.txt": 0o644, "pyproject.toml": 0o644, "csrc": 0o755, "x.cu": 0o644, "tool.sh": 0o755}
    assert str((tree / "link").readlink()) == "/etc/hostname"
    assert stat.S_IMODE(tree.stat().st_mode) == 0o755


def test_unchanged_files_keep_their_times(source: Path) -> None:
    os.utime(source / "csrc" / "x.cu", (1000, 1000))
    os.utime(source / "CMakeLists.txt", (1000, 1000))
    assert (prepare(source) / "csrc" / "x.cu").stat().st_mtime == 1000
    assert (prepare(source) / "CMakeLists.txt").stat().st_mtime > 1000
    assert (prepare(source, name="other", gpus=()) / "CMakeLists.txt").stat().st_mtime == 1000


def test_patches_are_applied_in_their_order(source: Path, tmp_path: Path) -> None:
    later = PATCH.partition("diff --git a/csrc/new.cu")[0].replace("-one", "-two").replace("+two", "+three")
    patches = [patch(tmp_path), patch(tmp_path, later, "three.patch")]
    assert (prepare(source, *patches) / "csrc" / "x.cu").read_text() == "three\n"
    found = problem(lambda: prepare(source, *reversed(patches), name="other"))
    assert found.startswith("vllm_build_patches[0]: three.patch does not apply: error: patch failed: csrc/x.cu:1")
    assert "renew the patch for this commit" in found


def test_the_source_of_the_same_build_is_kept(source: Path, tmp_path: Path) -> None:
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
    ],
    ids=["other content", "text", "empty", "other file", "above", "absolute", "below a file"],
)
def test_a_patch_that_does_not_apply_leaves_no_source(source: Path, tmp_path: Path, text: str) -> None:
    good = prepare(source)
    found = problem(lambda: prepare(source, patch(tmp_path), patch(tmp_path, text, "bad.patch"), name="other"))
    assert found.startswith("vllm_build_patches[1]: bad.patch does not apply: ")
    assert not good.exists(), "the source of another build"
    assert not (tmp_path / "store" / "tree.name").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.patch", "source", "store", "two.patch"]
    # The next run has the corrected patches.
    assert (prepare(source, patch(tmp_path), name="other") / "csrc" / "new.cu").exists()


def test_a_patch_does_not_follow_a_link_of_the_source(source: Path, tmp_path: Path) -> None:
    (source / "outside").symlink_to(tmp_path)
    text = PATCH.replace("csrc/new.cu", "outside/new.cu")
    assert "bad.patch does not apply" in problem(lambda: prepare(source, patch(tmp_path, text, "bad.patch")))
    assert not (tmp_path / "new.cu").exists()


def test_a_store_below_a_repository(source: Path, tmp_path: Path) -> None:
    """Without a limit of its search, git apply takes that repository's index, omits all files, and reports success."""
    git(tmp_path, "init", "--quiet")
    tree = prepare(source, patch(tmp_path))
    assert ((tree / "csrc" / "x.cu").read_text(), (tree / "csrc" / "new.cu").exists()) == ("two\n", True)


def test_an_interrupted_preparation_is_repeated(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(Exception):
        pass

    def killed(*_arguments: Any) -> None:
        raise KilledError

    expected = {"csrc", "link", "CMakeLists.txt", "pyproject.toml", "tool.sh"}
    # The last one is that of the mark.
    for place, gpus in (
        ("_readable", (GB10,)),
        ("os.rename", (GB10,)),
        ("io_file.write_file", (GB10,)),
        ("io_file.write_file", ()),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"{io_build.__name__}.{place}", killed)
            with pytest.raises(KilledError):
                prepare(source, patch(tmp_path), name=f"{place}{gpus}", gpus=gpus)
        assert not (tmp_path / "store" / "tree.name").exists()
        assert {
            path.name for path in prepare(source, patch(tmp_path), name=f"{place}{gpus}", gpus=gpus).iterdir()
        } == expected
        assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["tree", "tree.name"]


def test_a_file_in_the_place_of_the_source_is_replaced(source: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tree.name").write_text(NAME, encoding="utf-8")
    (tmp_path / "store" / "tree").write_text("file", encoding="utf-8")
    (tmp_path / "store" / ".tree.part").write_text("file", encoding="utf-8")
    assert prepare(source).is_dir()


# --- the host and the unit ---


class Systemd:
    """Answers the commands of a host."""

    def __init__(self, started: int = 0, **unit: str) -> None:
        self.unit, self.started = (
            {"ActiveState": "inactive", "Result": "success", "Description": io_build.UNIT, **unit},
            started,
        )
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[:2] == ["systemctl", "show"]:
            lines = [f"{key}={value}" for key, value in self.unit.items()]
            return 0, "\n".join([*lines, "ExecMainStartTimestampMonotonic=0", "a line", ""]), ""
        if argv[:2] == ["systemctl", "is-active"]:
            return (0, "active\n", "") if argv[2] == "gb10-vllm.service" else (3, "inactive\n", "")
        return self.started, "13.3.0\n", "Failed to start transient unit.\n" if self.started else ""


def test_the_host() -> None:
    found = io_build.host(Systemd(), ["gb10-ray.service", "gb10-vllm.service"])
    assert found.serving == ("gb10-vllm.service",)
    assert (found.cores, "git" in found.programs) == (len(os.sched_getaffinity(0)), True)
    assert found.memory > 0
    assert found.disk > 0
    assert found.programs <= {"g++", "git", "ccache"}
    assert (found.compiler, found.gcc) == ("13.3.0", 13)
    assert io_build.host(Systemd(), []).serving == ()


def test_the_disk_is_that_of_dynamic_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, usage = [], shutil.disk_usage("/")

    def disk_usage(path: str) -> Any:
        asked.append(path)
        return usage

    monkeypatch.setattr(io_build.shutil, "disk_usage", disk_usage)
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "lib" / "gb10-vllm-build"))
    for folder in ("lib", "lib/private"):
        (tmp_path / folder).mkdir()
        io_build.host(Systemd(), [])
    assert asked == [str(tmp_path / "lib"), str(tmp_path / "lib" / "private")]


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
    io_build.start(systemd, ["systemd-run", "x"], str(log))
    assert systemd.calls == [["systemctl", "reset-failed", "gb10-vllm-build.service"], ["systemd-run", "x"]]
    log.write_text("first\n", encoding="utf-8")
    io_build.start(systemd, ["systemd-run", "x"], str(log))
    assert [path.name for path in tmp_path.iterdir()] == ["build.log.1"]
    assert "systemd-run failed: Failed to start transient unit" in problem(
        lambda: io_build.start(Systemd(started=1), ["systemd-run"], str(log))
    )


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
        "dependencies": {},
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


def test_a_status_that_is_no_file(state: Path, tmp_path: Path) -> None:
    """The build's user could make root read other files, or wait."""
    secret, status = tmp_path / "secret.json", state / "status.json"
    secret.write_text(json.dumps({"name": "secret"}), encoding="utf-8")
    status.symlink_to(secret)
    assert io_build.status() == Status()
    status.unlink()
    os.mkfifo(status)
    assert io_build.status() == Status()
    status.unlink()
    status.mkdir()
    assert io_build.status() == Status()


def test_progress_comes_from_unit_log_and_status(state: Path, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    assert io_build.read(Systemd(), str(log), NAME).state == "none"
    log.write_bytes(b"[1/500] \xff Building\n" + b"x" * 100_000 + b"\n[400/500] Building\n")
    running = io_build.read(Systemd(ActiveState="active", Description="x"), str(log), NAME)
    assert (running.state, running.step, running.steps, running.seconds) == ("running", 400, 500, 0.0)
    finish(state)
    assert (io_build.read(Systemd(), str(log), NAME).state, io_build.read(Systemd(), str(log), "other").state) == (
        "finished",
        "none",
    )
    assert "memory limit" in io_build.read(Systemd(ActiveState="failed", Result="oom-kill"), str(log), "other").reason


def test_the_seconds_of_a_running_unit(state: Path) -> None:
    begin = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) - 100

    def systemctl(_argv: list[str]) -> tuple[int, str, str]:
        return 0, f"ActiveState=active\nExecMainStartTimestampMonotonic={int(begin * 1e6)}\n", ""

    assert 100 <= io_build.read(systemctl, str(state / "x"), NAME).seconds < 160


def add(state: Path, *gpus: ComputeCapability) -> dict[str, Any]:
    return io_build.add(str(state.parent / "store"), NAME, gpus, {"version": "0.33.0", "jobs": 7})


def stored(state: Path) -> list[str]:
    folder = state.parent / "store" / "wheels"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_finished_wheel_is_added(state: Path) -> None:
    wheel = write_wheel(state / "dist" / WHEEL, "121a", "90a")
    finish(state)
    stamp = add(state, GB10)
    assert stored(state) == [f"{NAME}/stamp.json", f"{NAME}/{WHEEL}"]
    assert io_store.stamps(str(state.parent / "store")) == [stamp]
    assert (state.parent / "store" / "wheels" / NAME / WHEEL).read_bytes() == wheel.read_bytes()
    expected = {
        "version": "0.33.0",
        "jobs": 7,
        "name": NAME,
        "wheel": WHEEL,
        "seconds": 12.5,
        "ccache": {"cache_miss": 3},
        "dependencies": {},
    }
    assert expected.items() <= stamp.items()
    assert stamp["extensions"] == {"vllm/_C": {"sm_90a": 1, "sm_121a": 1}, "vllm/cumem_allocator": {}}
    assert stamp["coverage"] == ["12.1: own code in 1 of 1 extensions"]
    assert (
        stamp["sha256"]
        == subprocess.run(["sha256sum", wheel], capture_output=True, text=True, check=True).stdout.split()[0]
    )


def test_a_wheel_without_gpu_code_is_added_for_no_gpu(state: Path) -> None:
    write_wheel(state / "dist" / WHEEL)
    finish(state)
    assert add(state)["coverage"] == []


@pytest.mark.parametrize("architectures", [("90a",), ("120a",), ()], ids=str)
def test_a_wheel_without_code_for_the_gpu_is_refused(state: Path, architectures: tuple[str, ...]) -> None:
    write_wheel(state / "dist" / WHEEL, *architectures)
    finish(state)
    assert "Expected: code for 12.1" in problem(lambda: add(state, GB10))
    assert stored(state) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "failed"},
        {"state": "building"},
        {"name": "other"},
        {"wheel": ""},
        {"wheel": f"../{WHEEL}"},
        {"wheel": 3},
    ],
    ids=str,
)
def test_only_the_finished_wheel_of_this_build_counts(state: Path, changes: dict[str, Any]) -> None:
    write_wheel(state / "dist" / WHEEL, "121a")
    write_wheel(state / WHEEL, "121a")
    finish(state, **changes)
    assert "the build has left no wheel" in problem(lambda: add(state, GB10))
    assert stored(state) == []


def test_a_wheel_that_is_no_file_of_the_builds_user(state: Path, tmp_path: Path) -> None:
    """Root must not copy a file that the build's user cannot read."""
    secret = write_wheel(tmp_path / "secret.whl", "121a")
    finish(state)
    (state / "dist" / WHEEL).symlink_to(secret)
    assert f"wheel: dist/{WHEEL} " in problem(lambda: add(state, GB10))
    (state / "dist" / WHEEL).unlink()
    (state / "dist" / WHEEL).mkdir()
    assert f"wheel: dist/{WHEEL} " in problem(lambda: add(state, GB10))
    (state / "dist" / WHEEL).rmdir()
    (state / "dist").rmdir()
    (state / "dist").symlink_to(tmp_path)
    (tmp_path / "secret.whl").rename(tmp_path / WHEEL)
    assert f"wheel: dist/{WHEEL} " in problem(lambda: add(state, GB10))
    assert stored(state) == []


def test_a_missing_or_damaged_wheel_leaves_nothing(state: Path) -> None:
    finish(state)
    with pytest.raises(FileNotFoundError):
        add(state, GB10)
    (state / "dist" / WHEEL).write_bytes(b"no zip")
    assert "a complete wheel" in problem(lambda: add(state, GB10))
    assert stored(state) == []

"""The program of the build's unit, with a `uv` that records its use: copy, continuation, failure, statistics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from run_module import program

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse

PROGRAM = ROOT / "plugins" / "module_utils" / "vllm_build" / "io_run.py"
COMMIT = "73cf1122" + "0" * 32
#: Compiles once: a second run finds the object. $out and $work are the last words of the command.
UV = """\
echo "$@" >> {folder}/calls
echo "$MAX_JOBS $PWD" >> {folder}/variables
while [ $# -gt 1 ]; do [ "$1" = --out-dir ] && out=$2; shift; done
work=$1
cat $work/setup.py >> {folder}/built
test -e $work/object && echo reused >> {folder}/reused
echo x > $work/object
mkdir -p $work/.deps/cutlass-src/.git $work/.deps/other-src/.git
echo {commit} > $work/.deps/cutlass-src/.git/HEAD
echo ref: refs/heads/main > $work/.deps/other-src/.git/HEAD
test ! -e {folder}/fail || exit $(cat {folder}/fail)
test ! -e {folder}/kill || kill -9 $PPID
mkdir -p $out
for name in ${{WHEELS:-vllm-0.33.0.whl}}; do echo wheel > $out/$name; done
echo notes > $out/x.txt
"""
CCACHE = r"""
echo "$@" >> FOLDER/ccache-calls
printf "cache_miss\t4\ndirect_cache_hit\t38\nother\t9\npreprocessed_cache_hit\tx\nbad line\n"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a source, a state folder and the environment's uv."""
    for name in ("tree/csrc", "state", "tools"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tree" / "setup.py").write_text("one\n", encoding="utf-8")
    (tmp_path / "tree" / "csrc" / "x.cu").touch()
    (tmp_path / "tree" / "link").symlink_to("csrc/x.cu")
    os.utime(tmp_path / "tree" / "csrc" / "x.cu", (1000, 1000))
    program(tmp_path / "bin", "uv", UV.format(folder=tmp_path, commit=COMMIT))
    (tmp_path / "bin" / "python").touch()
    return tmp_path


def run(folder: Path, name: str = "a", **environment: str) -> int:
    """Run the program as its unit does, and return its exit status."""
    # Only these programs, so that a ccache of this host is not used.
    for tool in ("cat", "mkdir", "echo", "test", "sh", "kill", "printf"):
        if (found := shutil.which(tool)) and not (folder / "tools" / tool).exists():
            (folder / "tools" / tool).symlink_to(found)
    command = [sys.executable, "-I", str(PROGRAM), f"--name={name}", f"--source={folder}/tree"]
    command += [f"--state={folder}/state", f"--python={folder}/bin/python"]
    variables = {"PATH": f"{folder}/tools", "MAX_JOBS": "7", **environment}
    return subprocess.run(command, env=variables, cwd="/", check=False).returncode


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state" / "status.json").read_text(encoding="utf-8"))
    return found


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines() if (folder / name).exists() else []


def test_a_wheel_is_built_from_a_copy_that_keeps_times_and_links(folder: Path) -> None:
    program(folder / "tools", "ccache", CCACHE.replace("FOLDER", str(folder)))
    assert run(folder) == 0
    found = status(folder)
    assert vars(parse.status(json.dumps(found))) == found
    assert found.pop("seconds") >= 0
    assert found == {
        "name": "a",
        "state": "finished",
        "wheel": "vllm-0.33.0.whl",
        "ccache": {"cache_miss": 4, "direct_cache_hit": 38},
        "dependencies": {"cutlass": COMMIT},
    }
    assert (folder / "state" / "dist" / "vllm-0.33.0.whl").is_file()
    options = f"--no-build-isolation --python {folder}/bin/python --out-dir {folder}/state/dist work"
    assert lines(folder, "calls") == [f"build --wheel {options}"]
    assert lines(folder, "variables") == [f"7 {folder}/state"]
    assert lines(folder, "ccache-calls") == ["--zero-stats", "--print-stats"]
    work = folder / "state" / "work"
    assert ((work / "csrc" / "x.cu").stat().st_mtime, str((work / "link").readlink())) == (1000, "csrc/x.cu")
    assert not (folder / "tree" / "object").exists(), "the source belongs to root"


def test_a_second_run_continues_with_the_objects_and_another_build_has_its_own(folder: Path) -> None:
    assert run(folder) == 0
    assert status(folder)["ccache"] == {}
    (folder / "tree" / "setup.py").write_text("two\n", encoding="utf-8")
    assert run(folder) == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one", "one"], ["reused"])
    assert (status(folder)["state"], status(folder)["seconds"]) == ("finished", 0)
    for left in ("tmp", "ccache"):
        (folder / "state" / left / "left").touch()
    assert run(folder, "b") == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one", "one", "two"], ["reused"])
    found = {str(path.relative_to(folder / "state")) for path in folder.glob("state/*")}
    assert found == {"work", "home", "tmp", "ccache", "dist", "status.json"}
    assert [path.parent.name for path in folder.glob("state/*/left")] == ["ccache"]
    assert status(folder)["name"] == "b"


def test_an_incomplete_copy_is_made_again(folder: Path) -> None:
    (folder / "state" / "work").mkdir()
    (folder / "state" / "work" / "object").touch()
    assert run(folder) == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one"], [])


@pytest.mark.parametrize("code", [1, 137])
def test_a_failure_has_its_status(folder: Path, code: int) -> None:
    assert run(folder) == 0
    (folder / "fail").write_text(str(code), encoding="utf-8")
    assert run(folder) == code
    found = status(folder)
    assert (found["state"], found["wheel"], found["dependencies"]) == ("failed", "", {"cutlass": COMMIT})
    assert not (folder / "state" / "dist").exists(), "the wheel of an earlier build"


def test_a_killed_program_has_said_that_it_builds(folder: Path) -> None:
    (folder / "kill").touch()
    assert run(folder) == -9
    assert (status(folder)["name"], status(folder)["state"], status(folder)["wheel"]) == ("a", "building", "")
    (folder / "kill").unlink()
    assert (run(folder), lines(folder, "reused")) == (0, ["reused"])


@pytest.mark.parametrize("wheels", ["a.whl b.whl", "a.tar.gz"])
def test_one_wheel_is_expected(folder: Path, wheels: str) -> None:
    assert run(folder, WHEELS=wheels) == 1
    assert (status(folder)["state"], status(folder)["wheel"]) == ("failed", "")


def test_without_uv_the_unit_fails(folder: Path) -> None:
    (folder / "bin" / "uv").unlink()
    assert run(folder) == 1
    assert status(folder)["state"] == "building"


def test_it_needs_only_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", str(PROGRAM), "--help"]
    assert subprocess.run(command, capture_output=True, check=False, env={}).returncode == 0

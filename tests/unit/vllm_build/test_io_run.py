"""The program of the build's unit, with a `uv` that records its use: copy, continuation, failure, statistics."""

from __future__ import annotations

import json
import os
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
    (tmp_path / "tree" / "csrc").mkdir(parents=True)
    (tmp_path / "tree" / "setup.py").write_text("one\n", encoding="utf-8")
    (tmp_path / "tree" / "csrc" / "x.cu").touch()
    (tmp_path / "tree" / "link").symlink_to("csrc/x.cu")
    os.utime(tmp_path / "tree" / "csrc" / "x.cu", (1000, 1000))
    (tmp_path / "state").mkdir()
    program(tmp_path / "bin", "uv", UV.format(folder=tmp_path, commit=COMMIT))
    (tmp_path / "bin" / "python").touch()
    return tmp_path


def run(folder: Path, name: str = "a", ccache: bool = False, **environment: str) -> int:
    """Run the program as its unit does, and return its exit status."""
    # Only these programs, so that a ccache of this host is not used.
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("cat", "mkdir", "echo", "test", "sh", "kill", "printf"):
        for place in ("/bin", "/usr/bin"):
            if Path(place, tool).exists() and not (tools / tool).exists():
                (tools / tool).symlink_to(f"{place}/{tool}")
    if ccache:
        program(tools, "ccache", CCACHE.replace("FOLDER", str(folder)))
    paths = {"source": folder / "tree", "state": folder / "state", "python": folder / "bin" / "python"}
    command = [
        sys.executable,
        "-I",
        str(PROGRAM),
        f"--name={name}",
        *(f"--{option}={path}" for option, path in paths.items()),
    ]
    return subprocess.run(
        command, env={"PATH": str(tools), "MAX_JOBS": "7", **environment}, cwd="/", check=False
    ).returncode


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state" / "status.json").read_text(encoding="utf-8"))
    return found


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines() if (folder / name).exists() else []


def test_a_wheel_is_built(folder: Path) -> None:
    assert run(folder) == 0
    found = status(folder)
    assert found.pop("seconds") >= 0
    assert found == {
        "name": "a",
        "state": "finished",
        "wheel": "vllm-0.33.0.whl",
        "ccache": {},
        "dependencies": {"cutlass": COMMIT},
    }
    assert (folder / "state" / "dist" / "vllm-0.33.0.whl").is_file()
    options = f"--no-build-isolation --python {folder}/bin/python --out-dir {folder}/state/dist work"
    assert lines(folder, "calls") == [f"build --wheel {options}"]
    assert lines(folder, "variables") == [f"7 {folder}/state"]
    assert not (folder / "state" / ".status").exists()


def test_the_status_is_what_the_parser_reads(folder: Path) -> None:
    assert run(folder, ccache=True) == 0
    text = (folder / "state" / "status.json").read_text(encoding="utf-8")
    assert vars(parse.status(text)) == json.loads(text)


def test_the_copy_keeps_times_and_links(folder: Path) -> None:
    assert run(folder) == 0
    work = folder / "state" / "work"
    assert (work / "csrc" / "x.cu").stat().st_mtime == 1000
    assert str((work / "link").readlink()) == "csrc/x.cu"
    assert not (folder / "tree" / "object").exists(), "the source belongs to root"


def test_a_second_run_continues_with_the_objects(folder: Path) -> None:
    assert run(folder) == 0
    (folder / "tree" / "setup.py").write_text("two\n", encoding="utf-8")
    assert run(folder) == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one", "one"], ["reused"])
    assert status(folder)["state"] == "finished"


def test_an_incomplete_copy_is_made_again(folder: Path) -> None:
    (folder / "state" / "work").mkdir()
    (folder / "state" / "work" / "object").touch()
    assert run(folder) == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one"], [])


def test_another_build_has_its_own_objects_and_the_old_ones_go(folder: Path) -> None:
    assert run(folder) == 0
    (folder / "state" / "tmp" / "left").touch()
    (folder / "tree" / "setup.py").write_text("two\n", encoding="utf-8")
    assert run(folder, "b") == 0
    assert (lines(folder, "built"), lines(folder, "reused")) == (["one", "two"], [])
    names = {path.name for path in (folder / "state").iterdir()}
    assert names == {"work", "home", "tmp", "ccache", "dist", "status.json"}
    assert list((folder / "state" / "tmp").iterdir()) == []
    assert status(folder)["name"] == "b"


def test_the_compiler_cache_stays(folder: Path) -> None:
    assert run(folder) == 0
    (folder / "state" / "ccache" / "object").touch()
    assert run(folder, "b") == 0
    assert (folder / "state" / "ccache" / "object").exists()


@pytest.mark.parametrize("code", [1, 2, 137])
def test_a_failure_has_its_status(folder: Path, code: int) -> None:
    assert run(folder) == 0
    (folder / "fail").write_text(str(code), encoding="utf-8")
    assert run(folder) == code
    found = status(folder)
    assert (found["state"], found["wheel"], found["dependencies"]) == ("failed", "", {"cutlass": COMMIT})
    assert not (folder / "state" / "dist").exists(), "the wheel of an earlier build"
    (folder / "fail").unlink()
    assert run(folder) == 0
    assert status(folder)["state"] == "finished"
    assert lines(folder, "reused") == ["reused", "reused"]


@pytest.mark.parametrize("wheels", ["a.whl b.whl", "a.tar.gz"])
def test_one_wheel_is_expected(folder: Path, wheels: str) -> None:
    assert run(folder, WHEELS=wheels) == 1
    assert (status(folder)["state"], status(folder)["wheel"]) == ("failed", "")


def test_a_killed_program_has_said_that_it_builds(folder: Path) -> None:
    assert run(folder) == 0
    (folder / "kill").touch()
    assert run(folder) == -9
    assert (status(folder)["name"], status(folder)["state"], status(folder)["wheel"]) == ("a", "building", "")
    (folder / "kill").unlink()
    assert run(folder) == 0
    assert lines(folder, "built") == ["one"] * 3


def test_the_statistics_of_the_compiler_cache(folder: Path) -> None:
    assert run(folder, ccache=True) == 0
    assert status(folder)["ccache"] == {"cache_miss": 4, "direct_cache_hit": 38}
    assert lines(folder, "ccache-calls") == ["--zero-stats", "--print-stats"]


def test_without_uv_the_unit_fails(folder: Path) -> None:
    (folder / "bin" / "uv").unlink()
    assert run(folder) == 1
    assert status(folder)["state"] == "building"


def test_it_needs_only_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), "--help"], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, "--state" in done.stdout) == (0, True)

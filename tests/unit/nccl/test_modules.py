"""nccl_build, nccl_install and nccl_select as on a node: a make that copies a library, a store, and an environment."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import install
from gpu_libraries import libnccl
from run_module import program, run_module

MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
VERSION = "NCCL_MAJOR := 2\nNCCL_MINOR := 30\nNCCL_PATCH := 7\nPKG_REVISION := 1\n"
#: Records each run, and copies a library from the same folder.
MAKEFILE = """\
src.lib:
\techo "$(NVCC_GENCODE) $(ONLY_FUNCS)" >> made
\ttest ! -e wait || sleep 60
\ttest ! -e fail || (echo "nvcc fatal: no space left on device" && exit 1)
\tmkdir -p $(BUILDDIR)/lib
\tcp libnccl $(BUILDDIR)/lib/libnccl.so.2.30.7
\tln -sf libnccl.so.2.30.7 $(BUILDDIR)/lib/libnccl.so.2
"""
NVCC = (
    "[ \"$1\" = --version ] && echo 'Cuda compilation tools, release 13.0, V13.0.88' || printf "
    "'sm_90\\nsm_110\\nsm_121\\n'"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a source tree whose build copies a library."""
    folder = tmp_path / "source"
    (folder / "makefiles").mkdir(parents=True)
    (folder / "makefiles" / "version.mk").write_text(VERSION, encoding="utf-8")
    (folder / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    (folder / "libnccl").write_bytes(libnccl("121", machine=MACHINE))
    (tmp_path / "cuda").mkdir()
    program(tmp_path / "cuda" / "bin", "nvcc", NVCC)
    # The plan requires a compiler, and this Makefile uses none.
    program(tmp_path / "tools", "g++", "exit 1")
    return folder


def build(tree: Path, check: bool = False, **changes: Any) -> dict[str, Any]:
    """Run nccl_build; None leaves an argument out."""
    arguments = {
        "store": str(tree.parent / "store"),
        "source": str(tree),
        "identity": "sha256 e672",
        "capabilities": ["12.1"],
        "cuda_home": str(tree.parent / "cuda"),
        **changes,
    }
    return run_module(
        "nccl_build",
        {name: value for name, value in arguments.items() if value is not None},
        tree.parent / "tools",
        check,
    )


def made(source: Path) -> list[str]:
    """Return the arguments of each run of make."""
    return (source / "made").read_text(encoding="utf-8").splitlines() if (source / "made").exists() else []


def store(source: Path) -> list[str]:
    return names(f"{source.parent}/store")


def test_built_once(source: Path) -> None:
    assert build(source, check=True)["changed"] is True
    assert (store(source), made(source)) == ([], [])
    first = build(source)
    assert (first["changed"], store(source)) == (True, [first["name"]])
    folder = source.parent / "store" / first["name"]
    stamp = json.loads((folder / "stamp.json").read_text(encoding="utf-8"))
    assert {**first["stamp"], "name": first["name"], "sha256": first["sha256"]}.items() <= stamp.items()
    assert first["sha256"] == hashlib.sha256((source / "libnccl").read_bytes()).hexdigest()
    library = (folder / "lib" / "libnccl.so").resolve()
    assert library.name == "libnccl.so.2.30.7"
    again = build(source)
    assert (again["changed"], again["name"]) == (False, first["name"])
    assert made(source) == ["-gencode=arch=compute_121,code=sm_121 "]
    library.write_bytes(library.read_bytes()[:-1])
    assert [build(source)["changed"] for _run in range(2)] == [True, False], "a library that was changed"


def test_another_build_is_beside_the_first_and_a_failed_one_is_taken_up(source: Path) -> None:
    first = build(source)["name"]
    (source / "fail").touch()
    message = build(source, functions="SendRecv")["msg"]
    assert [word in message for word in ("make failed with status 2", "no space left on device")] == [True, True]
    (source / "fail").unlink()
    second = build(source, functions="SendRecv")
    assert (second["changed"], made(source)[-1].endswith(" SendRecv")) == (True, True)
    assert store(source) == sorted([first, second["name"]])


def test_a_library_for_another_gpu_is_not_kept(source: Path) -> None:
    (source / "libnccl").write_bytes(libnccl("90", machine=MACHINE))
    assert "not all programs have code for sm_121" in build(source)["msg"]
    assert store(source) == []


def test_a_build_that_was_killed_leaves_nothing_that_counts(source: Path) -> None:
    folder = source.parent / "store" / f".build-{build(source, check=True)['name']}"
    for left in (folder, folder.with_name(".build-old")):
        (left / "lib").mkdir(parents=True)
        (left / "lib" / "libnccl.so.2").touch()
    assert build(source)["changed"] is True
    assert [name for name in store(source) if name.startswith(".")] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"capabilities": ["12.1a"]}, "capabilities[0]: '12.1a' is not a compute capability"),
        ({"capabilities": ["12.0"]}, "nvcc 13.0.88 in "),
        ({"cuda_home": "/nonexistent"}, "cuda_home: /nonexistent/bin/nvcc not found"),
        ({"source": "/nonexistent"}, "source: /nonexistent/makefiles/version.mk not found"),
        ({"identity": None}, "source: git failed in "),
        ({"functions": "; rm"}, "functions"),
        # Before there is a source.
        ({"source": None, "capabilities": [], "functions": ";"}, "2 problems found"),
    ],
)
def test_bad_input(source: Path, changes: dict[str, Any], said: str) -> None:
    assert said in build(source, **changes)["msg"]
    assert build(source, source=None)["changed"] is False
    assert (store(source), made(source)) == ([], [])


def test_a_commit_is_asked_of_git(source: Path) -> None:
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "--quiet"], ["add", "Makefile", "makefiles"], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert build(source, identity=None, commit=commit)["stamp"]["source"] == f"commit {commit}"
    moved = build(source, identity=None, commit="0" * 40)["msg"]
    assert f"commit: {source} is commit {commit}. Expected: {'0' * 40}" in moved
    (source / "Makefile").write_text(f"{MAKEFILE}# changed\n", encoding="utf-8")
    assert "has uncommitted changes" in build(source, identity=None)["msg"]


# --- another host ---


@pytest.fixture
def sent(source: Path) -> dict[str, Any]:
    """Return the arguments of nccl_install on another host that received a build."""
    return packed(source)


def packed(source: Path, name: str = "nccl.tar", **changes: Any) -> dict[str, Any]:
    """Build and pack, and return the arguments of nccl_install."""
    answer = build(source, pack=f"{source.parent}/sent/{name}", **changes)
    return {
        "store": str(source.parent / "other"),
        "name": answer["name"],
        "sha256": answer["sha256"],
        "capabilities": ["12.1"],
        "artifact": f"{source.parent}/sent/{name}",
        "artifact_sha256": answer["packed_sha256"],
    }


def installed(sent: dict[str, Any], check: bool = False, **changes: Any) -> dict[str, Any]:
    given = {name: value for name, value in {**sent, **changes}.items() if value is not None}
    return run_module("nccl_install", given, None, check)


WITHOUT = {"artifact": None, "artifact_sha256": None}


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).is_dir() else []


def used(folder: str) -> str:
    return str(Path(folder, "current").readlink())


def test_packed_twice_is_the_same(source: Path, sent: dict[str, Any]) -> None:
    stamp = source.parent / "store" / sent["name"] / "stamp.json"
    os.utime(stamp, (1, 1))
    stamp.chmod(0o600)
    assert packed(source, "again.tar")["artifact_sha256"] == sent["artifact_sha256"]
    with tarfile.open(sent["artifact"]) as archive:
        assert {(entry.uid, entry.gid, entry.mtime, entry.uname, entry.gname) for entry in archive} == {
            (0, 0, 0, "", "")
        }


def test_installed_once_and_used(sent: dict[str, Any]) -> None:
    asked = installed(sent, **WITHOUT)
    assert (asked["missing"], asked["changed"], installed(sent, check=True)["changed"]) == (True, False, True)
    assert names(sent["store"]) == []
    first = installed(sent)
    assert (first["changed"], names(sent["store"])) == (True, [sent["name"], "current"])
    assert used(sent["store"]) == sent["name"]
    assert hashlib.sha256(Path(first["library"]).read_bytes()).hexdigest() == sent["sha256"]
    assert Path(first["library"]).stat().st_mode & 0o777 == 0o755
    for again in (installed(sent), installed(sent, **WITHOUT)):
        assert (again["changed"], again["missing"]) == (False, False)


def test_a_corrupted_file_is_refused_and_what_was_used_stays(source: Path, sent: dict[str, Any]) -> None:
    installed(sent)
    wanted = packed(source, functions="SendRecv")
    content = bytearray(Path(sent["artifact"]).read_bytes())
    content[len(content) // 2] ^= 1
    Path(sent["artifact"]).write_bytes(content)
    message = installed(wanted)["msg"]
    assert ("artifact: " in message, f"Expected: {wanted['artifact_sha256']}" in message) == (True, True)
    # The library's own hash detects a broken library in a valid archive.
    assert installed(wanted, artifact_sha256=hashlib.sha256(content).hexdigest(), sha256="0" * 64)["failed"]
    assert (names(sent["store"]), used(sent["store"])) == ([sent["name"], "current"], sent["name"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"capabilities": ["9.0"]}, "not all programs have code for sm_90"),
        *(
            (changes, "Expected: a build of nccl_build")
            for changes in (
                {"name": "../../../var/lib/gb10/evil"},
                {"name": "a/b"},
                {"name": ".x"},
                {"sha256": "x"},
                {"artifact_sha256": "http://a/b"},
            )
        ),
    ],
    ids=str,
)
def test_another_gpu_and_a_path_from_the_head_are_refused(
    sent: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    assert said in installed(sent, **changes)["msg"]
    assert names(sent["store"]) == []


def test_back_to_an_older_build_and_the_oldest_are_forgotten(source: Path, sent: dict[str, Any]) -> None:
    builds = [sent, *(packed(source, f"{number}.tar", identity=f"sha256 {number}") for number in range(3))]
    assert [installed(wanted)["removed"] for wanted in builds[:3]] == [[], [], []]
    assert installed(builds[1], keep=3, **WITHOUT)["changed"] is True
    assert used(sent["store"]) == builds[1]["name"]
    assert installed(builds[3])["removed"]
    # The newest build and the one used until now stay.
    assert {builds[3]["name"], builds[1]["name"]} < set(names(sent["store"]))
    assert len(names(sent["store"])) == 4


# --- the environment that vLLM is installed in ---


SITE = "lib/python3.12/site-packages"


def selected(folder: Path, wheel: bool = True, check: bool = False, **changes: Any) -> dict[str, Any]:
    """Run nccl_select in an environment with vLLM, with or without NVIDIA's wheel."""
    library = folder / SITE / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    if not (folder / SITE).exists():
        install(folder / SITE / "vllm")
        program(folder / "bin", "python", f"touch {folder}/ran")
        if wheel:
            library.parent.mkdir(parents=True)
            library.write_bytes(libnccl("120", version="2.28.9"))
    given = {"python": f"{folder}/bin/python", "library": LINKED, **changes}
    answer = run_module("nccl_select", {name: value for name, value in given.items() if value}, None, check)
    assert not (folder / "ran").exists(), "root must not run an interpreter to find a folder"
    return answer


LINKED = "/opt/gb10/nccl/x/lib/libnccl.so.2"


def test_a_link_in_the_wheels_place_and_back(tmp_path: Path) -> None:
    library = tmp_path / SITE / "nvidia/nccl/lib/libnccl.so.2"
    assert (selected(tmp_path, check=True)["changed"], library.is_symlink()) == (True, False)
    before, inode = library.read_bytes(), library.stat().st_ino
    made_link = selected(tmp_path)
    assert (made_link["changed"], made_link["method"], made_link["environment"]) == (True, "link", {})
    assert (made_link["replaced"], str(library.readlink())) == (str(library), LINKED)
    assert selected(tmp_path)["changed"] is False
    other = selected(tmp_path, library="/other/libnccl.so.2")
    assert (other["changed"], str(library.readlink())) == (True, "/other/libnccl.so.2")
    preload = selected(tmp_path, method="preload")
    assert (preload["changed"], preload["environment"], library.is_symlink()) == (True, {"LD_PRELOAD": LINKED}, False)
    selected(tmp_path)
    back = selected(tmp_path, library=None, state="absent")
    assert (back["changed"], back["method"], library.read_bytes(), library.stat().st_ino) == (True, "", before, inode)
    assert [path.name for path in library.parent.iterdir()] == ["libnccl.so.2"]
    assert selected(tmp_path, library=None, state="absent")["changed"] is False


def test_without_a_wheel_a_variable_does_it(tmp_path: Path) -> None:
    answer = selected(tmp_path, wheel=False)
    found = {name: answer[name] for name in ("changed", "method", "replaced", "environment")}
    assert found == {"changed": False, "method": "preload", "replaced": "", "environment": {"LD_PRELOAD": LINKED}}
    assert "NVIDIA's wheel of NCCL in the environment" in selected(tmp_path, method="link")["msg"]

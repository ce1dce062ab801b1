"""nccl_build, nccl_install and nccl_select as on a node: a make that copies a library, a store, and an environment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import install
from gpu_libraries import libnccl
from repository import ROOT
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
    program(tmp_path / "cuda", "nvcc", "")
    (tmp_path / "cuda" / "bin").mkdir()
    program(tmp_path / "cuda" / "bin", "nvcc", NVCC)
    return folder


def given(tree: Path, **changes: Any) -> dict[str, Any]:
    arguments = {
        "store": str(tree.parent / "store"),
        "source": str(tree),
        "identity": "sha256 e672",
        "capabilities": ["12.1"],
        "cuda_home": str(tree.parent / "cuda"),
    }
    return {key: value for key, value in {**arguments, **changes}.items() if value is not None}


def build(tree: Path, check: bool = False, **changes: Any) -> dict[str, Any]:
    answer = run_module("nccl_build", given(tree, **changes), check=check)
    assert not answer.get("failed"), answer
    return answer


def made(source: Path) -> list[str]:
    """Return the arguments of each run of make."""
    return (source / "made").read_text(encoding="utf-8").splitlines() if (source / "made").exists() else []


def store(source: Path) -> list[str]:
    return (
        sorted(path.name for path in (source.parent / "store").iterdir()) if (source.parent / "store").exists() else []
    )


def test_built_once(source: Path) -> None:
    assert build(source, check=True)["changed"] is True
    assert (store(source), made(source)) == ([], [])
    first = build(source)
    assert (first["changed"], store(source)) == (True, [first["name"]])
    folder = source.parent / "store" / first["name"]
    stamp = json.loads((folder / "stamp.json").read_text(encoding="utf-8"))
    assert {**first["stamp"], "name": first["name"], "sha256": first["sha256"]}.items() <= stamp.items()
    assert first["sha256"] == hashlib.sha256((source / "libnccl").read_bytes()).hexdigest()
    assert (folder / "lib" / "libnccl.so").resolve().name == "libnccl.so.2.30.7"
    again = build(source)
    assert (again["changed"], again["name"]) == (False, first["name"])
    assert made(source) == ["-gencode=arch=compute_121,code=sm_121 "]


def test_what_decides_about_the_result_decides_about_a_build(source: Path) -> None:
    names = {
        build(source, **changes)["name"] for changes in ({}, {"identity": "sha256 other"}, {"functions": "SendRecv"})
    }
    assert (len(names), sorted(names)) == (3, store(source))
    assert made(source)[-1].endswith(" SendRecv")


def test_a_library_that_was_changed_is_built_again(source: Path) -> None:
    name = build(source)["name"]
    library = source.parent / "store" / name / "lib" / "libnccl.so.2.30.7"
    library.write_bytes(library.read_bytes()[:-1])
    assert build(source)["changed"] is True
    assert build(source)["changed"] is False


def test_a_library_for_another_gpu_is_not_kept(source: Path) -> None:
    (source / "libnccl").write_bytes(libnccl("90", machine=MACHINE))
    answer = run_module("nccl_build", given(source))
    assert "not all programs have code for sm_121" in answer["msg"]
    assert store(source) == []


def test_a_build_that_fails_says_why_and_is_taken_up(source: Path) -> None:
    build(source)
    (source / "fail").touch()
    answer = run_module("nccl_build", given(source, functions="SendRecv"))
    assert "make failed with status 2" in answer["msg"]
    assert "no space left on device" in answer["msg"]
    (source / "fail").unlink()
    assert build(source, functions="SendRecv")["changed"] is True
    assert len(store(source)) == 2


def test_a_build_that_was_killed_leaves_nothing_that_counts(source: Path) -> None:
    (source / "wait").touch()
    module = ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules/nccl_build.py"
    environment = {"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath}
    with subprocess.Popen(
        [sys.executable, module], stdin=subprocess.PIPE, env=environment, start_new_session=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": given(source)}).encode())
        process.stdin.close()
        deadline = time.monotonic() + 30
        while not made(source) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert [name for name in store(source) if not name.startswith(".")] == []
    (source / "wait").unlink()
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
    ],
)
def test_bad_input(source: Path, changes: dict[str, Any], said: str) -> None:
    answer = run_module("nccl_build", given(source, **changes))
    assert said in answer["msg"]
    assert (store(source), made(source)) == ([], [])


def test_what_stands_in_the_way_is_said_before_there_is_a_source(source: Path) -> None:
    assert build(source, source=None)["changed"] is False
    answer = run_module("nccl_build", given(source, source=None, capabilities=[], functions=";"))
    assert answer["msg"].startswith("2 problems found")


def test_a_commit_is_asked_of_git(source: Path) -> None:
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "--quiet"], ["add", "Makefile", "makefiles"], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert build(source, identity=None)["stamp"]["source"] == f"commit {commit}"
    assert build(source, identity=None, commit=commit)["changed"] is False
    moved = run_module("nccl_build", given(source, identity=None, commit="0" * 40))
    assert f"commit: {source} is commit {commit}. Expected: {'0' * 40}" in moved["msg"]
    (source / "Makefile").write_text(f"{MAKEFILE}# changed\n", encoding="utf-8")
    assert "has uncommitted changes" in run_module("nccl_build", given(source, identity=None))["msg"]


# --- another host ---


@pytest.fixture
def sent(source: Path) -> dict[str, Any]:
    """Return the arguments of nccl_install on another host that received a build."""
    artifact = source.parent / "sent" / "nccl.tar"
    answer = build(source, pack=str(artifact))
    return {
        "store": str(source.parent / "other"),
        "name": answer["name"],
        "sha256": answer["sha256"],
        "capabilities": ["12.1"],
        "artifact": str(artifact),
        "artifact_sha256": answer["packed_sha256"],
    }


def installed(sent: dict[str, Any], **changes: Any) -> dict[str, Any]:
    answer = run_module("nccl_install", {**sent, **changes})
    assert not answer.get("failed"), answer
    return answer


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).is_dir() else []


def used(folder: str) -> str:
    return str(Path(folder, "current").readlink())


def test_packed_twice_is_the_same(source: Path, sent: dict[str, Any]) -> None:
    os.utime(source.parent / "store" / sent["name"] / "stamp.json", (1, 1))
    assert build(source, pack=f"{source.parent}/again.tar")["packed_sha256"] == sent["artifact_sha256"]


def test_installed_once_and_used(sent: dict[str, Any]) -> None:
    without = {key: value for key, value in sent.items() if not key.startswith("artifact")}
    asked = run_module("nccl_install", without)
    assert (asked["missing"], asked["changed"], names(sent["store"])) == (True, False, [])
    assert run_module("nccl_install", sent, check=True)["changed"] is True
    assert names(sent["store"]) == []
    first = installed(sent)
    assert (first["changed"], names(sent["store"])) == (True, [sent["name"], "current"])
    assert used(sent["store"]) == sent["name"]
    assert hashlib.sha256(Path(first["library"]).read_bytes()).hexdigest() == sent["sha256"]
    for arguments in (sent, without):
        again = run_module("nccl_install", arguments)
        assert (again["changed"], again["missing"]) == (False, False)


def test_a_corrupted_file_is_refused_and_what_was_used_stays(source: Path, sent: dict[str, Any]) -> None:
    installed(sent)
    other = build(source, functions="SendRecv", pack=sent["artifact"])
    content = bytearray(Path(sent["artifact"]).read_bytes())
    content[len(content) // 2] ^= 1
    Path(sent["artifact"]).write_bytes(content)
    wanted = {**sent, "name": other["name"], "artifact_sha256": other["packed_sha256"]}
    answer = run_module("nccl_install", wanted)
    assert "artifact: " in answer["msg"]
    assert f"Expected: {other['packed_sha256']}" in answer["msg"]
    # The library's own hash detects a broken library in a valid archive.
    answer = run_module(
        "nccl_install", {**wanted, "artifact_sha256": hashlib.sha256(content).hexdigest(), "sha256": "0" * 64}
    )
    assert answer["failed"]
    assert (names(sent["store"]), used(sent["store"])) == ([sent["name"], "current"], sent["name"])


def test_a_library_for_another_gpu_is_refused(sent: dict[str, Any]) -> None:
    answer = run_module("nccl_install", {**sent, "capabilities": ["9.0"]})
    assert f"libnccl {sent['name']}: not all programs have code for sm_90" in answer["msg"]
    assert names(sent["store"]) == []


def test_back_to_an_older_build_and_the_oldest_are_forgotten(source: Path, sent: dict[str, Any]) -> None:
    builds = [sent]
    for number in range(3):
        answer = build(source, identity=f"sha256 {number}", pack=f"{source.parent}/sent/{number}.tar")
        artifact = {"artifact": f"{source.parent}/sent/{number}.tar", "artifact_sha256": answer["packed_sha256"]}
        builds.append({**sent, "name": answer["name"], "sha256": answer["sha256"], **artifact})
    for wanted in builds[:3]:
        assert installed(wanted)["removed"] == []
    back = {key: value for key, value in builds[1].items() if not key.startswith("artifact")}
    assert installed(back, keep=3)["changed"] is True
    assert used(sent["store"]) == builds[1]["name"]
    assert installed(builds[3])["removed"]
    # The newest build and the one used until now stay.
    assert {builds[3]["name"], builds[1]["name"]} < set(names(sent["store"]))
    assert len(names(sent["store"])) == 4


# --- the environment that vLLM is installed in ---


SITE = "lib/python3.12/site-packages"


def environment(folder: Path, wheel: bool) -> Path:
    """Create an environment with vLLM, with or without NVIDIA's wheel, and return its interpreter."""
    install(folder / SITE / "vllm")
    if wheel:
        library = folder / SITE / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
        library.parent.mkdir(parents=True)
        library.write_bytes(libnccl("120", version="2.28.9"))
    return program(folder / "bin", "python", f"touch {folder}/ran") / "python"


def test_a_link_in_the_wheels_place_and_back(tmp_path: Path) -> None:
    arguments = {"python": str(environment(tmp_path, wheel=True)), "library": "/opt/gb10/nccl/x/lib/libnccl.so.2"}
    library = tmp_path / SITE / "nvidia/nccl/lib/libnccl.so.2"
    before, status = library.read_bytes(), library.stat()
    assert run_module("nccl_select", arguments, check=True)["changed"] is True
    assert not library.is_symlink()
    made_link = run_module("nccl_select", arguments)
    assert (made_link["changed"], made_link["method"], made_link["environment"]) == (True, "link", {})
    assert (made_link["replaced"], str(library.readlink())) == (str(library), arguments["library"])
    assert run_module("nccl_select", arguments)["changed"] is False
    other = run_module("nccl_select", {**arguments, "library": "/opt/gb10/nccl/y/lib/libnccl.so.2"})
    assert (other["changed"], str(library.readlink())) == (True, "/opt/gb10/nccl/y/lib/libnccl.so.2")
    back = run_module("nccl_select", {"python": arguments["python"], "state": "absent"})
    assert (back["changed"], back["method"], library.read_bytes(), library.stat().st_ino) == (
        True,
        "",
        before,
        status.st_ino,
    )
    assert [path.name for path in library.parent.iterdir()] == ["libnccl.so.2"]
    assert run_module("nccl_select", {"python": arguments["python"], "state": "absent"})["changed"] is False
    assert not (tmp_path / "ran").exists(), "root must not run an interpreter to find a folder"


def test_from_a_link_to_a_variable(tmp_path: Path) -> None:
    arguments = {"python": str(environment(tmp_path, wheel=True)), "library": "/opt/x/libnccl.so.2"}
    run_module("nccl_select", arguments)
    answer = run_module("nccl_select", {**arguments, "method": "preload"})
    assert (answer["changed"], answer["environment"]) == (True, {"LD_PRELOAD": "/opt/x/libnccl.so.2"})
    assert not (tmp_path / SITE / "nvidia/nccl/lib/libnccl.so.2").is_symlink()


def test_without_a_wheel_a_variable_does_it(tmp_path: Path) -> None:
    arguments = {"python": str(environment(tmp_path, wheel=False)), "library": "/opt/x/libnccl.so.2"}
    answer = run_module("nccl_select", arguments)
    assert (answer["changed"], answer["method"], answer["replaced"]) == (False, "preload", "")
    assert answer["environment"] == {"LD_PRELOAD": "/opt/x/libnccl.so.2"}
    assert (
        "NVIDIA's wheel of NCCL in the environment" in run_module("nccl_select", {**arguments, "method": "link"})["msg"]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../../var/lib/gb10/evil"},
        {"name": "a/b"},
        {"name": ".x"},
        {"sha256": "x"},
        {"artifact_sha256": "http://a/b"},
    ],
    ids=str,
)
def test_what_the_head_reports_is_no_path(sent: dict[str, Any], changes: dict[str, str]) -> None:
    answer = run_module("nccl_install", {**sent, **changes})
    assert answer["failed"] and "Expected: a build of nccl_build" in answer["msg"]
    assert names(sent["store"]) == []

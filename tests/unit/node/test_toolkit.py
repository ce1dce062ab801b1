"""A CUDA toolkit: its release and architectures, the GPUs that it compiles for, and the search for it."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit, check, check_driver

#: Of nvcc 13.0.
VERSION = "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n"
CODES = "sm_75\nsm_121\nsm_90a\n"
GB10, THOR, H200 = (ComputeCapability(*pair) for pair in ((12, 1), (11, 0), (9, 0)))


def test_the_output_of_nvcc() -> None:
    assert Toolkit.of_nvcc("/x", VERSION, CODES) == Toolkit("/x", "13.0.88", frozenset({"sm_75", "sm_121", "sm_90a"}))
    assert Toolkit.of_nvcc("/x", "release 13.0", "nvcc fatal : sm_12") == Toolkit("/x")


#: CUDA Features Archive. An architecture that it does not list has no release: its neighbors' are not used.
RELEASES = {
    "8.0": "11.0", "8.6": "11.1", "8.7": "11.4", "8.9": "11.8", "9.0": "11.8",
    "10.0": "12.8", "10.3": "12.9", "11.0": "13.0", "12.0": "12.8", "12.1": "12.9",
}  # fmt: skip


@pytest.mark.parametrize("text", [f"{major}.{minor}" for major in range(7, 14) for minor in range(10)])
def test_a_gpu_that_the_compiler_does_not_know_needs_the_first_release_that_does(text: str) -> None:
    (problem,) = check(Toolkit("/x", "10.2.89"), [ComputeCapability.parse(text)])
    assert problem.found == f"nvcc 10.2.89 in /x does not support sm_{text.replace('.', '')}"
    known = f"CUDA {RELEASES[text]} or newer for {text}" if text in RELEASES else f"a CUDA release that supports {text}"
    assert problem.expected == known


@pytest.mark.parametrize(
    ("gpus", "release"),
    [
        ([GB10], "12.9"),
        ([H200, GB10], "12.9"),
        ([THOR, GB10], "13.0"),
        ([], "12.9"),
        ([ComputeCapability(20, 0)], "12.9"),
    ],
)
def test_without_a_compiler_the_newest_release_is_needed(gpus: list[ComputeCapability], release: str) -> None:
    (problem,) = check(Toolkit(None), gpus)
    assert (problem.found, problem.expected) == ("nvcc not found", f"a CUDA toolkit of release {release} or newer")


def test_each_kind_of_gpu_is_reported_once() -> None:
    known = Toolkit("/x", "13.0.88", frozenset({"sm_121"}))
    assert check(known, [GB10]) == []
    assert [problem.found[-6:] for problem in check(known, [THOR, H200, GB10, THOR])] == [" sm_90", "sm_110"]


@pytest.mark.parametrize(
    ("release", "driver", "fails"),
    [
        ("13.0.88", "13.0", False), ("12.9.86", "13.0", False), ("13.1.80", "13.0", True), ("14.0.1", "13.9", True),
        ("", "13.0", False), ("13.1.80", "", False),
    ],
)  # fmt: skip
def test_a_driver_translates_the_code_of_its_own_release_and_of_older_ones(
    release: str, driver: str, fails: bool
) -> None:
    problems = check_driver(Toolkit("/x", release), driver)
    assert [f"nvcc {driver} or older" in problem.expected for problem in problems] == [True] * fails


class Nvcc:
    """The answers of compilers by folder: a status, and the release."""

    def __init__(self, folder: Path, **releases: tuple[int, int, str]) -> None:
        self.releases = {f"{folder}/{name}/bin/nvcc": answer for name, answer in releases.items()}
        for path in self.releases:
            Path(path).parent.mkdir(parents=True)
            Path(path).write_text("", encoding="utf-8")
            Path(path).chmod(0o755)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        first, second, release = self.releases[argv[0]]
        return (
            (first, f"V{release}", "it has no library\n")
            if argv[1] == "--version"
            else (second, CODES, "it has no codes\n")
        )


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the search look below a folder only, at the link first."""
    monkeypatch.setattr(io_toolkit, "_TOOLKITS", (f"{tmp_path}/cuda", f"{tmp_path}/cuda-*"))
    return tmp_path


def test_the_link_is_first_and_then_the_last_folder(installed: Path) -> None:
    run = Nvcc(installed, **{"cuda-12.9": (0, 0, "12.9.86"), "cuda-13.0": (0, 0, "13.0.88")})
    (installed / "cuda-13.1").mkdir()
    assert io_toolkit.find(run, None) == Toolkit(f"{installed}/cuda-13.0", "13.0.88", frozenset(CODES.split()))
    assert io_toolkit.find(run, f"{installed}/cuda-12.9").release == "12.9.86"
    (installed / "cuda").mkdir()
    assert io_toolkit.find(run, None).release == "13.0.88", "a folder without a compiler"


@pytest.mark.parametrize("answer", [(1, 0, ""), (0, 1, ""), (-9, 0, "")])
def test_a_compiler_that_fails_is_reported(installed: Path, answer: tuple[int, int, str]) -> None:
    run = Nvcc(installed, cuda=answer)
    with pytest.raises(ProblemsError) as raised:
        io_toolkit.find(run, None)
    assert raised.value.problems[0].found == f"{installed}/cuda/bin/nvcc does not run: it has no library"
    facts = io_toolkit.facts(run)
    assert (facts["home"], facts["release"], facts["architectures"]) == ("", "", [])
    assert facts["reason"] == f"{installed}/cuda/bin/nvcc does not run: it has no library"


def test_a_named_folder_must_have_a_compiler(installed: Path) -> None:
    Nvcc(installed, cuda=(0, 0, "13.0.88"))
    with pytest.raises(ProblemsError, match="/nowhere/bin/nvcc not found"):
        io_toolkit.find(Nvcc(installed / "none"), "/nowhere")


@pytest.mark.parametrize(
    ("headers", "compiler", "expected"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_the_facts(
    installed: Path, monkeypatch: pytest.MonkeyPatch, headers: bool, compiler: bool, expected: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(installed)})
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
    assert io_toolkit.facts(Nvcc(installed))["home"] == ""
    if headers:
        (installed / "Python.h").write_text("", encoding="utf-8")
    assert io_toolkit.facts(Nvcc(installed, cuda=(0, 0, "13.0.88"))) == {
        "home": f"{installed}/cuda",
        "release": "13.0.88",
        "architectures": ["sm_121", "sm_75", "sm_90a"],
        "reason": "",
        "host_compiler": expected,
    }

"""NCCL: facts and defects of a library, its build, the functions that vLLM calls, and the module nccl_info."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_libraries import dynamic, elf, libnccl
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build as nccl_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import functions as nccl_functions
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.build import Builder, Release, Source
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit

GB10, RTX50, THOR, H200 = (ComputeCapability.parse(text) for text in ("12.1", "12.0", "11.0", "9.0"))
MACHINE = 183 if platform.machine() == "aarch64" else 62


def library(*architectures: str, **options: Any) -> nccl_library.Library:
    return nccl_library.read(memoryview(libnccl(*architectures, **options)), "lib")


def test_what_runs_is_more_than_what_is_native() -> None:
    assert library("120", "90", machine=183, gcc=["8.5.0", "8.3.1", "12.2.0"]).facts() == {
        "version": "2.30.7",
        "cuda": "13.0",
        "machine": "aarch64",
        "gcc": ["8.3.1", "8.5.0", "12.2.0"],
        "programs": 3,
        "code": [
            {"kind": "cubin", "architecture": "sm_90", "count": 2},
            {"kind": "cubin", "architecture": "sm_100f", "count": 1},
            {"kind": "cubin", "architecture": "sm_120", "count": 2},
        ],
        "native": ["9.0", "12.0"],
        "runs": ["9.0", "12.0", "12.1"],
    }
    assert library("90", gcc=[]).gcc == ()


@pytest.mark.parametrize(
    ("version", "cuda", "expected"),
    [("2.28.9", "13.0", ("2.28.9", "13.0")), ("2.29.7rc1", "12.9", ("2.29.7rc1", "12.9")), ("x", "13.0", (None, None))],
)
def test_version(version: str, cuda: str, expected: tuple[str | None, str | None]) -> None:
    found = library("121", version=version, cuda=cuda)
    assert (found.version, found.cuda) == expected


@pytest.mark.parametrize(
    ("architectures", "said"),
    [
        (["90"], ["2 cannot run; it contains 2 cubin for sm_90, 1 cubin for sm_100f"]),
        (["120"], ["2 would run code of an older GPU of its generation"]),
        (["121"], []),
        (["121a"], []),
        (["120", "121"], []),
    ],
    ids=str,
)
def test_a_library_without_code_for_the_gpu(architectures: list[str], said: list[str]) -> None:
    problems = nccl_library.problems(library(*architectures), "/x/libnccl.so.2", [GB10], "x86_64")
    found = [
        (problem.path, problem.found.split(": ")[1].startswith(text))
        for problem, text in zip(problems, said, strict=True)
    ]
    assert found == [("/x/libnccl.so.2", True)] * len(said)
    assert all(problem.fix == f"build it with NVCC_GENCODE={GB10.gencode}" for problem in problems)


def test_everything_that_is_wrong_with_a_library_is_listed() -> None:
    problems = nccl_library.problems(library("90", version="x", machine=183), "lib", [GB10, H200, THOR], "x86_64")
    assert [problem.expected for problem in problems] == [
        "a libnccl",
        "a library for x86_64",
        "cubins for sm_121",
        "cubins for sm_110",
    ]


def test_release_of_a_source_tree() -> None:
    text = (
        "##### version\nNCCL_MAJOR   := 2\nNCCL_MINOR   := 30\nNCCL_PATCH   := 7\nNCCL_SUFFIX  :=\nPKG_REVISION := 1\n"
    )
    assert Release.of_makefile(text, "x") == Release(2, 30, 7)
    with pytest.raises(ProblemsError, match="does not define NCCL_PATCH"):
        Release.of_makefile(text.replace("NCCL_PATCH   := 7", ""), "makefiles/version.mk")


@pytest.mark.parametrize(
    ("release", "spoken_against"),
    [((2, 28, 9), True), ((2, 29, 2), True), ((2, 29, 3), False), ((2, 30, 7), False), ((3, 0, 0), False)],
)
def test_a_release_that_hangs_is_built_with_a_finding(release: tuple[int, int, int], spoken_against: bool) -> None:
    findings = nccl_build.plan(replace(SOURCE, release=Release(*release)), [GB10], TOOLKIT, BUILDER).findings
    words = ("compiled with a GCC before 10", "NVIDIA/nccl issue 2353", "2.29.3 or newer")
    assert [all(word in str(finding) for word in words) for finding in findings] == [True] * spoken_against


TOOLKIT = Toolkit("/usr/local/cuda", "13.0.88", frozenset(["sm_90", "sm_100", "sm_110", "sm_120", "sm_121"]))
BUILDER = Builder("aarch64", 20, 100 * 1024**3, 100 * 1024**3, frozenset(nccl_build.PROGRAMS))
SOURCE = Source("/src/nccl", Release(2, 30, 7), "commit 73cf1122")


def test_plan() -> None:
    plan = nccl_build.plan(SOURCE, [GB10], TOOLKIT, BUILDER)
    assert plan.stamp == {
        "release": "2.30.7",
        "source": "commit 73cf1122",
        "gencode": "-gencode=arch=compute_121,code=sm_121",
        "cuda": "13.0.88",
        "machine": "aarch64",
        "functions": "",
    }
    assert (plan.name, len(plan.digest), plan.findings) == (f"2.30.7-{plan.digest[:12]}", 64, ())
    last = "NVCC_GENCODE=-gencode=arch=compute_121,code=sm_121"
    make = ["make", "-C", "/src/nccl", "-j20", "src.lib", "BUILDDIR=/build/x", "CUDA_HOME=/usr/local/cuda"]
    assert plan.argv(SOURCE, TOOLKIT, "/build/x") == [*make, "NVCC=/usr/local/cuda/bin/nvcc", last]
    functions = "AllReduce Sum f32 Ring Simple"
    plan = nccl_build.plan(SOURCE, [GB10], TOOLKIT, BUILDER, functions)
    cached = [
        "env",
        f"PATH={nccl_build.CCACHE_PATH}",
        "NVCUFLAGS_SYM=-c",
        *make,
        "NVCC=ccache /usr/local/cuda/bin/nvcc",
    ]
    assert plan.argv(SOURCE, TOOLKIT, "/build/x", ccache=True) == [*cached, last, f"ONLY_FUNCS={functions}"]


def test_a_mixed_cluster_has_one_library_whatever_the_order() -> None:
    plans = [nccl_build.plan(SOURCE, gpus, TOOLKIT, BUILDER) for gpus in ([GB10, THOR], [THOR, GB10, THOR])]
    assert plans[0] == plans[1]
    assert plans[0].stamp["gencode"] == "-gencode=arch=compute_110,code=sm_110 -gencode=arch=compute_121,code=sm_121"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (nccl_build.plan(replace(SOURCE, identity="commit 0"), [GB10], TOOLKIT, BUILDER), False),
        (nccl_build.plan(SOURCE, [RTX50], TOOLKIT, BUILDER), False),
        (nccl_build.plan(SOURCE, [GB10], replace(TOOLKIT, release="13.0.48"), BUILDER), False),
        (nccl_build.plan(SOURCE, [GB10], TOOLKIT, replace(BUILDER, machine="x86_64")), False),
        (nccl_build.plan(SOURCE, [GB10], TOOLKIT, BUILDER, "SendRecv"), False),
        (nccl_build.plan(replace(SOURCE, path="/y"), [GB10], TOOLKIT, BUILDER), True),
        (nccl_build.plan(SOURCE, [GB10], TOOLKIT, replace(BUILDER, cores=2, memory=2**33)), True),
    ],
    ids=["source", "GPU", "CUDA", "machine", "functions", "folder", "cores"],
)
def test_what_decides_about_the_result_is_in_the_digest(other: nccl_build.BuildPlan, same: bool) -> None:
    assert (other.digest == nccl_build.plan(SOURCE, [GB10], TOOLKIT, BUILDER).digest) is same


@pytest.mark.parametrize(
    ("cores", "memory_gib", "jobs"), [(20, 100, 20), (20, 12, 10), (2, 100, 2), (8, 1, 1), (8, 0, 1), (1, 100, 1)]
)
def test_jobs(cores: int, memory_gib: int, jobs: int) -> None:
    assert nccl_build.jobs(cores, memory_gib * 1024**3) == jobs


@pytest.mark.parametrize(
    ("gpus", "toolkit", "builder", "more", "said"),
    [
        ([GB10], TOOLKIT, {}, {}, []),
        ([GB10], TOOLKIT, {}, {"from_git": True}, ["programs: git not found", "apt-get install git"]),
        ([], TOOLKIT, {}, {}, ["gpus: no GPU is known"]),
        # One GPU needs 512 MiB, and each further one 128 MiB.
        ([GB10], TOOLKIT, {"disk": 512 * 1024**2}, {}, []),
        ([GB10, THOR], TOOLKIT, {"disk": 640 * 1024**2}, {}, []),
        ([GB10, GB10], TOOLKIT, {"disk": 511 * 1024**2}, {}, ["disk: 511 MiB are free. Expected: 512 MiB"]),
        ([GB10, THOR], TOOLKIT, {"disk": 639 * 1024**2}, {}, ["disk: 639 MiB are free. Expected: 640 MiB"]),
        (
            [GB10, THOR],
            Toolkit(None),
            {"disk": 0, "programs": frozenset({"make", "python3", "which"})},
            {"functions": "no such function"},
            ["4 problems", "functions: ", "programs: g++ not found", "toolkit: ", "disk: 0 MiB are free"],
        ),
    ],
)
def test_everything_that_is_missing_is_said_at_once(
    gpus: list[ComputeCapability], toolkit: Toolkit, builder: dict[str, Any], more: dict[str, Any], said: list[str]
) -> None:
    problems = nccl_build.prerequisites(gpus, toolkit, replace(BUILDER, **builder), **more)
    text = str(ProblemsError(problems)) if problems else ""
    assert (bool(text), [word for word in said if word not in text]) == (bool(said), [])


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("SendRecv", 1),
        ("AllReduce Sum f32 RING SIMPLE", 1),
        ("allreduce sum f32 ring *", 3),
        ("SendRecv|AllGather RING LL", 2),
        ("AllReduce * * RING LL", 60),
    ],
)
def test_selected(pattern: str, count: int) -> None:
    assert len(nccl_functions.selected(pattern)) == count
    assert nccl_functions.pattern_problems(pattern, "x") == []


@pytest.mark.parametrize(
    "pattern", ["$(touch x)", "a;b", 'x"', "`id`", "(AllReduce", "AllReduce +", "Al1Reduce", " ", "SendRecv\n"]
)
def test_no_pattern(pattern: str) -> None:
    (problem,) = nccl_functions.pattern_problems(pattern, "nccl_sm121_build_only_funcs")
    assert problem.path == "nccl_sm121_build_only_funcs"
    assert repr(pattern) in problem.found


def installed(folder: Path, *architectures: str) -> Path:
    """Create a library as NCCL's build does: the file and its links."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libnccl.so.2.30.7").write_bytes(libnccl(*architectures, machine=MACHINE))
    (folder / "lib/libnccl.so.2").symlink_to("libnccl.so.2.30.7")
    return folder


def test_nccl_info_reads_a_file_a_folder_and_a_link(tmp_path: Path) -> None:
    built = installed(tmp_path / "2.30.7-x", "121")
    (tmp_path / "current").symlink_to("2.30.7-x")
    answers = [
        run_module("nccl_info", {"path": str(path)})["library"]
        for path in (built / "lib/libnccl.so.2.30.7", built / "lib", tmp_path / "current")
    ]
    assert {answer["real_path"] for answer in answers} == {str(built / "lib/libnccl.so.2.30.7")}
    assert {answer["sha256"] for answer in answers} == {answers[0]["sha256"]}
    assert (answers[2]["path"], answers[2]["version"]) == (str(tmp_path / "current/lib/libnccl.so.2"), "2.30.7")
    assert answers[2]["native"] == ["12.1"]


@pytest.mark.parametrize(
    "content", [None, b"", b"text", libnccl("121")[:-100]], ids=["absent", "empty", "text", "truncated"]
)
def test_nccl_info_refuses_what_is_no_library(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "libnccl.so.2"
    if content is not None:
        path.write_bytes(content)
    answer = run_module("nccl_info", {"path": str(path)})
    assert str(path) in answer["msg"]
    assert "Expected: " in answer["msg"]


#: Map the given files and wait.
MAPPER = """
import mmap, sys
files = [open(name, "rb") for name in sys.argv[1:]]
kept = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]
print("mapped", flush=True)
sys.stdin.read()
"""


@contextmanager
def mapping(*paths: Path) -> Iterator[int]:
    """Map files in a process, and yield its PID."""
    command = [sys.executable, "-c", MAPPER, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "mapped\n"
        yield process.pid
        process.communicate()


def test_nccl_info_proves_what_a_process_uses(tmp_path: Path) -> None:
    ours, wheels = installed(tmp_path / "ours", "121"), installed(tmp_path / "wheel", "90", "120")
    arguments = {"path": str(ours), "requires": {"capabilities": ["12.1"]}}
    with mapping(ours / "lib/libnccl.so.2") as right, mapping(wheels / "lib/libnccl.so.2") as wrong, mapping() as other:
        good = run_module("nccl_info", {**arguments, "pids": [right, other]})
        bad = run_module("nccl_info", {**arguments, "pids": [right, wrong]})
    assert good["problems"] == good["processes"][1]["libraries"] == []
    (found,) = good["processes"][0]["libraries"]
    assert (
        found.items()
        >= {"path": good["library"]["real_path"], "sha256": good["library"]["sha256"], "deleted": False}.items()
    )
    (problem,) = bad["problems"]
    for word in (
        f"{os.uname().nodename}, process {wrong} (python",
        f"{wheels}/lib/libnccl.so.2.30.7",
        f"{ours}/lib/libnccl.so.2.30.7",
    ):
        assert word in problem


def test_nccl_info_sees_that_a_process_still_has_the_file_before(tmp_path: Path) -> None:
    ours = installed(tmp_path / "ours", "121")
    arguments = {"path": str(ours / "lib/libnccl.so.2")}
    sha256 = run_module("nccl_info", arguments)["library"]["sha256"]
    with mapping(ours / "lib/libnccl.so.2") as rank:
        (ours / "lib/new").write_bytes(libnccl("121", "90", machine=MACHINE))
        (ours / "lib/new").rename(ours / "lib/libnccl.so.2.30.7")
        arguments |= {"pids": [rank]}
        (replaced,) = run_module("nccl_info", {**arguments, "requires": {}})["problems"]
        # The build is gone from the store.
        shutil.rmtree(ours)
        known = run_module("nccl_info", {**arguments, "requires": {"sha256": sha256}})
        other = run_module("nccl_info", {**arguments, "requires": {"sha256": "0" * 64}})
    assert "(deleted" in replaced
    assert (known["library"], known["processes"][0]["libraries"][0]["deleted"]) == (None, True)
    assert ["not found" in problem for problem in known["problems"]] == [True]
    assert [("not found" in problem, "(deleted" in problem) for problem in other["problems"]] == [
        (True, False),
        (False, True),
    ]
    assert run_module("nccl_info", {"path": arguments["path"]})["failed"]


def test_nccl_info_knows_a_libnccl_by_its_functions(tmp_path: Path) -> None:
    """The name is irrelevant: a libnccl may have any name, and any data may be named libnccl."""
    ours, wheels = installed(tmp_path / "ours", "121"), installed(tmp_path / "wheel", "120")
    (ours / "lib/libnccl.so.2.30.7").rename(ours / "lib/fast.so")
    plugin, data = tmp_path / "libnccl-net.so", tmp_path / "libnccl.so.2"
    plugin.write_bytes(elf(dynamic(exports=["ncclNet_v9"], imports=["ncclGetVersion"]), MACHINE))
    data.write_bytes(b"no library at all" * 1000)
    with mapping(ours / "lib/fast.so", wheels / "lib/libnccl.so.2", plugin, data) as process:
        (found,) = run_module("nccl_info", {"pids": [process]})["processes"]
    expected = {str(ours / "lib/fast.so"), str(wheels / "lib/libnccl.so.2.30.7")}
    assert {library["path"] for library in found["libraries"]} == expected
    # Mapped with mmap: no mapped file links to one of them, so the called one is unknown.
    assert (found["used"], "no mapped file shows which one is called" in found["undecided"]) == (None, True)


def wheel(runtime: Path, *architectures: str) -> Path:
    path = runtime / "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
    path.parent.mkdir(parents=True)
    path.write_bytes(libnccl(*architectures, machine=MACHINE, version="2.29.7", gcc=["8.5.0"]))
    return path


def test_nccl_info_reads_what_the_runtime_brought_also_behind_a_link(tmp_path: Path) -> None:
    """The build decision is the same before and after a built library replaced the wheel's."""
    path = wheel(tmp_path / "runtime", "120")
    before = run_module("nccl_info", {"runtime": str(tmp_path / "runtime")})["library"]
    path.rename(f"{path}.gb10-original")
    path.symlink_to(installed(tmp_path / "ours", "121") / "lib/libnccl.so.2")
    after = run_module("nccl_info", {"runtime": str(tmp_path / "runtime")})["library"]
    assert (before["version"], before["gcc"], before["native"]) == ("2.29.7", ["8.5.0"], ["12.0"])
    assert {key: value for key, value in before.items() if "path" not in key} == {
        key: value for key, value in after.items() if "path" not in key
    }
    assert run_module("nccl_info", {"runtime": str(tmp_path / "none")})["library"] is None


def test_node_info_has_the_library_once_the_runtime_is_complete(tmp_path: Path) -> None:
    assert io_library.bundled_facts(str(tmp_path)) is None
    (tmp_path / ".complete").touch()
    assert io_library.bundled_facts(str(tmp_path)) == {}
    path = wheel(tmp_path, "120")
    found = io_library.bundled_facts(str(tmp_path))
    assert found is not None
    assert (found["version"], found["runs"]) == ("2.29.7", ["12.0", "12.1"])
    path.write_bytes(b"broken")
    assert io_library.bundled_facts(str(tmp_path)) == {}


#: Load the given libraries and wait, as Python does when it imports PyTorch.
LOADER = (
    "import ctypes, sys; kept = [ctypes.CDLL(name) for name in sys.argv[1:]]; print(kept[-1].answer(), "
    "flush=True); sys.stdin.read()"
)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two libraries that simulate NCCL, and one that calls them and has an RPATH, as libtorch_cuda.so."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("linked")
    code = "const char code[20 << 20] = {1}; int ncclGetVersion(void) { return VERSION; }\n"
    torch = "int ncclGetVersion(void); int answer(void) { return ncclGetVersion(); }\n"
    # Ours has another name, which a test by names would miss. The wheel's is behind a link, as one that was replaced.
    for name, number in (("ours/fast.so", 23007), ("wheel/libnccl.so.2.29.7", 22907)):
        (folder / name).parent.mkdir()
        compiled(folder / name, code, f"-DVERSION={number}", "-Wl,-soname,libnccl.so.2")
    (folder / "wheel/libnccl.so.2").symlink_to("libnccl.so.2.29.7")
    options = ["-L", str(folder / "wheel"), "-l:libnccl.so.2", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/wheel"]
    compiled(folder / "libtorch.so", torch, *options)
    return folder


def compiled(path: Path, code: str, *options: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=code, text=True, check=True)


@pytest.mark.parametrize("way", ["alone", "preload", "preload, title", "search path", "ctypes"])
def test_nccl_info_tells_which_one_is_called(linked: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the linker itself: the linked library returns the release that it called."""
    ours, wheels, torch = linked / "ours/fast.so", linked / "wheel/libnccl.so.2", linked / "libtorch.so"
    environment, loaded = dict(os.environ), [torch]
    if way.startswith("preload"):
        environment["LD_PRELOAD"] = str(ours)
        # By path: our library has the same soname and would replace it. With PyTorch, both are mapped.
        loaded = [torch, wheels, torch]
    if way == "search path":
        environment["LD_LIBRARY_PATH"] = str(linked / "ours")
    if way == "ctypes":
        # After PyTorch, as vLLM's communicator does.
        loaded = [torch, ours, torch]
    if way == "preload, title":
        # Programs that change their title overwrite their variables.
        monkeypatch.setattr(io_library, "_variables", lambda _pid: {})
    command = [sys.executable, "-c", LOADER, *map(str, loaded)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as rank:
        assert rank.stdout is not None
        said = rank.stdout.readline().strip()
        (found,) = run_module("nccl_info", {"pids": [rank.pid]})["processes"]
        rank.communicate()
    used, release = (ours, "23007") if way.startswith("preload") else (wheels, "22907")
    assert (said, found["used"], found["undecided"]) == (release, str(used.resolve()), "")
    assert len(found["libraries"]) == (1 if way in ("alone", "search path") else 2)


def test_nccl_info_tells_what_is_required_and_not_so(tmp_path: Path) -> None:
    requires = {"capabilities": ["12.1"], "sha256": "0" * 64}
    answer = run_module("nccl_info", {"path": str(installed(tmp_path / "x", "90")), "requires": requires})
    words = ("not all programs have code for sm_121", "its sha256 is ")
    assert [word in problem for word, problem in zip(words, answer["problems"], strict=True)] == [True, True]


@pytest.mark.parametrize(("size", "read"), [(1 << 20, True), (5 << 30, False)])
def test_a_sparse_file_of_a_process_is_not_read(tmp_path: Path, size: int, read: bool) -> None:
    place = installed(tmp_path / "x", "90") / "lib/libnccl.so.2.30.7"
    os.truncate(place, size)
    with place.open("rb") as file, mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ):
        (found,) = io_library.processes([os.getpid()], [])
    assert (str(place) in [library.path for library in found.libraries]) is read


def test_nccl_info_tells_of_a_process_that_is_not_there() -> None:
    with mapping() as ended:
        pass
    (found,) = run_module("nccl_info", {"pids": [ended]})["processes"]
    expected = {"pid": ended, "name": "", "libraries": [], "unreadable": "no such process", "used": None}
    assert found == {**expected, "undecided": ""}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Failed to connect to bus' >&2; exit 1", "systemctl show failed: Failed to connect to bus"),
        ("echo", "it has no process"),
        ("echo /system.slice/no-such-group.service", "it has no process"),
    ],
)
def test_nccl_info_of_a_unit_that_does_not_run(tmp_path: Path, script: str, said: str) -> None:
    answer = run_module("nccl_info", {"unit": "gb10-ray.service"}, program(tmp_path, "systemctl", script))
    assert said in answer["msg"]


def test_a_unit_is_all_processes_below_its_cgroup(tmp_path: Path) -> None:
    for folder, members in (("", "12\n7\n"), ("worker", "9\n"), ("worker/deeper", ""), ("../other.service", "1\n")):
        path = tmp_path / "system.slice/gb10-ray.service" / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.procs").write_text(members, encoding="utf-8")
    found = io_library.pids(
        lambda _argv: (0, "/system.slice/gb10-ray.service\n", ""),
        "gb10-ray.service",
        [str(tmp_path / "none"), str(tmp_path)],
    )
    assert found == [7, 9, 12]


def test_nccl_info_needs_something_to_read() -> None:
    assert "one of the following is required" in run_module("nccl_info", {})["msg"]
    assert "path" in run_module("nccl_info", {"pids": [1], "requires": {}})["msg"]

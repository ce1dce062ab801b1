"""How a build runs on a host: its requirements, its compilers, its variables, and its sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB, BuildSettings, Host, Target

GB10, THOR = (ComputeCapability.parse(text) for text in ("12.1", "11.0"))
TARGET = Target("0.33.0-0123456789ab", "0.33.0+gb10.01234567", "cuda", (THOR, GB10), "11.0a;12.1a", "2.14.0", "13")
CPU = replace(TARGET, device="cpu", capabilities=(), architectures="", cuda="")
SETTINGS = BuildSettings(0, 0, ccache=True, network=True, while_serving=False, timeout=86400, environment={})
HOST = Host(20, 100 * GIB, 500 * GIB, frozenset({"g++", "git", "ccache"}), headers=True, serving=())
TOOLKIT = Toolkit("/usr/local/cuda", "13.0.88", frozenset({"sm_110", "sm_120", "sm_121"}))
PYTHON = "/opt/gb10/build/environment-1/bin/python"
PROGRAM = ["/usr/bin/python3", "/opt/gb10/build/io_run.py", "--name=x"]


@pytest.mark.parametrize(
    ("cores", "memory", "settings", "device", "jobs"),
    [
        # 20 cores and 100 GiB of a Spark, and the same Spark with a model.
        (20, 100, {}, "cuda", 19),
        (20, 20, {}, "cuda", 3),
        (20, 8, {}, "cuda", 1),
        (20, 1, {}, "cuda", 1),
        (20, 0, {}, "cuda", 1),
        (2, 100, {}, "cuda", 2),
        (20, 20, {}, "cpu", 8),
        (20, 20, {"nvcc_threads": 2}, "cuda", 1),
        (20, 100, {"nvcc_threads": 2}, "cuda", 9),
        (20, 1, {"jobs": 7}, "cuda", 7),
    ],
)
def test_jobs(cores: int, memory: int, settings: dict[str, Any], device: str, jobs: int) -> None:
    assert plan.jobs(replace(SETTINGS, **settings), replace(HOST, cores=cores, memory=memory * GIB), device) == jobs


@given(st.integers(1, 256), st.integers(0, 2**40), st.integers(0, 4), st.sampled_from(sorted(plan.JOB_BYTES)))
def test_computed_jobs_fit(cores: int, memory: int, threads: int, device: str) -> None:
    settings = replace(SETTINGS, nvcc_threads=threads)
    jobs = plan.jobs(settings, replace(HOST, cores=cores, memory=memory), device)
    assert 1 <= jobs <= max(1, cores // plan.threads(settings))
    assert jobs == 1 or jobs * plan.threads(settings) * plan.JOB_BYTES[device] + plan.RESERVE_BYTES <= memory


def problems(
    target: Target = TARGET,
    toolkit: Toolkit = TOOLKIT,
    torch: str = "2.14.0",
    settings: BuildSettings = SETTINGS,
    **host: Any,
) -> list[str]:
    return [str(problem) for problem in plan.problems(target, settings, replace(HOST, **host), toolkit, torch)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"torch": ""},
        {"target": CPU, "toolkit": Toolkit(None), "memory": 6 * GIB, "disk": 6 * GIB},
        {"target": replace(TARGET, torch="")},
        {"settings": replace(SETTINGS, ccache=False), "programs": frozenset({"g++", "git"})},
        {"settings": replace(SETTINGS, while_serving=True), "serving": ("gb10-vllm.service",)},
        {"settings": replace(SETTINGS, environment={"CMAKE_BUILD_TYPE": "RelWithDebInfo", "VERBOSE": "1"})},
        {"target": replace(TARGET, cuda="")},
        {"target": replace(TARGET, cuda="13.1")},
        # A driver translates the PTX of its own release and of older ones. An unknown release is no finding.
        *({"target": replace(TARGET, driver=driver)} for driver in ("13.0", "13.10", "?")),
    ],
)
def test_a_host_that_can_build(given: dict[str, Any]) -> None:
    assert problems(**given) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"programs": frozenset({"git"})}, ["g++, ccache not found", "apt-get install g++ ccache"]),
        ({"headers": False}, ["Python.h not found", "apt-get install python3-dev"]),
        ({"target": replace(TARGET, capabilities=())}, ["no GPU is known", "vllm_build_capabilities"]),
        ({"toolkit": Toolkit(None)}, ["nvcc not found", "release 13.0 or newer"]),
        (
            {"toolkit": Toolkit("/usr/local/cuda", "13.0.88", frozenset({"sm_121"}))},
            ["nvcc 13.0.88 in /usr/local/cuda does not support sm_110", "CUDA 13.0 or newer for 11.0"],
        ),
        (
            {"target": replace(TARGET, cuda="12")},
            ["nvcc in /usr/local/cuda is release 13.0.88", "CUDA 12, that of torch", "vllm_build_cuda_home"],
        ),
        ({"toolkit": replace(TOOLKIT, release="")}, ["CUDA 13, that of torch"]),
        # vllm-project/vllm#47397: PTX of nvcc 13.3 on driver 580.
        (
            {"target": replace(TARGET, driver="13.0"), "toolkit": replace(TOOLKIT, release="13.3.33")},
            ["nvcc 13.3.33 in /usr/local/cuda is newer than CUDA 13.0", "install the CUDA toolkit 13.0 next to it"],
        ),
        ({"torch": "2.13.0"}, ["this source requires torch 2.13.0", "torch 2.14.0, the release of the lock"]),
        ({"serving": ("gb10-vllm.service",)}, ["gb10-vllm.service is running", "vllm_build_while_serving: true"]),
        ({"serving": ("a.service", "b.service")}, ["a.service and b.service are running"]),
        ({"memory": 15 * GIB - 1}, ["15.0 GiB are free", "15 GiB for the largest file"]),
        ({"disk": 14 * GIB}, ["14.0 GiB are free in /var/lib/gb10-vllm-build", "15 GiB"]),
        ({"target": CPU, "toolkit": Toolkit(None), "memory": 5 * GIB}, ["6 GiB for the largest file"]),
        ({"target": CPU, "toolkit": Toolkit(None), "disk": 5 * GIB}, ["Expected: 6 GiB"]),
        (
            {"settings": replace(SETTINGS, environment={"MAX_JOBS": "9", "CCACHE_DIR": "/x", "CMAKE_ARGS": "-Da=b"})},
            ["vllm_build_environment: CCACHE_DIR, MAX_JOBS", "variables that the role does not set"],
        ),
    ],
)
def test_what_a_host_lacks(given: dict[str, Any], words: list[str]) -> None:
    (problem,) = problems(**given)
    assert [word for word in words if word not in problem] == [], problem


def test_everything_that_is_missing_is_said_at_once() -> None:
    found = plan.problems(
        replace(TARGET, capabilities=()),
        replace(SETTINGS, environment={"HOME": "/"}),
        Host(1, 0, 0, frozenset(), headers=False, serving=("gb10-vllm.service",)),
        replace(TOOLKIT, release="12.9.1"),
        "2.13.0",
    )
    paths = ["programs", "programs", "toolkit", "gpus", "source", "memory", "memory", "disk", "vllm_build_environment"]
    assert [problem.path for problem in found] == paths
    assert found[0].fix == "apt-get install g++ git ccache"


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        ('requires = [\n    "ninja",\n    "torch == 2.14.0",\n    "wheel",\n]\n', "2.14.0"),
        ('requires = ["torch==2.10.0"]', "2.10.0"),
        ("requires = ['torch==2.9.1']", "2.9.1"),
        ('requires = ["torch >= 2.10.0", "torchvision == 2.10.0"]', ""),
        ("", ""),
    ],
)
def test_the_torch_of_a_source(text: str, torch: str) -> None:
    assert plan.required_torch(text) == torch


def test_the_variables_of_a_build() -> None:
    found = plan.environment(TARGET, replace(SETTINGS, nvcc_threads=2), 7, PYTHON, TOOLKIT)
    assert found == {
        "CCACHE_DIR": "/var/lib/gb10-vllm-build/ccache",
        "CMAKE_BUILD_TYPE": "Release",
        "CUDA_HOME": "/usr/local/cuda",
        "HOME": "/var/lib/gb10-vllm-build/home",
        "LC_ALL": "C.UTF-8",
        "MAX_JOBS": "7",
        "NVCC_THREADS": "2",
        "PATH": "/opt/gb10/build/environment-1/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SETUPTOOLS_SCM_PRETEND_VERSION": "0.33.0+gb10.01234567",
        "TMPDIR": "/var/lib/gb10-vllm-build/tmp",
        "TORCH_CUDA_ARCH_LIST": "11.0a;12.1a",
        "UV_NO_CACHE": "1",
        "VLLM_DISABLE_SCCACHE": "1",
        "VLLM_TARGET_DEVICE": "cuda",
    }


def test_a_build_without_gpu_and_without_cache() -> None:
    environment = {"VLLM_CUTLASS_SRC_DIR": "/d", "FETCHCONTENT_SOURCE_DIR_ONEDNN": "/x", "CMAKE_ARGS": "-DA=1"}
    settings = replace(SETTINGS, ccache=False, environment=environment)
    found = plan.environment(CPU, settings, 2, PYTHON, Toolkit(None))
    path = "/opt/gb10/build/environment-1/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # CMake's sources are arguments of CMake too.
    sources = {"CMAKE_ARGS": "-DA=1 -DFETCHCONTENT_SOURCE_DIR_ONEDNN=/x"}
    assert {
        **environment,
        **sources,
        "CCACHE_DISABLE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "PATH": path,
    }.items() <= found.items()
    assert not {"CUDA_HOME", "NVCC_THREADS", "TORCH_CUDA_ARCH_LIST"} & found.keys()


def test_the_users_variables_are_used_or_refused() -> None:
    """A value that the role would replace without a word is refused; the type of the build is the user's choice."""
    found = plan.environment(TARGET, replace(SETTINGS, ccache=False), 1, PYTHON, TOOLKIT)
    assert found.keys() - plan.OWN == {"CMAKE_BUILD_TYPE"}
    given = replace(SETTINGS, environment={"CMAKE_BUILD_TYPE": "RelWithDebInfo", "VERBOSE": "1"})
    assert given.environment.items() <= plan.environment(TARGET, given, 1, PYTHON, TOOLKIT).items()


def unit(settings: BuildSettings = SETTINGS, target: Target = TARGET, **host: Any) -> list[str]:
    return plan.unit(
        target, settings, replace(HOST, **host), {"B": "x y", "A": "$1"}, PROGRAM, "/opt/gb10/build/build.log"
    )


def properties(command: list[str]) -> list[str]:
    return [word.removeprefix("--property=") for word in command if word.startswith("--property=")]


def test_the_command_of_the_unit() -> None:
    command, found = unit(), properties(unit())
    description = "--description=Build of vLLM 0.33.0-0123456789ab"
    assert command == [
        *("systemd-run", "--unit=gb10-vllm-build.service", description),
        *(f"--property={value}" for value in found),
        *("--setenv=A=$1", "--setenv=B=x y", *PROGRAM),
    ]
    assert len({value.partition("=")[0] for value in found}) == len(found), "a property twice"
    log = "append:/opt/gb10/build/build.log"
    assert {f"StandardOutput={log}", f"StandardError={log}", "RuntimeMaxSec=86400"} <= set(found)
    offline = properties(unit(replace(SETTINGS, network=False)))
    assert ("PrivateNetwork=yes" in found, "PrivateNetwork=yes" in offline) == (False, True)


def test_the_build_cannot_reach_the_rest_of_the_host() -> None:
    """The source and its build scripts run on the node that has the API key and the model."""
    found = set(properties(unit()))
    # A dynamic user has a read-only host and its own /tmp, and cannot become root.
    assert {
        *("DynamicUser=yes", "StateDirectory=gb10-vllm-build", "StateDirectoryMode=0700", "CapabilityBoundingSet="),
        *("PrivateDevices=yes", "PrivateTmp=yes", "ProtectHome=yes", "ProtectProc=invisible"),
        *("RestrictNamespaces=yes", "UMask=0077"),
    } <= found
    opened = ("User=", "ReadWritePaths=", "BindPaths=", "AmbientCapabilities=", "DeviceAllow=")
    assert not any(value.startswith(opened) for value in found)


def test_the_model_comes_before_the_build() -> None:
    found = properties(unit(memory=100 * GIB))
    assert {"Nice=10", "CPUWeight=20", "OOMScoreAdjust=1000", "OOMPolicy=stop", "KillMode=control-group"} <= set(found)
    assert f"MemoryMax={96 * GIB}" in found
    assert f"MemoryMax={5 * GIB}" in properties(unit(memory=5 * GIB))
    assert f"MemoryMax={2 * GIB}" in properties(unit(target=CPU, memory=0))


@pytest.mark.parametrize(("gcc", "found"), [(12, ["g++ is release 12"]), (13, []), (0, [])])
def test_the_compiler_of_the_source(gcc: int, found: list[str]) -> None:
    """Only CUDA builds have this limit, and a source may name none."""
    text = (
        'message(FATAL_ERROR "GCC >= 11.3 is required to build vLLM (found 9). " "GCC >= 13 is required to build '
        'vLLM with CUDA (found 9). ")'
    )
    needed = plan.required_gcc(text)
    assert (needed, plan.required_gcc("")) == (13, 0)
    host = replace(HOST, compiler=f"{gcc}.2.0" if gcc else "")
    assert [problem.found for problem in plan.problems(TARGET, SETTINGS, host, TOOLKIT, "", needed)] == found
    assert plan.problems(CPU, SETTINGS, host, Toolkit(None), "", needed) == []

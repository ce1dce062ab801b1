"""How a build runs on a host: its requirements, its compilers, its variables, and its sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB, Host

OPTIONS = {
    "name": "0.33.0-0123456789ab",
    "store": "/opt/gb10/build",
    "folder": "/opt/gb10/build/environment-1",
    "device": "cuda",
    "capabilities": ["12.1", "11.0"],
    "torch": "2.14.0",
    "cuda": "13",
    "driver": "",
    "jobs": 0,
    "nvcc_threads": 0,
    "ccache": True,
    "network": True,
    "while_serving": False,
    "timeout": 86400,
    "environment": {},
}
CPU = {"device": "cpu", "capabilities": [], "cuda": ""}
HOST = Host(20, 100 * GIB, 500 * GIB, frozenset(plan.PROGRAMS), headers=True, serving=(), compiler="13.3.0")
TOOLKIT = Toolkit("/usr/local/cuda", "13.0.88", frozenset({"sm_110", "sm_120", "sm_121"}))
NEWER = replace(TOOLKIT, release="13.3.33")
STOP = "vllm_build_while_serving: true"


@pytest.mark.parametrize(
    ("capabilities", "architectures"),
    [
        (["12.1", "11.0", "12.1"], "11.0a;12.1a"),
        (["9.0", "8.9", "12.0"], "8.9;9.0a;12.0a"),
        (["10.3", "10.0"], "10.0a;10.3a"),
        ([], ""),
    ],
)
def test_architectures(capabilities: list[str], architectures: str) -> None:
    assert plan.architectures(capabilities) == architectures


@pytest.mark.parametrize(
    ("cores", "memory", "options", "jobs"),
    [
        # 20 cores and 100 GiB of a Spark, and the same Spark with a model.
        (20, 100, {}, 19),
        (20, 20, {}, 3),
        (20, 0, {}, 1),
        (2, 100, {}, 2),
        (20, 20, CPU, 8),
        (20, 20, {"nvcc_threads": 2}, 1),
        (20, 100, {"nvcc_threads": 2}, 9),
        (20, 1, {"jobs": 7}, 7),
    ],
)
def test_jobs(cores: int, memory: int, options: dict[str, Any], jobs: int) -> None:
    assert plan.jobs({**OPTIONS, **options}, replace(HOST, cores=cores, memory=memory * GIB)) == jobs


def problems(options: dict[str, Any], toolkit: Toolkit = TOOLKIT, **host: Any) -> list[str]:
    return [str(problem) for problem in plan.problems({**OPTIONS, **options}, replace(HOST, **host), toolkit)]


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({}, {}),
        ({**CPU}, {"memory": 6 * GIB, "disk": 6 * GIB}),
        ({"ccache": False}, {"programs": frozenset({"g++", "git"})}),
        ({"while_serving": True}, {"serving": ("gb10-vllm.service",)}),
        ({"environment": {"CMAKE_BUILD_TYPE": "RelWithDebInfo"}}, {}),
        *(({"cuda": cuda}, {}) for cuda in ("", "13.1")),
        # A driver translates the PTX of its own release and of older ones. An unknown release is no finding.
        *(({"driver": driver}, {}) for driver in ("13.0", "13.10", "?")),
    ],
)
def test_a_host_that_can_build(options: dict[str, Any], host: dict[str, Any]) -> None:
    assert problems(options, **host) == []


@pytest.mark.parametrize(
    ("options", "host", "words"),
    [
        ({}, {"programs": frozenset({"git"})}, ["g++, ccache not found", "apt-get install g++ ccache"]),
        ({}, {"headers": False}, ["Python.h not found", "apt-get install python3-dev"]),
        ({"capabilities": []}, {}, ["no GPU is known", "vllm_build_capabilities"]),
        ({}, {"toolkit": Toolkit(None)}, ["nvcc not found", "release 13.0 or newer"]),
        ({"capabilities": ["9.9"]}, {}, ["nvcc 13.0.88 in /usr/local/cuda does not support sm_99"]),
        ({"cuda": "12"}, {}, ["is release 13.0.88", "CUDA 12, that of torch", "vllm_build_cuda_home"]),
        # vllm-project/vllm#47397: PTX of nvcc 13.3 on driver 580.
        ({"driver": "13.0"}, {"toolkit": NEWER}, ["is newer than CUDA 13.0", "install the CUDA toolkit 13.0"]),
        ({}, {"serving": ("gb10-vllm.service",)}, ["gb10-vllm.service is running", STOP]),
        ({}, {"serving": ("a.service", "b.service")}, ["a.service and b.service are running"]),
        ({}, {"memory": 15 * GIB - 1}, ["15.0 GiB are free", "15 GiB for the largest file"]),
        ({}, {"disk": 14 * GIB}, ["14.0 GiB are free in /var/lib/gb10-vllm-build", "15 GiB"]),
        (CPU, {"memory": 5 * GIB}, ["6 GiB for the largest file"]),
        ({"environment": {"MAX_JOBS": "9", "CCACHE_DIR": "/x"}}, {}, ["vllm_build_environment: CCACHE_DIR, MAX_JOBS"]),
    ],
)
def test_what_a_host_lacks(options: dict[str, Any], host: dict[str, Any], words: list[str]) -> None:
    (problem,) = problems(options, **host)
    assert [word for word in words if word not in problem] == [], problem


def test_everything_that_is_missing_is_said_at_once() -> None:
    host = {"programs": frozenset(), "headers": False, "serving": ("x",), "memory": 0, "disk": 0}
    assert len(problems({"capabilities": [], "environment": {"HOME": "/"}, "cuda": "12"}, **host)) == 8


GCC = 'message("GCC >= 11.3 is required to build vLLM (found 9). " "GCC >= 13 is required to build vLLM with CUDA")'


@pytest.mark.parametrize(
    ("options", "project", "compiler", "found"),
    [
        ({}, 'requires = ["torch == 2.14.0"]', "13.3.0", []),
        ({}, 'requires = ["torch >= 2.10.0", "torchvision == 2.10.0"]', "", []),
        ({"torch": ""}, "requires = ['torch==2.13.0']", "13.3.0", []),
        ({}, "requires = ['torch==2.13.0']", "13.3.0", ["this source requires torch 2.13.0"]),
        ({}, "", "12.2.0", ["g++ is release 12"]),
        (CPU, "", "12.2.0", []),
    ],
)
def test_what_a_source_requires(options: dict[str, Any], project: str, compiler: str, found: list[str]) -> None:
    host = replace(HOST, compiler=compiler)
    problems = plan.source_problems({**OPTIONS, **options}, host, project, GCC)
    assert [problem.found for problem in problems] == found
    assert plan.source_problems({**OPTIONS, **options}, replace(host, compiler="13.1"), "", "") == []


def test_the_variables_of_a_build() -> None:
    found = plan.environment({**OPTIONS, "nvcc_threads": 2}, 7, TOOLKIT)
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
    # A value that the role would replace without a word is refused.
    assert found.keys() - plan.OWN == {"CMAKE_BUILD_TYPE"}


def test_a_build_without_gpu_and_without_cache() -> None:
    given = {"FETCHCONTENT_SOURCE_DIR_ONEDNN": "/x", "CMAKE_ARGS": "-DA=1", "CMAKE_BUILD_TYPE": "Debug", "N": 1}
    found = plan.environment({**OPTIONS, **CPU, "ccache": False, "environment": given}, 2, Toolkit(None))
    # CMake's sources are arguments of CMake too.
    expected = {**given, "N": "1", "CMAKE_ARGS": "-DA=1 -DFETCHCONTENT_SOURCE_DIR_ONEDNN=/x", "CCACHE_DISABLE": "1"}
    assert expected.items() <= found.items()
    assert not {"CUDA_HOME", "NVCC_THREADS", "TORCH_CUDA_ARCH_LIST"} & found.keys()


def unit(options: dict[str, Any] | None = None, memory: int = 100 * GIB) -> list[str]:
    given, host = {**OPTIONS, **(options or {})}, replace(HOST, memory=memory)
    return plan.unit(given, host, {"B": "x y", "A": "$1"}, "/opt/gb10/build/build.log")


def properties(command: list[str]) -> list[str]:
    return [word.removeprefix("--property=") for word in command if word.startswith("--property=")]


def test_the_command_of_the_unit() -> None:
    command, found = unit({"store": "/a $b", "ccache": False}), properties(unit())
    description = "--description=Build of vLLM 0.33.0-0123456789ab"
    assert command[:3] == ["systemd-run", "--unit=gb10-vllm-build.service", description]
    assert command[-6:-1] == ["--setenv=A=$1", "--setenv=B=x y", "/bin/sh", "-eu", "-c"]
    # systemd replaces one dollar sign, and the shell none.
    assert command[-1].splitlines()[2] == "cp -a '/a $$b/tree' work"
    assert len({value.partition("=")[0] for value in found}) == len(found), "a property twice"
    log = "append:/opt/gb10/build/build.log"
    assert {f"StandardOutput={log}", f"StandardError={log}", "RuntimeMaxSec=86400"} <= set(found)
    offline = properties(unit({"network": False}))
    assert ("PrivateNetwork=yes" in found, "PrivateNetwork=yes" in offline) == (False, True)


def test_the_commands_of_the_unit() -> None:
    folder = OPTIONS["folder"]
    build = (
        f"{folder}/bin/uv build --wheel --no-build-isolation --out-dir=/var/lib/gb10-vllm-build/dist "
        f"--python={folder}/bin/python work"
    )
    before = ["rm -rf dist tmp work", "mkdir -p ccache home tmp", "cp -a /opt/gb10/build/tree work"]
    assert plan.script({**OPTIONS, "ccache": False}).splitlines() == [*before, build]
    cached = [*before, "ccache --zero-stats", build, "ccache --show-stats"]
    assert plan.script(OPTIONS).splitlines() == cached


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
    found = properties(unit())
    assert {"Nice=10", "CPUWeight=20", "OOMScoreAdjust=1000", "OOMPolicy=stop", "KillMode=control-group"} <= set(found)
    assert f"MemoryMax={96 * GIB}" in found
    assert f"MemoryMax={5 * GIB}" in properties(unit(memory=5 * GIB))
    assert f"MemoryMax={2 * GIB}" in properties(unit(CPU, memory=0))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How vLLM is built on a host: its requirements, the number of compilers, and the unit that runs the build."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.node import toolkit as node_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

UNIT = "gb10-vllm-build.service"
#: The folder of the build's user, below systemd's folder for state. No other user can read it.
STATE = "/var/lib/gb10-vllm-build"
CUDA = "cuda"
GIB = 1024**3
#: Bytes of memory for one compiler, by device: more than most files need, and less than the largest ones, which are
#: few. Then bytes of the largest file, and for the rest of the machine. Source: docs/benchmarks.md, "Build of vLLM".
JOB_BYTES: Mapping[str, int] = {"cuda": 5 * GIB, "cpu": 2 * GIB}
LARGEST_BYTES: Mapping[str, int] = {"cuda": 11 * GIB, "cpu": 2 * GIB}
RESERVE_BYTES = 4 * GIB
#: Bytes of disk for source, objects, compiler cache and wheel. Source: docs/benchmarks.md, "Build of vLLM".
DISK_BYTES: Mapping[str, int] = {"cuda": 15 * GIB, "cpu": 6 * GIB}
#: CPU seconds of a complete build, for CUDA of one architecture. Source: docs/benchmarks.md, "Build of vLLM".
CPU_SECONDS: Mapping[str, float] = {"cuda": 20000.0, "cpu": 3600.0}
#: Programs of a build, and the Debian package of each.
PROGRAMS = {"g++": "g++", "git": "git"}
CCACHE = {"ccache": "ccache"}
#: The variables that the role sets. A user's value would change the build without changing its name.
OWN = frozenset(
    "CCACHE_DIR CCACHE_DISABLE CUDA_HOME HOME LC_ALL MAX_JOBS NVCC_THREADS PATH SETUPTOOLS_SCM_PRETEND_VERSION TMPDIR "
    "TORCH_CUDA_ARCH_LIST UV_NO_CACHE VLLM_DISABLE_SCCACHE VLLM_TARGET_DEVICE".split()
)
#: The sandbox of the unit. A dynamic user has no rights to files of others, and systemd removes its access at the end.
#: The build needs no device, and only systemd's state folder is writable.
_SANDBOX = (
    "DynamicUser=yes",
    "StateDirectory=gb10-vllm-build",
    "StateDirectoryMode=0700",
    "WorkingDirectory=" + STATE,
    "CapabilityBoundingSet=",
    "LockPersonality=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
)
#: The model and other services come first: the kernel ends the build before them if memory is short.
_MANNERS = (
    "CPUWeight=20",
    "IOWeight=20",
    "Nice=10",
    "OOMScoreAdjust=1000",
    "OOMPolicy=stop",
    "KillMode=control-group",
    "TimeoutStopSec=30",
)


@dataclass(frozen=True)
class Host:
    """The host of a build: cores, free bytes of memory and disk, programs (PROGRAMS, CCACHE), and whether Python.h
    exists.

    ``serving`` are the running units that hold a model; ``compiler`` is the release of g++ ("13.3.0"), "" if unknown.
    """

    cores: int
    memory: int
    disk: int
    programs: frozenset[str]
    headers: bool
    serving: tuple[str, ...]
    compiler: str = ""

    @property
    def gcc(self) -> int:
        """The major release of g++, 0 if unknown."""
        major = self.compiler.partition(".")[0]
        return int(major) if major.isdecimal() else 0


@dataclass(frozen=True)
class BuildSettings:
    """The user's variables for the build; see the defaults of the role.

    ``jobs`` and ``nvcc_threads``: 0 to compute them.
    """

    jobs: int
    nvcc_threads: int
    ccache: bool
    network: bool
    while_serving: bool
    timeout: int
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Target:
    """The wheel to build: name, version, device, GPUs, TORCH_CUDA_ARCH_LIST, the stack's torch and its CUDA release.

    ``driver`` is the newest CUDA release that the drivers of the ranks support, "" if unknown.
    """

    name: str
    version: str
    device: str
    capabilities: tuple[ComputeCapability, ...]
    architectures: str
    torch: str
    cuda: str
    driver: str = ""


def jobs(settings: BuildSettings, host: Host, device: str) -> int:
    """Return the number of parallel compilers, the user's or jobs_of()."""
    return settings.jobs or jobs_of(host.cores, host.memory, device, threads(settings))


def jobs_of(cores: int, memory: int, device: str, threads_: int = 1) -> int:
    """Return the number of parallel compilers: one per core, limited by free memory in bytes, at least one."""
    return max(1, min(cores // threads_, (memory - RESERVE_BYTES) // (JOB_BYTES[device] * threads_)))


def threads(settings: BuildSettings) -> int:
    """Return the parallel architectures of one nvcc. More need memory for each, and help only with several GPUs."""
    return settings.nvcc_threads or 1


def problems(
    target: Target, settings: BuildSettings, host: Host, toolkit: node_toolkit.Toolkit, required: str, gcc: int = 0
) -> list[Problem]:
    """Return every reason why the build cannot start.

    ``required`` is the torch that the source requires, "" if it names none; ``gcc`` is the compiler that it requires
    for CUDA, 0 if it names none.
    """
    found = [*_programs(settings, host), *(_gpus(target, toolkit) if target.device == CUDA else [])]
    if required and target.torch and required != target.torch:
        expected, fix = (
            f"torch {target.torch}, the release of the lock",
            "use a stack with that torch, or another commit of vLLM",
        )
        found.append(Problem("source", f"this source requires torch {required}", expected, fix))
    if target.device == CUDA and 0 < host.gcc < gcc:
        fix = f"install g++-{gcc}, or build on a newer release of the system"
        found.append(
            Problem(
                "programs", f"g++ is release {host.gcc}", f"{gcc} or newer, which this source requires for CUDA", fix
            )
        )
    found += _resources(target.device, settings, host)
    if taken := sorted(OWN & settings.environment.keys()):
        found.append(
            Problem("vllm_build_environment", ", ".join(taken), "variables that the role does not set", "remove them")
        )
    return found


def _programs(settings: BuildSettings, host: Host) -> list[Problem]:
    found = []
    needed = PROGRAMS | (CCACHE if settings.ccache else {})
    if missing := [name for name in needed if name not in host.programs]:
        packages = " ".join(needed[name] for name in missing)
        found.append(
            Problem(
                "programs",
                f"{', '.join(missing)} not found",
                "the programs of the build",
                f"apt-get install {packages}",
            )
        )
    if not host.headers:
        found.append(
            Problem(
                "programs", "Python.h not found", "the headers of the runtime's Python", "apt-get install python3-dev"
            )
        )
    return found


def _gpus(target: Target, toolkit: node_toolkit.Toolkit) -> list[Problem]:
    # A build for 12.1 has PTX in FlashAttention 2 and in six files of _C; see docs/benchmarks.md, "Build of vLLM".
    found = [
        *node_toolkit.check(toolkit, target.capabilities),
        *(_wrong_cuda(toolkit, target.cuda) or node_toolkit.check_driver(toolkit, target.driver)),
    ]
    if not target.capabilities:
        found.append(
            Problem("gpus", "no GPU is known", "at least one GPU", "set vllm_build_capabilities, such as [12.1]")
        )
    return found


def _resources(device: str, settings: BuildSettings, host: Host) -> list[Problem]:
    """Return the problems of memory and disk."""
    found = []
    if host.serving and not settings.while_serving:
        fix = "run playbooks/stop.yml, build at another time, or set vllm_build_while_serving: true"
        expected = "no model on this node, because a build needs its memory"
        verb = "is" if len(host.serving) == 1 else "are"
        found.append(Problem("memory", f"{' and '.join(host.serving)} {verb} running", expected, fix))
    if host.memory < (least := RESERVE_BYTES + LARGEST_BYTES[device]):
        fix = "end other programs, or make the node with more free memory the head"
        found.append(
            Problem(
                "memory", f"{host.memory / GIB:.1f} GiB are free", f"{least / GIB:.0f} GiB for the largest file", fix
            )
        )
    if host.disk < DISK_BYTES[device]:
        fix = "free disk space: playbooks/reset.yml lists the files of this collection"
        found.append(
            Problem(
                "disk", f"{host.disk / GIB:.1f} GiB are free in {STATE}", f"{DISK_BYTES[device] / GIB:.0f} GiB", fix
            )
        )
    return found


def _wrong_cuda(toolkit: node_toolkit.Toolkit, wanted: str) -> list[Problem]:
    """Return the problem of a toolkit of another major release than torch's, whose headers differ."""
    if toolkit.home is None or not wanted or toolkit.release.partition(".")[0] == wanted.partition(".")[0]:
        return []
    fix = "install it, or set vllm_build_cuda_home"
    return [
        Problem("toolkit", f"nvcc in {toolkit.home} is release {toolkit.release}", f"CUDA {wanted}, that of torch", fix)
    ]


def required_torch(pyproject: str) -> str:
    """Return the release of torch that a source requires for its build, "" if it names none."""
    found = re.search(r"""["']torch\s*==\s*([0-9][0-9.]*)""", pyproject)
    return found[1] if found else ""


def required_gcc(cmake: str) -> int:
    """Return the release of GCC that a source requires for CUDA, 0 if it names none."""
    found = re.search(r"GCC >= (\d+)[.\d]* is required to build vLLM with CUDA", cmake)
    return int(found[1]) if found else 0


def environment(
    target: Target, settings: BuildSettings, jobs_: int, python: str, toolkit: node_toolkit.Toolkit
) -> dict[str, str]:
    """Return the variables of the build. ``python`` is the environment's interpreter."""
    folder = python.rpartition("/")[0]
    variables = {
        **settings.environment,
        "CCACHE_DIR": f"{STATE}/ccache",
        "CMAKE_BUILD_TYPE": settings.environment.get("CMAKE_BUILD_TYPE", "Release"),
        "HOME": f"{STATE}/home",
        "LC_ALL": "C.UTF-8",
        "MAX_JOBS": str(jobs_),
        "PATH": f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SETUPTOOLS_SCM_PRETEND_VERSION": target.version,
        # /tmp may be in memory.
        "TMPDIR": f"{STATE}/tmp",
        "UV_NO_CACHE": "1",
        "VLLM_DISABLE_SCCACHE": "1",
        "VLLM_TARGET_DEVICE": target.device,
    }
    # CMake reads such a variable only as its own, except for some of vLLM's files.
    sources = [
        f"-D{name}={value}"
        for name, value in settings.environment.items()
        if name.startswith("FETCHCONTENT_SOURCE_DIR_")
    ]
    if sources:
        variables["CMAKE_ARGS"] = " ".join([*settings.environment.get("CMAKE_ARGS", "").split(), *sources])
    if not settings.ccache:
        variables["CCACHE_DISABLE"] = "1"
    if target.device == CUDA:
        variables |= {
            "CUDA_HOME": str(toolkit.home),
            "NVCC_THREADS": str(threads(settings)),
            "PATH": f"{folder}:{toolkit.home}/bin:{variables['PATH'].partition(':')[2]}",
            "TORCH_CUDA_ARCH_LIST": target.architectures,
        }
    return variables


def unit(
    target: Target, settings: BuildSettings, host: Host, variables: Mapping[str, str], program: Sequence[str], log: str
) -> list[str]:
    """Return the command that starts the unit. ``program`` runs as its user; root opens the ``log`` for it."""
    limit = max(host.memory - RESERVE_BYTES, JOB_BYTES[target.device])
    properties = [
        *_SANDBOX,
        *_MANNERS,
        f"MemoryMax={limit}",
        f"RuntimeMaxSec={settings.timeout}",
        f"StandardOutput=append:{log}",
        f"StandardError=append:{log}",
        *([] if settings.network else ["PrivateNetwork=yes"]),
    ]
    return [
        "systemd-run",
        f"--unit={UNIT}",
        f"--description=Build of vLLM {target.name}",
        *(f"--property={value}" for value in properties),
        *(f"--setenv={name}={value}" for name, value in sorted(variables.items())),
        *program,
    ]

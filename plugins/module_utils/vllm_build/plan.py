# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How vLLM is built on a host: its requirements, the number of compilers, and the unit that runs the build."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.node import toolkit as node_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import CUDA

UNIT = "gb10-vllm-build.service"
#: The folder of the build's user, below systemd's folder for state. No other user can read it.
STATE = "/var/lib/gb10-vllm-build"
GIB = 1024**3
#: The first GPUs with architecture-specific features, whose code vLLM's kernels use.
_OWN_FEATURES = 9
#: The options of the module vllm_build.
Options = Mapping[str, Any]
#: Bytes by device. Memory of one compiler: more than most files need, and less than the largest ones, which are few;
#: of the largest file; disk for source, objects, compiler cache and wheel. Source: docs/benchmarks.md, "Build of vLLM".
BYTES = {"cuda": (5 * GIB, 11 * GIB, 15 * GIB), "cpu": (2 * GIB, 2 * GIB, 6 * GIB)}
#: Bytes of memory for the rest of the machine.
RESERVE_BYTES = 4 * GIB
#: Programs of a build. The Debian package of each has the same name.
PROGRAMS = ("g++", "git", "ccache")
#: The variables that the role sets. A user's value would change the build without changing its name.
OWN = frozenset(
    "CCACHE_DIR CCACHE_DISABLE CUDA_HOME HOME LC_ALL MAX_JOBS NVCC_THREADS PATH SETUPTOOLS_SCM_PRETEND_VERSION TMPDIR "
    "TORCH_CUDA_ARCH_LIST UV_NO_CACHE VLLM_DISABLE_SCCACHE VLLM_TARGET_DEVICE".split()
)
#: The sandbox of the unit. A dynamic user has no rights to files of others, and systemd removes its access at the end.
#: The build needs no device, and only systemd's state folder is writable.
_SANDBOX = (
    "DynamicUser=yes",
    # systemd keeps the result until it was read.
    "RemainAfterExit=yes",
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
#: The arguments of uv. Without isolation, the build uses the packages of the environment, which the role pinned.
_BUILD = ("build", "--wheel", "--no-build-isolation", f"--out-dir={STATE}/dist")


@dataclass(frozen=True)
class Host:
    """The host of a build: cores, free bytes of memory and disk, programs (PROGRAMS), and whether Python.h exists.

    ``serving`` are the running units that hold a model; ``compiler`` is the release of g++ ("13.3.0"), "" if unknown.
    """

    cores: int
    memory: int
    disk: int
    programs: frozenset[str]
    headers: bool
    serving: tuple[str, ...]
    compiler: str = ""


def architectures(capabilities: Sequence[str]) -> str:
    """Return TORCH_CUDA_ARCH_LIST for these GPUs: "11.0a;12.1a". GPUs before 9.0 have no code with own features."""
    gpus = sorted({ComputeCapability.parse(text) for text in capabilities})
    return ";".join(f"{gpu}a" if gpu.major >= _OWN_FEATURES else str(gpu) for gpu in gpus)


def jobs(options: Options, host: Host) -> int:
    """Return the number of parallel compilers: the user's, or one per core, limited by free memory, at least one.

    More architectures of one nvcc need memory for each, and help only with several GPUs.
    """
    threads, (one, _largest, _disk) = max(1, options["nvcc_threads"]), BYTES[options["device"]]
    fitting = (host.memory - RESERVE_BYTES) // (one * threads)
    return int(options["jobs"]) or max(1, min(host.cores // threads, fitting))


def problems(options: Options, host: Host, toolkit: Toolkit) -> list[Problem]:
    """Return every reason why the host cannot build."""
    device, serving = options["device"], " and ".join(host.serving)
    _one, largest, disk = BYTES[device]
    missing = [name for name in PROGRAMS if name not in host.programs and (options["ccache"] or name != "ccache")]
    taken = sorted(OWN & options["environment"].keys())
    memory = RESERVE_BYTES + largest
    found = [
        (
            missing,
            "programs",
            f"{', '.join(missing)} not found",
            "the programs of the build",
            f"apt-get install {' '.join(missing)}",
        ),
        (
            not host.headers,
            "programs",
            "Python.h not found",
            "the headers of the runtime's Python",
            "apt-get install python3-dev",
        ),
        (
            serving and not options["while_serving"],
            "memory",
            f"{serving} {'is' if len(host.serving) == 1 else 'are'} running",
            "no model on this node, because a build needs its memory",
            "run playbooks/stop.yml, build at another time, or set vllm_build_while_serving: true",
        ),
        (
            host.memory < memory,
            "memory",
            f"{host.memory / GIB:.1f} GiB are free",
            f"{memory / GIB:.0f} GiB for the largest file",
            "end other programs, or make the node with more free memory the head",
        ),
        (
            host.disk < disk,
            "disk",
            f"{host.disk / GIB:.1f} GiB are free in {STATE}",
            f"{disk / GIB:.0f} GiB",
            "free disk space: playbooks/reset.yml lists the files of this collection",
        ),
        (
            taken,
            "vllm_build_environment",
            ", ".join(taken),
            "variables that the role does not set",
            "remove them",
        ),
    ]
    own = [Problem(*texts) for wrong, *texts in found if wrong]
    return [*own, *(_toolkit(options, toolkit) if device == CUDA else [])]


def _toolkit(options: Options, toolkit: Toolkit) -> list[Problem]:
    # A build for 12.1 has PTX in FlashAttention 2 and in six files of _C; see docs/benchmarks.md, "Build of vLLM".
    gpus, wanted = [ComputeCapability.parse(text) for text in options["capabilities"]], options["cuda"]
    found = node_toolkit.check(toolkit, gpus)
    if not gpus:
        fix = "set vllm_build_capabilities, such as [12.1]"
        found.append(Problem("gpus", "no GPU is known", "at least one GPU", fix))
    # The headers of another major release than torch's differ.
    if toolkit.home and wanted and toolkit.release.partition(".")[0] != wanted.partition(".")[0]:
        text, fix = f"nvcc in {toolkit.home} is release {toolkit.release}", "install it, or set vllm_build_cuda_home"
        return [*found, Problem("toolkit", text, f"CUDA {wanted}, that of torch", fix)]
    return [*found, *node_toolkit.check_driver(toolkit, options["driver"])]


def source_problems(options: Options, host: Host, pyproject: str, cmake: str) -> list[Problem]:
    """Return why the host cannot build a source with these files: another torch, or an older compiler for CUDA."""
    torch = re.search(r"""["']torch\s*==\s*([0-9][0-9.]*)""", pyproject)
    gcc = re.search(r"GCC >= (\d+)[.\d]* is required to build vLLM with CUDA", cmake)
    major, found = host.compiler.partition(".")[0], []
    if torch and options["torch"] not in ("", torch[1]):
        expected = f"torch {options['torch']}, the release of the lock"
        fix = "use a stack with that torch, or another commit of vLLM"
        found.append(Problem("source", f"this source requires torch {torch[1]}", expected, fix))
    if options["device"] == CUDA and gcc and major.isdecimal() and int(major) < int(gcc[1]):
        expected = f"{gcc[1]} or newer, which this source requires for CUDA"
        fix = f"install g++-{gcc[1]}, or build on a newer release of the system"
        found.append(Problem("programs", f"g++ is release {major}", expected, fix))
    return found


def version(name: str) -> str:
    """Return the version of the wheel of a build, without the suffix of the device."""
    release, _dash, digest = name.rpartition("-")
    return f"{release}+gb10.{digest[:8]}"


def environment(options: Options, jobs_: int, toolkit: Toolkit) -> dict[str, str]:
    """Return the variables of the build."""
    given = {str(name): str(value) for name, value in options["environment"].items()}
    path = f"{options['folder']}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        **given,
        "CCACHE_DIR": f"{STATE}/ccache",
        "HOME": f"{STATE}/home",
        "LC_ALL": "C.UTF-8",
        "MAX_JOBS": str(jobs_),
        "PATH": path,
        "SETUPTOOLS_SCM_PRETEND_VERSION": version(options["name"]),
        # /tmp may be in memory.
        "TMPDIR": f"{STATE}/tmp",
        "UV_NO_CACHE": "1",
        "VLLM_DISABLE_SCCACHE": "1",
        "VLLM_TARGET_DEVICE": options["device"],
    }
    # CMake reads such a variable only as its own, except for some of vLLM's files.
    own = [f"-D{name}={value}" for name, value in given.items() if name.startswith("FETCHCONTENT_SOURCE_DIR_")]
    if own:
        variables["CMAKE_ARGS"] = " ".join([*given.get("CMAKE_ARGS", "").split(), *own])
    if not options["ccache"]:
        variables["CCACHE_DISABLE"] = "1"
    if options["device"] == CUDA:
        variables |= {
            "CUDA_HOME": str(toolkit.home),
            "NVCC_THREADS": str(max(1, options["nvcc_threads"])),
            "PATH": path.replace(":", f":{toolkit.home}/bin:", 1),
            "TORCH_CUDA_ARCH_LIST": architectures(options["capabilities"]),
        }
    return variables


def script(options: Options) -> str:
    """Return the shell commands of the unit: a copy of STORE/tree, and a standard build in the environment.

    The copy is at one path, because the compiler cache depends on it.
    """
    folder = options["folder"]
    copy = shlex.join(["cp", "-a", f"{options['store']}/tree", "work"])
    build = shlex.join([f"{folder}/bin/uv", *_BUILD, f"--python={folder}/bin/python", "work"])
    commands = ["rm -rf dist tmp work", "mkdir -p ccache home tmp", copy]
    cached = ["ccache --zero-stats", build, "ccache --show-stats"]
    return "\n".join([*commands, *(cached if options["ccache"] else [build])])


def unit(options: Options, host: Host, variables: Mapping[str, str], log: str) -> list[str]:
    """Return the command that starts the unit. Root opens the ``log`` for it."""
    properties = [
        *_SANDBOX,
        *_MANNERS,
        f"MemoryMax={max(host.memory - RESERVE_BYTES, BYTES[options['device']][0])}",
        f"RuntimeMaxSec={options['timeout']}",
        f"StandardOutput=append:{log}",
        f"StandardError=append:{log}",
        *([] if options["network"] else ["PrivateNetwork=yes"]),
    ]
    return [
        "systemd-run",
        f"--unit={UNIT}",
        f"--description=Build of vLLM {options['name']}",
        *(f"--property={value}" for value in properties),
        *(f"--setenv={name}={value}" for name, value in sorted(variables.items())),
        # systemd would replace variables.
        *("/bin/sh", "-eu", "-c", script(options).replace("$", "$$")),
    ]

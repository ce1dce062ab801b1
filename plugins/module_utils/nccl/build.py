# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build plan of NCCL for a cluster's GPUs: release, architectures, jobs, command, and the result's stamp."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.functions import pattern_problems
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import check as check_toolkit

#: The first release without the hang on ARM, independent of the compiler.
#: Source: NVIDIA/nccl, release v2.29.3-1; see choice.py.
MINIMUM = (2, 29, 3)
#: Bytes per compiler (at most 0.6 GB were measured, docs/benchmarks.md), and for the rest of the machine.
JOB_BYTES = 1024**3
RESERVE_BYTES = 2 * 1024**3
#: Bytes of disk for one architecture (several times the measured value, docs/benchmarks.md), and per further one.
DISK_BYTES, DISK_BYTES_FURTHER = 512 * 1024**2, 128 * 1024**2
#: Programs that NCCL's makefiles call, and the package of each. A source from a tag also needs git.
PROGRAMS = {"make": "make", "g++": "g++", "python3": "python3", "which": "debianutils"}
GIT = {"git": "git"}
#: PATH of a build with ccache: the compiler links of its package, then root's PATH.
CCACHE_PATH = "/usr/lib/ccache:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Release:
    """A release of NCCL, such as 2.30.7."""

    major: int
    minor: int
    patch: int

    @classmethod
    def of_makefile(cls, text: str, path: str) -> Release:
        """Parse makefiles/version.mk of a source tree. Raises ProblemsError at ``path`` if the release is missing."""
        found = {
            name: re.search(rf"^{name}\s*:?=\s*(\d+)\s*$", text, re.MULTILINE)
            for name in ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
        }
        if not all(found.values()):
            missing = ", ".join(name for name, match in found.items() if match is None)
            found_text, expected = f"version.mk does not define {missing}", "the source tree of an NCCL release"
            raise ProblemsError([Problem(path, found_text, expected, "unpack the complete source again")])
        return cls(*(int(match[1]) for match in found.values() if match))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def findings(self) -> tuple[Problem, ...]:
        """Warnings about the release. A user may have chosen it on purpose."""
        if (self.major, self.minor, self.patch) >= MINIMUM:
            return ()
        minimum = ".".join(map(str, MINIMUM))
        hang = "can hang on ARM under load, with a healthy API (NVIDIA/nccl issue 2353)"
        found, fix = (
            f"{self} compiled with a GCC before 10 {hang}",
            "set a newer tag in release, unless you study that hang",
        )
        return (Problem("release", found, f"{minimum} or newer", fix),)


@dataclass(frozen=True)
class Builder:
    """The build node: machine as in uname, cores, free bytes of memory and disk, and its programs (PROGRAMS, GIT)."""

    machine: str
    cores: int
    memory: int
    disk: int
    programs: frozenset[str]


@dataclass(frozen=True)
class Source:
    """A source tree: its folder, its release, and its exact identity ("commit 73cf112…", "sha256 e672…")."""

    path: str
    release: Release
    identity: str


@dataclass(frozen=True)
class BuildPlan:
    """A build: jobs, the inputs that determine the result (stamp), their digest, the folder's name, and warnings."""

    jobs: int
    stamp: Mapping[str, Any]
    digest: str
    name: str
    findings: tuple[Problem, ...]

    def argv(self, source: Source, toolkit: Toolkit, target: str, ccache: bool = False) -> list[str]:
        """Return the command that builds ``target``/lib/libnccl.so and ``target``/include, with or without ccache."""
        nvcc = f"{toolkit.home}/bin/nvcc"
        # NVCUFLAGS_SYM: ccache only caches compilations with -c. The symmetric kernels use -dw, which is equivalent.
        cached = ["env", f"PATH={CCACHE_PATH}", "NVCUFLAGS_SYM=-c"] if ccache else []
        return [
            *cached,
            "make",
            "-C",
            source.path,
            f"-j{self.jobs}",
            # The static library would need as much disk again, and is never linked.
            "src.lib",
            f"BUILDDIR={target}",
            f"CUDA_HOME={toolkit.home}",
            f"NVCC={f'ccache {nvcc}' if ccache else nvcc}",
            f"NVCC_GENCODE={self.stamp['gencode']}",
            *([f"ONLY_FUNCS={self.stamp['functions']}"] if self.stamp["functions"] else []),
        ]


def gencode(gpus: Sequence[ComputeCapability]) -> str:
    """Return NVCC_GENCODE for these GPUs, sorted and without duplicates, so that the stamp of a cluster is stable."""
    return " ".join(gpu.gencode for gpu in sorted(set(gpus)))


def jobs(cores: int, memory: int) -> int:
    """Return the number of parallel compilers: one per core, limited by free memory (bytes), at least one."""
    return max(1, min(cores, (memory - RESERVE_BYTES) // JOB_BYTES))


def plan(
    source: Source,
    gpus: Sequence[ComputeCapability],
    toolkit: Toolkit,
    builder: Builder,
    functions: str = "",
    patches: Mapping[str, str] | None = None,
) -> BuildPlan:
    """Plan a build. ``functions`` is NCCL's ONLY_FUNCS, empty for all. prerequisites() checks the feasibility.

    ``patches``: the SHA-256 of each patch that the source has, by name.
    """
    stamp = {
        "release": str(source.release),
        "source": source.identity,
        "gencode": gencode(gpus),
        "cuda": toolkit.release,
        "machine": builder.machine,
        "functions": functions,
        # Without a patch the name of a build stays that of older releases of this collection.
        **({"patches": dict(patches)} if patches else {}),
    }
    digest = hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()
    return BuildPlan(
        jobs(builder.cores, builder.memory),
        stamp,
        digest,
        f"{source.release}-{digest[:12]}",
        source.release.findings,
    )


def prerequisites(
    gpus: Sequence[ComputeCapability], toolkit: Toolkit, builder: Builder, functions: str = "", from_git: bool = False
) -> list[Problem]:
    """Return the missing prerequisites of a build. Call it before the source is fetched, to report all at once."""
    problems = pattern_problems(functions, "functions")
    needed_programs = PROGRAMS | (GIT if from_git else {})
    if missing := [name for name in needed_programs if name not in builder.programs]:
        packages = " ".join(needed_programs[name] for name in missing)
        expected = "all programs that NCCL's build calls"
        problems.append(Problem("programs", f"{', '.join(missing)} not found", expected, f"apt-get install {packages}"))
    if not gpus:
        fix = "set its compute capability, such as 12.1"
        problems.append(Problem("gpus", "no GPU is known", "at least one GPU", fix))
    problems += check_toolkit(toolkit, gpus)
    if builder.disk < (needed := DISK_BYTES + DISK_BYTES_FURTHER * (len(set(gpus)) - 1)):
        found = f"{builder.disk // 1024**2} MiB are free"
        expected, fix = f"{needed // 1024**2} MiB for the build", "free disk space, or use a folder on another disk"
        problems.append(Problem("disk", found, expected, fix))
    return problems

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Building NCCL on this host, as nccl_build plans it: what there is to build with, the source, and making the library."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read, read_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library as io_nccl
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as io_nccl_store
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.build import GIT, PROGRAMS, Builder, Plan, Release, Source, Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory

#: Where CUDA toolkits are installed, best first; the link that their packages make comes before what they installed.
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")
#: How many lines of a build that failed are shown.
_SHOWN = 20


def toolkit(run: Run, home: str | None) -> Toolkit:
    """Return the toolkit in that folder, or the first that there is. Raises ProblemsError for a folder without one that runs."""
    places = [home] if home else [path for pattern in _TOOLKITS for path in sorted(glob.glob(pattern), reverse=True)]
    for place in places:
        nvcc = f"{place}/bin/nvcc"
        if not os.access(nvcc, os.X_OK):
            continue
        answers = [run([nvcc, option]) for option in ("--version", "--list-gpu-code")]
        if any(status != 0 for status, _stdout, _stderr in answers):
            raise ProblemsError([Problem("cuda_home", f"{nvcc} does not run: {answers[0][2].strip()}", "a CUDA toolkit", "repair or name another")])
        return Toolkit.of_nvcc(place, answers[0][1], answers[1][1])
    if home:
        raise ProblemsError([Problem("cuda_home", f"there is no {home}/bin/nvcc", "the folder of a CUDA toolkit", "correct it, or leave it out")])
    return Toolkit(None)


def builder(folder: str) -> Builder:
    """Return what this host has; ``folder`` is where the build goes."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    there = frozenset(name for name in PROGRAMS | GIT if shutil.which(name))
    memory = available_memory(read("/proc/meminfo"))
    return Builder(os.uname().machine, len(os.sched_getaffinity(0)), memory, shutil.disk_usage(folder).free, there)


def source(run: Run, path: str, identity: str | None, commit: str | None = None) -> Source:
    """Return a source tree; what it is exactly is asked of git unless it is given. Raises ProblemsError if that cannot be told.

    With ``commit`` another one is refused as well: a tag can be moved, and root runs what it leads to.
    """
    text, _mode = read_file(f"{path}/makefiles/version.mk")
    if text is None:
        raise ProblemsError([Problem("source", f"there is no {path}/makefiles/version.mk", "the source tree of NCCL", "correct the path")])
    release = Release.of_makefile(text, "source")
    if identity:
        return Source(path, release, identity)
    git = ["git", "-c", f"safe.directory={path}", "-C", path]
    status, head, said = run([*git, "rev-parse", "HEAD"])
    changed = run([*git, "status", "--porcelain", "--untracked-files=no"]) if status == 0 else (0, "", "")
    if status != 0 or changed[1].strip():
        found = f"{path} has changes that are in no commit" if status == 0 else f"git says of {path}: {said.strip()}"
        raise ProblemsError([Problem("source", found, "a commit, so that the result can be told apart", "check it out anew, or give its identity")])
    if commit and head.strip() != commit:
        fix = f"find out why the tag leads elsewhere; if that commit is meant, name it; else remove {path}"
        raise ProblemsError([Problem("commit", f"{path} is commit {head.strip()}", commit, fix)])
    return Source(path, release, f"commit {head.strip()}")


def make(run: Run, plan: Plan, given: Source, tools: Toolkit, store: str, ccache: bool) -> str:
    """Build, in a folder that a killed run leaves to the next one, and return the library. Raises ProblemsError with the end of make's output."""
    target = f"{store}/.build-{plan.name}"
    # A build of another plan is of no more use, and takes a gigabyte.
    for other in glob.glob(f"{glob.escape(store)}/.build-*"):
        if other != target:
            shutil.rmtree(other)
    os.makedirs(target, exist_ok=True)
    status, stdout, stderr = run(plan.argv(given, tools, target, ccache))
    if status != 0:
        last = "\n".join(f"{stdout}\n{stderr}".strip().splitlines()[-_SHOWN:])
        raise ProblemsError([Problem("source", f"make failed with status {status}: {last}", "a build", "see what it says, and run again")])
    return io_nccl.find(target)


def add(plan: Plan, made: str, gpus: Sequence[ComputeCapability], store: str) -> None:
    """Put what was built into the store, once it has code for these GPUs. Raises ProblemsError if it has not, and keeps nothing of it."""
    if problems := nccl_library.problems(io_nccl.library(made), made, gpus, os.uname().machine):
        shutil.rmtree(f"{store}/.build-{plan.name}")
        raise ProblemsError(problems)
    with io_nccl_store.part(store, plan.name) as folder:
        io_nccl_store.fill(folder, os.path.realpath(made), {**plan.stamp, "name": plan.name, "digest": plan.digest, "sha256": io_file.sha256(made)})
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(f"{store}/.build-{plan.name}")

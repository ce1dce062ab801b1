# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build NCCL on this host as planned by build.py: find the toolkit and programs, read the source, build the library."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_git
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read, read_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import patches as nccl_patches
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.build import (
    GIT,
    PROGRAMS,
    Builder,
    BuildPlan,
    Release,
    Source,
)
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit

#: The number of output lines shown for a failed build.
_SHOWN = 20
#: The file of a patched source with the SHA-256 of each patch that fits, by name.
_APPLIED = ".gb10-patches.json"


def builder(folder: str) -> Builder:
    """Return this host's resources and programs. ``folder`` is the target of the build."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    there = frozenset(name for name in PROGRAMS | GIT if shutil.which(name))
    memory = available_memory(read("/proc/meminfo"))
    return Builder(os.uname().machine, len(os.sched_getaffinity(0)), memory, shutil.disk_usage(folder).free, there)


def source(run: Run, path: str, identity: str | None, commit: str | None = None) -> Source:
    """Return a source tree. ``identity`` defaults to the git commit. Raises ProblemsError if that is unknown.

    ``commit`` rejects any other commit: a tag can be moved, and root runs the code.
    """
    text, _mode = read_file(f"{path}/makefiles/version.mk")
    if text is None:
        found = f"{path}/makefiles/version.mk not found"
        raise ProblemsError([Problem("source", found, "the source tree of NCCL", "correct the path")])
    release = Release.of_makefile(text, "source")
    if identity:
        return Source(path, release, identity)
    head = io_git.commit(run, path, "check it out again, or set its identity")
    refuse(io_git.moved("commit", path, head, commit or ""))
    return Source(path, release, f"commit {head}")


def patched(
    run: Run, given: Source, patches: Sequence[Mapping[str, str]], check: bool
) -> tuple[Source, dict[str, str], list[Problem]]:
    """Return a copy of the source with the patches ({name, text} of each), the SHA-256 of each that fits by name, and
    warnings about those of this collection that do not fit the release.

    The copy is next to the source, in a folder named after its content, and replaces an older one. With ``check`` it is
    temporary. Raises ProblemsError for a user's patch that does not fit.
    """
    if not patches:
        return given, {}, []
    if not shutil.which("git"):
        raise ProblemsError([Problem("programs", "git not found", "git, which applies patches", "apt-get install git")])
    digests = {patch["name"]: hashlib.sha256(patch["text"].encode()).hexdigest() for patch in patches}
    name = hashlib.sha256(json.dumps([given.identity, digests]).encode()).hexdigest()[:12]
    folder = f"{given.path}+{name}"
    if not os.path.isfile(f"{folder}/{_APPLIED}"):
        with tempfile.TemporaryDirectory() if check else io_file.new_folder(folder, f"{given.path}+part") as part:
            shutil.copytree(given.path, part, symlinks=True, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
            io_file.own(part)
            applied = {each["name"]: digests[each["name"]] for each in patches if _apply(run, part, each, patches)}
            io_file.write_file(f"{part}/{_APPLIED}", json.dumps(applied), io_file.READABLE)
            if not check:
                for other in glob.glob(f"{glob.escape(given.path)}+*"):
                    if other != part:
                        # A killed run must not leave half a tree that looks whole.
                        Path(other, _APPLIED).unlink(missing_ok=True)
                        shutil.rmtree(other)
    else:
        applied = json.loads(read(f"{folder}/{_APPLIED}"))
    unfit = [nccl_patches.unfit(each, str(given.release)) for each in digests if each not in applied]
    return replace(given, path=folder), applied, unfit


def _apply(run: Run, tree: str, patch: Mapping[str, str], patches: Sequence[Mapping[str, str]]) -> bool:
    """Apply a patch, and return whether it fits. Raises ProblemsError for a user's that does not."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(patch["text"])
        file.flush()
        # Below a repository, git would omit the files outside of its index without an error.
        git = ["env", f"GIT_CEILING_DIRECTORIES={os.path.dirname(tree)}", "git", "-C", tree]
        status, _stdout, reported = run([*git, "apply", "--whitespace=nowarn", file.name])
    if status == 0 or patch["name"] in nccl_patches.KNOWN:
        return status == 0
    path = f"nccl_sm121_build_patches[{patches.index(patch)}]"
    found = f"{patch['name']} does not apply: {' '.join(reported.split())}"
    fix = "renew the patch for this release, or remove it"
    raise ProblemsError([Problem(path, found, "a patch for this source, in git's format", fix)])


def make(run: Run, plan: BuildPlan, given: Source, tools: Toolkit, store: str, ccache: bool) -> str:
    """Build and return the library. A killed run leaves its folder to the next run.

    Raises ProblemsError with the end of make's output.
    """
    target = f"{store}/.build-{plan.name}"
    # A build of another plan is obsolete and takes a gigabyte.
    for other in glob.glob(f"{glob.escape(store)}/.build-*"):
        if other != target:
            shutil.rmtree(other)
    io_file.add_folder(target)
    status, stdout, stderr = run(plan.argv(given, tools, target, ccache))
    if status != 0:
        last = "\n".join(f"{stdout}\n{stderr}".strip().splitlines()[-_SHOWN:])
        found = f"make failed with status {status}: {last}"
        raise ProblemsError([Problem("source", found, "exit status 0", "fix the reported error, then run again")])
    return io_library.find(target)


def add(plan: BuildPlan, made: str, gpus: Sequence[ComputeCapability], store: str) -> None:
    """Add the built library to the store. Raises ProblemsError, and removes it, if it has no code for these GPUs."""
    if problems := nccl_library.problems(io_library.library(made), made, gpus, os.uname().machine):
        shutil.rmtree(f"{store}/.build-{plan.name}")
        raise ProblemsError(problems)
    with nccl_io_store.part(store, plan.name) as folder:
        nccl_io_store.fill(
            folder,
            os.path.realpath(made),
            {**plan.stamp, "name": plan.name, "digest": plan.digest, "sha256": io_file.sha256(made)},
        )
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(f"{store}/.build-{plan.name}")

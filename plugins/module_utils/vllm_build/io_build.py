# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prepare the source of a build on this host, run its unit, and add its wheel to the store."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath, io_file, io_work_unit
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import cmake, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import PROGRAMS, STATE, UNIT, Host
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import WHEEL

_LIST = "CMakeLists.txt"
#: The end of the log that is read, in bytes.
_LOG = 1 << 16


def host(run: Run, units: Sequence[str]) -> Host:
    """Return this host's resources. ``units`` hold a model if they run."""
    # systemd keeps the folders of dynamic users there; it may be another disk.
    above = os.path.dirname(STATE)
    disk = next(path for path in (f"{above}/private", above, "/") if os.path.isdir(path))
    return Host(
        cores=len(os.sched_getaffinity(0)),
        memory=available_memory(io_file.read("/proc/meminfo")),
        disk=shutil.disk_usage(disk).free,
        programs=frozenset(name for name in PROGRAMS if shutil.which(name)),
        headers=os.path.isfile(f"{sysconfig.get_paths()['include']}/Python.h"),
        serving=tuple(unit for unit in units if run(["systemctl", "is-active", unit])[1].strip() == "active"),
        compiler=run(["g++", "-dumpfullversion"])[1].strip(),
    )


def prepare(
    run: Run, store: str, source: str, patches: Sequence[str], gpus: Sequence[ComputeCapability]
) -> tuple[str, str]:
    """Write the patched source to STORE/tree, in place of the last one, and return its pyproject.toml and
    CMakeLists.txt.

    Raises ProblemsError for another source than vLLM's and for a patch that cannot be applied, OSError.
    """
    if cmake.PROJECT not in io_file.read(f"{source}/{_LIST}"):
        found = f"{source} has no {_LIST} of vLLM"
        raise ProblemsError([Problem("source", found, "the source of vLLM", "correct vllm_build_source")])
    with io_file.new_folder(f"{store}/tree", f"{store}/.tree.part") as part:
        shutil.copytree(source, part, symlinks=True, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
        # Below a repository, git would omit the files outside of its index without an error.
        git = ["env", f"GIT_CEILING_DIRECTORIES={store}", "git", "-C", part, "apply", "--whitespace=nowarn"]
        for index, patch in enumerate(patches):
            status, _stdout, reported = run([*git, patch])
            if status != 0:
                found = f"{os.path.basename(patch)} does not apply: {' '.join(reported.split())}"
                expected, fix = (
                    "a patch for this source, in git's format",
                    "renew the patch for this commit, or remove it",
                )
                raise ProblemsError([Problem(f"vllm_build_patches[{index}]", found, expected, fix)])
        lists = io_file.read(f"{part}/{_LIST}")
        io_file.write_file(f"{part}/{_LIST}", cmake.with_gpus(lists, gpus), io_file.READABLE)
        # The build's user reads it.
        io_file.own(part)
    return io_file.read(f"{store}/tree/pyproject.toml"), lists


def start(run: Run, argv: Sequence[str], log: str) -> None:
    """Start the unit with a new log. Raises ProblemsError, OSError."""
    # Its last lines belong to its log.
    io_work_unit.stop(run, UNIT)
    if os.path.lexists(log):
        os.replace(log, f"{log}.1")
    io_work_unit.start(run, UNIT, argv)


def state(run: Run, name: str) -> tuple[str, str]:
    """Return the state of the build ``name``, see io_work_unit.Work, and the unit's result.

    Raises ProblemsError if the unit builds something else.
    """
    work = io_work_unit.read(run, UNIT, name)
    if work.state == "other":
        fix = f"wait for it, or stop it: systemctl stop {UNIT}"
        text, expected = f"{UNIT} runs: {work.description}", f"no other build than {name}"
        raise ProblemsError([Problem("unit", text, expected, fix)])
    return work.state, work.result


def end_of(run: Run, log: str) -> str:
    """Return the end of the log, "" if it does not exist."""
    return run(["tail", f"--bytes={_LOG}", log])[1].encode("utf-8", "replace").decode()


def add(run: Run, store: str, stamp: Mapping[str, Any], gpus: Sequence[ComputeCapability]) -> dict[str, Any]:
    """Stop the unit, add the wheel that it has left to the store, and return its stamp.

    Its user may have written anything, and no process of it may change the wheel now. Raises ProblemsError, see
    io_store.add(), OSError, and OutsideError for a link.
    """
    io_work_unit.stop(run, UNIT)
    dist = io_beneath.Folder(STATE)
    with dist.place("dist") as place:
        names = [name for name in os.listdir(place) if WHEEL.fullmatch(name)]
    if len(names) != 1:
        found = f"{len(names)} wheels of vLLM in {STATE}/dist"
        raise ProblemsError([Problem("wheel", found, "one", "run the build again")])
    with dist.open(f"dist/{names[0]}") as wheel:
        return io_store.add(store, {**stamp, "wheel": names[0]}, wheel, gpus)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prepare the source of a build on this host, start and read its unit, and add its wheel to the store."""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath, io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import cmake, io_pack, io_store, parse, wheel
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import CCACHE, PROGRAMS, STATE, UNIT, Host
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.progress import Progress, progress
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Status

_LIST, _PROJECT = "CMakeLists.txt", "pyproject.toml"
#: The end of the log that is read, in bytes.
_LOG = 1 << 16
_PROPERTIES = ("ActiveState", "Result", "Description", "ExecMainStartTimestampMonotonic")


def host(run: Run, units: Sequence[str]) -> Host:
    """Return this host's resources. ``units`` hold a model if they run."""
    programs = frozenset(name for name in PROGRAMS | CCACHE if shutil.which(name))
    memory = available_memory(io_file.read("/proc/meminfo"))
    headers = os.path.isfile(f"{sysconfig.get_paths()['include']}/Python.h")
    serving = tuple(unit for unit in units if run(["systemctl", "is-active", unit])[1].strip() == "active")
    # systemd keeps the folders of dynamic users there; it may be another disk.
    disk = next(
        path for path in (f"{os.path.dirname(STATE)}/private", os.path.dirname(STATE), "/") if os.path.isdir(path)
    )
    compiler = run(["g++", "-dumpfullversion"])[1].strip()
    return Host(
        len(os.sched_getaffinity(0)), memory, shutil.disk_usage(disk).free, programs, headers, serving, compiler
    )


def requirements(run: Run, source: str, patches: Sequence[str]) -> tuple[str, str]:
    """Return pyproject.toml and CMakeLists.txt with the patches, which may change the source's requirements.

    A patch that does not apply is left out; prepare() reports it. Raises ProblemsError if this is not vLLM's source.
    """
    if not cmake.is_vllm(io_file.read(f"{source}/{_LIST}")):
        raise ProblemsError(
            [Problem("source", f"{source} has no {_LIST} of vLLM", "the source of vLLM", "correct vllm_build_source")]
        )
    names = (_PROJECT, _LIST)
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in names if os.path.isfile(f"{source}/{name}")):
            shutil.copyfile(f"{source}/{name}", f"{folder}/{name}")
        git = ["env", f"GIT_CEILING_DIRECTORIES={os.path.dirname(folder)}", "git", "-C", folder, "apply"]
        for patch in patches:
            run([*git, *(f"--include={name}" for name in names), patch])
        return io_file.read(f"{folder}/{_PROJECT}"), io_file.read(f"{folder}/{_LIST}")


def prepare(
    run: Run, store: str, name: str, source: str, patches: Sequence[str], gpus: Sequence[ComputeCapability]
) -> str:
    """Write the patched source of a build to the store, and return its folder. The last one of the same name is kept.

    Raises ProblemsError for a patch that cannot be applied, OSError.
    """
    tree, mark = f"{store}/tree", f"{store}/tree.name"
    if io_file.read(mark) == name and os.path.isdir(tree):
        return tree
    part = f"{store}/.tree.part"
    for old in (mark, tree, part):
        if os.path.isdir(old):
            shutil.rmtree(old)
        elif os.path.lexists(old):
            os.unlink(old)
    shutil.copytree(source, part, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    # Below a repository, git would omit the files outside of its index without an error.
    git = ["env", f"GIT_CEILING_DIRECTORIES={store}", "git"]
    for index, patch in enumerate(patches):
        status, _stdout, reported = run([*git, "-C", part, "apply", "--whitespace=nowarn", patch])
        if status != 0:
            found = f"{os.path.basename(patch)} does not apply: {' '.join(reported.split())}"
            fix = "renew the patch for this commit, or remove it"
            raise ProblemsError(
                [Problem(f"vllm_build_patches[{index}]", found, "a patch for this source, in git's format", fix)]
            )
    text = io_file.read(f"{part}/{_LIST}")
    if (changed := cmake.with_gpus(text, gpus)) != text:
        # The time of a patched file must be new for ninja, and io_file writes a new one.
        io_file.write_file(f"{part}/{_LIST}", changed, io_file.READABLE)
    _readable(part)
    os.rename(part, tree)
    io_file.write_file(mark, name, io_file.READABLE)
    return tree


def _readable(folder: str) -> None:
    """Let the build's user read a folder. Links stay."""
    for above, folders, names in os.walk(folder):
        os.chmod(above, io_file.SEARCHABLE)
        for path in (f"{above}/{name}" for name in [*folders, *names]):
            if os.path.isfile(path) and not os.path.islink(path):
                os.chmod(path, io_file.SEARCHABLE if os.stat(path).st_mode & 0o100 else io_file.READABLE)


def running(run: Run, name: str) -> bool:
    """Return whether the unit builds ``name``. Raises ProblemsError if it builds something else."""
    unit = _unit(run)
    if unit["ActiveState"] not in ("active", "activating", "deactivating"):
        return False
    if unit["Description"].split()[-1:] != [name]:
        fix = f"wait for it, or stop it: systemctl stop {UNIT}"
        raise ProblemsError(
            [Problem("unit", f"{UNIT} runs: {unit['Description']}", f"no other build than {name}", fix)]
        )
    return True


def start(run: Run, argv: Sequence[str], log: str) -> None:
    """Start the unit with a new log. Raises ProblemsError, OSError."""
    run(["systemctl", "reset-failed", UNIT])
    if os.path.lexists(log):
        os.replace(log, f"{log}.1")
    status, _stdout, reported = run(list(argv))
    if status != 0:
        raise ProblemsError(
            [Problem("unit", f"systemd-run failed: {reported.strip()}", "a started unit", "see journalctl")]
        )


def read(run: Run, log: str, name: str) -> Progress:
    """Return the progress of the build ``name``."""
    unit = _unit(run)
    begin = int(unit["ExecMainStartTimestampMonotonic"] or 0) / 1e6
    with open("/proc/uptime", encoding="ascii") as file:
        seconds = max(0.0, float(file.read().split()[0]) - begin) if begin else 0.0
    return progress(unit["ActiveState"], unit["Result"], seconds, _end(log), status(), name)


def status() -> Status:
    """Return the status that the unit's program wrote. It is untrusted."""
    try:
        with (
            io_beneath.Folder(STATE).open("status.json") as found,
            os.fdopen(os.dup(found), encoding="utf-8", errors="replace") as file,
        ):
            return parse.status(file.read(parse.MOST_STATUS + 1))
    except (OSError, io_beneath.OutsideError):
        # No build has run, or another program wrote there. Then the wheel is missing too.
        return Status()


def add(store: str, name: str, gpus: Sequence[ComputeCapability], stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Add the finished wheel to the store, and return its stamp.

    Raises ProblemsError if the wheel is missing or damaged, has other files than vLLM's, or no code for these GPUs;
    OSError.
    """
    built = status()
    if (built.name, built.state) != (name, "finished") or not built.wheel:
        raise ProblemsError([Problem("wheel", "the build has left no wheel", "one wheel", "run the build again")])
    with io_store.part(store, name) as folder:
        path = f"{folder}/{built.wheel}"
        try:
            with io_beneath.Folder(STATE).open(f"dist/{built.wheel}") as found:
                sha256 = io_pack.pack(found, path)
        except io_beneath.OutsideError as error:
            found_text = f"dist/{built.wheel} {error}"
            raise ProblemsError([Problem("wheel", found_text, "a regular file", "run the build again")]) from error
        extensions = io_store.extensions(path, folder)
        if refused := wheel.problems(extensions, gpus):
            raise ProblemsError(refused)
        content = {
            **stamp,
            "name": name,
            "wheel": built.wheel,
            "sha256": sha256,
            "extensions": wheel.contents(extensions),
            "coverage": wheel.lines(extensions, gpus),
            "seconds": built.seconds,
            "ccache": built.ccache,
            "dependencies": built.dependencies,
        }
        io_file.write_file(
            f"{folder}/{io_store.STAMP}", json.dumps(content, indent=2, sort_keys=True) + "\n", io_file.READABLE
        )
    return content


def _unit(run: Run) -> dict[str, str]:
    _status, stdout, _stderr = run(["systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}"])
    found = dict(line.split("=", 1) for line in stdout.splitlines() if "=" in line)
    return {name: found.get(name, "") for name in _PROPERTIES}


def _end(log: str) -> str:
    """Return the end of the log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG))
            return file.read(_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a libnccl, and find the one that running processes have mapped. Read-only, without CUDA."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import process_maps
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.library import Library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.process_maps import Caller, Mapping, Process
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import elf

#: The name under which programs load the library, and its file name.
SONAME = "libnccl.so.2"
#: The folder of NVIDIA's wheel in an environment, and the suffix that nccl_select adds when a link replaces the file.
_WHEEL, _KEPT = "lib/python3*/site-packages/nvidia/nccl/lib", ".gb10-original"
#: Maximum bytes of a mapped library that is read. PyTorch's largest one has about 1 GB.
_LARGEST = 4 << 30
#: systemd's cgroups: unified, hybrid and legacy hierarchy.
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")


def find(path: str) -> str:
    """Return the library at ``path``, or libnccl.so.2 in that folder or its lib. Raises ProblemsError if missing."""
    names = [path] if not os.path.isdir(path) else [f"{path}/{SONAME}", f"{path}/lib/{SONAME}"]
    for name in names:
        if os.path.isfile(name):
            return name
    broken = os.path.islink(path) and not os.path.exists(path)
    found = f"a broken link to {os.readlink(path)}" if broken else f"{' or '.join(names)} not found"
    raise ProblemsError(
        [Problem(path, found, f"a libnccl, or a folder with {SONAME}", "build it, or correct the path")]
    )


def bundled(runtime: str) -> str | None:
    """Return the library of NVIDIA's wheel in an environment, also if a link replaced it; None if there is none."""
    for folder in sorted(glob.glob(f"{glob.escape(runtime)}/{_WHEEL}")):
        place = f"{folder}/{SONAME}"
        if os.path.islink(place) and os.path.isfile(place + _KEPT):
            return place + _KEPT
        if os.path.isfile(place):
            return place
    return None


def replaced(runtime: str) -> bool:
    """Return whether a link replaces the wheel's library, or an interrupted run left a file of the replacement."""
    places = glob.glob(f"{glob.escape(runtime)}/{_WHEEL}/{SONAME}*")
    return any(os.path.islink(place) or ".gb10-" in os.path.basename(place) for place in places)


def bundled_facts(runtime: str) -> dict[str, Any] | None:
    """Return that library's facts, {} if none is readable, None if the environment is not completely installed."""
    if not os.path.isfile(f"{runtime}/.complete"):
        return None
    path = bundled(runtime)
    try:
        return library(path).facts() if path else {}
    except ProblemsError:
        return {}


def library(path: str) -> Library:
    """Read a library. Raises ProblemsError if the file is not a library, OSError if it cannot be read."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ProblemsError([Problem(path, "the file is empty", "a libnccl", "copy or build the file again")])
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping, memoryview(mapping) as data:
            return nccl_library.read(data, path)


def pids(run: Run, unit: str, roots: Sequence[str] = _CGROUPS) -> list[int]:
    """Return every process of a systemd unit, including those in sub-cgroups and in its container.

    Raises ProblemsError if the unit is not running.
    """
    status, stdout, stderr = run(["systemctl", "show", unit, "--property=ControlGroup", "--value"])
    if status != 0:
        reason = f"systemctl show failed: {stderr.strip()}"
        raise ProblemsError([Problem(unit, reason, "a systemd unit", "correct its name")])
    group = stdout.strip()
    # Docker's containers belong to its daemon, but are in a slice named after the unit (launch/argv.py).
    part = f"/{unit.removesuffix('.service')}.slice"
    found: list[int] = []
    for place in (group, f"/{part[1:].partition('-')[0]}.slice{part}", part):
        folders = [f"{root}{place}" for root in roots if place and os.path.isdir(f"{root}{place}")]
        found += sorted(_members(folders[0])) if folders else []
    if not found:
        fix = f"start it, or find out why it stopped: systemctl status {unit}"
        raise ProblemsError([Problem(unit, "it has no process", "a running unit", fix)])
    return found


@dataclasses.dataclass
class _File:
    """Facts of a mapped file: whether it is a libnccl, its linker entries if it needs one, its hash if it is one."""

    nccl: bool = False
    dynamic: elf.Dynamic | None = None
    sha256: str | None = None


def processes(of_unit: Iterable[int], named: Iterable[int]) -> list[Process]:
    """Return the libraries that each process has mapped. A shared file is read once.

    An unreadable process has the reason in ``unreadable``, and so has a missing process of ``named``. Processes of
    ``of_unit`` that have ended are omitted.
    """
    known: dict[tuple[str, int], _File] = {}
    found = [_process(pid, known) for pid in of_unit]
    return [process for process in found if process is not None] + [
        _process(pid, known) or Process(pid, "", unreadable="no such process") for pid in named
    ]


def _members(folder: str) -> Iterator[int]:
    for place, _folders, _files in os.walk(folder):
        yield from (int(line) for line in read(f"{place}/cgroup.procs").split())


def _process(pid: int, known: dict[tuple[str, int], _File]) -> Process | None:
    name = read(f"/proc/{pid}/comm").strip()
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = process_maps.mapped(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        return Process(pid, name, unreadable=f"/proc/{pid}/maps: {error.strerror}")
    files = {}
    for mapping in mapped:
        key = (mapping.device, mapping.inode)
        if key not in known:
            known[key] = _look(pid, mapping)
        files[mapping] = known[key]
    libraries = {
        mapping: dataclasses.replace(mapping, sha256=file.sha256) for mapping, file in files.items() if file.nccl
    }
    process = Process(pid, name, tuple(libraries.values()))
    if len(libraries) < 2:
        return process
    variables = _variables(pid)
    search = [folder for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder]
    library = variables.get(process_maps.OWN)
    return dataclasses.replace(
        process,
        preload=_preload(pid, variables.get("LD_PRELOAD", "")),
        early=tuple(libraries[mapping] for mapping in process_maps.early(mapped) if mapping in libraries),
        callers=tuple(
            Caller(mapping.path, _files(pid, mapping.path, file.dynamic, search))
            for mapping, file in files.items()
            if file.dynamic
        ),
        vllm_library=_real(pid, library) if library else "",
    )


def _preload(pid: int, variable: str) -> tuple[str, ...]:
    """Return the preloaded files of a process: those in LD_PRELOAD (``variable``), then those of its host."""
    # A container's own file is not read: its content is untrusted.
    everywhere = read("/etc/ld.so.preload") if _same_root(pid) else ""
    return tuple(_real(pid, entry) for entry in re.split(r"[:\s]+", f"{variable} {everywhere}") if entry)


def _variables(pid: int) -> dict[str, str]:
    """Return the process's initial variables for library lookup by the linker and vLLM. Others are discarded."""
    wanted = ("LD_PRELOAD", "LD_LIBRARY_PATH", process_maps.OWN)
    pairs = (entry.partition("=") for entry in read(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, _sign, value in pairs if name in wanted}


def _files(pid: int, caller: str, dynamic: elf.Dynamic, search: Sequence[str]) -> tuple[str, ...]:
    """Return the files that the linker would load as the library, in search order. Source: ld.so(8)."""
    folders = [*search, *dynamic.runpath] if dynamic.runpath else [*dynamic.rpath, *search]
    origin = os.path.dirname(caller)
    places = [re.sub(r"\$(ORIGIN|\{ORIGIN\})", lambda _match: origin, folder) for folder in folders]
    return tuple(_real(pid, os.path.normpath(f"{place}/{SONAME}")) for place in places)


def _real(pid: int, path: str) -> str:
    """Return the path with links resolved, or unchanged if the process has another root."""
    return os.path.realpath(path) if _same_root(pid) and os.path.exists(path) else path


def _same_root(pid: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    return False


def _look(pid: int, mapping: Mapping) -> _File:
    """Read a mapped file. If its content cannot be read, its name decides."""
    file = _open(pid, mapping)
    if file is None:
        return _File(nccl=mapping.named)
    with file:
        try:
            # Data files are mapped too, and may shrink meanwhile. A sparse file costs its owner nothing.
            if os.fstat(file.fileno()).st_size > _LARGEST or file.read(len(elf.MAGIC)) != elf.MAGIC:
                return _File()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as data:
                nccl, dynamic = nccl_library.is_one(data, mapping.path), elf.dynamic(data, mapping.path)
            file.seek(0)
            return _File(
                nccl,
                dynamic if SONAME in dynamic.needed else None,
                hashlib.file_digest(file, "sha256").hexdigest() if nccl else None,
            )
        except (ProblemsError, ValueError, OSError):
            return _File()


def _open(pid: int, mapping: Mapping) -> BufferedReader | None:
    """Open the mapped file itself, which may be deleted or in a container. If the kernel denies that, open it by name.

    Returns None if the file is unreadable or not a regular file, because reading may change it.
    """
    names = [f"/proc/{pid}/map_files/{mapping.range}"] + (
        [] if mapping.deleted else [f"/proc/{pid}/root{mapping.path}"]
    )
    for name in names:
        with suppress(OSError):
            found = os.stat(name)
            if stat.S_ISREG(found.st_mode) and (
                name.startswith(f"/proc/{pid}/map_files") or found.st_ino == mapping.inode
            ):
                return open(name, "rb")
    return None

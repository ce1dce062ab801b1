# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a libnccl, and which one running processes have mapped. Nothing here changes anything, and no CUDA is needed."""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils import nccl_library, process_maps
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run, read
from ansible_collections.gb10.cluster.plugins.module_utils.nccl_library import Library
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.process_maps import Mapping, Process

#: The name by which programs load the library, and under which it lies in a folder.
SONAME = "libnccl.so.2"
#: Where systemd's cgroups are: unified, beside the old controllers, and with those alone.
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")


def find(path: str) -> str:
    """Return the library that ``path`` means: itself, or libnccl.so.2 in that folder or in its lib. Raises ProblemsError if there is none."""
    names = [path] if not os.path.isdir(path) else [f"{path}/{SONAME}", f"{path}/lib/{SONAME}"]
    for name in names:
        if os.path.isfile(name):
            return name
    found = f"a broken link to {os.readlink(path)}" if os.path.islink(path) and not os.path.exists(path) else "there is no file " + " or ".join(names)
    raise ProblemsError([Problem(path, found, f"a libnccl, or a folder with {SONAME}", "build it, or correct the path")])


def library(path: str) -> Library:
    """Return what the file holds. Raises ProblemsError if it is none, OSError if it may not be read."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ProblemsError([Problem(path, "it is empty", "a libnccl", "copy or build the file again")])
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping, memoryview(mapping) as data:
            return nccl_library.read(data, path)


def pids(run: Run, unit: str, roots: Sequence[str] = _CGROUPS) -> list[int]:
    """Return every process of a systemd unit, those of cgroups below its own and of its container too. Raises ProblemsError if it is not running."""
    status, stdout, stderr = run(["systemctl", "show", unit, "--property=ControlGroup", "--value"])
    if status != 0:
        raise ProblemsError([Problem(unit, f"systemctl show failed: {stderr.strip()}", "a unit of systemd", "correct its name")])
    group = stdout.strip()
    # Docker's containers belong to its daemon, but are in a slice of the unit's name (launch.py).
    part = f"/{unit.removesuffix('.service')}.slice"
    found: list[int] = []
    for place in (group, f"/{part[1:].partition('-')[0]}.slice{part}", part):
        folders = [f"{root}{place}" for root in roots if place and os.path.isdir(f"{root}{place}")]
        found += sorted(_members(folders[0])) if folders else []
    if not found:
        raise ProblemsError([Problem(unit, "it has no process", "a running unit", f"start it, or see why it stopped: systemctl status {unit}")])
    return found


def processes(of_unit: Iterable[int], named: Iterable[int]) -> list[Process]:
    """Return what each process has mapped. A file that many have mapped is read once.

    One that may not be read says so. One of a unit that ended meanwhile is no part of it any more; a named one that is not there says so.
    """
    hashes: dict[tuple[str, int], str | None] = {}
    found = [_process(pid, hashes) for pid in of_unit]
    return [process for process in found if process is not None] + [
        _process(pid, hashes) or Process(pid, "", unreadable="there is no such process") for pid in named
    ]


def _members(folder: str) -> Iterator[int]:
    for place, _folders, _files in os.walk(folder):
        yield from (int(line) for line in read(f"{place}/cgroup.procs").split())


def _process(pid: int, hashes: dict[tuple[str, int], str | None]) -> Process | None:
    name = read(f"/proc/{pid}/comm").strip()
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            found = process_maps.mapped(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        return Process(pid, name, unreadable=f"/proc/{pid}/maps: {error.strerror}")
    for mapping in found:
        key = (mapping.device, mapping.inode)
        if hashes.get(key) is None:
            hashes[key] = _hash(pid, mapping)
    return Process(pid, name, tuple(dataclasses.replace(mapping, sha256=hashes[mapping.device, mapping.inode]) for mapping in found))


def _hash(pid: int, mapping: Mapping) -> str | None:
    """Hash the very file that is mapped, which may be deleted or in a container; where the kernel does not give it out, the one of that name."""
    names = [f"/proc/{pid}/map_files/{mapping.range}"] + ([] if mapping.deleted else [f"/proc/{pid}/root{mapping.path}"])
    for name in names:
        try:
            with open(name, "rb") as file:
                if name.startswith(f"/proc/{pid}/map_files") or os.fstat(file.fileno()).st_ino == mapping.inode:
                    return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue
    return None

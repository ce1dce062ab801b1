# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The libnccl that each process of a node has mapped, the one that it uses, and differences from the expected one.

Only the mappings of a process are evidence. With PyTorch's wheels LD_LIBRARY_PATH has no effect, and
VLLM_NCCL_SO_PATH changes vLLM's own communicator only. LD_PRELOAD leaves the wheel's file mapped too, and
torch.cuda.nccl.version() is a build-time constant of PyTorch. If several are mapped, PyTorch calls the first preloaded
one, else the one found by its search path.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: Address range, permissions, offset, device, inode, path. Source: proc_pid_maps(5).
_LINE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE)
_DELETED = " (deleted)"
#: All names of the library, but not its plugins (libnccl-net.so). The name decides if the content cannot be read.
_NAME = re.compile(r"libnccl\.so(\.\d+)*")
#: The linker maps itself, then preloaded libraries, then the program's libraries, each below the previous one
#: (mmap's default). Python needs both the C library and the math library.
_LOADER = re.compile(r"ld-linux[^/]*\.so\.\d+|ld-[\d.]+\.so")
_PROGRAM = (re.compile(r"libc(\.so\.6|-[\d.]+\.so)"), re.compile(r"libm(\.so\.6|-[\d.]+\.so)"))
#: Smaller files may be in a gap between those: the linker unmaps its cache, and a file of a large page (2 MiB) or more
#: is aligned to one. Measured: in 4 % of 1,500 starts the C library was in the gap above a preloaded libnccl, which
#: leaves no space for the math library. A libnccl is larger than a gap.
_HOLE = 16 * 2**20
#: The variable that makes vLLM's own communicator load another library.
OWN = "VLLM_NCCL_SO_PATH"


@dataclass(frozen=True)
class Mapping:
    """A mapped file: its path for the process, its identity, and whether the name was deleted or reused.

    ``range`` is the address range of its first part, which is its name in /proc/PID/map_files. ``size`` is the size of
    all parts in bytes. ``sha256`` is None if the file was not read.
    """

    path: str
    device: str
    inode: int
    deleted: bool
    range: str
    sha256: str | None = None
    size: int = 0

    def facts(self) -> dict[str, Any]:
        """Return the mapping as plain data."""
        return {
            "path": self.path,
            "device": self.device,
            "inode": self.inode,
            "deleted": self.deleted,
            "sha256": self.sha256,
        }

    def described(self, hashed: bool) -> str:
        """Return the path with notes that distinguish the file from others of that name, and its hash if ``hashed``."""
        content = f"sha256 {self.sha256[:12]}…" if self.sha256 else "its content could not be read"
        notes = ["deleted"] * self.deleted + [content] * hashed
        return f"{self.path} ({', '.join(notes)})" if notes else self.path

    @property
    def address(self) -> int:
        """The start address of its first part."""
        return _ends(self.range)[0]

    @property
    def named(self) -> bool:
        """Whether the file has a name of the library."""
        return _NAME.fullmatch(self.path.rpartition("/")[2]) is not None


@dataclass(frozen=True)
class Caller:
    """A mapped file that needs the library, and the linker's candidates for the library, in search order."""

    path: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process: its name (never its arguments, which may contain secrets), its mappings, and the reason if unreadable.

    ``preload`` are the files in its preload settings. ``early`` are the libraries mapped before the program's, which
    only a preload causes; programs that change their title overwrite the variables. ``vllm_library`` is the value of
    OWN.
    """

    pid: int
    name: str
    libraries: tuple[Mapping, ...] = ()
    unreadable: str = ""
    preload: tuple[str, ...] = ()
    early: tuple[Mapping, ...] = ()
    callers: tuple[Caller, ...] = ()
    vllm_library: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the process as plain data, as in nccl_info."""
        found, why = used(self)
        return {
            "pid": self.pid,
            "name": self.name,
            "libraries": [mapping.facts() for mapping in self.libraries],
            "used": found.path if found else None,
            "undecided": why,
            "unreadable": self.unreadable,
        }

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


def mapped(maps: str) -> list[Mapping]:
    """Return each file in /proc/PID/maps once, in address order. Other lines are skipped."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for addresses, device, inode, path in _LINE.findall(maps):
        found.setdefault((path, device, inode), []).append(addresses)
    return [
        Mapping(
            _unescaped(path.removesuffix(_DELETED)),
            device,
            int(inode),
            path.endswith(_DELETED),
            parts[0],
            size=sum(end - start for start, end in map(_ends, parts)),
        )
        for (path, device, inode), parts in found.items()
    ]


def early(files: Sequence[Mapping]) -> list[Mapping]:
    """Return the preloaded files: those mapped after the linker and before the program's libraries, in that order.

    Returns [] if the addresses do not decrease, as under another memory layout. Small files that were mapped later are
    omitted.
    """
    loader = _address(_LOADER, files)
    libraries = [found for name in _PROGRAM if (found := _address(name, files)) is not None]
    if loader is None or not libraries:
        return []
    return sorted(
        (file for file in files if min(libraries) < file.address < loader and file.size >= _HOLE),
        key=lambda file: -file.address,
    )


def _address(name: re.Pattern[str], files: Sequence[Mapping]) -> int | None:
    """Return the highest address of a file with this name: a later library of the same name is below it."""
    return max((file.address for file in files if name.fullmatch(posixpath.basename(file.path))), default=None)


def used(process: Process) -> tuple[Mapping | None, str]:
    """Return the library that PyTorch calls in this process and the reason if unknown; (None, "") without any."""
    libraries = process.libraries
    if len(libraries) < 2:
        return (libraries[0], "") if libraries else (None, "")
    if found := _first(process.preload, libraries):
        return found, ""
    if process.early:
        return process.early[0], ""
    ways = [_first(caller.files, libraries) for caller in process.callers]
    answers = {way for way in ways if way}
    if len(answers) == 1 and all(ways):
        return answers.pop(), ""
    names = ", ".join(mapping.path for mapping in libraries)
    callers = ", ".join(caller.path for caller in process.callers)
    caller = f"{callers} may call either" if callers else "no mapped file shows which one is called"
    return None, f"{len(libraries)} are mapped ({names}), and {caller}"


def differences(
    node: str, processes: Sequence[Process], path: str, sha256: str | None = None, alone: bool = False
) -> list[Problem]:
    """Return the processes of a node that use another libnccl than the file at ``path`` (as in /proc: links resolved).

    A process without any libnccl is not a rank and is ignored, but at least one process must have mapped the file. With
    ``sha256`` the content decides instead of the name. With ``alone`` no other libnccl may be mapped, as after
    replacing the wheel's file. Without it, another one may be mapped if the file is used, as with LD_PRELOAD.
    """
    expected = f"{path} (sha256 {sha256[:12]}…)" if sha256 else path
    problems = []
    for process in processes:
        place = f"{node}, {process}"
        if process.unreadable:
            problems.append(
                Problem(place, process.unreadable, "readable mappings", "run this as root while the service runs")
            )
        elif difference := _difference(process, path, sha256, alone):
            problems.append(Problem(place, difference[0], expected, difference[1]))
    if not problems and not any(process.libraries for process in processes):
        found = f"none of {len(processes)} processes has mapped a libnccl"
        problems.append(Problem(node, found, expected, "query again after the ranks have loaded PyTorch"))
    return problems


def _difference(process: Process, path: str, sha256: str | None, alone: bool) -> tuple[str, str] | None:
    """Return how a process uses another libnccl and how to fix that, None if it does not."""
    meant = [mapping for mapping in process.libraries if _is(mapping, path, sha256)]
    others = [mapping for mapping in process.libraries if mapping not in meant]
    hashed, restart = sha256 is not None, "restart the service, so that each rank loads it"
    if others and (alone or not meant):
        beside = f" in addition to {path}" if meant else ""
        return f"it has mapped {', '.join(mapping.described(hashed) for mapping in others)}{beside}", restart
    called, why = used(process)
    if others and called is None:
        return f"the used library is unknown: {why}", "map only one library, or preload it"
    if called in others:
        return f"it uses {called.described(hashed)}, while {path} is only mapped", restart
    if library := _called(process.vllm_library, others):
        return f"vLLM's own communicator uses {library.described(hashed)}, from {OWN}", f"leave {OWN} unset"
    return None


def _called(entry: str, libraries: Sequence[Mapping]) -> Mapping | None:
    """Return the library at a path. A deleted link still identifies its library by the folder."""
    if exact := next((mapping for mapping in libraries if mapping.path == entry), None):
        return exact
    folder = posixpath.dirname(entry)
    beside = [mapping for mapping in libraries if folder and posixpath.dirname(mapping.path) == folder]
    return beside[0] if len(beside) == 1 else None


def _first(paths: Sequence[str], libraries: Sequence[Mapping]) -> Mapping | None:
    """Return the library at the first of these paths that matches one."""
    return next((found for path in paths if (found := _called(path, libraries))), None)


def _is(mapping: Mapping, path: str, sha256: str | None) -> bool:
    """Compare by content if a hash is given: a container has other names, and a name may have been reused."""
    return mapping.sha256 == sha256 if sha256 else mapping.path == path and not mapping.deleted


def _ends(addresses: str) -> tuple[int, int]:
    start, _dash, end = addresses.partition("-")
    return int(start, 16), int(end, 16)


def _unescaped(path: str) -> str:
    """Unescape line breaks, which the kernel writes in octal."""
    return path.replace("\\012", "\n")

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which libnccl the processes of a node have mapped, which one of them they use, and which of them differ from what was meant.

What a process maps is the one proof: with PyTorch's wheels LD_LIBRARY_PATH changes nothing, VLLM_NCCL_SO_PATH moves vLLM's own communicator
only, LD_PRELOAD leaves the wheel's file mapped beside ours, and torch.cuda.nccl.version() is a constant of PyTorch's build. Of several that
are mapped, PyTorch calls the first that was preloaded, else the one that its own list of folders leads to.
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
#: The library under all its names, and not its plugins (libnccl-net.so): where the content cannot be read, the name has to do.
_NAME = re.compile(r"libnccl\.so(\.\d+)*")
#: The linker maps itself first, then what is preloaded, then the program's own libraries, each below the one before (mmap's default).
_LOADER, _LIBC = re.compile(r"ld-linux[^/]*\.so\.\d+|ld-[\d.]+\.so"), re.compile(r"libc(\.so\.6|-[\d.]+\.so)")
#: What is smaller may lie in a hole between those: the linker unmaps its cache, and large pages want addresses of their own. A libnccl is larger.
_HOLE = 16 * 2**20
#: The variable with which vLLM's own communicator loads another library.
OWN = "VLLM_NCCL_SO_PATH"


@dataclass(frozen=True)
class Mapping:
    """A file that a process has mapped: path as the process sees it, identity on its machine, whether the name is gone or another file's by now.

    ``range`` is the address range of its first part, which names it in /proc/PID/map_files; ``size`` is that of all parts, in bytes.
    ``sha256`` is None where the file was not read.
    """

    path: str
    device: str
    inode: int
    deleted: bool
    range: str
    sha256: str | None = None
    size: int = 0

    def facts(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"path": self.path, "device": self.device, "inode": self.inode, "deleted": self.deleted, "sha256": self.sha256}

    def said(self, hashed: bool) -> str:
        """The path, and what distinguishes the file from another of that name; ``hashed`` says whether its hash was asked for."""
        content = f"sha256 {self.sha256[:12]}…" if self.sha256 else "its content could not be read"
        notes = ["deleted since"] * self.deleted + [content] * hashed
        return f"{self.path} ({', '.join(notes)})" if notes else self.path

    @property
    def address(self) -> int:
        """Where its first part begins."""
        return _ends(self.range)[0]

    @property
    def named(self) -> bool:
        """Whether the file is called like the library."""
        return _NAME.fullmatch(self.path.rpartition("/")[2]) is not None


@dataclass(frozen=True)
class Caller:
    """A mapped file that needs the library, and the files that the linker would take for it, in the order in which it looks for them."""

    path: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process: its name (never its arguments, which may hold secrets), what it has mapped, and why that is not known where it is not.

    ``preload`` are the files that it was told to preload, ``early`` those of the libraries that were mapped before the C library, which only
    a preload does: programs that change their title overwrite the variables. ``own`` is the value of OWN.
    """

    pid: int
    name: str
    libraries: tuple[Mapping, ...] = ()
    unreadable: str = ""
    preload: tuple[str, ...] = ()
    early: tuple[Mapping, ...] = ()
    callers: tuple[Caller, ...] = ()
    own: str = ""

    def facts(self) -> dict[str, Any]:
        """The same as plain data, as nccl_info returns it."""
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
    """Return every file that /proc/PID/maps shows, once each, in the order of the addresses. Other lines are passed over."""
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
    """Return what was mapped behind the linker and before the C library, in that order: the linker itself, and what was preloaded.

    Nothing is returned where the addresses do not fall, as under another layout of memory; a small file that was mapped later is left out.
    """
    loader = next((file.address for file in files if _LOADER.fullmatch(posixpath.basename(file.path))), None)
    library = next((file.address for file in files if _LIBC.fullmatch(posixpath.basename(file.path))), None)
    if loader is None or library is None:
        return []
    return sorted((file for file in files if library < file.address < loader and file.size >= _HOLE), key=lambda file: -file.address)


def used(process: Process) -> tuple[Mapping | None, str]:
    """Return the library that PyTorch calls in this process, and why that is not known where it is not: (None, "") for a process without one."""
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
    return None, f"{len(libraries)} are mapped ({names}), and {f'{callers} may call either' if callers else 'nothing mapped tells which is called'}"


def differences(node: str, processes: Sequence[Process], path: str, sha256: str | None = None, alone: bool = False) -> list[Problem]:
    """Say which processes of a node use another libnccl than the file at ``path`` (as /proc shows it: links resolved).

    A process without any libnccl is no rank and may stay so, but one at least has to have mapped the file. With ``sha256`` its content decides,
    whatever its name. With ``alone`` nothing else may be mapped beside it, as where the wheel's file was replaced; without, as with LD_PRELOAD,
    it may, if the file is the one that is used.
    """
    problems = []
    hashed = sha256 is not None
    for process in processes:
        place, fix = f"{node}, {process}", "restart the service, so that each rank loads it"
        if process.unreadable:
            problems.append(Problem(place, process.unreadable, "a list of what it has mapped", "run this as root, while the service is up"))
            continue
        meant = [mapping for mapping in process.libraries if _is(mapping, path, sha256)]
        others = [mapping for mapping in process.libraries if mapping not in meant]
        called, why = used(process)
        own = _called(process.own, others)
        if others and (alone or not meant):
            beside = f" beside {path}" if meant else ""
            found = f"it has mapped {', '.join(mapping.said(hashed) for mapping in others)}{beside}"
            problems.append(Problem(place, found, _expected(path, sha256), fix))
        elif others and called is None:
            problems.append(Problem(place, f"it cannot be told which it uses: {why}", _expected(path, sha256), "let it map one alone, or preload it"))
        elif called in others:
            problems.append(Problem(place, f"it uses {called.said(hashed)}, and {path} is only mapped", _expected(path, sha256), fix))
        elif own:
            found = f"vLLM's own communicator uses {own.said(hashed)}, by {OWN}"
            problems.append(Problem(place, found, _expected(path, sha256), f"leave {OWN} unset"))
    if not problems and not any(process.libraries for process in processes):
        found = f"none of {len(processes)} processes has mapped a libnccl"
        problems.append(Problem(node, found, _expected(path, sha256), "ask again when the ranks have loaded PyTorch"))
    return problems


def _called(entry: str, libraries: Sequence[Mapping]) -> Mapping | None:
    """Return the library that a path means; a link that is gone with its file still names the folder of the file."""
    if exact := next((mapping for mapping in libraries if mapping.path == entry), None):
        return exact
    folder = posixpath.dirname(entry)
    beside = [mapping for mapping in libraries if folder and posixpath.dirname(mapping.path) == folder]
    return beside[0] if len(beside) == 1 else None


def _first(paths: Sequence[str], libraries: Sequence[Mapping]) -> Mapping | None:
    """Return the library that the first of these paths which means one means."""
    return next((found for path in paths if (found := _called(path, libraries))), None)


def _is(mapping: Mapping, path: str, sha256: str | None) -> bool:
    """The content decides where it was asked for: in a container the same file has another name, and a name may be another file's by now."""
    return mapping.sha256 == sha256 if sha256 else mapping.path == path and not mapping.deleted


def _expected(path: str, sha256: str | None) -> str:
    return f"{path} (sha256 {sha256[:12]}…)" if sha256 else path


def _ends(addresses: str) -> tuple[int, int]:
    start, _dash, end = addresses.partition("-")
    return int(start, 16), int(end, 16)


def _unescaped(path: str) -> str:
    """The kernel writes a line end in a name as octal."""
    return path.replace("\\012", "\n")

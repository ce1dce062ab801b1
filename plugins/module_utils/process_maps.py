# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which libnccl the processes of a node have mapped, from /proc/PID/maps, and which of them differ from what was meant.

What a process maps is the one proof: with PyTorch's wheels LD_LIBRARY_PATH changes nothing, VLLM_NCCL_SO_PATH moves vLLM's own communicator
only, LD_PRELOAD leaves the wheel's file mapped beside ours, and torch.cuda.nccl.version() is a constant of PyTorch's build.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem

#: Address range, permissions, offset, device, inode, path. Source: proc_pid_maps(5).
_LINE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE)
_DELETED = " (deleted)"
#: The library under all its names, and not its plugins (libnccl-net.so).
_NAME = re.compile(r"libnccl\.so(\.\d+)*")


@dataclass(frozen=True)
class Mapping:
    """A file that a process has mapped: path as the process sees it, identity on its machine, whether the name is gone or another file's by now.

    ``range`` is the address range of its first part, which names it in /proc/PID/map_files. ``sha256`` is None where the file was not read.
    """

    path: str
    device: str
    inode: int
    deleted: bool
    range: str
    sha256: str | None = None

    def facts(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"path": self.path, "device": self.device, "inode": self.inode, "deleted": self.deleted, "sha256": self.sha256}

    def said(self, hashed: bool) -> str:
        """The path, and what distinguishes the file from another of that name; ``hashed`` says whether its hash was asked for."""
        content = f"sha256 {self.sha256[:12]}…" if self.sha256 else "its content could not be read"
        notes = ["deleted since"] * self.deleted + [content] * hashed
        return f"{self.path} ({', '.join(notes)})" if notes else self.path


@dataclass(frozen=True)
class Process:
    """A process: its name (never its arguments, which may hold secrets), what it has mapped, and why that is not known where it is not."""

    pid: int
    name: str
    libraries: tuple[Mapping, ...] = ()
    unreadable: str = ""

    def facts(self) -> dict[str, Any]:
        """The same as plain data, as nccl_info returns it."""
        return {
            "pid": self.pid,
            "name": self.name,
            "libraries": [mapping.facts() for mapping in self.libraries],
            "unreadable": self.unreadable,
        }

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


def mapped(maps: str) -> list[Mapping]:
    """Return every libnccl that /proc/PID/maps shows, once each, in the order of the file. Other lines are passed over."""
    found: dict[tuple[str, str, int], Mapping] = {}
    for addresses, device, inode, path in _LINE.findall(maps):
        name = path.removesuffix(_DELETED)
        if _NAME.fullmatch(name.rpartition("/")[2]):
            found.setdefault((path, device, inode), Mapping(_unescaped(name), device, int(inode), path != name, addresses))
    return list(found.values())


def differences(node: str, processes: Sequence[Process], path: str, sha256: str | None = None, alone: bool = False) -> list[Problem]:
    """Say which processes of a node use another libnccl than the file at ``path`` (as /proc shows it: links resolved).

    A process without any libnccl is no rank and may stay so, but one at least has to have mapped the file. With ``sha256`` its content decides,
    whatever its name. With ``alone`` nothing else may be mapped beside it, as where the wheel's file was replaced; without, as with LD_PRELOAD,
    it may.
    """
    problems = []
    for process in processes:
        place = f"{node}, {process}"
        if process.unreadable:
            problems.append(Problem(place, process.unreadable, "a list of what it has mapped", "run this as root, while the service is up"))
            continue
        meant = [mapping for mapping in process.libraries if _is(mapping, path, sha256)]
        others = [mapping for mapping in process.libraries if mapping not in meant]
        if others and (alone or not meant):
            beside = f" beside {path}" if meant else ""
            found = f"it has mapped {', '.join(mapping.said(hashed=sha256 is not None) for mapping in others)}{beside}"
            problems.append(Problem(place, found, _expected(path, sha256), "restart the service, so that each rank loads it"))
    if not problems and not any(process.libraries for process in processes):
        found = f"none of {len(processes)} processes has mapped a libnccl"
        problems.append(Problem(node, found, _expected(path, sha256), "ask again when the ranks have loaded PyTorch"))
    return problems


def _is(mapping: Mapping, path: str, sha256: str | None) -> bool:
    """The content decides where it was asked for: in a container the same file has another name, and a name may be another file's by now."""
    return mapping.sha256 == sha256 if sha256 else mapping.path == path and not mapping.deleted


def _expected(path: str, sha256: str | None) -> str:
    return f"{path} (sha256 {sha256[:12]}…)" if sha256 else path


def _unescaped(path: str) -> str:
    """The kernel writes a line end in a name as octal."""
    return path.replace("\\012", "\n")

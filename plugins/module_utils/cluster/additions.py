# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch overrides that a node reports: only of roles that record some, and only values that each may write.

The flags of all nodes become arguments of the head's server, and the files part of every node's record. So a node must
not be able to report others. launch/overrides.py describes an override.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.patch import table

_KEYS = ("runtime", "environment", "flags", "files", "mounts")
#: Maximum files, mounts, and characters of a name.
_FILES, _MOUNTS, _LONGEST = 4096, 16, 1024
_DIGEST = re.compile(r"([0-9a-f]{64})?")
_PATH = re.compile(r"(/(?!\.\.?(/|$))[\w.+@=-]+)+", re.ASCII)
_NAME = re.compile(r"[^\x00-\x1f\x7f]+")
#: A CUDA toolkit of a node or of an image. No other folder counts: a user's could be writable for the services.
_TOOLKIT = re.compile(r"/usr/local/cuda(-\d+(\.\d+)?)?/bin/ptxas", re.ASCII)
_LIBRARY = re.compile(r"libnccl\.so(\.\d+)*", re.ASCII)
#: The reference or the ID of an image, or the name of a wheel.
_IMAGE_OR_WHEEL = re.compile(r"[A-Za-z0-9]\w*([./:@+!-]+\w+)*", re.ASCII)
#: The ends of the folders of an image that a copy of its vLLM replaces.
_REPLACED = ("/vllm", f"/{table.PTXAS.removeprefix('../')}")
_DISABLED = frozenset(
    kernel
    for names in (
        *table.PROBED.values(),
        *(row.environment.get("VLLM_DISABLED_KERNELS", "").split(",") for row in table.ROWS),
    )
    for kernel in names
    if kernel
)
#: Whether the text is a valid value, for a collection in the given folder.
_Valid = Callable[[str, str], bool]
#: Overrides by role.
Additions = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _Role:
    """The overrides that a role may write.

    ``flags`` are sequences of words, ``files`` names. ``replaced``: the ends of an image's folders that mounts replace.
    """

    environment: Mapping[str, _Valid]
    files: _Valid
    flags: frozenset[tuple[str, ...]] = frozenset()
    replaced: tuple[str, ...] = ()


def _path(text: str, _root: str) -> bool:
    return len(text) <= _LONGEST and bool(_PATH.fullmatch(text))


def _below(text: str, root: str) -> bool:
    """Return whether a path is below the folder of the collection."""
    return _path(text, root) and text.startswith(f"{root}/")


def _nccl(text: str, root: str) -> bool:
    """Return whether a path is a libnccl below the collection's folder: processes load no other file from there."""
    return _below(text, root) and bool(_LIBRARY.fullmatch(text.rpartition("/")[2]))


def _toolkit(text: str, _root: str) -> bool:
    return bool(_TOOLKIT.fullmatch(text))


def _image_or_wheel(text: str, _root: str) -> bool:
    return bool(_IMAGE_OR_WHEEL.fullmatch(text))


def _of_package(text: str, root: str) -> bool:
    """Return whether a file is of vLLM's package or its Triton, or a table below the folder of the collection."""
    inside = text.removeprefix(f"{table.PTXAS}/").removeprefix(f"{root}/")
    return bool(_NAME.fullmatch(text)) and not {"", ".", ".."} & {*inside.split("/")}


def _kernels(text: str, _root: str) -> bool:
    return set(text.split(",")) <= _DISABLED


#: The roles that record overrides (tasks/overrides.yml of the role common).
ROLES: Mapping[str, _Role] = {
    overrides.IMAGE_ROLE: _Role({}, _image_or_wheel),
    "nccl_sm121_build": _Role({"LD_PRELOAD": _nccl}, _below),
    "vllm_patch": _Role(
        {
            "VLLM_DISABLED_KERNELS": _kernels,
            "VLLM_USE_FLASHINFER_MOE_FP8": lambda text, _root: text == "0",
            "VLLM_TUNED_CONFIG_FOLDER": _below,
            "TRITON_PTXAS_PATH": _toolkit,
            "TRITON_PTXAS_BLACKWELL_PATH": _toolkit,
        },
        _of_package,
        frozenset(row.flags for row in table.ROWS if row.flags),
        _REPLACED,
    ),
}


def of_node(node: str, recorded: Any, runtime: str, root: str) -> tuple[Additions, list[Problem]]:
    """Return a node's overrides for a runtime, by role, and their problems. ``root``: gb10_install_dir."""
    if not isinstance(recorded, Mapping) or not all(isinstance(addition, Mapping) for addition in recorded.values()):
        return {}, [_problem(f"{node}.additions", recorded, "an override by role", node, "*")]
    found = overrides.for_runtime(recorded, runtime)
    problems = [problem for role, addition in found.items() for problem in check(node, role, addition, root)]
    return {
        role: {key: addition[key] for key in _KEYS if key in addition} for role, addition in found.items()
    } if not problems else {}, problems


def check(node: str, role: str, addition: Mapping[str, Any], root: str) -> list[Problem]:
    """Return every problem of an override. ``root``: gb10_install_dir."""
    if role not in ROLES:
        return [_problem(f"{node}.additions", role, f"one of {', '.join(ROLES)}", node, "*")]
    return [
        _problem(f"{node}.additions.{role}.{key}", found, expected, node, role)
        for key, found, expected in _wrong(ROLES[role], addition, root)
    ]


def _wrong(role: _Role, addition: Mapping[str, Any], root: str) -> Iterator[tuple[str, Any, str]]:
    """Yield (key, found, expected) of each wrong value."""
    if not isinstance(addition.get("runtime", ""), str):
        yield "runtime", addition["runtime"], "a text"
    yield from _wrong_environment(role, addition.get("environment"), root)
    flags = addition.get("flags")
    words = [word for word in flags if isinstance(word, str)] if isinstance(flags, list) else None
    if words is None or words != flags or (words and tuple(words) not in role.flags):
        yield "flags", flags, " or ".join(" ".join(words) for words in sorted(role.flags)) or "no arguments"
    yield from _wrong_files(role, addition.get("files"), root)
    yield from _wrong_mounts(role, addition.get("mounts", []), root)


def _wrong_environment(role: _Role, environment: Any, root: str) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(environment, Mapping):
        yield "environment", environment, "an object"
        return
    for name, value in environment.items():
        if name not in role.environment:
            yield "environment", name, f"only {', '.join(role.environment) or 'no variables'}"
        elif not isinstance(value, str) or not role.environment[name](value, root):
            yield f"environment.{name}", value, "a value that the role writes"


def _wrong_files(role: _Role, files: Any, root: str) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(files, Mapping) or len(files) > _FILES:
        yield "files", files, f"an object with at most {_FILES} files"
        return
    for path, digest in files.items():
        if len(str(path)) > _LONGEST or not role.files(str(path), root):
            yield f"files.{path}", digest, "a file that the role writes"
            return
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            yield f"files.{path}", digest, "a SHA-256, or an empty text"
            return


def _wrong_mounts(role: _Role, mounts: Any, root: str) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(mounts, list) or len(mounts) > _MOUNTS:
        yield "mounts", mounts, f"a list of at most {_MOUNTS} mounts"
        return
    for index, mount in enumerate(mounts):
        if (
            not isinstance(mount, Mapping)
            or mount.keys() != {"source", "target", "read_only"}
            or mount["read_only"] is not True
            or not all(isinstance(mount[key], str) for key in ("source", "target"))
            or not _below(mount["source"], root)
            or not _path(mount["target"], root)
            or not _replaces(role, mount["source"], mount["target"])
        ):
            yield f"mounts[{index}]", mount, f"a read-only mount of a folder below {root}, where the role mounts it"


def _replaces(role: _Role, source: str, target: str) -> bool:
    """Return whether a folder is mounted at its own path, or over a folder of an image that it is a copy of."""
    return source == target or any(source.endswith(end) and target.endswith(end) for end in role.replaced)


def _problem(path: str, found: Any, expected: str, node: str, role: str) -> Problem:
    text = repr(found)
    fix = f"remove {paths.OVERRIDES}/{role}.json on {node} and run site.yml; if it returns, examine {node}"
    return Problem(path[:200], text if len(text) <= 200 else f"{text[:200]}...", expected, fix)

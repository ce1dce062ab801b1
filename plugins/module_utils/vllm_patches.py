# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a vLLM needs to do the right thing on a GPU: which patch, which flag, or nothing, and the files that come of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.gb10.cluster.plugins.module_utils import vllm_patch_blocks as blocks
from ansible_collections.gb10.cluster.plugins.module_utils import vllm_patch_files as patch_files
from ansible_collections.gb10.cluster.plugins.module_utils.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.source_edit import SourceEditError
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_patch_table import (
    APPLIES,
    CMAKE,
    CONFIGS,
    FIRST,
    LAST,
    NOT_NEEDED,
    PATCHES,
    PTXAS,
    ROWS,
    USE_FLAG,
    Edit,
    Row,
)

GB10 = ComputeCapability(12, 1)
#: From this capability on Triton runs ptxas-blackwell. Source: triton 3.6.0 backends/nvidia/compiler.py get_ptxas.
_BLACKWELL = ComputeCapability(10, 0)


class Link(str):
    """A symbolic link in a file's place; the text is what it points to."""

    __slots__ = ()


#: What a file is to be; None stands for what vLLM shipped.
Wanted = bytes | Link | None


class Tree(Protocol):
    """A package's files, by their path relative to it."""

    def shipped(self, path: str) -> bytes | None:
        """Return the file as vLLM shipped it, None if it did not."""

    def current(self, path: str) -> Wanted:
        """Return the file as it is, None if it is not there."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""

    def trouble(self, path: str) -> str:
        """Return why it is not known what vLLM shipped, "" if it is."""

    def ours(self, path: str) -> bool:
        """Whether the file is as an earlier run wrote it."""

    def stale(self, path: str) -> bool:
        """Whether an earlier run's original is kept of a file that is not patched any more."""


@dataclass(frozen=True)
class Assembler:
    """One ptxas: where it is, and the architectures that its help lists; none if it is not there or does not run."""

    path: str
    archs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Request:
    """``asked`` says that patches or capability were named rather than found; ``folder`` is where tuned tables may be put.

    ``bundled`` are Triton's own assemblers by their file name, without what an earlier run put in their place.
    """

    names: Sequence[str]
    capability: ComputeCapability
    version: str | None
    cuda: int | None
    mechanism: str
    asked: bool
    folder: str
    bundled: Mapping[str, Assembler]
    toolkit: Assembler


@dataclass
class Decision:
    """What becomes of one patch. ``edits`` are the places that it is about, which are edited if it applies; ``files`` what it writes whole."""

    status: str
    reason: str
    source: str
    edits: tuple[Edit, ...] = ()
    files: dict[str, Wanted] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    """``patches`` as the module returns them; ``files``: every file that an earlier or this run writes, and what it is to be."""

    patches: list[dict[str, Any]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, Wanted] = field(default_factory=dict)


def release(version: str | None) -> tuple[int, ...] | None:
    """Return (0, 21, 1) of "0.21.1rc1.dev169+gabc", None if the version is unknown."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return tuple(int(part or 0) for part in match.groups()) if match else None


def build(version: str | None) -> int | None:
    """Return the CUDA release that a version's local part names: 13 of "0.20.2+cu130", None if it names none."""
    match = re.search(r"\+(?:.*\.)?cu(\d\d)\d\b", version or "")
    return int(match[1]) if match else None


def present(request: Request, tree: Tree) -> Plan:
    """Plan that the patches named are in effect. Raises ProblemsError for a file that no Python can read."""
    decisions: dict[str, Decision] = {}
    for name in _ordered(request.names):
        decisions[name] = _decide(name, request, tree, decisions)
    plan = Plan(files=_edited(request, tree, {name: each.edits if each.status == APPLIES else () for name, each in decisions.items()}))
    for name, decision in decisions.items():
        # Tables and links of an earlier run that are not wanted any more go.
        plan.files |= {path: None for path in _whole(name, request) if tree.ours(path)} | decision.files
        status, paths = decision.status, list(dict.fromkeys([*(edit.file for edit in decision.edits), *decision.files]))
        if status == APPLIES:
            done = all(_done(name, decision, path, request.capability, tree) for path in paths)
            status = "already_applied" if done else "applied"
        plan.patches.append(_entry(name, status, paths, decision.reason, decision.source))
        plan.flags += decision.flags
        for variable, value in decision.environment.items():
            before = plan.environment.get(variable, "") if variable == "VLLM_DISABLED_KERNELS" else ""
            plan.environment[variable] = ",".join(dict.fromkeys(part for part in f"{before},{value}".split(",") if part))
    return plan


def absent(request: Request, tree: Tree) -> Plan:
    """Plan that the patches named are in no file."""
    plan = Plan(files=_edited(request, tree, dict.fromkeys(request.names, ())))
    for name in _ordered(request.names):
        whole, editable = _whole(name, request), _editable(name)
        mine = [path for path in whole if tree.ours(path)] + [path for path in editable if name in dict(_held(tree, path))]
        troubled = [path for path in editable if tree.trouble(path)]
        stale = [path for path in [*editable, *whole] if tree.stale(path)]
        plan.files |= dict.fromkeys(path for path in whole if tree.ours(path) or tree.stale(path))
        if troubled:
            plan.patches.append(_entry(name, "unsupported", troubled, tree.trouble(troubled[0]), ""))
        elif mine:
            plan.patches.append(_entry(name, "removed", mine, "what vLLM shipped is there again", ""))
        elif stale:
            reason = "vLLM was installed anew since it was patched: there is nothing to restore, and the original that was kept is dropped"
            plan.patches.append(_entry(name, NOT_NEEDED, stale, reason, ""))
        else:
            plan.patches.append(_entry(name, NOT_NEEDED, [], "it is not there", ""))
    return plan


def _ordered(names: Sequence[str]) -> list[str]:
    return [name for name in PATCHES if name in names]


def _entry(name: str, status: str, files: list[str], reason: str, source: str) -> dict[str, Any]:
    return {"name": name, "status": status, "file": files[0] if files else "", "files": files, "reason": reason, "source": source}


def _done(name: str, decision: Decision, path: str, capability: ComputeCapability, tree: Tree) -> bool:
    """Whether the file already has what the patch brings."""
    if path in decision.files:
        return tree.ours(path) and tree.current(path) == decision.files[path]
    edits = [edit for edit in decision.edits if edit.file == path]
    shipped = tree.shipped(path) or b""
    marker = blocks.marker(name, capability).encode()
    return _bytes(tree, path).count(marker) == _made(shipped, edits, name, capability).count(marker)


# --- files ---


def _editable(name: str) -> list[str]:
    """Return every file that some release's row of the patch edits."""
    return list(dict.fromkeys(edit.file for row in ROWS if row.patch == name for edit in row.edits + row.replaced))


def _whole(name: str, request: Request) -> list[str]:
    """Return the files that a patch adds or replaces as a whole."""
    if name == "moe_config":
        return [f"{folder}/{file}" for folder in (request.folder, CONFIGS) for file in patch_files.moe_tables()]
    return [f"{PTXAS}/ptxas", f"{PTXAS}/ptxas-blackwell"] if name == "triton_ptxas" else []


def _bytes(tree: Tree, path: str) -> bytes:
    current = tree.current(path)
    return current if isinstance(current, bytes) else b""


def _held(tree: Tree, path: str) -> list[tuple[str, ComputeCapability]]:
    """Return the patches that an earlier run left in a file."""
    if not tree.ours(path):
        return []
    found = dict.fromkeys((match[1].decode(), match[3].decode()) for match in blocks.MARKER.finditer(_bytes(tree, path)))
    return [(name, ComputeCapability.parse(capability)) for name, capability in found if name in PATCHES]


def _edited(request: Request, tree: Tree, made: Mapping[str, Sequence[Edit]]) -> dict[str, Wanted]:
    """Return every edited file with the patches made and, of those not asked about, the ones it has; None where none is left."""
    files: dict[str, Wanted] = {}
    for path in dict.fromkeys(path for name in PATCHES for path in _editable(name)):
        if tree.trouble(path):
            continue
        kept = {name: capability for name, capability in _held(tree, path) if name not in made}
        content = shipped = tree.shipped(path)
        for name in PATCHES:
            edits = made[name] if name in made else _held_edits(name, path, request) if name in kept else ()
            if content is not None:
                content = _made(content, [edit for edit in edits if edit.file == path], name, kept.get(name, request.capability))
        if content != shipped:
            files[path] = content
        elif tree.ours(path) or tree.stale(path):
            files[path] = None
    return files


def _held_edits(name: str, path: str, request: Request) -> Sequence[Edit]:
    """Return the edits by which a patch came into a file."""
    for row, _remark in _rows(name, request):
        if edits := [edit for edit in row.edits + row.replaced if edit.file == path]:
            return edits
    return ()


def _made(content: bytes, edits: Sequence[Edit], name: str, capability: ComputeCapability) -> bytes:
    for edit in edits:
        if edit.kind == "cmake":
            content = patch_files.with_arch(content, capability, blocks.marker(name, capability))
        else:
            content = blocks.apply(content, edit, name, capability)
    return content


# --- which row counts ---


def _read(request: Request) -> bool:
    """Whether the table was made from releases like this one."""
    number = release(request.version)
    return number is not None and FIRST <= number <= LAST


def _in_range(row: Row, request: Request) -> bool:
    number = release(request.version)
    return number is not None and row.since <= number and (row.until is None or number < row.until)


def _rows(name: str, request: Request) -> Iterator[tuple[Row, str]]:
    """Yield the rows that may count for a patch, best first, each with a remark on why it may, "" for that of the release itself."""
    mine = [row for row in ROWS if row.patch == name and row.family in (None, request.capability.major)]
    fits = [row for row in mine if _in_range(row, request)]
    span = f"({'.'.join(map(str, FIRST))} to {'.'.join(map(str, LAST))})"
    version = request.version or "of unknown version"
    remark = "" if _read(request) else f"vLLM {version} is not among the releases that were read {span}, so its code counts: "
    for row in fits:
        if row.cuda is None or (request.mechanism == "auto" and (request.cuda or 0) >= row.cuda):
            yield row, remark
    for row in sorted(mine, key=lambda row: row.since, reverse=True):
        if row not in fits and row.cuda is None:
            yield row, remark or f"its code is not that of other builds of {version}, but that of another release: "


def _decide(name: str, request: Request, tree: Tree, earlier: Mapping[str, Decision]) -> Decision:
    first = next(row for row in ROWS if row.patch == name)
    if not request.asked and request.capability != GB10:
        reason = f"it is made for {GB10}, and this GPU is {request.capability}; name the capability to patch for it"
        return Decision(NOT_NEEDED, reason, first.source)
    if name == "moe_config":
        return _moe_config(first, request, tree)
    if name == "triton_ptxas":
        return _ptxas(first, request, tree)
    if name == "cmake_archs":
        return _cmake(first, request, tree)
    refused = None
    for row, remark in _rows(name, request):
        decision = _by_row(row, request, tree, earlier)
        if decision.status != "unsupported":
            decision.reason = remark + decision.reason
            return decision
        refused = refused or decision
    return refused or Decision("unsupported", f"no row of the table is for vLLM {request.version}", first.source)


def _by_row(row: Row, request: Request, tree: Tree, earlier: Mapping[str, Decision]) -> Decision:
    everything = row.edits + row.replaced
    edits = everything if request.mechanism == "source" else row.edits
    cover = earlier.get(row.covered_by)
    if cover and cover.status in (APPLIES, USE_FLAG) and not (request.mechanism == "source" and edits):
        return Decision(NOT_NEEDED, f"{row.covered_by} does it too: {row.reason}", row.source)
    # What the table says of a release that was read is believed; elsewhere the code must be what the row is about.
    trusted = _read(request) and _in_range(row, request)
    if row.known_by and not trusted:
        file, text = row.known_by
        if text.encode() not in (tree.shipped(file) or b""):
            return Decision("unsupported", f"{file}: expected {text}", row.source, everything)
    if refused := _refusal(edits if trusted else everything, row.patch, request.capability, tree):
        return Decision("unsupported", refused, row.source, everything)
    if edits:
        environment = row.environment if request.mechanism == "auto" else {}
        return Decision(APPLIES, row.reason, row.source, edits, environment=environment)
    return Decision(row.verdict, row.reason, row.source, everything, flags=row.flags, environment=row.environment)


def _refusal(edits: Sequence[Edit], patch: str, capability: ComputeCapability, tree: Tree) -> str:
    """Return why a patch cannot be made, "" if it can. Raises ProblemsError for a file with an error."""
    content: dict[str, bytes] = {}
    for edit in edits:
        shipped, trouble = content.get(edit.file) or tree.shipped(edit.file), tree.trouble(edit.file)
        if trouble:
            return f"{edit.file}: {trouble}"
        if shipped is None:
            return f"{edit.file}: expected {edit.function}, but there is no such file"
        try:
            content[edit.file] = _made(shipped, [edit], patch, capability)
        except SourceEditError as error:
            return f"{edit.file}: {error}"
        except SyntaxError as error:
            found = f"{edit.file} has a syntax error in line {error.lineno}: {error.msg}"
            raise ProblemsError([Problem("package_dir", found, "files that Python can read", "install vLLM anew")]) from error
    return ""


# --- patches that are no edit of a function ---


def _moe_config(row: Row, request: Request, tree: Tree) -> Decision:
    if request.capability != GB10:
        return Decision(NOT_NEEDED, f"the tables are for a GPU that calls itself NVIDIA GB10, which is {GB10}", row.source)
    folder = CONFIGS if request.mechanism == "source" else request.folder
    # Upstream's own tables win, and so does a table that the user put into the folder.
    tables = {name: table for name, table in patch_files.moe_tables().items() if tree.shipped(f"{CONFIGS}/{name}") is None}
    files: dict[str, Wanted] = {f"{folder}/{name}": table for name, table in tables.items() if tree.shipped(f"{folder}/{name}") is None}
    if not tables:
        return Decision(NOT_NEEDED, "vLLM ships all of these tables itself", row.source)
    if request.mechanism == "source":
        return Decision(APPLIES, row.reason, row.source, files=files)
    return Decision(USE_FLAG, row.reason, row.source, files=files, environment={"VLLM_TUNED_CONFIG_FOLDER": request.folder})


def _ptxas(row: Row, request: Request, tree: Tree) -> Decision:
    target = request.capability.sm + ("a" if request.capability >= ComputeCapability(9, 0) else "")
    name = "ptxas-blackwell" if request.capability >= _BLACKWELL and tree.exists(f"{PTXAS}/ptxas-blackwell") else "ptxas"
    path, bundled, toolkit = f"{PTXAS}/{name}", request.bundled[name], request.toolkit
    if not tree.exists(PTXAS):
        return Decision(NOT_NEEDED, "there is no Triton with assemblers beside this vLLM", row.source)
    if target in bundled.archs:
        return Decision(NOT_NEEDED, f"Triton's own {name} knows {target}", row.source)
    if target not in toolkit.archs:
        reason = f"Triton's own {name} does not know {target}, and neither does {toolkit.path or 'a ptxas of a CUDA toolkit, as there is none'}"
        return Decision("unsupported", f"{reason}; expected one that does, such as that of CUDA 13.0", row.source)
    reason = f"Triton's own {name} does not know {target}, {toolkit.path} does: {row.reason}"
    if request.mechanism == "source":
        return Decision(APPLIES, reason, row.source, files={path: Link(toolkit.path)})
    return Decision(USE_FLAG, reason, row.source, environment={"TRITON_PTXAS_PATH": toolkit.path, "TRITON_PTXAS_BLACKWELL_PATH": toolkit.path})


def _cmake(row: Row, request: Request, tree: Tree) -> Decision:
    shipped = tree.shipped(CMAKE)
    if not patch_files.is_vllm_cmake(shipped):
        return Decision(NOT_NEEDED, "this is no source checkout of vLLM", row.source)
    if refused := _refusal(row.edits, row.patch, request.capability, tree):
        return Decision("unsupported", refused, row.source, row.edits)
    if shipped is not None and _made(shipped, row.edits, row.patch, request.capability) == shipped:
        return Decision(NOT_NEEDED, f"every list with {request.capability.major}.0 has {request.capability} too", row.source, row.edits)
    return Decision(APPLIES, row.reason, row.source, row.edits)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the patches, flags and variables that a vLLM needs on a GPU, and all files to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import blocks, choose
from ansible_collections.gb10.cluster.plugins.module_utils.patch import files as patch_files
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Decision, Request, Tree, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import (
    APPLIES,
    CONFIGS,
    NOT_NEEDED,
    PATCHES,
    PTXAS,
    ROWS,
    UNSUPPORTED,
    Edit,
)


@dataclass
class PatchPlan:
    """``patches`` as the module returns them; ``files``: each file of this or an earlier run, with wanted content."""

    patches: list[dict[str, Any]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, Wanted] = field(default_factory=dict)


def present(request: Request, tree: Tree) -> PatchPlan:
    """Plan to apply the named patches. Raises ProblemsError for a file with a syntax error."""
    decisions = decided(request, tree)
    # An impossible patch changes nothing, so its existing edits stay too.
    settled = {
        name: each.edits if each.status == APPLIES else ()
        for name, each in decisions.items()
        if each.status != UNSUPPORTED
    }
    flags, environment = launch(decisions)
    plan = PatchPlan(flags=flags, environment=environment, files=_edited(request, tree, settled))
    for name, decision in decisions.items():
        if name in settled:
            # Remove tables and links of an earlier run that are no longer wanted.
            plan.files |= {path: None for path in _whole(name, request) if tree.state(path).ours} | decision.files
        status, paths = decision.status, list(dict.fromkeys([*(edit.file for edit in decision.edits), *decision.files]))
        if status == APPLIES:
            done = all(_done(name, decision, path, request.capability, tree) for path in paths)
            status = "already_applied" if done else "applied"
        plan.patches.append(_entry(name, status, paths, decision.reason, decision.source))
    return plan


def decided(request: Request, tree: Tree | None) -> dict[str, Decision]:
    """Return the decision on each named patch; see choice.decide().

    Raises ProblemsError for a file with a syntax error.
    """
    decisions: dict[str, Decision] = {}
    for name in _ordered(request.names):
        decisions[name] = choose.decide(name, request, tree, decisions)
    return decisions


def launch(decisions: Mapping[str, Decision]) -> tuple[list[str], dict[str, str]]:
    """Return the flags and the variables of decisions."""
    environment: dict[str, str] = {}
    for decision in decisions.values():
        _merge(environment, decision.environment)
    return [flag for decision in decisions.values() for flag in decision.flags], environment


def _merge(environment: dict[str, str], added: Mapping[str, str]) -> None:
    """Add variables. VLLM_DISABLED_KERNELS is a list, to which several patches add."""
    for variable, value in added.items():
        before = environment.get(variable, "") if variable == "VLLM_DISABLED_KERNELS" else ""
        environment[variable] = ",".join(dict.fromkeys(part for part in f"{before},{value}".split(",") if part))


def absent(request: Request, tree: Tree) -> PatchPlan:
    """Plan to remove the named patches from all files."""
    troubles = {name: [path for path in _editable(name) if tree.state(path).trouble] for name in request.names}
    plan = PatchPlan(files=_edited(request, tree, {name: () for name, troubled in troubles.items() if not troubled}))
    for name in _ordered(request.names):
        whole = _whole(name, request)
        plan.files |= dict.fromkeys(path for path in whole if tree.state(path).ours or tree.state(path).stale)
        plan.patches.append(_removed(name, whole, troubles[name], tree))
    return plan


def _removed(name: str, whole: Sequence[str], troubled: list[str], tree: Tree) -> dict[str, Any]:
    """Return the entry of a patch to remove.

    ``whole`` are the files that it adds, ``troubled`` those it cannot edit.
    """
    if troubled:
        return _entry(name, UNSUPPORTED, troubled, tree.state(troubled[0]).trouble, "")
    editable = _editable(name)
    if mine := [path for path in whole if tree.state(path).ours] + [
        path for path in editable if name in dict(_held(tree, path))
    ]:
        return _entry(name, "removed", mine, "the shipped files are restored", "")
    if stale := [path for path in [*editable, *whole] if tree.state(path).stale]:
        reason = "vLLM was reinstalled after it was patched; nothing is restored, the old original is removed"
        return _entry(name, NOT_NEEDED, stale, reason, "")
    return _entry(name, NOT_NEEDED, [], "it is not applied", "")


def _ordered(names: Sequence[str]) -> list[str]:
    return [name for name in PATCHES if name in names]


def _entry(name: str, status: str, files: list[str], reason: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "file": files[0] if files else "",
        "files": files,
        "reason": reason,
        "source": source,
    }


def _done(name: str, decision: Decision, path: str, capability: ComputeCapability, tree: Tree) -> bool:
    """Return whether the file already contains the patch."""
    if path in decision.files:
        return tree.state(path).ours and tree.state(path).current == decision.files[path]
    edits = [edit for edit in decision.edits if edit.file == path]
    shipped = tree.state(path).shipped or b""
    marker = blocks.marker(name, capability).encode()
    return _bytes(tree, path).count(marker) == blocks.made(shipped, edits, name, capability).count(marker)


def _editable(name: str) -> list[str]:
    """Return every file that a row of the patch edits, in any release."""
    return list(dict.fromkeys(edit.file for row in ROWS if row.patch == name for edit in row.edits + row.replaced))


def _whole(name: str, request: Request) -> list[str]:
    """Return the files that a patch adds or replaces as a whole."""
    if name == "moe_config":
        return [f"{folder}/{file}" for folder in (request.folder, CONFIGS) for file in patch_files.moe_tables()]
    return [f"{PTXAS}/ptxas", f"{PTXAS}/ptxas-blackwell"] if name == "triton_ptxas" else []


def _bytes(tree: Tree, path: str) -> bytes:
    current = tree.state(path).current
    return current if isinstance(current, bytes) else b""


def _held(tree: Tree, path: str) -> list[tuple[str, ComputeCapability]]:
    """Return the patches of an earlier run in a file."""
    if not tree.state(path).ours:
        return []
    found = dict.fromkeys(
        (match[1].decode(), match[3].decode()) for match in blocks.MARKER.finditer(_bytes(tree, path))
    )
    return [(name, ComputeCapability.parse(capability)) for name, capability in found if name in PATCHES]


def _edited(request: Request, tree: Tree, made: Mapping[str, Sequence[Edit]]) -> dict[str, Wanted]:
    """Return every edited file with ``made`` and its other existing patches, None if no patch remains."""
    files: dict[str, Wanted] = {}
    for path in dict.fromkeys(path for name in PATCHES for path in _editable(name)):
        if tree.state(path).trouble:
            continue
        shipped = tree.state(path).shipped
        content = None if shipped is None else _patched(shipped, path, request, tree, made)
        if content != shipped:
            files[path] = content
        elif tree.state(path).ours or tree.state(path).stale:
            files[path] = None
    return files


def _patched(shipped: bytes, path: str, request: Request, tree: Tree, made: Mapping[str, Sequence[Edit]]) -> bytes:
    """Return a file with the edits in ``made`` and its other existing patches."""
    kept = {name: capability for name, capability in _held(tree, path) if name not in made}
    content = shipped
    for name in PATCHES:
        edits = made[name] if name in made else _held_edits(name, path, request) if name in kept else ()
        content = blocks.made(
            content, [edit for edit in edits if edit.file == path], name, kept.get(name, request.capability)
        )
    return content


def _held_edits(name: str, path: str, request: Request) -> Sequence[Edit]:
    """Return the edits that put a patch into a file."""
    for row, _remark in choose.rows(name, request):
        if edits := [edit for edit in row.edits + row.replaced if edit.file == path]:
            return edits
    return ()

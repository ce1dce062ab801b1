# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Select the table row for an installed vLLM, and decide on each patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import OTHER, UNKNOWN
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import blocks
from ansible_collections.gb10.cluster.plugins.module_utils.patch import files as patch_files
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import (
    GB10,
    Decision,
    Link,
    Request,
    Tree,
    Wanted,
)
from ansible_collections.gb10.cluster.plugins.module_utils.patch.source_edit import SourceEditError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import (
    APPLIES,
    CONFIGS,
    FIRST,
    LAST,
    NOT_NEEDED,
    PROBED,
    PTXAS,
    ROWS,
    UNSUPPORTED,
    USE_FLAG,
    Edit,
    Row,
)

#: From this capability on Triton runs ptxas-blackwell. Source: get_ptxas in Triton's compiler.py, see the table.
_BLACKWELL = ComputeCapability(10, 0)


def _read(request: Request) -> bool:
    """Return whether the release is in the range that the table covers."""
    number = release(request.version)
    return number is not None and FIRST <= number <= LAST


def _in_range(row: Row, request: Request) -> bool:
    number = release(request.version)
    return number is not None and row.since <= number and (row.until is None or number < row.until)


def rows(name: str, request: Request) -> Iterator[tuple[Row, str]]:
    """Yield candidate rows of a patch, best first, each with a remark on the reason ("" for the release's own row)."""
    mine = [row for row in ROWS if row.patch == name and row.family in (None, request.capability.major)]
    version, remark = request.version or "of unknown version", ""
    if not _read(request):
        span = f"({'.'.join(map(str, FIRST))} to {'.'.join(map(str, LAST))})"
        remark = f"vLLM {version} is outside the known releases {span}, so its code decides: "
    for row in mine:
        if _in_range(row, request) and _is_for_cuda(row, request):
            yield row, remark
    other = remark or f"its code differs from other builds of {version} and matches another release: "
    for row in sorted(mine, key=lambda row: row.since, reverse=True):
        if not _in_range(row, request) and row.cuda is None:
            yield row, other


def _is_for_cuda(row: Row, request: Request) -> bool:
    return row.cuda is None or (request.mechanism == "auto" and (request.cuda or 0) >= row.cuda)


def decide(name: str, request: Request, tree: Tree | None, earlier: Mapping[str, Decision]) -> Decision:
    """Return the decision on a patch, given earlier decisions. Raises ProblemsError for a file with a syntax error.

    Without a ``tree`` the package is not installed yet, and the table is trusted.
    """
    first = next(row for row in ROWS if row.patch == name)
    if name == "w8a8" and (failed := [check for check in PROBED if check in request.failed]):
        return _probed(request, failed)
    if not request.capability_given and request.capability != GB10:
        reason = f"the patch is for {GB10}, but this GPU is {request.capability}; set capability to patch for it"
        return Decision(NOT_NEEDED, reason, first.source)
    if name == "moe_config":
        return _moe_config(first, request, tree)
    if name == "triton_ptxas":
        return _ptxas(first, request, tree)
    refused = None
    for row, remark in rows(name, request):
        decision = _by_row(row, request, tree, earlier)
        if decision.status != UNSUPPORTED:
            decision.reason = remark + decision.reason
            return decision
        refused = refused or decision
    return refused or Decision(UNSUPPORTED, f"the table has no row for vLLM {request.version}", first.source)


def _probed(request: Request, failed: Sequence[str]) -> Decision:
    """Return the decision on kernels that the GPU probe found wrong: the best evidence, of this build on this GPU."""
    reason = f"the GPU probe failed: {'; '.join(request.failed[check] for check in failed)}"
    disabled = {"VLLM_DISABLED_KERNELS": ",".join(kernel for check in failed for kernel in PROBED[check])}
    return Decision(USE_FLAG, reason, "runtime/io_gpu_probe.py", environment=disabled)


def _by_row(row: Row, request: Request, tree: Tree | None, earlier: Mapping[str, Decision]) -> Decision:
    everything = row.edits + row.replaced
    # A flag applies to every kind of MoE, and vLLM does not start some of them with it.
    in_source = request.mechanism == "source" or (bool(row.flags) and request.quantization == UNKNOWN)
    edits = everything if in_source else row.edits
    cover = earlier.get(row.covered_by)
    if cover and cover.status in (APPLIES, USE_FLAG) and not (in_source and edits):
        return Decision(NOT_NEEDED, f"{row.covered_by} covers it: {row.reason}", row.source)
    if refused := _mismatch(row, edits, request, tree):
        return Decision(UNSUPPORTED, refused, row.source, everything)
    if row.flags and request.quantization == OTHER and not in_source:
        reason = f"the model is not FP8, and {' '.join(row.flags)} would apply to it too"
        return Decision(NOT_NEEDED, reason, row.source)
    if edits:
        environment = {} if in_source else row.environment
        return Decision(APPLIES, row.reason, row.source, edits, environment=environment)
    return Decision(row.verdict, row.reason, row.source, everything, flags=row.flags, environment=row.environment)


def _mismatch(row: Row, edits: Sequence[Edit], request: Request, tree: Tree | None) -> str:
    """Return why the installed code does not fit a row, "" if it does.

    The table is trusted for the releases that it covers. For others the code must match the whole row.
    """
    if tree is None:
        return ""
    if _read(request) and _in_range(row, request):
        return _refusal(edits, row.patch, request.capability, tree)
    if row.known_by:
        file, text = row.known_by
        if text.encode() not in (tree.state(file).shipped or b""):
            return f"{file}: expected {text}"
    return _refusal(row.edits + row.replaced, row.patch, request.capability, tree)


def _refusal(edits: Sequence[Edit], patch: str, capability: ComputeCapability, tree: Tree) -> str:
    """Return why a patch cannot be applied, "" if it can. Raises ProblemsError for a file with a syntax error."""
    content: dict[str, bytes] = {}
    for edit in edits:
        shipped, trouble = content.get(edit.file) or tree.state(edit.file).shipped, tree.state(edit.file).trouble
        if trouble:
            return f"{edit.file}: {trouble}"
        if shipped is None:
            return f"{edit.file}: expected {edit.function}, file not found"
        try:
            content[edit.file] = blocks.made(shipped, [edit], patch, capability)
        except SourceEditError as error:
            return f"{edit.file}: {error}"
        except SyntaxError as error:
            found = f"{edit.file} has a syntax error in line {error.lineno}: {error.msg}"
            raise ProblemsError([Problem("package_dir", found, "valid Python files", "reinstall vLLM")]) from error
    return ""


# --- patches other than edits of a function ---


def _moe_config(row: Row, request: Request, tree: Tree | None) -> Decision:
    if request.capability != GB10:
        return Decision(NOT_NEEDED, f"the tables are for the device name NVIDIA GB10, which is {GB10}", row.source)
    folder = CONFIGS if request.mechanism == "source" else request.folder
    # Upstream's tables and the user's tables in the folder win.
    tables = {
        name: table
        for name, table in patch_files.moe_tables().items()
        if not tree or tree.state(f"{CONFIGS}/{name}").shipped is None
    }
    files: dict[str, Wanted] = {
        f"{folder}/{name}": table
        for name, table in tables.items()
        if not tree or tree.state(f"{folder}/{name}").shipped is None
    }
    if not tables:
        return Decision(NOT_NEEDED, "vLLM ships all of these tables", row.source)
    if request.mechanism == "source":
        return Decision(APPLIES, row.reason, row.source, files=files)
    return Decision(
        USE_FLAG, row.reason, row.source, files=files, environment={"VLLM_TUNED_CONFIG_FOLDER": request.folder}
    )


def _ptxas(row: Row, request: Request, tree: Tree | None) -> Decision:
    target = request.capability.sm + ("a" if request.capability >= ComputeCapability(9, 0) else "")
    name = (
        "ptxas-blackwell"
        if request.capability >= _BLACKWELL and (not tree or tree.exists(f"{PTXAS}/ptxas-blackwell"))
        else "ptxas"
    )
    path, bundled, toolkit = f"{PTXAS}/{name}", request.bundled[name], request.toolkit
    if tree and not tree.exists(PTXAS):
        return Decision(NOT_NEEDED, "the environment of this vLLM has no Triton with assemblers", row.source)
    if target in bundled.archs:
        return Decision(NOT_NEEDED, f"Triton's own {name} supports {target}", row.source)
    unknown = bundled.trouble or f"Triton's own {name} does not support {target}"
    if target not in toolkit.archs and (trouble := "; ".join(filter(None, [bundled.trouble, toolkit.trouble]))):
        return Decision(UNSUPPORTED, f"support for {target} in the assemblers is unknown: {trouble}", row.source)
    if target not in toolkit.archs:
        missing = f"{toolkit.path} does not either" if toolkit.path else "no ptxas of a CUDA toolkit was found"
        reason = f"{unknown}, and {missing}; expected a ptxas that does, such as CUDA 13.0's"
        return Decision(UNSUPPORTED, reason, row.source)
    reason = f"{unknown}, {toolkit.path} supports {target}: {row.reason}"
    if request.mechanism == "source":
        return Decision(APPLIES, reason, row.source, files={path: Link(toolkit.path)})
    return Decision(
        USE_FLAG,
        reason,
        row.source,
        environment={"TRITON_PTXAS_PATH": toolkit.path, "TRITON_PTXAS_BLACKWELL_PATH": toolkit.path},
    )

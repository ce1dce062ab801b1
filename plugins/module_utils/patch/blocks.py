# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines that each patch inserts, and the required form of the function. They check the GPU at run time."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import source_edit
from ansible_collections.gb10.cluster.plugins.module_utils.patch.source_edit import Function, SourceEditError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PATCHES, Edit

#: Any marker line: patch, version of its lines, capability.
MARKER = re.compile(rb"# gb10\.cluster patch (\w+) (\d+) for (\d+\.\d)\b")
#: Variables that let a user choose a backend in some release, and the release's own expression for each.
_CHOICES = {
    "VLLM_USE_FLASHINFER_MOE_FP8": 'envs.is_set("VLLM_USE_FLASHINFER_MOE_FP8") and envs.VLLM_USE_FLASHINFER_MOE_FP8',
    "VLLM_MOE_USE_DEEP_GEMM": (
        'envs.is_set("VLLM_MOE_USE_DEEP_GEMM") and envs.VLLM_MOE_USE_DEEP_GEMM and envs.VLLM_USE_DEEP_GEMM'
    ),
    "VLLM_USE_DEEP_GEMM": (
        'envs.is_set("VLLM_USE_DEEP_GEMM") and envs.VLLM_USE_DEEP_GEMM and envs.VLLM_MOE_USE_DEEP_GEMM'
    ),
    "VLLM_TEST_FORCE_FP8_MARLIN": "envs.VLLM_TEST_FORCE_FP8_MARLIN",
}


def marker(patch: str, capability: ComputeCapability) -> str:
    """Return the line that identifies a patch."""
    return f"# gb10.cluster patch {patch} {PATCHES[patch]} for {capability}"


def made(content: bytes, edits: Sequence[Edit], patch: str, capability: ComputeCapability) -> bytes:
    """Return the file with the patch applied. Raises SyntaxError, or SourceEditError if a function has another form."""
    for edit in edits:
        content = _apply(content, edit, patch, capability)
    return content


@functools.lru_cache(maxsize=32)
def _apply(source: bytes, edit: Edit, patch: str, capability: ComputeCapability) -> bytes:
    """Make one edit. A plan requests the same edit more than once, hence the cache."""
    tree = source_edit.parse(source)
    function = source_edit.find(tree, edit.function)
    if not source_edit.is_plain(function):
        raise SourceEditError(edit.function, "a plain function, not a coroutine or generator")
    block = _Block(tree, function, edit.function, capability)
    after = None
    if edit.kind == "false":
        lines = block.returns_false()
    elif edit.kind == "unsupported_kernel":
        lines = block.returns_unsupported()
    elif edit.kind == "torch_backend":
        lines, after = block.takes_torch(), "self.preferred_backend"
    else:
        lines = block.takes_triton()
    return source_edit.insert(source, edit.function, [marker(patch, capability), *block.imports, *lines], after)


class _Block:
    """The lines for one function of one release."""

    def __init__(self, tree: ast.Module, function: Function, name: str, capability: ComputeCapability) -> None:
        self.tree, self.function, self.name, self.capability = tree, function, name, capability
        self.returns = ast.unparse(function.returns) if function.returns else ""
        self.imports = (
            [] if self._has("current_platform") else ["from vllm.platforms import current_platform as gb10_platform"]
        )
        platform = "gb10_platform" if self.imports else "current_platform"
        number = 10 * capability.major + capability.minor
        # ROCm has capability numbers too, hence is_cuda().
        self.here = [
            f"{platform}.is_cuda()",
            f"(gb10_capability := {platform}.get_device_capability()) is not None",
            f"gb10_capability.to_int() == {number}",
        ]

    def _has(self, name: str) -> bool:
        """Return whether the module defines the name and the function does not redefine it."""
        return name in _names(self.tree) - _locals(self.function)

    def _require(self, holds: bool, expected: str) -> None:
        if not holds:
            raise SourceEditError(self.name, expected)

    def _log(self, message: str) -> list[str]:
        if self._has("logger"):
            return [f'    logger.info_once("{message} (gb10.cluster)")']
        return [
            "    from vllm.logger import init_logger as gb10_logger",
            f'    gb10_logger(__name__).info_once("{message} (gb10.cluster)")',
        ]

    def returns_false(self) -> list[str]:
        self._require(not source_edit.required(self.function), "only parameters with a default")
        self._require(self.returns in ("", "bool"), f"return type bool, found {self.returns}")
        return [
            f"if {' and '.join(self.here)}:",
            *self._log(f"{self.name}() is False on {self.capability}"),
            "    return False",
        ]

    def returns_unsupported(self) -> list[str]:
        self._require(
            self.returns.replace(" ", "") in ("", "tuple[bool,str|None]"),
            f"tuple[bool, str | None], found {self.returns}",
        )
        message = f"{self.name.partition('.')[0]} is off on {self.capability}"
        return [f"if {' and '.join(self.here)}:", *self._log(message), f'    return False, "{message} (gb10.cluster)"']

    def takes_torch(self) -> list[str]:
        message = f"torch is the backend of Fp8LinearOp on {self.capability}"
        return [f"if {' and '.join(self.here)}:", *self._log(message), '    self.preferred_backend = "torch"']

    def takes_triton(self) -> list[str]:
        names = {node.attr for node in ast.walk(self.function) if isinstance(node, ast.Attribute)}
        self._require("TRITON" in self._fp8_backends(), "an enumeration Fp8MoeBackend with TRITON")
        choices = [f"not ({condition})" for name, condition in _CHOICES.items() if name in names]
        self._require(not choices or self._has("envs"), "the name envs in the module")
        log = self._log(f"Triton is the FP8 MoE backend on {self.capability}")
        if self.returns == "Fp8MoeBackend":
            return ["if (", *_joined([*self.here, *choices]), "):", *log, "    return Fp8MoeBackend.TRITON"]
        self._require(
            self.returns.startswith("tuple[Fp8MoeBackend, "),
            f"Fp8MoeBackend or tuple[Fp8MoeBackend, ...], found {self.returns}",
        )
        return self._returns_triton_class(names, choices, log)

    def _fp8_backends(self) -> set[str]:
        """Return the members of the enumeration Fp8MoeBackend."""
        backends = [node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == "Fp8MoeBackend"]
        return {
            ast.unparse(target)
            for node in backends
            for part in node.body
            if isinstance(part, ast.Assign)
            for target in part.targets
        }

    def _returns_triton_class(self, names: set[str], choices: list[str], log: list[str]) -> list[str]:
        """Return the block for releases whose function also returns the class of the kernel."""
        self._require(
            source_edit.parameters(self.function)[:3] == ["config", "weight_key", "activation_key"],
            "config, weight_key, activation_key",
        )
        self._require(
            "use_batched_activation_format" in names, "config.moe_parallel_config.use_batched_activation_format"
        )
        self._require(
            not names.isdisjoint({"moe_backend", "VLLM_USE_FLASHINFER_MOE_FP8"}),
            "config.moe_backend, the user's choice",
        )
        defined = {getattr(node, "name", "") for node in self.tree.body}
        self._require(
            self._has("mk") and "backend_to_kernel_cls" in defined, "mk and backend_to_kernel_cls in the module"
        )
        automatic = ['config.moe_backend == "auto"'] if "moe_backend" in names else []
        conditions = [*self.here, *automatic, *choices, "not config.moe_parallel_config.use_batched_activation_format"]
        arguments = "gb10_class, config, weight_key, activation_key, mk.FusedMoEActivationFormat.Standard"
        return [
            "if (",
            *_joined(conditions),
            "):",
            "    gb10_classes = backend_to_kernel_cls(Fp8MoeBackend.TRITON)",
            "    for gb10_class in gb10_classes if isinstance(gb10_classes, list) else [gb10_classes]:",
            f"        if gb10_class.is_supported_config({arguments})[0]:",
            *(f"        {line}" for line in log),
            "            return Fp8MoeBackend.TRITON, gb10_class",
        ]


def _joined(conditions: list[str]) -> list[str]:
    return [f"    {'and ' if index else ''}{condition}" for index, condition in enumerate(conditions)]


def _imported(tree: ast.AST) -> set[str]:
    """Return the names bound by imports anywhere below the node."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}


@functools.lru_cache(maxsize=16)
def _names(module: ast.Module) -> set[str]:
    """Return the names that module-level statements import or assign."""
    statements = list(source_edit.statements(module.body))
    assigned = {ast.unparse(target) for node in statements if isinstance(node, ast.Assign) for target in node.targets}
    return assigned.union(*(_imported(node) for node in statements if isinstance(node, ast.Import | ast.ImportFrom)))


@functools.lru_cache(maxsize=16)
def _locals(function: Function) -> set[str]:
    """Return the local names of a function."""
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored.union(source_edit.parameters(function), _imported(function))

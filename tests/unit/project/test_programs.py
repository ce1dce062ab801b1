"""The programs on nodes: a role installs each file of this collection that its program imports, and no other one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from repository import ROOT, load_yaml, read

CORE = "ansible_collections.gb10.cluster.plugins.module_utils."
#: Role, its list of files, and the files that start: the others are imported.
PROGRAMS = [
    ("gb10", "_gb10_gate_modules", ["launch/io_gates.py"]),
    ("vllm_watchdog", "_vllm_watchdog_modules", ["watchdog/io_watch.py"]),
    ("vllm_serve", "_vllm_serve_memory_guard_modules", ["memory/io_guard.py"]),
    ("gateway", "_gateway_modules", ["gateway/io_proxy.py"]),
]


def imported(file: str) -> Iterator[str]:
    """Yield the files of the core that a file imports."""
    for node in ast.walk(ast.parse(read(f"plugins/module_utils/{file}"))):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(CORE):
            topic = node.module.removeprefix(CORE.rstrip(".")).strip(".").replace(".", "/")
            for path in {f"{topic}.py", *(f"{topic}/{alias.name}.py" for alias in node.names)}:
                if (ROOT / "plugins/module_utils" / path).is_file():
                    yield path


@pytest.mark.parametrize(("role", "variable", "start"), PROGRAMS)
def test_a_program_has_exactly_the_files_that_it_imports(role: str, variable: str, start: list[str]) -> None:
    needed, waiting = set[str](), list(start)
    while waiting:
        file = waiting.pop()
        if file not in needed:
            needed.add(file)
            waiting += imported(file)
    assert sorted(load_yaml(read(f"roles/{role}/vars/main.yml"))[variable]) == sorted(needed)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Insert statements into a function of a Python file, found in its syntax tree. All other bytes stay unchanged."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BOM = b"\xef\xbb\xbf"
_NEWLINE = re.compile(rb"\r\n|\n|\r")
#: PEP 263: only the first two lines can name an encoding. Byte offsets of the syntax tree are those of UTF-8.
_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8 = (b"utf-8", b"utf8", b"utf-8-sig", b"us-ascii", b"ascii")


class SourceEditError(Exception):
    """The file does not have the expected form. ``function`` is the dotted name, ``expected`` the missing code."""

    def __init__(self, function: str, expected: str) -> None:
        self.function = function
        self.expected = expected
        super().__init__(f"{function}: expected {expected}")


@functools.lru_cache(maxsize=16)
def parse(source: bytes) -> ast.Module:
    """Return the syntax tree of a file. Do not change it: the cache returns it again.

    Raises SyntaxError, also for null bytes and wrong UTF-8, and SourceEditError for another encoding.
    """
    for line in _NEWLINE.split(source, maxsplit=2)[:2]:
        if (named := _ENCODING.match(line)) and named[1].lower() not in _UTF8:
            raise SourceEditError("<file>", f"UTF-8, not {named[1].decode('ascii', 'replace')}")
    try:
        return ast.parse(source.removeprefix(_BOM))
    except ValueError as error:
        raise SyntaxError(str(error)) from error


def find(tree: ast.Module, name: str) -> Function:
    """Return the one definition of ``function`` or ``Class.method``, also inside if, try and with.

    Raises SourceEditError.
    """
    body: Sequence[ast.stmt] = tree.body
    *classes, last = name.split(".")
    for part in classes:
        found = [node for node in statements(body) if isinstance(node, ast.ClassDef) and node.name == part]
        if len(found) != 1:
            raise SourceEditError(name, f"one class {part}, found {len(found)}")
        body = found[0].body
    functions = [node for node in statements(body) if isinstance(node, Function) and node.name == last]
    if len(functions) != 1:
        raise SourceEditError(name, f"one definition of {last}, found {len(functions)}")
    return functions[0]


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of one scope, except those under TYPE_CHECKING."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from statements(node.orelse)
            continue
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield every node of the function's body that is not in a function or class defined inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def is_plain(function: Function) -> bool:
    """Return whether ``return x`` in it returns x to the caller: neither a coroutine nor a generator."""
    return isinstance(function, ast.FunctionDef) and not any(
        isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function)
    )


def parameters(function: Function) -> list[str]:
    """Return the names of all its parameters."""
    given = function.args
    return [argument.arg for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs]]


def required(function: Function) -> list[str]:
    """Return the names of the parameters without a default."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    keyword = [
        argument for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None
    ]
    return [argument.arg for argument in [*positional[: len(positional) - len(given.defaults)], *keyword]]


def _place(function: Function, name: str, after: str | None) -> int:
    """Return the body index for the block: after the docstring, or after the first statement that assigns ``after``."""
    if after is None:
        return int(ast.get_docstring(function, clean=False) is not None)
    for index, statement in enumerate(function.body, 1):
        for node in ast.walk(statement):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            if any(ast.unparse(target) == after for target in targets):
                return index
    raise SourceEditError(name, f"a statement that assigns {after}")


def first_line(node: ast.stmt) -> int:
    """Return the statement's first line, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _start(lines: Sequence[bytes], line: int) -> int:
    """Return the offset of a line's first byte, or of the file's end for a line after the last."""
    return sum(map(len, lines[: line - 1]))


def _indent(text: bytes) -> bytes:
    return text[: len(text) - len(text.lstrip(b" \t\f"))]


def insert(source: bytes, name: str, block: Sequence[str], after: str | None = None) -> bytes:
    """Return the file with ``block`` (lines without the body's indentation) inserted into a function.

    The block is inserted at the start of the body, after the docstring, or after the first statement that assigns
    ``after``, such as "self.backend". Raises SyntaxError if the file has an error. Raises SourceEditError if the place
    is missing, or if the result is not exactly the old syntax tree with the block in that place.
    """
    bom = _BOM if source.startswith(_BOM) else b""
    text = source.removeprefix(_BOM)
    tree = parse(text)
    function = find(tree, name)
    index = _place(function, name, after)
    edited = text
    for start, end, replacement in reversed(_edits(text, function, index, block)):
        edited = edited[:start] + replacement + edited[end:]
    added = ast.parse("\n".join(block)).body
    function.body[index:index] = added
    wanted = ast.dump(tree)
    del function.body[index : index + len(added)]
    try:
        found = ast.dump(parse(edited))
    except SyntaxError:
        found = ""
    if found != wanted:
        raise SourceEditError(name, "a body to which lines can be added without changing its meaning")
    return bom + edited


def _edits(text: bytes, function: Function, index: int, block: Sequence[str]) -> list[tuple[int, int, bytes]]:
    """Return [(start, end, replacement)] in order that put the block before the body's statement ``index``."""
    body, lines = function.body, text.splitlines(keepends=True)
    newline = lines[0][len(lines[0].rstrip(b"\r\n")) :] or b"\n"
    indent, opening = _opening(lines, function, newline)
    added = b"".join((indent + line.encode() if line else b"") + newline for line in block)
    if index == 0:
        if opening:
            start, end, _line_break = opening[0]
            return [(start, end, newline + added + indent)]
        line = first_line(body[0])
        # Comments above the first statement describe it, so they stay with it.
        while lines[line - 2].strip() == b"" or lines[line - 2].lstrip().startswith(b"#"):
            line -= 1
        start = _start(lines, line)
        return [(start, start, added)]
    before = body[index - 1]
    if before.end_lineno is None or before.end_col_offset is None:
        raise AssertionError("ast.parse sets both")
    if index < len(body) and first_line(body[index]) == before.end_lineno:  # "docstring"; return x
        end = _start(lines, before.end_lineno) + before.end_col_offset
        start = _start(lines, body[index].lineno) + body[index].col_offset
        return [*opening, (end, start, newline + added + indent)]
    start = _start(lines, before.end_lineno + 1)
    if not lines[before.end_lineno - 1].endswith((b"\n", b"\r")):  # the file has no final newline
        added = newline + added.removesuffix(newline)
    return [*opening, (start, start, added)]


def _opening(lines: Sequence[bytes], function: Function, newline: bytes) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    """Return the body's indentation, and the edit that moves a body from the line of its ``def`` to its own line."""
    first = function.body[0]
    indent = _indent(lines[first_line(first) - 1])
    # A statement with decorators is always the first of its line.
    if first_line(first) != first.lineno or len(indent) == first.col_offset:
        return indent, []
    outer = _indent(lines[function.lineno - 1])
    indent = outer + (b"\t" if outer.endswith(b"\t") else b"    ")
    start = _start(lines, first.lineno) + first.col_offset
    end_of_header = len(b"".join(lines)[:start].rstrip(b" \t"))
    return indent, [(end_of_header, start, newline + indent)]

"""Finds the errors that a user can see, in the Python files and the tasks of the collection."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """An error that a user can see: its place, its text, the expectation and the fix. Variable parts are {PART}."""

    place: str
    found: str
    expected: str
    fix: str

    @property
    def readable(self) -> bool:
        """Whether its text says more than its variable parts do."""
        return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\{.*?\}", "", self.found))) >= 2

    @property
    def anchor(self) -> str:
        return f"error-{_slug(f'{self.place} {self.found}') or _slug(self.expected) or 'value'}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\{.*?\}", "", text).lower())[:80].strip("-")


#: Name -> the lines and values of its assignments.
Names = Mapping[str, Sequence[tuple[int, ast.expr]]]


def _names(scope: ast.AST) -> dict[str, list[tuple[int, ast.expr]]]:
    """Return the names that a module or a function assigns."""
    found: dict[str, list[tuple[int, ast.expr]]] = {}
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        pending += ast.iter_child_nodes(node)
        for name, value in _assigned(node):
            if isinstance(name, ast.Name):
                found.setdefault(name.id, []).append((name.lineno, value))
    return {name: sorted(values, key=lambda item: item[0]) for name, values in found.items()}


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment or a loop with their values.

    The value of a loop's target is the loop's source.
    """
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.comprehension):
        pairs = [
            (target, node.iter)
            for target in (node.target.elts if isinstance(node.target, ast.Tuple) else [node.target])
        ]
    else:
        pairs = []
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


def _template(node: ast.expr, names: Names) -> str:
    """Return a text of the source, with the last assigned text of each name, and {NAME} for another variable part."""
    match node:
        case ast.Constant():
            text = str(node.value)
        case ast.JoinedStr():
            text = "".join(_template(value, names) for value in node.values)
        case ast.FormattedValue():
            text = _template(node.value, names)
        case ast.BinOp(op=ast.Add()):
            text = _template(node.left, names) + _template(node.right, names)
        case ast.IfExp():
            text = " | ".join(dict.fromkeys(filter(None, (_template(node.body, names), _template(node.orelse, names)))))
        case ast.Name():
            values = [value for line, value in names.get(node.id, ()) if line <= node.lineno]
            known = values and isinstance(values[-1], ast.Constant | ast.JoinedStr | ast.BinOp | ast.IfExp)
            text = (
                _template(values[-1], {name: each for name, each in names.items() if name != node.id})
                if known
                else _part(node.id)
            )
        case _:
            text = _part(ast.unparse(node))
    return text


def _part(expression: str) -> str:
    """Return the name of a variable part of a text: the last word of its expression."""
    words = [
        word
        for word in re.findall(r"[a-z]\w{2,}", expression.lower())
        if word not in ("join", "repr", "str", "sorted", "for", "format")
    ]
    return f"{{{(words or ['value'])[-1].upper()}}}"


def messages(text: str) -> list[Message]:
    """Return the problems that a Python file creates, and its texts of the form `FOUND. Expected: ... Fix: ...`."""
    tree = ast.parse(text)
    return list(_messages(tree, _names(tree)))


def _messages(node: ast.AST, names: Names) -> Iterator[Message]:
    if isinstance(node, ast.FunctionDef):
        names = {**names, **_names(node)}
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem" and len(node.args) == 4:
        yield Message(*(_template(argument, names) for argument in node.args))
    elif isinstance(node, ast.Constant | ast.JoinedStr):
        yield from stated(_template(node, names))
        return
    for child in ast.iter_child_nodes(node):
        yield from _messages(child, names)


def stated(text: str) -> Iterator[Message]:
    """Yield the error of a text of the form `FOUND. Expected: ... Fix: ...`."""
    text = re.sub(r"\{\{(.*?)\}\}", lambda part: _part(part[1]), text, flags=re.DOTALL)
    if match := re.fullmatch(r"\s*(\S.*?)[.;]?\s+Expected: (.*?)\.?\s+Fix: (.*?)\.?\s*", text, re.DOTALL):
        yield Message("", *(" ".join(part.split()) for part in match.groups()))


def task_messages(tasks: Any) -> Iterator[Message]:
    """Yield the errors of a task file, given as data: messages of fail and assert."""
    if isinstance(tasks, Mapping):
        for value in (tasks.get("msg"), tasks.get("fail_msg")):
            yield from stated(value) if isinstance(value, str) else ()
    if isinstance(tasks, Mapping | list):
        for value in tasks.values() if isinstance(tasks, Mapping) else tasks:
            yield from task_messages(value)

"""Every key of the fact gb10_plan that roles, playbooks and templates read is defined by the plan's schema."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from jinja2 import Environment, nodes
from repository import files, load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode

#: A key path from gb10_plan; EACH is an element of a list, or a key that is computed.
Path = tuple[str, ...]
EACH = "*"
FACT = "gb10_plan"
#: Keywords of tasks whose values are expressions, not templates.
EXPRESSIONS = {"when", "that", "until", "failed_when", "changed_when"}
#: Filters with the elements of their input, and filters that return one element.
SAME = {"select", "selectattr", "reject", "rejectattr", "sort", "unique", "list", "default"}
ONE = {"first", "last"}
#: Keys of blocks and plays that hold tasks.
INNER = {"block", "rescue", "always", "pre_tasks", "tasks", "post_tasks", "handlers"}
METHODS = {"items", "keys", "values", "get"}
JINJA = Environment(extensions=["jinja2.ext.do"])


class Reader:
    """Collects the key paths that expressions read from the fact or from an alias of a part of it."""

    def __init__(self, aliases: Mapping[str, Path]) -> None:
        self.aliases = {FACT: (), **aliases}
        self.found: set[Path] = set()

    def read(self, text: str, expression: bool = False) -> Path | None:
        """Read a template; return the path if the template is one expression that is a path."""
        body = JINJA.parse(f"{{{{ {text} }}}}" if expression else text.strip()).body
        for node in body:
            self.visit(node)
        only = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
        return self.path(only[0]) if len(only) == 1 else None

    def visit(self, node: nodes.Node) -> None:
        if (
            isinstance(node, nodes.For)
            and isinstance(node.target, nodes.Name)
            and (whole := self.path(node.iter)) is not None
        ):
            self.aliases[node.target.name] = (*whole, EACH)
        if (
            isinstance(node, nodes.Assign)
            and isinstance(node.target, nodes.Name)
            and (part := self.path(node.node)) is not None
        ):
            self.aliases[node.target.name] = part
        if (path := self.path(node)) is not None:
            self.found.add(path)
        if isinstance(node, nodes.Filter):
            self.found |= set(self.attributes(node))
        for child in node.iter_child_nodes():
            self.visit(child)

    def path(self, node: nodes.Node | None) -> Path | None:
        """Return the path of an expression, None if it is not a part of the fact."""
        if isinstance(node, nodes.Name):
            return self.aliases.get(node.name)
        if (
            not isinstance(node, nodes.Getattr | nodes.Getitem | nodes.Filter)
            or (whole := self.path(node.node)) is None
        ):
            return None
        if isinstance(node, nodes.Getattr):
            return None if node.attr in METHODS else (*whole, node.attr)
        return self.item(whole, node.arg) if isinstance(node, nodes.Getitem) else self.filtered(whole, node)

    def item(self, whole: Path, key: nodes.Node) -> Path:
        if isinstance(key, nodes.Slice):
            return whole
        return (*whole, key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else EACH)

    def filtered(self, whole: Path, node: nodes.Filter) -> Path | None:
        if node.name == "map":
            return next(self.attributes(node), None)
        return (*whole, EACH) if node.name in ONE else whole if node.name in SAME else None

    def attributes(self, node: nodes.Filter) -> Iterator[Path]:
        """Yield the paths of the attributes that a filter reads from the elements of its input."""
        whole = self.path(node.node)
        named = [each.value for each in node.kwargs if each.key in ("attribute", "key_name", "value_name")]
        named += node.args[:1] if node.name in ("selectattr", "rejectattr") else []
        for name in named if whole is not None else []:
            if isinstance(name, nodes.Const):
                yield (*(whole or ()), EACH, *name.value.split("."))


def strings(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of a YAML document with the closest key above it."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from strings(value, str(name))
    elif isinstance(data, list):
        for value in data:
            yield from strings(value, key)
    elif isinstance(data, str):
        yield key, data


def tasks(data: Any) -> Iterator[Any]:
    """Yield the smallest parts of a document that a loop variable is valid in."""
    if isinstance(data, list):
        for entry in data:
            yield from tasks(entry)
    elif isinstance(data, Mapping) and INNER & data.keys():
        yield {key: value for key, value in data.items() if key not in INNER}
        yield from tasks([data[key] for key in INNER & data.keys()])
    else:
        yield data


def paths_of(documents: Sequence[Any], templates: Sequence[str] = ()) -> set[Path]:
    """Return the key paths that YAML documents and templates read; private variables (_x) may be aliases."""
    aliases: dict[str, Path] = {}
    for _again in range(2):  # An alias may use another one.
        for key, text in (each for document in documents for each in strings(document)):
            if key.startswith("_") and (path := Reader(aliases).read(text)) is not None:
                aliases[key] = path
    found: set[Path] = set()
    for task in (task for document in documents for task in tasks(document)):
        reader = Reader(aliases)
        loop = task.get("loop") if isinstance(task, Mapping) else None
        if isinstance(loop, str) and (path := reader.read(loop)) is not None:
            reader.aliases[task.get("loop_control", {}).get("loop_var", "item")] = (*path, EACH)
        for key, text in strings(task):
            reader.read(text, expression=key in EXPRESSIONS)
        found |= reader.found
    reader = Reader(aliases)
    for template in templates:
        reader.read(template)
    return found | reader.found


def undefined(path: Path, kind: Any = Plan, place: str = FACT) -> str:
    """Return the part of a path that the schema does not define, "" if it defines all of it."""
    if not path or kind is Any:
        return ""
    if place == FACT and path[0] == "node":
        return undefined(path[1:], PlannedNode, f"{place}.node")
    name, here = path[0], f"{place}.{path[0]}"
    if get_origin(kind) in (Union, types.UnionType):
        return min((undefined(path, each, place) for each in get_args(kind)), key=len)
    if is_dataclass(kind):
        hints = get_type_hints(kind) if name in {field.name for field in fields(kind)} else {}
        return undefined(path[1:], hints[name], here) if hints else here
    if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
        return undefined(path[1:], get_args(kind)[1], here)
    return undefined(path[1:], get_args(kind)[0], here) if get_args(kind) and name == EACH else here


SOURCES = [
    path
    for pattern in ("roles/*/*/*.yml", "playbooks/*.yml", "site.yml")
    for path in files(pattern)
    if not {"meta", "files"} & set(path.split("/"))
]


def test_the_schema_defines_every_key_that_is_read() -> None:
    read_paths = paths_of(
        [load_yaml(read(path)) for path in SOURCES], [read(path) for path in files("roles/*/templates/**/*.j2")]
    )
    assert {undefined(path) for path in read_paths} == {""}
    assert len(read_paths) > 60
    assert {
        ("node", "rails"),
        ("nodes", EACH, "name"),
        ("runtime", "path"),
        ("node", "wheels", EACH, "sha256"),
    } <= read_paths


@pytest.mark.parametrize(
    ("task", "missing"),
    [
        ({"when": "gb10_plan.invented"}, "gb10_plan.invented"),
        ({"assert": {"that": ["gb10_plan.node['invented'] is defined"]}}, "gb10_plan.node.invented"),
        (
            {"debug": {"msg": "a {{ gb10_plan.serve.args[0] }} {{ gb10_plan.serve.invented }}"}},
            "gb10_plan.serve.invented",
        ),
        ({"debug": {"msg": "{{ gb10_plan.model.invented }}"}}, "gb10_plan.model.invented"),
        ({"debug": {"msg": "{{ gb10_plan.runtime.invented }}"}}, "gb10_plan.runtime.invented"),
        ({"debug": {"msg": "{{ gb10_plan.nodes | map(attribute='invented') | list }}"}}, "gb10_plan.nodes.*.invented"),
        ({"debug": {"msg": "{{ gb10_plan.nodes | selectattr('invented') | list }}"}}, "gb10_plan.nodes.*.invented"),
        (
            {"loop": "{{ gb10_plan.node.wheels }}", "debug": {"msg": "{{ item.invented }}"}},
            "gb10_plan.node.wheels.*.invented",
        ),
        (
            {"vars": {"_x": "{{ gb10_plan.node }}", "_y": "{{ _x.rails | first }}"}, "when": "_y.invented"},
            "gb10_plan.node.rails.*.invented",
        ),
        (
            {"msg": "{% for a in gb10_plan.nodes %}{% set b = a.rails %}{{ b[0].invented }}{% endfor %}"},
            "gb10_plan.nodes.*.rails.*.invented",
        ),
    ],
)
def test_an_invented_key_is_found(task: dict[str, Any], missing: str) -> None:
    assert {undefined(path) for path in paths_of([[task]])} == {"", missing}
    assert {undefined(path) for path in paths_of([[{"hosts": "all", "tasks": [{"block": [task]}]}]])} == {"", missing}

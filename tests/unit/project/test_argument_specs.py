"""Each role's interface: meta/argument_specs.yml is complete, and agrees with the uses of tasks_from.

test_inventories.py verifies that defaults/main.yml agrees with the specification.
The description of a mapping with arbitrary keys (environment variables, labels) contains "free-form mapping".
Every other ``type: dict`` lists its options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import variables
from repository import ROLES, ROOT, TASK_FILES, files, load_yaml, read, specs_of

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.checks import FACTS
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import cluster_inputs

#: Facts of the role gb10 for the other roles, which may declare them as a required input under this name.
SHARED_INPUTS = frozenset({"gb10_plan"})
TYPES = frozenset({"str", "list", "dict", "bool", "int", "float", "path", "raw", "jsonarg", "json", "bytes", "bits"})
FREE_FORM = "free-form mapping"


def role_problems(role: str, specs: Mapping[str, Any], task_files: frozenset[str]) -> Iterator[str]:
    """Yield all errors in a role's interface; ``task_files`` are the stems of tasks/*.yml."""
    for entry_name, entry in specs.items():
        if entry_name not in task_files:
            yield f"entry point {entry_name}: tasks/{entry_name}.yml does not exist"
        if not entry.get("short_description"):
            yield f"entry point {entry_name}: no short_description"
        for name, option in entry.get("options", {}).items():
            of_another = name in SHARED_INPUTS and role != "gb10"
            if not of_another and not name.startswith(f"{role}_"):
                yield f"{name}: a public variable of this role starts with {role}_"
            if (option.get("required") is True) == ("default" in option) or (of_another and "default" in option):
                yield f"{name}: neither required: true nor a default, or both, or a default of another role's fact"
            yield from option_problems(name, option)


def option_problems(path: str, option: Mapping[str, Any]) -> Iterator[str]:
    """Check that an option has a type, a description, and its elements or options."""
    kind, description = option.get("type"), option.get("description") or ""
    text = " ".join(description) if isinstance(description, list) else str(description)
    if kind not in TYPES:
        yield f"{path}: type is {kind!r}, expected one of {', '.join(sorted(TYPES))}"
    if not text.strip():
        yield f"{path}: no description"
    if kind == "list" and option.get("elements") not in TYPES:
        yield f"{path}: a list without elements"
    if "dict" in (kind, option.get("elements")) and not option.get("options") and FREE_FORM not in text.lower():
        yield f'{path}: a dict without options, whose description lacks "{FREE_FORM}"'
    for name, sub in (option.get("options") or {}).items():
        yield from option_problems(f"{path}.{name}", sub)


def role_calls(data: object) -> Iterator[tuple[str, str]]:
    """Yield every (role, tasks_from) in a file's data at any depth, without the collection's prefix."""
    if isinstance(data, list):
        for item in data:
            yield from role_calls(item)
    elif isinstance(data, dict):
        if "tasks_from" in data:
            name = str(data.get("name") or data.get("role"))
            yield name.removeprefix("gb10.cluster."), str(data["tasks_from"]).removesuffix(".yml")
        for value in data.values():
            yield from role_calls(value)


def call_problems(calls: list[tuple[str, str]], entry_points: Mapping[str, frozenset[str]]) -> list[str]:
    """Check that every tasks_from names a declared entry point of its role."""
    return [
        f"{role}: tasks_from {entry} has no entry point in meta/argument_specs.yml"
        for role, entry in calls
        if entry not in entry_points.get(role, frozenset())
    ]


@pytest.mark.parametrize("role", ROLES)
def test_role_interface(role: str) -> None:
    specs = specs_of(role)
    assert "main" in specs, f"roles/{role}/meta/argument_specs.yml declares no entry point main"
    stems = frozenset(task_file.stem for task_file in (ROOT / "roles" / role / "tasks").glob("*.yml"))
    assert list(role_problems(role, specs, stems)) == []
    assert (ROOT / "roles" / role / "defaults/main.yml").is_file() == bool(variables.defaults(role))


def test_every_tasks_from_is_declared() -> None:
    entry_points = {role: frozenset(specs_of(role)) for role in ROLES}
    calls = [call for path in files(*TASK_FILES, "tests/**/*.yml") for call in role_calls(load_yaml(read(path)))]
    assert calls and call_problems(calls, entry_points) == []


GOOD: dict[str, Any] = {"type": "int", "description": "How many.", "default": 1}
LIST = {"type": "list", "elements": "dict", "description": "Some.", "default": []}
FREE_FORM_OPTION = {"type": "dict", "description": ["Environment variables.", "A free-form mapping."]}


def spec(**options: Any) -> dict[str, Any]:
    return {"main": {"short_description": "A sample", "options": options}}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (spec(x_a={"type": "int", "description": "How many."}), "x_a: neither required: true nor"),
        (spec(x_a={**GOOD, "required": True}), "x_a: neither required: true nor"),
        (spec(y_a=GOOD), "y_a: a public variable of this role starts with x_"),
        (spec(gb10_plan={**FREE_FORM_OPTION, "default": {}}), "gb10_plan: neither required: true nor"),
        (spec(x_a={"description": "How many.", "default": 1}), "x_a: type is None"),
        (spec(x_a={"type": "int", "default": 1}), "x_a: no description"),
        (spec(x_a={"type": "list", "description": "Some.", "default": []}), "x_a: a list without elements"),
        (spec(x_a={"type": "dict", "description": "Some.", "default": {}}), "x_a: a dict without options"),
        (spec(x_a={**LIST, "options": {"b": {"type": "str"}}}), "x_a.b: no description"),
        ({"main": {"short_description": ""}}, "entry point main: no short_description"),
        (
            {**spec(), "other": {"short_description": "Another"}},
            "entry point other: tasks/other.yml does not exist",
        ),
    ],
)
def test_the_role_check_can_fail(specs: dict[str, Any], expected: str) -> None:
    (problem,) = role_problems("x", specs, frozenset({"main"}))
    assert problem.startswith(expected)


def test_the_role_check_can_pass() -> None:
    specs = spec(
        x_a=GOOD,
        x_b={**FREE_FORM_OPTION, "default": {}},
        x_c={"type": "str", "description": "Which.", "required": True},
        gb10_plan={**FREE_FORM_OPTION, "required": True},
    )
    assert list(role_problems("x", specs, frozenset({"main"}))) == []


def test_the_tasks_from_check_can_fail() -> None:
    play = load_yaml(
        "[{hosts: all, tasks: [{block: [{include_role: {name: gb10.cluster.lab, tasks_from: stop.yml}}]}]}]"
    )
    assert list(role_calls(play)) == [("lab", "stop")]
    assert call_problems([("lab", "stop")], {"lab": frozenset({"main"})}) == [
        "lab: tasks_from stop has no entry point in meta/argument_specs.yml"
    ]


def test_a_refused_secret_is_not_shown() -> None:
    option = specs_of("model_store")["main"]["options"]["model_store_hub_token"]
    assert "hf_abc" not in cluster_inputs._found(["hf_abc"], option, ["'hf_abc' cannot be converted"])
    assert cluster_inputs._found("abc", {"type": "int"}, []) == "'abc'"


#: A name of a variable that is no part of a path or an attribute.
_NAME = r"(?<![\w.'\"/-])({})_[a-z0-9_]+"
_FOLDERS = ("tasks", "handlers", "templates", "vars", "defaults")
_SET = re.compile(r"(?=(?:register|loop_var|index_var):\s*(\w+)|^\s*(\w+):)", re.MULTILINE)


def unspecified(role: str, texts: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return the variables with the prefix of a role that its files read, and that nothing specifies or sets."""
    plain = [re.sub(r"(^|\s)#.*", "", text) for text in texts.values()]
    fixed = {name for text in plain for found in _SET.findall(text) for name in found if name}
    read_there = {found[0] for text in plain for found in re.finditer(_NAME.format(role), text)}
    return sorted(read_there - fixed - set(known))


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_of_a_role_has_a_specification(role: str) -> None:
    longer = tuple(f"{other}_" for other in ROLES if other.startswith(f"{role}_"))
    steps = {
        Path(path).stem for path in files("plugins/plugin_utils/steps/*.py", "plugins/module_utils/node_steps/*.py")
    }
    known = {*FACTS, *steps, *(name for entry in specs_of(role).values() for name in entry.get("options", {}))}
    texts = {path: read(path) for folder in _FOLDERS for path in files(f"roles/{role}/{folder}/**/*.*")}
    assert [name for name in unspecified(role, texts, known) if not name.startswith(longer)] == []


def test_a_variable_without_a_specification_is_found() -> None:
    task = {
        "tasks/main.yml": "- command: x\n  environment: '{{ x_env }}'  # x_other\n  register: x_done\n  when: x_done.y"
    }
    assert unspecified("x", task, ["x_known"]) == ["x_env"]

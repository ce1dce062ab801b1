"""Each role's interface: meta/argument_specs.yml agrees with defaults/main.yml and with the uses of tasks_from.

The description of a mapping with arbitrary keys (environment variables, labels) contains "free-form mapping".
Every other ``type: dict`` lists its options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from repository import ROLES, ROOT, TASK_FILES, files, load_yaml, read

from ansible_collections.gb10.cluster.plugins.action import cluster_inputs

#: Facts of the role gb10 for the other roles, which may declare them as a required input under this name.
SHARED_INPUTS = frozenset({"gb10_plan"})
TYPES = frozenset({"str", "list", "dict", "bool", "int", "float", "path", "raw", "jsonarg", "json", "bytes", "bits"})
FREE_FORM = "free-form mapping"


def role_problems(
    role: str, defaults: Mapping[str, Any], specs: Mapping[str, Any], task_files: frozenset[str]
) -> list[str]:
    """Return all errors in a role's interface; ``task_files`` are the stems of tasks/*.yml."""
    problems = []
    options = {name: option for entry in specs.values() for name, option in entry.get("options", {}).items()}
    for name in sorted(defaults.keys() - options.keys()):
        problems.append(f"{name}: in defaults/main.yml, not in meta/argument_specs.yml")
    for entry_name, entry in specs.items():
        if entry_name not in task_files:
            problems.append(f"entry point {entry_name}: tasks/{entry_name}.yml does not exist")
        if not entry.get("short_description"):
            problems.append(f"entry point {entry_name}: no short_description")
        for name, option in entry.get("options", {}).items():
            problems += default_problems(role, name, option, defaults)
            problems += option_problems(name, option)
    return problems


def default_problems(role: str, name: str, option: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Check that an option has its role's prefix and the role's actual default."""
    if name in SHARED_INPUTS and role != "gb10":
        return [] if option.get("required") is True else [f"{name}: another role's fact can only be a required input"]
    problems = [] if name.startswith(f"{role}_") else [f"{name}: a public variable of this role starts with {role}_"]
    if name in defaults:
        if option.get("required"):
            problems.append(f"{name}: required, but has a default in defaults/main.yml")
        elif "default" not in option and defaults[name] is not None:
            problems.append(f"{name}: defaults/main.yml has a default, meta/argument_specs.yml has none")
        elif not same(option.get("default"), defaults[name]):
            problems.append(
                f"{name}: default {option.get('default')!r} in meta/argument_specs.yml, {defaults[name]!r} in "
                "defaults/main.yml"
            )
    elif option.get("required") is not True:
        problems.append(f"{name}: neither required: true nor in defaults/main.yml")
    return problems


def same(left: object, right: object) -> bool:
    """Return whether both are equal in value and type, because in Python 1 equals True and 1.0."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


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


def specs_of(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    return load_yaml(path.read_text(encoding="utf-8"))["argument_specs"] if path.is_file() else {}


@pytest.mark.parametrize("role", ROLES)
def test_role_interface(role: str) -> None:
    folder = ROOT / "roles" / role
    specs = specs_of(role)
    assert "main" in specs, f"roles/{role}/meta/argument_specs.yml declares no entry point main"
    path = folder / "defaults" / "main.yml"
    defaults = (load_yaml(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}
    stems = frozenset(task_file.stem for task_file in (folder / "tasks").glob("*.yml"))
    assert role_problems(role, defaults, specs, stems) == []


def test_every_tasks_from_is_declared() -> None:
    entry_points = {role: frozenset(specs_of(role)) for role in ROLES}
    calls = [call for path in files(*TASK_FILES, "tests/**/*.yml") for call in role_calls(load_yaml(read(path)))]
    assert calls and call_problems(calls, entry_points) == []


GOOD: dict[str, Any] = {"type": "int", "description": "How many.", "default": 1}


def spec(**options: Any) -> dict[str, Any]:
    return {"main": {"short_description": "A sample", "options": options}}


@pytest.mark.parametrize(
    ("defaults", "specs", "expected"),
    [
        ({"x_a": 1}, spec(), "x_a: in defaults/main.yml, not in"),
        ({}, spec(x_a=GOOD), "x_a: neither required: true nor"),
        ({"x_a": 2}, spec(x_a=GOOD), "x_a: default 1 in meta/argument_specs.yml, 2 in"),
        ({"x_a": True}, spec(x_a=GOOD), "x_a: default 1 in meta/argument_specs.yml, True in"),
        (
            {"x_a": [1, 2]},
            spec(x_a={**GOOD, "type": "list", "elements": "int", "default": [2, 1]}),
            "x_a: default [2, 1]",
        ),
        ({"x_a": 1}, spec(x_a={"type": "int", "description": "How many."}), "x_a: defaults/main.yml has a default"),
        ({"x_a": 1}, spec(x_a={**GOOD, "required": True}), "x_a: required, but"),
        ({"y_a": 1}, spec(y_a=GOOD), "y_a: a public variable of this role starts with x_"),
        ({}, spec(gb10_plan={"type": "dict", "description": "A free-form mapping."}), "gb10_plan: another role's fact"),
        ({"x_a": 1}, spec(x_a={"description": "How many.", "default": 1}), "x_a: type is None"),
        ({"x_a": 1}, spec(x_a={"type": "int", "default": 1}), "x_a: no description"),
        (
            {"x_a": []},
            spec(x_a={"type": "list", "description": "Some.", "default": []}),
            "x_a: a list without elements",
        ),
        ({"x_a": {}}, spec(x_a={"type": "dict", "description": "Some.", "default": {}}), "x_a: a dict without options"),
        (
            {"x_a": []},
            spec(
                x_a={
                    "type": "list",
                    "elements": "dict",
                    "description": "Some.",
                    "default": [],
                    "options": {"b": {"type": "str"}},
                }
            ),
            "x_a.b: no description",
        ),
        ({}, {"main": {"short_description": ""}}, "entry point main: no short_description"),
        (
            {},
            {**spec(), "other": {"short_description": "Another"}},
            "entry point other: tasks/other.yml does not exist",
        ),
    ],
)
def test_the_role_check_can_fail(defaults: dict[str, Any], specs: dict[str, Any], expected: str) -> None:
    problems = role_problems("x", defaults, specs, frozenset({"main"}))
    assert any(problem.startswith(expected) for problem in problems), problems


def test_the_role_check_can_pass() -> None:
    free_form = {"type": "dict", "description": ["Environment variables.", "A free-form mapping."], "default": {}}
    specs = spec(x_a=GOOD, x_b=free_form, x_c={"type": "str", "description": "Which.", "required": True})
    assert role_problems("x", {"x_a": 1, "x_b": {}}, specs, frozenset({"main"})) == []


def test_the_tasks_from_check_can_fail() -> None:
    play = load_yaml(
        "[{hosts: all, tasks: [{block: [{include_role: {name: gb10.cluster.lab, tasks_from: stop.yml}}]}]}]"
    )
    assert list(role_calls(play)) == [("lab", "stop")]
    assert call_problems([("lab", "stop")], {"lab": frozenset({"main"})}) == [
        "lab: tasks_from stop has no entry point in meta/argument_specs.yml"
    ]


def test_a_refused_secret_is_not_shown() -> None:
    option = load_yaml(read("roles/model_store/meta/argument_specs.yml"))["argument_specs"]["main"]["options"][
        "model_store_hub_token"
    ]
    assert "hf_abc" not in cluster_inputs._found(["hf_abc"], option, ["'hf_abc' cannot be converted"])
    assert cluster_inputs._found("abc", {"type": "int"}, []) == "'abc'"

"""The steps of the roles: typed and documented inputs, and calls with the inputs that they have."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from decisions import decide
from repository import ROOT, files, read, tasks_of

from ansible_collections.gb10.cluster.plugins.plugin_utils import steps

NAMES = sorted(path.stem for path in (ROOT / "plugins/plugin_utils/steps").glob("[a-z]*.py"))


def calls() -> list[tuple[str, Any]]:
    """Return the name and inputs of each call in roles and playbooks."""
    return [
        (call["name"], call.get("inputs", {}))
        for path in files("roles/*/tasks/*.yml", "playbooks/**/*.yml")
        for task in tasks_of(read(path))
        if (call := task.data.get("gb10.cluster.step"))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_documents_its_inputs_and_has_an_argument_spec(name: str) -> None:
    entry: Any = steps.entry(name)
    assert entry.__doc__ and entry.run.__doc__
    documented = str(entry.Inputs.__doc__)
    assert [each.name for each in fields(entry.Inputs) if f"``{each.name}``" not in documented] == []
    assert {each["type"] for each in steps.specification(entry.Inputs).values()} <= {
        *("str", "int", "bool", "float", "path", "dict", "list", "raw"),
    }


def test_roles_call_each_step_with_inputs_that_it_has() -> None:
    found = calls()
    assert sorted({name for name, _inputs in found}) == NAMES
    for name, inputs in found:
        kind = steps.entry(name).Inputs
        if isinstance(inputs, dict):
            needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
            assert needed <= inputs.keys() <= {each.name for each in fields(kind)}, name


def test_inputs_of_the_command_line_are_texts() -> None:
    kind = steps.entry("os_update_plan").Inputs
    found = steps.inputs(kind, {"units": {}, "results": "x", "again": "yes", "gateways": "a,b"})
    assert (found.again, found.gateways, found.firmware) == (True, ["a", "b"], False)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("no_step", {}, "there is no such step"),
        ("../../action/show", {}, "there is no such step"),
        ("image_query", {"other": 1}, "other"),
        ("launch_history", {"records": "x"}, "missing required arguments: nodes"),
        ("launch_history", {"records": "x", "nodes": [], "purpose": "y"}, "value of purpose must be one of"),
    ],
)
def test_a_wrong_call_names_the_step_and_the_input(name: str, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"^step {name}: .*{message}"):
        decide("step", {"name": name, "inputs": inputs}, {})

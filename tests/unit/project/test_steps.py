"""The steps of the roles: typed and documented inputs, calls with the inputs that they have, and no secret of them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.module_utils import basic
from decisions import decide
from repository import ROOT, files, read, tasks_of
from run_module import run_module
from run_playbook import LOCAL, run_plays

from ansible_collections.gb10.cluster.plugins.module_utils import node_steps
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps
from ansible_collections.gb10.cluster.plugins.plugin_utils import steps

#: The action or module that runs a step -> the package of its steps.
PACKAGES: Mapping[str, ModuleType] = {"step": steps, "node_step": node_steps}
NAMES = {
    "step": sorted(path.stem for path in (ROOT / "plugins/plugin_utils/steps").glob("[a-z]*.py")),
    "node_step": sorted(path.stem for path in (ROOT / "plugins/module_utils/node_steps").glob("[a-z]*.py")),
}
#: A call of a node's step in Python.
_OF_CODE = re.compile(r"""(?:\.(?:read_)?node|_called)[(,]\s*(?:step, )?"(\w+)\b""")
SECRET = "hf_" + "secret" * 4


def entry(package: str, name: str) -> Any:
    return io_steps.entry(PACKAGES[package].__name__, name)


def calls(package: str) -> list[tuple[str, Any]]:
    """Return the name and inputs of each call in roles and playbooks."""
    return [
        (call["name"], call.get("inputs", {}))
        for path in files("roles/*/tasks/*.yml", "playbooks/**/*.yml", "tests/integration/**/*.yml")
        for task in tasks_of(read(path))
        if (call := task.data.get(f"gb10.cluster.{package}"))
    ]


def calls_of_code() -> set[str]:
    """Return the names of the node's steps that the actions and the controller's steps call."""
    return {
        name
        for path in files("plugins/action/*.py", "plugins/plugin_utils/**/*.py")
        for name in _OF_CODE.findall(read(path))
    }


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in NAMES.items() for name in names])
def test_a_step_documents_its_inputs_and_has_an_argument_spec(package: str, name: str) -> None:
    step = entry(package, name)
    assert step.__doc__ and step.run.__doc__
    documented = str(step.Inputs.__doc__)
    assert [each.name for each in fields(step.Inputs) if f"``{each.name}``" not in documented] == []
    assert {each["type"] for each in io_steps.specification(step.Inputs).values()} <= {
        *("str", "int", "bool", "float", "path", "dict", "list", "raw"),
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_roles_call_each_step_with_inputs_that_it_has(package: str) -> None:
    found = calls(package)
    of_code = calls_of_code() if package == "node_step" else set()
    assert sorted({name for name, _inputs in found} | of_code) == NAMES[package]
    for name, inputs in found:
        kind = entry(package, name).Inputs
        if isinstance(inputs, dict):
            needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
            assert needed <= inputs.keys() <= {each.name for each in fields(kind)}, name


def test_ansible_sends_every_step_to_a_node() -> None:
    """It finds the files by the imports of the package, of which a node executes none."""
    text = read("plugins/module_utils/node_steps/__init__.py")
    imported = [
        name.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom) for name in each.names
    ]
    assert [name for name in imported if name not in ("annotations", "TYPE_CHECKING")] == NAMES["node_step"]


def test_a_node_imports_only_the_step_that_it_runs() -> None:
    """An import of a file takes a node longer than reading it."""
    program = (
        "import sys; from ansible_collections.gb10.cluster.plugins.module_utils import node_steps;"
        "from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps;"
        "io_steps.entry(node_steps.__name__, 'memory_wait');"
        "print(*(name.rpartition('.')[2] for name in sys.modules if name.startswith(node_steps.__name__ + '.')))"
    )
    environment = {"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath}
    argv = [sys.executable, "-c", program]
    assert subprocess.check_output(argv, env=environment, text=True).split() == ["memory_wait"]


def test_inputs_of_the_command_line_are_texts() -> None:
    kind = entry("step", "os_update_plan").Inputs
    found, secrets = io_steps.inputs(kind, {"units": {}, "results": "x", "again": "yes", "gateways": "a,b"})
    assert (found.again, found.gateways, found.firmware, secrets) == (True, ["a", "b"], False, set())


WRONG = [
    ("no_step", {}, "there is no such step"),
    ("../../action/show", {}, "there is no such step"),
    ("image_query", {"other": 1}, "other"),
    ("launch_history", {"records": "x"}, "missing required arguments: nodes"),
    ("launch_history", {"records": "x", "nodes": [], "purpose": "y"}, "value of purpose must be one of"),
]


@pytest.mark.parametrize(("name", "inputs", "message"), WRONG)
def test_a_wrong_call_names_the_step_and_the_input(name: str, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"^step {name}: .*{message}"):
        decide("step", {"name": name, "inputs": inputs}, {})


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("no_step", {}, "there is no such step in module_utils/node_steps"),
        ("memory_wait", {"needed": 1}, "missing required arguments: node"),
        ("memory_wait", {"node": "spark1", "needed": "much"}, "needed"),
    ],
)
def test_a_wrong_call_on_a_node_does_the_same(name: str, inputs: dict[str, Any], message: str) -> None:
    failed = run_module("node_step", {"name": name, "inputs": inputs})
    assert failed["msg"].startswith(f"node_step {name}: ") and message in failed["msg"]
    assert failed["invocation"] == {"module_args": {"name": name}}


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what modules write into the node's log, the journal or syslog."""
    found: list[str] = []

    class Journal:
        @staticmethod
        def send(*words: str, **fields: str) -> None:
            found.append(f"{words} {fields}")

    monkeypatch.setattr(basic, "has_journal", True)
    monkeypatch.setattr(basic, "journal", Journal, raising=False)
    monkeypatch.setattr(basic.syslog, "syslog", lambda *words: found.append(str(words)))
    return found


@pytest.mark.parametrize("name", ["secret_environment", "memory_wait"])
def test_a_node_logs_and_returns_no_input(name: str, tmp_path: Path, logged: list[str]) -> None:
    inputs = {
        "secret_environment": {"variables": {"HF_TOKEN": SECRET}, "path": str(tmp_path / "secret.env")},
        "memory_wait": {"node": SECRET, "needed": 1, "drop_caches": False},
    }
    answer = run_module("node_step", {"name": name, "inputs": inputs[name]})
    assert not answer.get("failed") and SECRET not in str(answer) and logged == []


@pytest.mark.parametrize("wrong", [{}, {"name": "memory_wait", "other": 1}, {"name": "memory_wait", "inputs": SECRET}])
def test_a_call_that_ansible_refuses_has_no_input(wrong: dict[str, Any], logged: list[str]) -> None:
    answer = run_module("node_step", {"inputs": {"variables": {"HF_TOKEN": SECRET}}, **wrong})
    assert answer["failed"] and SECRET not in str(answer) and logged == []


def test_another_module_logs_and_returns_them(tmp_path: Path, logged: list[str]) -> None:
    """So that the test above can fail."""
    answer = run_module("fabric_info", {"root": str(tmp_path / SECRET)})
    assert SECRET in str(logged) and SECRET in str(answer)


@pytest.mark.slow
def test_a_verbose_run_prints_no_input(tmp_path: Path) -> None:
    inputs = {"variables": {"HF_TOKEN": SECRET}, "path": str(tmp_path / "secret.env")}
    tasks = [
        {"gb10.cluster.node_step": {"name": "secret_environment", "inputs": inputs}},
        {"gb10.cluster.node_step": {"name": "secret_environment", "inputs": {**inputs, "other": SECRET}}},
    ]
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    done = run_plays([play], {"spark1": LOCAL}, tmp_path, "-vvv", "--diff")
    done.assert_failed("node_step secret_environment: other", "only root can read it", "module_args")
    assert SECRET not in done.output and SECRET in (tmp_path / "secret.env").read_text(encoding="utf-8")

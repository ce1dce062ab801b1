"""Run an action of the collection in this process, without a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from repository import ROOT


def task(arguments: Mapping[str, Any]) -> SimpleNamespace:
    """Return what an action reads of its task: arguments, and no role."""
    return SimpleNamespace(args=dict(arguments), check_mode=False, diff=True, _parent=None, _role=None)


def decide(
    action: str,
    arguments: Mapping[str, Any],
    plan: Mapping[str, Any],
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    result: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    check: bool = False,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result of an action or step, and the arguments of each call of its module, the inputs of a node's step.

    ``plan`` is the fact gb10_plan, ``hosts`` are the variables of each node, ``result`` is the module's, or
    those of its calls. ``variables`` are further variables of the task's node.
    """
    if (ROOT / f"plugins/plugin_utils/steps/{action}.py").exists():
        action, arguments = "step", {"name": action, "inputs": arguments}
    plugin = import_module(f"ansible_collections.gb10.cluster.plugins.action.{action}")
    instance = object.__new__(plugin.ActionModule)
    instance._task = task(arguments)
    instance._task.check_mode = check
    instance._templar = SimpleNamespace(template=lambda value: value)
    instance._connection = SimpleNamespace(transport="local")
    calls: list[dict[str, Any]] = []

    def module(module_args: dict[str, Any], module_name: str | None = None, **_variables: Any) -> dict[str, Any]:
        calls.append(module_args["inputs"] if module_name == "gb10.cluster.node_step" else module_args)
        found = result[len(calls) - 1] if isinstance(result, Sequence) else result
        return dict(found or {"changed": False})

    instance._execute_module = module
    return instance.decide({"gb10_plan": plan, "hostvars": hosts or {}, **(variables or {})}), calls

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of roles: files of a package, each with its inputs as the dataclass ``Inputs``. Only one is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from importlib.util import find_spec
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

Given = TypeVar("Given")


def entry(package: str, name: str) -> Any:
    """Return a step's file. Raises ValueError for an unknown one."""
    path = f"{package}.{name}"
    if not re.fullmatch("[a-z_]+", name) or find_spec(path) is None:
        raise ValueError(f"there is no such step in {'/'.join(package.split('.')[-2:])}")
    return import_module(path)


def inputs(kind: type[Given], data: Mapping[str, Any]) -> tuple[Given, set[str]]:
    """Return a task's inputs, and those of their texts that are secret.

    Numbers and booleans may be texts, as in variables of the command line.
    Raises ValueError for a missing, unknown or mistyped value.
    """
    result = ArgumentSpecValidator(specification(kind)).validate(data)
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    return kind(**result.validated_parameters), result._no_log_values


def specification(kind: type[Any]) -> dict[str, dict[str, Any]]:
    """Return the argument_spec of a dataclass. A field's metadata can have ``choices`` or a ``type`` such as path."""
    hints = get_type_hints(kind)
    return {each.name: _of_field(each, hints[each.name]) for each in fields(kind)}


def _of_field(each: Any, hint: Any) -> dict[str, Any]:
    needed = each.default is MISSING and each.default_factory is MISSING
    value = each.default if each.default_factory is MISSING else each.default_factory()
    default = {} if needed else {"default": list(value) if isinstance(value, tuple) else value}
    elements = {"elements": _type(get_args(hint)[0])} if _type(hint) == "list" else {}
    # A text that names a secret's file or a number is no secret.
    return {"required": needed, "no_log": False, "type": _type(hint), **elements, **default, **each.metadata}


def _type(hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin is UnionType:
        # A value, or None if the task gives none.
        return _type(get_args(hint)[0])
    if origin is Any:
        return "raw"
    if issubclass(origin, Mapping):
        return "dict"
    return "list" if issubclass(origin, Sequence) and origin is not str else str(origin.__name__)

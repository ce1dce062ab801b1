# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads plain data, such as the fact gb10_plan, into the dataclasses that it was made of."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any, str], Any]


def plan(data: Mapping[str, Any]) -> Plan:
    """Return the plan of the fact gb10_plan. Raises TypeError."""
    # A module that loads other data must not compile the schema on every node.
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan  # noqa: PLC0415

    return load(Plan, data, "gb10_plan")


def load(kind: Callable[..., T], data: Any, path: str) -> T:
    """Return data as a dataclass. Raises TypeError with the path of a missing, unknown or mistyped value."""
    return cast("T", _reader(kind)(data, path))


def chosen(kind: Callable[..., T], data: Mapping[str, Any], path: str) -> T:
    """Return those values of data that a dataclass has. Raises TypeError as load() does."""
    return load(kind, {each.name: data[each.name] for each in fields(cast("Any", kind)) if each.name in data}, path)


def part(kind: Any, data: Mapping[str, Any], path: str) -> None:
    """Verify some values of a dataclass. Raises KeyError for an unknown one, TypeError as load() does."""
    hints = get_type_hints(kind)
    for name, value in data.items():
        _reader(hints[name])(value, f"{path}.{name}")


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads a value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return plain
    if is_dataclass(kind):
        return _dataclass(kind)
    if origin in (Union, types.UnionType):
        return _union(inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_reader(inner[1]))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _sequence(_reader(inner[0]))
    return _simple(kind)


def plain(value: Any, _path: str = "") -> Any:
    """Copy containers, which Ansible's templates evaluate when they are read, and dataclasses to dicts."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return value


def _dataclass(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            raise _error(path, value, kind.__name__)
        if wrong := (needed - value.keys()) | (value.keys() - readers.keys()):
            raise _error(f"{path}.{min(wrong)}", "missing" if min(wrong) in needed else "unknown", kind.__name__)
        return kind(**{name: readers[name](each, f"{path}.{name}") for name, each in value.items()})

    return read


def _union(kinds: Sequence[Any]) -> _Reader:
    """Read None, or the first type that fits. Plain data has {} for no dataclass."""
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]
    none: tuple[Any, ...] = (
        ((None, {}) if any(map(is_dataclass, kinds)) else (None,)) if len(readers) < len(kinds) else ()
    )

    def read(value: Any, path: str) -> Any:
        if value in none:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value, path)
            except TypeError:
                continue
        return readers[-1](value, path)

    return read


def _mapping(reader: _Reader) -> _Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            raise _error(path, value, "mapping")
        return {str(name): reader(each, f"{path}.{name}") for name, each in value.items()}

    return read


def _sequence(reader: _Reader) -> _Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise _error(path, value, "list")
        return tuple(reader(each, f"{path}[{index}]") for index, each in enumerate(value))

    return read


def _simple(kind: Any) -> _Reader:
    # bool is a subclass of int.
    allowed = (int, float) if kind is float else kind

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise _error(path, value, kind.__name__)
        return value

    return read


def _error(path: str, found: Any, expected: str) -> TypeError:
    return TypeError(f"{path} is {found!r}, not a {expected} of the plan")

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wrong entries in the lists of a body, found before vLLM parses it.

vLLM keeps the errors of all wrong entries, and each can be of 30 types: 2,000 wrong ones (51 KB) had 472,001 errors and
took 2 GiB. So its own types verify the lists in parts, and the first wrong part ends the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import costs, limits

#: The code of the refusal.
WRONG = "invalid_input"
#: Values that are verified at once. A body with no more of them is vLLM's alone.
_AT_ONCE = 20
#: The most values of an object with the first part of each long member; the most levels; the members of an object that
#: are verified with each part; the most members of an object that is not a map: no type of vLLM has as many fields.
_MOST_OF_ENTRY, _MOST_LEVELS, _MEMBERS, _MOST_MEMBERS = 5_000, 32, 50, 100
#: The most values of all parts together, with the values that are verified with each: 2,500 parts with 1,000 values.
_WORK = 3_000_000
#: The most characters of a text that is verified with each part.
_TEXT = 100
#: Lists that are long in paths for tokens: of integers, of texts, or of lists of integers.
_TOKENS = ("input", "prompt", "prompt_token_ids", "token_ids", "tokens")
_MOST_TOKEN = 1 << 31
#: Half of a character of four bytes, as an escape or in bytes. Most escapes are followed by the other half.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
#: Verifies a body as vLLM's route does. Raises any error.
Verify = Callable[[Mapping[str, Any]], object]


def refusals(path: str, found: Mapping[str, Any], verify: Verify | None) -> Iterator[str]:
    """Yield the code of the refusal of a path's body, and "" after each part that vLLM may parse: others can run then.

    ``found``: its members. ``verify``: None for a path whose body has no type.
    """
    tokens = {name for name in _TOKENS if _are_tokens(found.get(name))} if path in limits.OF_TOKENS else set()
    others = {name: value for name, value in found.items() if name not in tokens}
    size = _values(others)
    if size > limits.MOST_MARKS or _deep(others):
        yield limits.COMPLEX
    elif code := costs.refusal(path, found):
        yield code
    elif verify is not None and (size > _AT_ONCE or any(len(found[name]) > _AT_ONCE for name in tokens)):
        # All tokens of a list are of one kind, so that some of them show whether the route takes it.
        yield from _parts(others, {name: _some(found[name]) for name in tokens}, verify)


def members(data: bytes) -> dict[str, Any] | None:
    """Return the members of a body, None if it has half of a character.

    They are {} if it is not an object of JSON, which vLLM refuses by itself. It does not refuse half of a character,
    but cannot send one to its engine, and then keeps the request forever.
    """
    try:
        found = json.loads(data)
        if _HALF.search(data):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parts(found: Mapping[str, Any], tokens: Mapping[str, Any], verify: Verify) -> Iterator[str]:
    """Verify the lists and objects of a body in parts, with its short values and the first part of each list."""
    lists = _of_kind(found, list)
    objects = {name: value for name, value in _of_kind(found, dict).items() if _values(value) > _AT_ONCE}
    try:
        first = {name: next(_windows(value), []) for name, value in lists.items()}
        # An object may need another one.
        bases = [{**short, **tokens, **first} for short in _short(found)]
        base = next((each for each in bases if _valid(verify, each)), None)
        if base is None:
            # Something else is wrong, and vLLM would keep the errors of all entries as well.
            yield WRONG
            return
        for part in _affordable(chain(_each(lists, _windows), _each(objects, _parts_of_object)), _values(base)):
            yield "" if any(_valid(verify, {**each, **part}) for each in (base, bases[-1])) else WRONG
    except _TooLargeError:
        yield limits.COMPLEX


def _of_kind(found: Mapping[str, Any], kind: type) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, kind) and value}


def _affordable(parts: Iterable[dict[str, Any]], beside: int) -> Iterator[dict[str, Any]]:
    """Yield parts that are verified with ``beside`` other values. Raises _TooLargeError if all are too much work."""
    work = 0
    for part in parts:
        work += beside + _values(part)
        if work > _WORK:
            raise _TooLargeError
        yield part


def _each(values: Mapping[str, Any], divide: Callable[[Any], Iterator[Any]]) -> Iterator[dict[str, Any]]:
    return ({name: part} for name, value in values.items() for part in divide(value))


def _short(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the texts and numbers of a body, and then its objects, too.

    An object may name an entry of a list, such as a tool, and an option may need an object.
    """
    short = {name: value[:_TEXT] for name, value in found.items() if isinstance(value, str)}
    short |= {name: value for name, value in found.items() if not isinstance(value, str | list | dict)}
    yield short
    yield short | {name: _cut(value) for name, value in found.items() if isinstance(value, dict)}


def _cut(value: Any) -> Any:
    """Return a value with short texts, one entry of each list and some members of each object."""
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in list(value.items())[:_MEMBERS]}
    if isinstance(value, list):
        return [_cut(each) for each in value[:1]]
    return value[:_TEXT] if isinstance(value, str) else value


class _TooLargeError(Exception):
    """An entry cannot be divided."""


def _valid(verify: Verify, body: Mapping[str, Any]) -> bool:
    try:
        verify(body)
    # vLLM's own checks raise other errors than ValueError.
    except Exception:  # noqa: BLE001  # pylint: disable=broad-exception-caught
        return False
    return True


def _windows(values: list[Any]) -> Iterator[list[Any]]:
    """Yield the entries of a list, about _AT_ONCE values together. Raises _TooLargeError."""
    window: list[Any] = []
    size = 0
    for entry in values:
        for piece, more in _pieces(entry):
            if window and size + more > _AT_ONCE:
                yield window
                window, size = [], 0
            window.append(piece)
            size += more
    if window:
        yield window


def _pieces(entry: Any) -> Iterator[tuple[Any, int]]:
    """Yield an entry and its number of values; with a long list or map inside, once for each part of that."""
    size = _values(entry)
    if size <= _AT_ONCE:
        yield entry, size
    elif isinstance(entry, list):
        yield from ((window, _values(window)) for window in _windows(entry))
    elif len(entry) > _MOST_MEMBERS:
        for window in _windows([{name: value} for name, value in entry.items()]):
            members = {name: value for each in window for name, value in each.items()}
            yield members, _values(members)
    else:
        yield from _divided(entry)


def _divided(entry: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield an object with the first part of each long member, and once for each other part of one."""
    parts = {name: _pieces(value) for name, value in entry.items() if _values(value) > _AT_ONCE}
    first = {name: next(parts[name], (value, 0))[0] if name in parts else value for name, value in entry.items()}
    size = _values(first)
    if size > _MOST_OF_ENTRY:
        raise _TooLargeError
    yield first, size
    for name, others in parts.items():
        for piece, more in others:
            yield {**first, name: piece}, size + more


def _parts_of_object(value: dict[str, Any]) -> Iterator[Any]:
    return (piece for piece, _size in _pieces(value))


def _some(tokens: list[Any]) -> list[Any]:
    return [each[:_AT_ONCE] if isinstance(each, list) else each for each in tokens[:_AT_ONCE]]


def _are_tokens(value: Any) -> bool:
    """Return whether a list has only tokens, only texts, or only lists of tokens."""
    if not isinstance(value, list):
        return False
    lists = _all(value, list) and all(each and _are_numbers(each) for each in value)
    return _all(value, str) or _are_numbers(value) or lists


def _are_numbers(values: list[Any]) -> bool:
    return not values or (_all(values, int) and min(values) >= 0 and max(values) < _MOST_TOKEN)


def _all(values: list[Any], kind: type) -> bool:
    # A boolean is an integer of another type.
    return {type(value) for value in values} <= {kind}


def _deep(value: Any) -> bool:
    """Return whether a value has more than _MOST_LEVELS levels. Each level is counted again."""
    level = [value]
    for _level in range(_MOST_LEVELS):
        nested = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in nested for inner in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def _values(entry: Any) -> int:
    """Return the number of values in a JSON value, itself included."""
    waiting, count = [entry], 0
    while waiting:
        value = waiting.pop()
        count += 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return count

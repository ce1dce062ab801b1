# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wrong entries in the lists of a body, found before vLLM parses it.

vLLM keeps the errors of all wrong entries, and each can be of 30 types: 2,000 wrong ones (51 KB) had 472,001 errors and
took 2 GiB. So its own types verify the lists in parts, and the first wrong part ends the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits

#: The code of the refusal.
WRONG = "invalid_input"
#: Values that are verified at once. A body with no more of them is vLLM's alone.
_AT_ONCE = 20
#: The most values of an entry without a list to divide, such as a tool; the most levels; the members of an object that
#: are verified with each part.
_MOST_OF_ENTRY, _MOST_LEVELS, _MEMBERS = 5_000, 32, 50
#: The most values of all parts together with what is verified beside each: 2,500 parts beside 1,000 values.
_WORK = 3_000_000
#: The most characters of a text that is verified with each part.
_TEXT = 100
#: Lists that are long in paths for tokens: of integers, of texts, or of lists of integers.
_TOKENS = ("input", "prompt", "prompt_token_ids", "token_ids", "tokens")
_MOST_TOKEN = 1 << 31
#: Verifies a body as vLLM's route does. Raises any error.
Verify = Callable[[Mapping[str, Any]], object]


def refusals(path: str, data: bytes, verify: Verify | None) -> Iterator[str]:
    """Yield the code of the refusal of a path's body, and "" after each part that vLLM may parse: others can run then.

    ``verify``: None for a path whose body has no type.
    """
    found = _members(data)
    tokens = {name for name in _TOKENS if _are_tokens(found.get(name))} if path in limits.OF_TOKENS else set()
    others = {name: value for name, value in found.items() if name not in tokens}
    size = _values(others)
    if size > limits.MOST_MARKS or _deep(others):
        yield limits.COMPLEX
    elif verify is not None and (size > _AT_ONCE or any(len(found[name]) > _AT_ONCE for name in tokens)):
        # All tokens of a list are of one kind, so that some of them show whether the route takes it.
        yield from _parts(others, {name: _some(found[name]) for name in tokens}, verify)


def _members(data: bytes) -> dict[str, Any]:
    """Return the members of a body, or none if it is small or not an object of JSON: vLLM refuses that by itself."""
    # The shortest value has two bytes with its comma.
    if len(data) < 2 * _AT_ONCE:
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parts(found: Mapping[str, Any], tokens: Mapping[str, Any], verify: Verify) -> Iterator[str]:
    """Verify the lists of a body in parts, beside its short values and the first part of each other list."""
    lists = {name: value for name, value in found.items() if isinstance(value, list) and value}
    try:
        first = {name: next(_windows(value), []) for name, value in lists.items()}
        bases = ({**short, **tokens, **first} for short in _short(found))
        base = next((each for each in bases if _valid(verify, each)), None)
        if base is None:
            # Something else is wrong, and vLLM would keep the errors of all entries as well.
            yield WRONG
            return
        beside, work = _values(base), 0
        for name, window in ((name, window) for name, value in lists.items() for window in _windows(value)):
            work += beside + _values(window)
            if work > _WORK:
                raise _TooLargeError
            yield "" if _valid(verify, {**base, name: window}) else WRONG
    except _TooLargeError:
        yield limits.COMPLEX


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
    # vLLM's own checks raise errors that are no ValueError.
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
    """Yield an entry and its number of values; with a long list inside, once for each part of the list."""
    size = _values(entry)
    if size <= _AT_ONCE:
        yield entry, size
    elif isinstance(entry, list):
        yield from ((window, _values(window)) for window in _windows(entry))
    else:
        sizes = {name: _values(value) for name, value in entry.items()}
        largest = max(sizes, key=lambda name: sizes[name])
        if isinstance(entry[largest], list):
            rest = {name: value for name, value in entry.items() if name != largest}
            if size - sizes[largest] > _MOST_OF_ENTRY:
                raise _TooLargeError
            yield from (
                ({**rest, largest: window}, size - sizes[largest] + _values(window))
                for window in _windows(entry[largest])
            )
        elif size > _MOST_OF_ENTRY:
            raise _TooLargeError
        else:
            yield entry, size


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

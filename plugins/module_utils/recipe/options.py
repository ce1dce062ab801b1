# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an option or a variable of a recipe does, whatever vLLM its image has. allowed.py has the lists.

vLLM's parser joins ``--option.member value`` into the option's object, and takes ``-`` and ``_`` in an option's name
for the same. Source: vLLM 0.33, utils/argparse_utils.py.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.flags import inverse
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import allowed
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.allowed import Effect


def _names(table: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for names in table.values() for name in names.split())


_PLAIN = _names(allowed.PLAIN)
_MEMBERS: Mapping[str, Collection[str]] = {option: names.split() for option, names in allowed.MEMBERS.items()}
_TEXTS, _SWITCHES = _names(allowed.VARIABLES), _names(allowed.SWITCHES)
_LISTED = frozenset((*_PLAIN, *allowed.OBJECTS, *_MEMBERS, *allowed.VALUES))
KNOWN = frozenset(
    name
    for name in (*_LISTED, *allowed.EFFECTS, *allowed.REPLACED, *allowed.PLANNED, *allowed.CHECKED, *allowed.ALIASES)
    if name.startswith("-")
)

#: Maximum lists and objects of a value, against deep nesting.
_MOST_OPEN = 256


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, with all values of a name that occurs twice."""


def whole(name: str) -> str:
    """Return vLLM's long name of an option from arguments.options(), with its members."""
    option, dot, members = name.partition(".")
    # The words of an option may be one word of the command.
    option = option.split(" ")[0]
    if re.fullmatch(r"-O\w*", option):
        option = "--compilation-config" if dot else "--optimization-level"
    elif option[:2] in allowed.ALIASES and option not in allowed.ALIASES:
        # A value may directly follow a name of one letter.
        option = option[:2]
    return allowed.ALIASES.get(option, option) + dot + members


def joined(name: str) -> list[str]:
    """Return the value that directly follows a name of one letter, such as x of -qx, [] without one."""
    option = name.partition(" ")[0]
    return [option[2:]] if option[:2] in allowed.ALIASES and option not in allowed.ALIASES else []


def short_for(name: str) -> str:
    """Return an option that argparse takes for this beginning of its name, "" for a whole or an unknown name."""
    option = name.partition(".")[0]
    if not option or option in KNOWN or _positive(option) in KNOWN:
        return ""
    return min((known for known in KNOWN if known.startswith((option, _positive(option)))), default="")


def effect(name: str, values: Sequence[str]) -> tuple[str, Effect] | None:
    """Return what an option does, None if it only serves. The text names the member that does it, "" for the option.

    ``name``: from whole().
    """
    option, _dot, path = name.partition(".")
    if found := allowed.EFFECTS.get(option):
        return "", found
    opposite = False
    if option != _positive(option):
        option, opposite = _positive(option), not option.startswith("--no-")
        if found := allowed.EFFECTS.get(option):
            # An image with another vLLM may have an option of this name that takes a value.
            return ("", found) if values else None
    if option not in _LISTED or (opposite and values):
        return "", allowed.UNLISTED
    listed = None if option in allowed.OBJECTS else _MEMBERS.get(option, ())
    for text in values:
        value = text if option in allowed.VALUES else _parsed(text)
        members = path.rstrip("+").split(".") if path else []
        if len(members) > _MOST_OPEN:
            return "", allowed.UNLISTED
        for member in reversed(members):
            value = _Pairs([(member, value)])
        for found_effect in _effects(option, value, listed):
            return found_effect
    return None


def settable(name: str, value: str) -> bool:
    """Return whether a recipe may set a variable to this value."""
    if name in allowed.FORMS:
        return bool(allowed.FORMS[name].fullmatch(value))
    if name in _TEXTS:
        return bool(allowed.WORDS.fullmatch(value))
    return bool(allowed.SWITCH.fullmatch(value)) and any(fnmatch.fnmatchcase(name, each) for each in _SWITCHES)


def _positive(option: str) -> str:
    """Return the name of the option that a ``--no-`` name, or since vLLM 0.33 its opposite, turns off."""
    opposite = inverse(option)
    return opposite if option not in KNOWN and opposite in KNOWN else re.sub(r"^--no-", "--", option)


def _parsed(text: str) -> Any:
    """Return the value of JSON, and any other text itself."""
    if text.count("[") + text.count("{") > _MOST_OPEN:
        return text
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except ValueError:
        return text


def _effects(key: str, value: Any, listed: Collection[str] | None) -> Iterator[tuple[str, Effect]]:
    """Yield the effects of a value below a key. ``listed``: the names of its members, None for any."""
    if isinstance(value, _Pairs):
        for name, inner in value:
            member = name.replace("-", "_")
            if found := allowed.EFFECTS.get(member):
                yield member, found
            elif listed is not None and member not in listed and key not in allowed.VALUES:
                yield member, allowed.UNLISTED
            else:
                yield from _effects(key if key in allowed.VALUES else member, inner, listed)
    elif isinstance(value, list):
        for inner in value:
            yield from _effects(key, inner, listed)
    elif isinstance(value, str):
        form, found = allowed.VALUES.get(key, (allowed.PLAIN_VALUE, allowed.UNLISTED))
        if not form.fullmatch(value):
            yield "" if key.startswith("-") else key, found

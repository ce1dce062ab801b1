# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for a terminal."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants
from ansible.utils.display import Display

#: It prints the lines itself, because it knows the terminal and the end of the run.
_CALLBACK = "gb10.cluster.brief"
#: The texts of a result that Ansible prints within its own line.
_ONE_LINE = frozenset(("_ansible_item_label", "item", "before_header", "after_header"))
#: Ansible's setting of a color, by the first words of a line.
_COLORS: Mapping[str, str] = {
    r"\s*(problem|error|last error)\b(?!: none| \(waived)": "COLOR_ERROR",
    r"\s*warning\b(?! \(waived)": "COLOR_WARN",
}


def shown(text: str) -> list[str]:
    """Print the lines of a text, and return them for the callback. A module's result is printed as JSON."""
    lines = [printable(line) for line in text.split("\n")] if text else []
    if constants.DEFAULT_STDOUT_CALLBACK != _CALLBACK:
        for line in lines:
            Display().display(f"  {line}".rstrip(), color=color(line))
    return lines


def printable(line: str) -> str:
    """Return the line with the escape sequences of its control characters, which could change the terminal."""
    return _escaped(line.rstrip())


#: Members of a difference that Ansible prints as numbers.
_SIZES = ("src_larger", "dst_larger")


def cleaned(value: Any, breaks: str = "\n\t") -> Any:
    """Return a result of a task with each of its texts like ``printable``, but with its line breaks and tabs.

    A warning or an error of Ansible has an indent after its first line, so that no node begins a line.
    """
    if isinstance(value, str):
        return value if value.isprintable() else _escaped(value, breaks)
    if isinstance(value, Mapping):
        return {cleaned(key, ""): cleaned(each, "" if key in _ONE_LINE else breaks) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return (tuple if isinstance(value, tuple) else list)(cleaned(each, breaks) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        texts = {each.name: cleaned(getattr(value, each.name)) for each in dataclasses.fields(value)}
        indented = {name: text.replace("\n", "\n  ") for name, text in texts.items() if isinstance(text, str)}
        return dataclasses.replace(value, **texts | indented)
    return value


def typed(result: Any) -> Any:
    """Return the result of a task whose differences have the forms that Ansible prints.

    The lines of a prepared difference are indented, so that no node begins a line.
    """
    if not isinstance(result, Mapping):
        return result
    typed_items = {"results": [typed(each) for each in result["results"]]} if _is_list(result.get("results")) else {}
    if not result.get("diff"):
        return {**result, **typed_items}
    given = result["diff"] if _is_list(result["diff"]) else [result["diff"]]
    return {**result, **typed_items, "diff": [_diff(each) for each in given if isinstance(each, Mapping)]}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _diff(given: Mapping[str, Any]) -> dict[str, Any]:
    texts = {
        name: value if isinstance(value, str | Mapping) or value is None else str(value)
        for name, value in given.items()
        if name not in _SIZES
    }
    if isinstance(prepared := texts.get("prepared"), str):
        texts["prepared"] = prepared.replace("\n", "\n  ")
    return texts | {name: given[name] for name in _SIZES if isinstance(given.get(name), int)}


def _escaped(text: str, kept: str = "") -> str:
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in text
    )


def wrapped(line: str, indent: str, width: int) -> str:
    """Return a line broken between words only: a terminal breaks paths and addresses."""
    wrap = textwrap.TextWrapper(
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrap.fill(line.strip())


def color(line: str) -> str | None:
    """Return Ansible's color of the line, None for the terminal's own. Ansible uses none without a terminal."""
    found = next((setting for pattern, setting in _COLORS.items() if re.match(pattern, line)), None)
    return str(getattr(constants, found)) if found else None

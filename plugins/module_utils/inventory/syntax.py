# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explain where YAML's parser stopped, by the line that a person has to change.

The parser names the place where it gave up, which is often the line after the fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.cluster.plugins.module_utils.inventory.names import shown
from ansible_collections.gb10.cluster.plugins.module_utils.inventory.schema import Fault, Place

#: A key with a value and no space between them. An address with a port, and a URL, are values.
_JOINED = re.compile(r"^(?P<lead>\s*(?:- |\{ ?|.*, ?)?)(?P<key>[A-Za-z_]\w*):(?P<value>[^\s:/,}][^\s,}]*)")
#: A word of a problem of PyYAML, which may repeat the value, and the sentence for it.
_SAID = {
    "alias": "a value that begins with *",
    "anchor": "a value that begins with &",
    "tag": "a value that begins with !",
    "directive": "a line that begins with %",
    "escape": "an unknown character after a backslash in double quotes",
}
_LIKE_KEY = re.compile(r"\s*([\w.-]+)\s*:(?:\s|$)")


@dataclass(frozen=True)
class Stop:
    """Where and why PyYAML stopped. ``context``: the element that it read then, which began at ``began``; "" and None
    if it reports none."""

    problem: str
    at: Place
    context: str = ""
    began: Place | None = None


def explain(text: str, stop: Stop) -> Fault:
    """Return the fault of a file that is not valid YAML."""
    lines = text.splitlines()
    found = (
        fault
        for find in (_of_ini, _tabbed, _unquoted, _without_space, _unended, _placed)
        if (fault := find(lines, stop))
    )
    said = next((text for word, text in _SAID.items() if word in stop.problem), "no valid YAML")
    return next(found, Fault(stop.at, said, "valid YAML", "quote the value, or compare the line with a sample"))


def _of_ini(lines: Sequence[str], _stop: Stop) -> Fault | None:
    for number, line in enumerate(lines, 1):
        if re.fullmatch(r"\[[\w-]+(:\w+)?\]\s*", line):
            expected, fix = "YAML, as the name ends", "write its groups as in a sample of inventories/"
            return Fault(Place(number, 1), "a section in brackets, as in an INI file", expected, fix)
    return None


def _tabbed(lines: Sequence[str], stop: Stop) -> Fault | None:
    for number, line in enumerate(lines[: stop.at.line + 1], 1):
        if re.match(r" *\t", line):
            place = Place(number, line.index("\t") + 1)
            return Fault(place, "a tab", "spaces, because YAML allows no tabs there", "replace the tab by spaces")
    return None


def _unquoted(lines: Sequence[str], stop: Stop) -> Fault | None:
    if "quoted scalar" in stop.context and "escape" not in stop.problem:
        found = "a quotation mark without its partner"
        return Fault(stop.began or stop.at, found, "two equal marks", "close the text with the same mark")
    if "cannot start any token" in stop.problem:
        sign = _line(lines, stop.at.line)[stop.at.column - 1 :][:1]
        if sign == "\t":
            return Fault(stop.at, "a tab", "a space", "replace the tab by a space")
        found = f"a value that begins with {sign}"
        return Fault(stop.at, found, "such a value in quotation marks", "quote the value")
    return None


def _without_space(lines: Sequence[str], stop: Stop) -> Fault | None:
    """Explain a key that is joined to its value, or has no colon."""
    began = stop.began or stop.at
    if "expected ':'" not in stop.problem and "mapping values" not in stop.problem:
        return None
    if fault := _joined(lines, {began.line, stop.at.line, stop.at.line - 1}):
        return fault
    # A key without a colon is read as the beginning of the next line's text.
    line = began.line if "expected ':'" in stop.problem else _above(lines, stop.at.line)
    word = _line(lines, line).strip()[:40]
    if not word or ":" in word:
        return None
    place, name = Place(line, _indent(_line(lines, line))), word.removeprefix("- ")
    if name != word:
        return Fault(place, f"{shown(name)} as an entry of a list", "a key", f"write '{shown(name)}:'")
    return Fault(place, f"{shown(word)} without a colon", "a key with its colon", "add the colon")


def _unended(lines: Sequence[str], stop: Stop) -> Fault | None:
    """Explain a mapping or a list in brackets that does not end, or lacks a comma."""
    if "flow" not in stop.context:
        return None
    began, pair = stop.began or stop.at, "{}" if "mapping" in stop.context else "[]"
    if stop.at.line == began.line:
        rest = _line(lines, began.line)[began.column :]
        if fault := _joined([rest], {1}):
            return replace(fault, place=Place(began.line, began.column + fault.place.column))
        found = "two entries without a comma between them"
        return Fault(stop.at, found, f"a comma between entries in {pair}", "add the comma")
    fix = f"write {pair[1]} at the end of line {began.line}"
    return Fault(began, f"{pair[0]} without its {pair[1]}", f"both, {pair[0]} and {pair[1]}", fix)


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _joined(lines: Sequence[str], numbers: set[int]) -> Fault | None:
    for number in sorted(numbers):
        if found := _JOINED.match(_line(lines, number)):
            return joined(Place(number, found.start("key") + 1), f"{found['key']}:{found['value']}")
    return None


def joined(place: Place, word: str) -> Fault:
    """Return the fault of a key and a value without a space: ``word`` has both."""
    key = shown(word.partition(":")[0])
    return Fault(place, f"{key}: and its value without a space", "a space after the colon", f"write '{key}: VALUE'")


def _placed(lines: Sequence[str], stop: Stop) -> Fault | None:
    """Explain a line that begins in another column than its neighbors."""
    if "mapping values" not in stop.problem and "block" not in stop.context:
        return None
    line = _line(lines, stop.at.line)
    column = len(line) - len(line.lstrip()) + 1
    above = _line(lines, _above(lines, stop.at.line))
    if len(re.findall(r":\s", line)) > 1 and (column == _indent(above) or above.rstrip().endswith(":")):
        return Fault(
            stop.at, "a second colon in the value", "a value with a colon in quotation marks", "quote the value"
        )
    beside = _beside(lines, stop.at.line, column)
    name = _name(line)
    if beside is None:
        return Fault(
            Place(stop.at.line, column), f"{name} begins in column {column}", "the column of its neighbors", "move it"
        )
    wanted = _indent(_line(lines, beside))
    distance = abs(column - wanted)
    fix = (
        f"move it {distance} {'column' if distance == 1 else 'columns'} to the {'left' if column > wanted else 'right'}"
    )
    expected = f"column {wanted}, as {_name(_line(lines, beside))} in line {beside}"
    return Fault(Place(stop.at.line, column), f"{name} begins in column {column}", expected, fix)


def _above(lines: Sequence[str], number: int) -> int:
    """Return the number of the nearest line above that is neither empty nor a comment, 0 without one."""
    above = range(number - 1, 0, -1)
    return next((each for each in above if lines[each - 1].strip() and lines[each - 1].lstrip()[0] != "#"), 0)


def _beside(lines: Sequence[str], number: int, column: int) -> int | None:
    """Return the number of the line above with the wanted column: of the same kind, then of the nearest column."""
    kind = _kind(_name(lines[number - 1]))
    found = [
        (_kind(_name(line)) != kind, abs(_indent(line) - column), number - index, index)
        for index, line in enumerate(lines[: number - 1], 1)
        if _LIKE_KEY.match(line)
    ]
    near = [each for each in found if each[1]]
    return min(near)[3] if near else None


def _kind(name: str) -> str:
    if name in ("hosts", "children", "vars"):
        return "section"
    prefix = name.partition("_")[0]
    return "group" if name in ("head", "worker") else prefix if prefix in ("gb10", "ansible") else "other"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) + 1


def _name(line: str) -> str:
    found = _LIKE_KEY.match(line)
    return shown(found[1] if found else line.strip())

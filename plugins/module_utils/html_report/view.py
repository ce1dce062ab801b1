# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of the page's template: untrusted text, which is cleaned and bounded, and tables of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

#: Text that may be a key. Only a list of known forms: the page is for its owner (docs/verification.md#the-report).
_KEY = re.compile(
    r"\b(?:hf_|[a-z]k[-_]|gsk_|pplx-|npm_|pypi-|nvapi-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AIza|dckr_pat_|tskey-|ya29\.|eyJ)[\w.-]{8,}"
    r"|\b(?:Bearer|Basic) [\w.~+/-]{8,}=*|\bA[KS]IA[0-9A-Z]{12,}\b|\b[0-9a-f]{24,}\b"
    r"|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}"
)
#: Most characters of a text, and most entries of a list or rows of a table.
MOST, ENTRIES = 2000, 300
#: Symbols show a severity without color.
SYMBOLS = {
    "error": "\N{MULTIPLICATION X}",
    "warning": "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}",
    "": "\N{CHECK MARK}",
}
#: The variables of a template.
View: TypeAlias = Mapping[str, Any]


def clean(text: object, most: int = MOST) -> str:
    """Return text on one line without control and bidi characters and without keys, cut after ``most`` characters."""
    whole = str(text)
    # Keys are replaced before the cut, which could leave the first half of one.
    line = "".join(
        character if character.isprintable() else " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
        for character in whole[: 4 * most]
    )
    shown = _KEY.sub("KEY", re.sub(" {2,}", " ", line))
    return shown if len(shown) <= most and len(whole) <= 4 * most else f"{shown[:most]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Cell:
    """A cell: its text, the class of the text, the target of a link, a muted note after it, its width in columns, and
    the level of its color in a heat map."""

    text: object
    style: str = ""
    href: str = ""
    note: str = ""
    span: int = 1
    heat: int | None = None


@dataclass(frozen=True)
class Table:
    """A table. ``layout``: its classes. The first cell of a row is the row's header."""

    caption: str
    head: Sequence[object]
    rows: Sequence[Sequence[object]]
    layout: str = ""

    def cells(self) -> list[list[Cell]]:
        """Return the rows with text as cells."""
        return [[each if isinstance(each, Cell) else Cell(each) for each in row] for row in self.rows]

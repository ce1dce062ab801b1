# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTML elements from untrusted text: every text is cleaned, bounded and escaped, unless it is finished markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from ansible_collections.gb10.cluster.plugins.module_utils.field_report.redact import KEY

#: Most characters of a text.
MOST = 2000


class Markup(str):
    """Finished markup."""

    __slots__ = ()


def clean(text: object, most: int = MOST) -> str:
    """Return text on one line without control and bidi characters and without keys, cut after ``most`` characters."""
    whole = str(text)
    # Keys are replaced before the cut, which could leave the first half of one.
    line = "".join(
        character if character.isprintable() else " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
        for character in whole[: 4 * most]
    )
    shown = KEY.sub("KEY", re.sub(" {2,}", " ", line))
    return shown if len(shown) <= most and len(whole) <= 4 * most else f"{shown[:most]}\N{HORIZONTAL ELLIPSIS}"


def join(parts: Iterable[object]) -> Markup:
    """Return the parts, of which all but Markup are cleaned and escaped. None is left out."""
    return Markup(
        "".join(
            part if isinstance(part, Markup) else escape(clean(part), quote=True) for part in parts if part is not None
        )
    )


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. Attributes have names of Python, such as ``class_`` and ``aria_label``; None is left out."""
    words = [element]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{join([value])}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if element == "meta" else f"{opening}{join(children)}</{element}>")


def table(caption: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table in a box that scrolls. The first cell of each row is its header; a cell can be a finished td.

    In a narrow window it is a list, so each cell has the title of its column, unless it covers several.
    """
    body = [
        tag(
            "tr",
            tag("th", first, scope="row", data_label=head[0]),
            *map(_cell, rest, head[1:] if len(rest) == len(head) - 1 else rest),
        )
        for first, *rest in rows
    ]
    header = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head)))
    whole = tag("table", tag("caption", caption), header, tag("tbody", *body))
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex=0)


def _cell(value: object, title: object) -> Markup:
    if not (isinstance(value, Markup) and value.startswith("<td")):
        return tag("td", value, data_label=title)
    return value if " colspan=" in value else Markup(f'<td data-label="{join([title])}"{value[3:]}')


def terms(pairs: Iterable[tuple[object, object]]) -> Markup:
    """Return a list of terms with their descriptions, without empty ones."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", text)) for term, text in pairs if text not in (None, "")))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Templates of roles that actions render themselves: their values are untrusted, and Ansible would cache them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup


@cache
def environment(role: str, clean: Callable[..., str], markup: bool) -> Environment:
    """Return the environment of a role's templates, which cleans every value, and escapes it for ``markup``.

    ``clean`` gets a text, and as a filter the most characters too. A fact that a node does not have is "".
    """
    made = Environment(
        autoescape=markup,
        extensions=["jinja2.ext.do"],
        finalize=lambda value: value if isinstance(value, Markup) else clean(str("" if value is None else value)),
        loader=FileSystemLoader(Path(__file__).parents[2] / f"roles/{role}/templates"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=ChainableUndefined,
    )
    made.filters["clean"] = lambda value, most: clean(str(value), most)
    return made

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of a verification as HTML, from the templates of the role verify."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup

_TEMPLATES = Path(__file__).parents[2] / "roles/verify/templates"
#: Text that may be a key. Only a list of known forms: the page is for its owner (docs/verification.md#the-report).
_KEY = re.compile(
    r"\b(?:hf_|[a-z]k[-_]|gsk_|pplx-|npm_|pypi-|nvapi-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AIza|dckr_pat_|tskey-|ya29\.|eyJ)[\w.-]{8,}"
    r"|\b(?:Bearer|Basic) [\w.~+/-]{8,}=*|\bA[KS]IA[0-9A-Z]{12,}\b|\b[0-9a-f]{24,}\b"
    r"|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}"
)
#: Most characters of a text.
MOST = 2000


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


@cache
def environment() -> Environment:
    """Return an environment that cleans and escapes every value, except for finished markup.

    A fact that a node does not have is "".
    """
    made = Environment(
        autoescape=True,
        extensions=["jinja2.ext.do"],
        finalize=lambda value: value if isinstance(value, Markup) else clean("" if value is None else value),
        loader=FileSystemLoader(_TEMPLATES),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=ChainableUndefined,
    )
    made.filters["clean"] = clean
    return made


def rendered(page: Mapping[str, Any]) -> str:
    """Return the page of html_report.report.page(). Its policy allows only its own style, by its digest."""
    style = Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8"))
    digest = Markup(base64.b64encode(hashlib.sha256(style.encode()).digest()).decode())
    return environment().get_template("report.html.j2").render({**page, "style": style, "digest": digest}).lstrip()

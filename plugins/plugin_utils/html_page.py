# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of a verification as HTML, from the templates of the role verify."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from ansible_collections.gb10.cluster.plugins.plugin_utils import templates

#: Text that may be a key. Only a list of known forms: the page is for its owner (docs/verification.md#the-report).
_KEY = re.compile(
    r"\b(?:hf_|[a-z]k[-_]|gsk_|pplx-|npm_|pypi-|nvapi-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AIza|dckr_pat_|tskey-|ya29\.|eyJ)[\w.-]{8,}"
    r"|\b(?:Bearer|Basic) [\w.~+/-]{8,}=*|\bA[KS]IA[0-9A-Z]{12,}\b|\b[0-9a-f]{24,}\b"
    r"|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}"
)
#: Most characters of a text.
MOST = 2000


def clean(text: str, most: int = MOST) -> str:
    """Return text on one line without control and bidi characters and without keys, cut after ``most`` characters."""
    # Keys are replaced before the cut, which could leave the first half of one.
    line = "".join(
        character if character.isprintable() else " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
        for character in text[: 4 * most]
    )
    shown = _KEY.sub("KEY", re.sub(" {2,}", " ", line))
    return shown if len(shown) <= most and len(text) <= 4 * most else f"{shown[:most]}\N{HORIZONTAL ELLIPSIS}"


def environment() -> Environment:
    """Return the environment of the page's templates."""
    return templates.environment("verify", clean, markup=True)


def rendered(page: Mapping[str, Any]) -> str:
    """Return the page of html_report.report.page(). Its policy allows only its own style, by its digest."""
    style = Markup(environment().get_template("report.css").render())
    digest = Markup(base64.b64encode(hashlib.sha256(style.encode()).digest()).decode())
    return environment().get_template("report.html.j2").render({**page, "style": style, "digest": digest}).lstrip()

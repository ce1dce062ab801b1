# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of a verification as HTML, from the template of the role verify."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import View, clean

_TEMPLATES = Path(__file__).parents[2] / "roles/verify/templates"


def environment() -> Environment:
    """Return an environment that cleans and escapes every value, except for finished markup."""
    return Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean("" if value is None else value),
        loader=FileSystemLoader(_TEMPLATES),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )


def rendered(page: View) -> str:
    """Return the page of html_report.report.page()."""
    finished = {name: Markup(text) for name, text in page["markup"].items()}
    return environment().get_template("report.html.j2").render({**page, "markup": finished}).lstrip() + "\n"

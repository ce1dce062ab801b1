# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the page about the benchmarks of several models: a table as a heat map."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, table, tag
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.sections import SYMBOLS
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import HEAT


def matrix(text: str | None) -> Iterator[Markup]:
    """Yield the speed of each model and run. ``text``: the record of benchmark_all.yml, None without one."""
    if text is None:
        return
    yield tag("h3", "All models")
    try:
        found = parse.matrix(text)
    except ValueError as error:
        yield tag("p", f"{SYMBOLS['warning']} benchmark_all.json is ignored: {error}.", class_="warning")
        return
    state = "" if found.finished else ", interrupted: a further run continues it"
    words = "A column has the requests at the same time, and the tokens of prompt + answer."
    yield tag("p", f"{found.date}{state}. {words}", class_="muted")
    yield from _heat_map(found)
    failed = [row for row in found.rows if row.problem]
    if failed:
        entries = (tag("li", tag("b", f"{SYMBOLS['error']} {row.name}", class_="error"), row.problem) for row in failed)
        yield tag("ul", *entries, class_="found")


def _heat_map(found: parse.Matrix) -> Iterator[Markup]:
    """Yield the table of the measured models."""
    shapes = sorted({shape for row in found.rows for shape in row.speeds}, key=lambda shape: (*shape[1:], shape[0]))
    # Speeds of different numbers of requests differ by a factor of 10, so each column has its own scale.
    best = {shape: max(row.speeds.get(shape, 0.0) for row in found.rows) for shape in shapes}
    head = ["model", *(f"{number} at once, {given} + {answered}" for number, given, answered in shapes)]
    body = [
        [row.name, *(_cell(row.speeds.get(shape), best[shape]) for shape in shapes)] for row in found.rows if row.speeds
    ]
    if body:
        yield tag("div", table("Output tokens per second", head, body), class_="figures names heat")


def _cell(speed: float | None, best: float) -> Markup:
    """Return a cell whose color shows the speed as a part of the best one."""
    if speed is None:
        return tag("td", "-")
    level = round((HEAT - 1) * speed / best) if best else 0
    return tag("td", f"{speed:.1f}", class_=f"h{level}")

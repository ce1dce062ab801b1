# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draws lines over a few positions as SVG. Each line has its own color, marker and name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, tag
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import SERIES

Series = Mapping[str, Sequence[tuple[int, float]]]
_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 440, 52, 12, 10, 190
_LINE = 20


def plot(series: Series, name: str, title: str, axes: tuple[str, str]) -> Markup:
    """Return a plot of values over numbers. ``name`` makes its identifiers unique; ``axes`` are the names of x and y.

    The numbers have equal distances, because they are powers of two in most cases.
    """
    positions = sorted({x for points in series.values() for x, _value in points})
    top = _ceiling(max((value for points in series.values() for _x, value in points), default=0))
    step = (_WIDTH - _LEFT - _RIGHT - 24) / max(len(positions) - 1, 1)
    place = {x: _LEFT + 12 + step * index for index, x in enumerate(positions)}
    height = _TOP + _PLOT + 44 + _LINE * len(series)
    parts = [*_grid(top, place, axes)]
    for index, (label, points) in enumerate(series.items()):
        spots = [(place[x], _TOP + _PLOT * (1 - value / top)) for x, value in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        below = _TOP + _PLOT + 50 + _LINE * index
        parts.append(
            tag(
                "g",
                tag("polyline", points=line, fill="none", stroke="currentColor", stroke_width=2),
                *(_marker(index, x, y) for x, y in spots),
                _marker(index, _LEFT + 6, below),
                tag("text", label, x=_LEFT + 20, y=below + 4.5),
                class_=f"s{index % SERIES}",
            )
        )
    values = "; ".join(
        f"{label}: {', '.join(f'{v:.4g} at {x}' for x, v in points)}" for label, points in series.items()
    )
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", f"{axes[1]} by {axes[0]}. {values}.", id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        fill="currentColor",
        font_family="sans-serif",
        font_size=13,
    )


def _grid(top: float, place: Mapping[int, float], axes: tuple[str, str]) -> list[Markup]:
    parts = []
    for quarter in range(5):
        y = _TOP + _PLOT * (1 - quarter / 4)
        ends = {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": f"{y:g}", "y2": f"{y:g}"}
        parts.append(tag("line", stroke="currentColor", stroke_opacity=0.35, **ends))
        parts.append(tag("text", f"{top * quarter / 4:g}", x=_LEFT - 6, y=f"{y + 4.5:g}", text_anchor="end"))
    below = _TOP + _PLOT + 17
    parts += [tag("text", x, x=f"{at:.1f}", y=below, text_anchor="middle") for x, at in place.items()]
    parts.append(tag("text", axes[0], x=(_LEFT + _WIDTH) / 2, y=below + 17, text_anchor="middle"))
    return [tag("g", *parts, class_="axis")]


def _marker(index: int, x: float, y: float) -> Markup:
    """Return a circle, a square, a triangle or a rhombus."""
    shapes = ("", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z", "M0 -6L6 0L0 6L-6 0Z")
    shape = shapes[index % len(shapes)]
    if not shape:
        return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4)
    return tag("path", d=shape, transform=f"translate({x:.1f} {y:.1f})")


def _ceiling(value: float) -> float:
    """Return 1, 2, 4 or 8 times a power of ten, at least ``value``."""
    power: float = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * power for factor in (1, 2, 4, 8, 10) if factor * power >= value)

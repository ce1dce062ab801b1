# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The places of lines over a few positions, for the template's plot. Each line has its color, marker and name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import SERIES
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import View

Series = Mapping[str, Sequence[tuple[int, float]]]
_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 440, 52, 12, 10, 190
_LINE = 20
#: A circle, a square, a triangle and a rhombus.
_MARKERS = ("M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z", "M0 -6L6 0L0 6L-6 0Z")


def plot(series: Series, name: str, title: str, axis: str) -> View:
    """Return a plot of values over numbers. ``name`` makes its identifiers unique; ``axis`` is the name of x.

    The numbers have equal distances, because they are powers of two in most cases.
    """
    positions = sorted({x for points in series.values() for x, _value in points})
    top = _ceiling(max((value for points in series.values() for _x, value in points), default=0))
    step = (_WIDTH - _LEFT - _RIGHT - 24) / max(len(positions) - 1, 1)
    place = {x: _LEFT + 12 + step * index for index, x in enumerate(positions)}
    values = "; ".join(
        f"{label}: {', '.join(f'{value:.4g} at {x}' for x, value in points)}" for label, points in series.items()
    )
    bottom = _TOP + _PLOT
    lines = [
        {
            "label": label,
            "color": f"s{index % SERIES}",
            "marker": _MARKERS[index % len(_MARKERS)],
            "spots": [(f"{place[x]:.1f}", f"{bottom - _PLOT * value / top:.1f}") for x, value in points],
            "below": bottom + 50 + _LINE * index,
        }
        for index, (label, points) in enumerate(series.items())
    ]
    return {
        "name": name,
        "title": title,
        "description": f"{title} by {axis}. {values}.",
        "width": _WIDTH,
        "height": bottom + 44 + _LINE * len(series),
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "grid": [(f"{bottom - _PLOT * part / 4:g}", f"{top * part / 4:g}") for part in range(5)],
        "ticks": [(f"{at:.1f}", x) for x, at in place.items()],
        "bottom": bottom,
        "axis": axis,
        "lines": lines,
    }


def _ceiling(value: float) -> float:
    """Return 1, 2, 4 or 8 times a power of ten, at least ``value``."""
    power: float = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * power for factor in (1, 2, 4, 8, 10) if factor * power >= value)

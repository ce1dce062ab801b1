# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: benchmarks of the served model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def benchmark_stem(name: str) -> str:
    """Return the first part of the file names of a model's benchmarks."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report

    return report.stem(str(name))


def benchmark_newest(paths: Sequence[str]) -> list[str]:
    """Return the path of each model's newest benchmark, the newest one first."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report

    return report.newest(list(map(str, paths)))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "benchmark_stem": benchmark_stem,
            "benchmark_newest": benchmark_newest,
        }

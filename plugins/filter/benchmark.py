# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: benchmarks of the served model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def benchmark_plan(plan: Fact, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {runs, lines, problems} of a benchmark; see module_utils/benchmark/plan.py for the settings."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as plans

    given, chosen = typed_plan(plan), plans.Settings(**plain_data(settings))
    problems = plans.problems(given, chosen)
    runs = [] if problems else plans.runs(given, chosen)
    return {
        "runs": [{**vars(run), "name": run.name, "command": plans.command(given, run, chosen)} for run in runs],
        "lines": plans.lines(given, runs),
        "problems": list(map(str, problems)),
    }


def benchmark_stem(name: str) -> str:
    """Return the first part of the file names of a model's benchmarks."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report

    return report.stem(str(name))


def benchmark_newest(paths: Sequence[str]) -> list[str]:
    """Return the path of each model's newest benchmark, the newest one first."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report

    return report.newest(list(map(str, paths)))


def benchmark_report(
    measured: Sequence[Any],
    plan: Fact,
    facts: Mapping[str, Any],
    texts: Mapping[str, str],
    tolerance: float,
) -> dict[str, Any]:
    """Return {document, file, lines, findings} of a benchmark; ``texts`` are earlier documents by file name."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report

    runs = [{**each["item"], **{key: each[key] for key in report.MEASURED}} for each in plain_data(measured)]
    found = report.document(typed_plan(plan), plain_data(facts), runs)
    old, notes = report.earlier(plain_data(texts), found)
    findings = list(map(str, report.findings(found, old, float(tolerance))))
    return {
        "document": {**found, "findings": findings},
        "file": report.file_name(found),
        "lines": [*report.lines(found, old), *notes],
        "findings": findings,
    }


def benchmark_network(rtts: Sequence[Any], text: str) -> dict[str, Any]:
    """Return {rtts, bandwidth} of the network; ``text`` is the record of the last measured bandwidth."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network

    return network.figures(plain_data(rtts), str(text))


def benchmark_folders(user_models: Mapping[str, Any], root: str) -> dict[str, str]:
    """Return {name: folder} of the models in the catalog and in ``user_models``."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix

    return matrix.folders(plain_data(user_models), str(root))


def benchmark_candidate(plan: Fact, name: str, settings: Mapping[str, Any], problem: str = "") -> dict[str, Any]:
    """Return {name, model, key, minutes, problem} of a model with its plan."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as plans

    chosen = plans.Settings(**plain_data(settings))
    return matrix.candidate(typed_plan(plan) if plan else None, str(name), chosen, str(problem))


def benchmark_begin(candidates: Sequence[Any], text: str, restart: bool, date: str, served: str) -> dict[str, Any]:
    """Return {record, due, lines} of a run over these candidates; ``text`` is the earlier record."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix

    given = plain_data(candidates)
    record = matrix.begin(given, str(text), bool(restart), str(date))
    lines = matrix.announcement(given, record, str(served))
    return {"record": record, "due": matrix.due(given, record), "lines": lines}


def benchmark_added(
    record: Mapping[str, Any], candidate: Mapping[str, Any], result: Mapping[str, Any], file: str, problem: str
) -> dict[str, Any]:
    """Return the record with a candidate's result."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix

    return matrix.added(plain_data(record), plain_data(candidate), plain_data(result), str(file), str(problem))


def benchmark_table(record: Mapping[str, Any]) -> list[str]:
    """Return the table of a record."""
    from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix

    return matrix.lines(plain_data(record))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "benchmark_plan": benchmark_plan,
            "benchmark_stem": benchmark_stem,
            "benchmark_newest": benchmark_newest,
            "benchmark_network": benchmark_network,
            "benchmark_folders": benchmark_folders,
            "benchmark_candidate": benchmark_candidate,
            "benchmark_begin": benchmark_begin,
            "benchmark_added": benchmark_added,
            "benchmark_table": benchmark_table,
            "benchmark_report": benchmark_report,
        }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last failed run of each playbook: a small file on the controller, next to the other records of an inventory.

It is redacted before it is written, except for the names of the failed hosts, which a report replaces::

    [{"playbook": str, "date": str, "failures": [{"hosts": [str], "task": str, "lines": [str]}]}]     # newest first
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact

FILE = "last_failures.json"
#: Bounds: characters of the file, playbooks, failures of a run, hosts and lines of a failure.
MOST, _RUNS, _FAILURES, _HOSTS, _LINES = 1 << 20, 5, 4, 32, 20
#: A failed task: its hosts, its name with its role, and its error.
Failure = tuple[Sequence[str], str, Sequence[str]]


def recorded(text: str, playbook: str, date: str, failures: Iterable[Failure], public: redact.Words) -> str:
    """Return the file's new text. ``text``: the present one. ``public``: of io_words.public().

    A run without a failure removes that of its playbook.
    """
    own = [
        {
            "hosts": hosts[:_HOSTS],
            **redact.bounded(redact.redacted({"task": task, "lines": lines[:_LINES]}, {}, public)),
        }
        for hosts, task, lines in list(failures)[:_FAILURES]
    ]
    others = [run for run in parse(text) if run["playbook"] != playbook]
    runs = [*([{"playbook": playbook, "date": date, "failures": own}] if own else []), *others]
    return json.dumps(runs[:_RUNS], indent=1) + "\n"


def parse(text: str) -> list[dict[str, Any]]:
    """Return the runs in the file, [] if it is not such a file."""
    try:
        return [
            {
                "playbook": str(run["playbook"]),
                "date": str(run["date"]),
                "failures": [
                    {"hosts": list(each["hosts"]), "task": each["task"], "lines": each["lines"]}
                    for each in run["failures"]
                ],
            }
            for run in bounded_json.load(text, MOST)
        ]
    except (ValueError, LookupError, TypeError):
        return []


def of_nodes(text: str, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the runs that failed on one of these nodes, with those failures alone."""
    runs = [
        {**run, "failures": [each for each in run["failures"] if any(node in each["hosts"] for node in nodes)]}
        for run in parse(text)
    ]
    return [run for run in runs if run["failures"]]

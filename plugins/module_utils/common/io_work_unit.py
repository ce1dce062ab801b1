# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A transient unit that works for minutes or hours, and stays until its result was read.

The last word of its description names the work. It needs the property RemainAfterExit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

_PROPERTIES = ("ActiveState", "SubState", "Result", "Description")


@dataclass(frozen=True)
class Work:
    """``state``: none, running, finished, failed, or other: the unit works on something else. ``result``: systemd's."""

    state: str
    result: str
    description: str


def read(run: Run, unit: str, name: str) -> Work:
    """Return how far the unit is with the work ``name``."""
    _status, stdout, _stderr = run(["systemctl", "show", unit, f"--property={','.join(_PROPERTIES)}"])
    shown = dict.fromkeys(_PROPERTIES, "") | dict(line.split("=", 1) for line in stdout.splitlines() if "=" in line)
    return Work(state(shown, name), shown["Result"], shown["Description"])


def state(shown: Mapping[str, str], name: str) -> str:
    """Return the state of a Work. ``shown``: properties of systemctl show."""
    running = shown["ActiveState"] in ("active", "activating", "deactivating") and shown["SubState"] != "exited"
    if shown["Description"].split()[-1:] != [name]:
        return "other" if running else "none"
    return "running" if running else "finished" if shown["ActiveState"] == "active" else "failed"


def start(run: Run, unit: str, argv: Sequence[str]) -> None:
    """Start the unit with a command of systemd-run, in place of an earlier one. Raises ProblemsError."""
    stop(run, unit)
    status, _stdout, stderr = run(list(argv))
    if status != 0:
        found, fix = f"systemd-run failed: {stderr.strip()}", f"see journalctl -u {unit}"
        raise ProblemsError([Problem("unit", found, "a started unit", fix)])


def stop(run: Run, unit: str) -> None:
    """End the unit, and forget its result."""
    run(["systemctl", "stop", unit])
    run(["systemctl", "reset-failed", unit])

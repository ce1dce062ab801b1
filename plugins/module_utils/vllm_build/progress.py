# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The progress of a build, from the end of its log and the status of its program."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.spans import span
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Status

#: Ninja's progress, such as "[12/507] Building CXX object".
_STEP = re.compile(r"^(?:DEBUG )?\[(\d{1,6})/(\d{1,6})\] ", re.MULTILINE)
#: Builds with fewer steps are those of dependencies, such as a download.
_SMALL = 12
#: Lines of a log that name the cause of a failure.
_CAUSE = re.compile(r"\berror\b|CMake Error|FAILED:|fatal|No space left|Killed|cannot find -l", re.IGNORECASE)
_SHOWN, _WIDTH = 12, 300
#: Lines below an error of CMake.
_BELOW = 3


@dataclass(frozen=True)
class Progress:
    """``state``: none, running, finished or failed; ``line`` and ``reason`` are for people."""

    state: str
    line: str
    reason: str = ""


def progress(active: str, result: str, seconds: float, log: str, status: Status, name: str) -> Progress:
    """Return the progress of the build ``name``. ``active`` and ``result`` are the unit's, ``status`` its program's."""
    mine, line = status.name == name, _line(log, seconds)
    if active in ("active", "activating", "deactivating", "reloading"):
        return Progress("running", line)
    if mine and status.state == "finished":
        return Progress("finished", _line(log, status.seconds))
    if active == "failed" or (mine and status.state == "failed"):
        return Progress("failed", line, _reason(result, log))
    return Progress("none", line, "the unit has ended before its build, such as by a restart of the host")


def _line(log: str, seconds: float) -> str:
    """Return ninja's progress and the time left. A resumed build counts only the steps that are left."""
    found = [(int(step), int(steps)) for step, steps in _STEP.findall(log)]
    step, steps = next((pair for pair in reversed(found) if pair[1] >= _SMALL), (0, 0))
    if not step:
        return f"configures, {span(seconds)}"
    return f"[{step}/{steps}], {span(seconds)}, about {span(seconds / step * (steps - step))} left"


def _reason(result: str, log: str) -> str:
    """Return why a build failed: the unit's result, and the lines of the log that name a cause."""
    known = {
        "oom-kill": "the kernel ended it because of its memory limit; set vllm_build_jobs lower",
        "timeout": "it ran longer than vllm_build_timeout",
        "signal": "a signal ended it",
    }
    lines = [line[:_WIDTH] for line in log.splitlines() if line.strip()]
    shown = _causes(lines) or lines
    # systemd knows these causes; the log has at most a compiler's error about its end.
    return "\n".join([known[result], *shown[-1:]] if result in known else ["the build failed", *shown[-_SHOWN:]])


def _causes(lines: list[str]) -> list[str]:
    """Return the lines that name a cause. The text of an error of CMake is in the lines below it."""
    wanted = {index for index, text in enumerate(lines) if _CAUSE.search(text)}
    wanted |= {index + more for index in wanted for more in range(1, _BELOW + 1) if "CMake Error" in lines[index]}
    return [lines[index] for index in sorted(wanted) if index < len(lines)]

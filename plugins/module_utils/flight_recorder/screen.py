# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The screen of a running cluster: the query to a node, which is not trusted, its figures, and the lines that fit."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard

_FILES = (paths.WATCHDOG_STATUS, paths.MEMORY_GUARD_PRESENT, paths.MEMORY_GUARD_STARTS, paths.MEMORY_GUARD_STOP)
_UNITS = (*paths.UNITS, paths.WATCHDOG_UNIT, paths.MEMORY_GUARD_UNIT, paths.RECORDER_UNIT)
#: Between two parts of an answer: no JSON has this character. Maximum characters of a file.
_PART, _MOST = "\x1e", 1 << 16
#: The query to a node, as root. Its time gives the age of the sample without a comparison of two clocks. The sample
#: belongs to a service user, so that root does not open it. On a terminal, systemctl would print colors.
COMMAND = (
    f"timeout 2 setpriv --reuid=65534 --regid=65534 --clear-groups head -c {_MOST} {paths.RECORDER_SAMPLE} "
    "2>/dev/null; printf '\\036'; "
    f"for file in {' '.join(_FILES)}; do head -c {_MOST} $file 2>/dev/null; printf '\\036'; done; "
    f"LC_ALL=C date +%s.%N; printf '\\036'; systemctl show --property=Id,LoadState,ActiveState {' '.join(_UNITS)} | cat"
)


@dataclass
class Watched:
    """A watched node. ``sampled`` and ``progress`` in seconds of the controller's monotonic clock.

    ``services``: the state of each installed unit. ``lowest``: bytes of memory since ``start`` (time of day).
    ``stopped``: why the memory guard stopped them. ``progress``: when the engine last made a token or had no request.
    """

    error: str = ""
    sample: Sample | None = None
    former: Sample | None = None
    sampled: float | None = None
    services: dict[str, str] = field(default_factory=dict)
    watchdog: dict[str, Any] = field(default_factory=dict)
    lowest: int | None = None
    start: float | None = None
    stopped: str = ""
    progress: float = 0.0

    def hear(self, output: str, error: str, at: float) -> None:
        """Take an answer to COMMAND, which can be any text. ``error``: why there is none."""
        try:
            self.error = error or self._read([part.strip() for part in output.replace("\r", "").split(_PART)], at)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as problem:
            self.error = f"its answer cannot be read: {problem}"

    def _read(self, parts: list[str], at: float) -> str:
        text, status, present, starts, stop, clock, units = parts
        new = schema.parse(text.encode()) if text else None
        self.watchdog, last, ended = (dict(bounded_json.load(each or "{}", _MOST)) for each in (status, present, stop))
        last = last or [{}, *bounded_json.load(starts or "[]", _MOST)][-1]
        start, now = float(last.get("time", 0)), new.memory_available if new else None
        known = (self.lowest if start == self.start else None, last.get("minimum"), now)
        self.services = dict(re.findall(r"Id=(.*)\nLoadState=(?!not-found).*\nActiveState=(.*)", units))
        self.lowest, self.start = min((int(each) for each in known if each is not None), default=None), start
        self.stopped = guard.reason(ended) if ended else ""
        self.sampled = at - max(0.0, float(clock) - new.time) if new else None
        if new and (self.sample is None or new.time != self.sample.time):
            self._keep(new, at)
        return ""

    def _keep(self, new: Sample, at: float) -> None:
        engine, old = new.engine or Engine(), (self.sample and self.sample.engine) or Engine()
        if not engine.running or (engine.generated, engine.read) != (old.generated, old.read):
            self.progress = at
        self.former, self.sample = self.sample, new


def fitted(text: str, width: int, height: int) -> list[tuple[str, str]]:
    """Return the lines of the template watch.j2 as (style, line). The last one counts those that do not fit."""
    wrap = textwrap.TextWrapper(width, subsequent_indent="  ", max_lines=3, placeholder=" ...")
    lines = [(line[0], part) for line in text.splitlines() for part in wrap.wrap(line[1:])]
    rest = len(lines) - height
    return lines if rest <= 0 else [*lines[: height - 1], ("?", f"and {rest + 1} more lines")]

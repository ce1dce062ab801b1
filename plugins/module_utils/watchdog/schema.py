# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of the watchdog. All times are seconds of the monotonic clock: a changed wall clock has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The API's metrics: read; no answer in time; no server listens.
UP, SILENT, DOWN = "up", "silent", "down"


@dataclass(frozen=True)
class WatchdogSettings:
    """The numbers of the rule, from the role's variables, which name their sources."""

    mode: str
    witness_seconds: float
    stall_seconds: float
    restarts_per_hour: int
    rest_after: float = 0.0


@dataclass(frozen=True)
class Engine:
    """The values that vLLM's engine reports after each step, summed over engines.

    ``marks`` change with each step that schedules, reads or generates tokens. ``processed`` counts the read and
    generated tokens of requests with output since the start. ``requests`` have no complete response from the API, 0 if
    it does not count them.
    """

    marks: tuple[float, ...]
    processed: float
    running: float
    requests: int = 0


@dataclass(frozen=True)
class Sample:
    """One observation of the cluster by the head.

    ``engine`` is None unless ``server`` is UP. ``probing``: a request of the watchdog is unanswered. ``compiling``: a
    compiler runs in a service. ``witnesses`` are sentences, each with a node's name; ``unreachable`` are nodes.
    """

    time: float
    server: str
    engine: Engine | None = None
    probing: bool = False
    compiling: bool = False
    witnesses: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alarm:
    """A detected hang. ``handled``: its restart was requested, or is not permitted. ``witness``: it had one."""

    time: float
    reason: str
    handled: bool = False
    witness: bool = False


@dataclass(frozen=True)
class State:
    """The state between two samples. ``restarts`` are times of requests.

    Seconds without progress: ``stalled`` while requests run or the watchdog's own is unanswered, ``waited`` also while
    the API has requests that the engine does not report. ``quiet``: seconds without any request.
    """

    time: float = 0.0
    armed: bool = False
    engine: Engine | None = None
    stalled: float = 0.0
    waited: float = 0.0
    witnesses: tuple[str, ...] = ()
    probed: float | None = None
    alarm: Alarm | None = None
    restarts: tuple[float, ...] = ()
    quiet: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The next state and the requested actions, in order."""

    state: State
    raised: str = ""
    restart: bool = False
    refused: str = ""
    cleared: bool = False
    probe: bool = False
    rest: bool = False


@dataclass(frozen=True)
class Process:
    """A process of a service: ``state`` is the kernel's letter. Source: proc_pid_stat(5)."""

    pid: int
    name: str
    state: str


@dataclass(frozen=True)
class Local:
    """The observed processes of this node. ``ranks`` are the known processes with a share of the model.

    ``stopped``: the ranks that SIGSTOP stopped. ``lasting``: the processes that a restart of the server may not end,
    each as a sentence.
    """

    ranks: frozenset[int] = frozenset()
    witnesses: tuple[str, ...] = ()
    compiling: bool = False
    stopped: frozenset[int] = frozenset()
    lasting: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Peer:
    """The head's view of another node: its last report. ``numbers``: the last of each sender, against repeated ones."""

    address: str
    key: str
    heard: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    witnesses: tuple[str, ...] = field(default=())
    compiling: bool = False
    failed: tuple[str, ...] = ()

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rule of the watchdog: whether requests run without progress, and the next action.

Utilization, power and NCCL RAS counts are not inputs: measured on two H200, they are the same for a hung rank and for a
healthy loop over sockets. An alarm needs running requests and no change of the engine's reported values. With a witness
it comes early, without one after a long wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import RANKS
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import AUTO, RESTART
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import (
    DOWN,
    Alarm,
    Decision,
    Engine,
    Local,
    Process,
    Sample,
    State,
    WatchdogSettings,
)

HOUR = 3600.0
#: A longer time between two samples counts as this: a suspended or overloaded host observes nothing.
_LONGEST_GAP = 15.0
#: Between two requests of the watchdog. A stopped rank hides the requests that arrive after its stop.
_PROBE_PAUSE = 60.0
#: Without progress while the API has a request, after which the engine gets one of the watchdog. A server may wait for
#: the body of a request, or for a tool, while its engine is idle.
_WAIT = 10.0
#: An alarm is repeated if the server neither progressed nor restarted. A large model loads in a quarter of an hour.
_REPEAT = 1200.0
#: Programs of a just-in-time compilation by FlashInfer, Triton, PyTorch or CUDA.
_COMPILERS = frozenset(("nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cc1plus", "cc1", "ninja", "cudafe++"))


def step(state: State, sample: Sample, settings: WatchdogSettings) -> Decision:
    """Return the decision after one more sample."""
    recent = tuple(time for time in state.restarts if 0 <= sample.time - time < HOUR)
    if sample.server == DOWN or _restarted(state, sample):
        # A load, or a new start: the next first answer arms again.
        fresh = State(sample.time, _answered(sample), sample.engine, witnesses=sample.witnesses, restarts=recent)
        return Decision(fresh, cleared=state.alarm is not None)
    following = _advanced(state, sample, recent)
    confirmed = [witness for witness in sample.witnesses if witness in state.witnesses]
    probe = (bool(confirmed) or following.waited >= _WAIT) and _probe_due(following, sample)
    if probe:
        following = replace(following, probed=sample.time)
    raised = "" if following.alarm else _reason(following, sample, confirmed, settings)
    cleared = state.alarm is not None and following.alarm is None
    if raised:
        following = replace(following, alarm=Alarm(sample.time, raised))
    if confirmed and following.alarm:
        # Also one that comes after the alarm, or that is gone when an unreachable node returns.
        following = replace(following, alarm=replace(following.alarm, witness=True))
    decision = Decision(following, raised=raised, cleared=cleared, probe=probe)
    return _with_restart(_with_rest(decision, settings), sample, settings)


def _advanced(state: State, sample: Sample, restarts: tuple[float, ...]) -> State:
    """Return the state with the sample's values, and without an alarm that is over."""
    engine = sample.engine or state.engine
    armed = state.armed or _answered(sample)
    progress = sample.engine is not None and (state.engine is None or sample.engine.marks != state.engine.marks)
    alarm = state.alarm
    if alarm and (progress or sample.time - alarm.time > _REPEAT):
        alarm = None
    waits = armed and not progress and alarm is state.alarm
    passed = min(max(0.0, sample.time - state.time), _LONGEST_GAP)
    stalled = state.stalled + passed if waits and _busy(engine, sample) else 0.0
    waited = state.waited + passed if waits and _open(engine, sample) else 0.0
    quiet = state.quiet + passed if _asleep(engine, sample, progress) else 0.0
    return State(sample.time, armed, engine, stalled, waited, sample.witnesses, state.probed, alarm, restarts, quiet)


def _busy(engine: Engine | None, sample: Sample) -> bool:
    return sample.probing or (engine is not None and engine.running > 0)


def _open(engine: Engine | None, sample: Sample) -> bool:
    """Return whether requests run, or are open without one that runs."""
    return _busy(engine, sample) or (engine is not None and engine.requests > 0)


def _asleep(engine: Engine | None, sample: Sample, progress: bool) -> bool:
    """Return whether the server answers, and has nothing to do."""
    return sample.engine is not None and not progress and not _open(engine, sample)


def _probe_due(state: State, sample: Sample) -> bool:
    """Return whether an engine that looks idle may get a request now."""
    due = state.probed is None or sample.time - state.probed >= _PROBE_PAUSE
    return state.armed and due and not _busy(state.engine, sample)


def _answered(sample: Sample) -> bool:
    return sample.engine is not None and sample.engine.processed > 0


def _restarted(state: State, sample: Sample) -> bool:
    """Return whether the counters belong to a later start of the server than those of the state."""
    return sample.engine is not None and state.engine is not None and sample.engine.processed < state.engine.processed


def _reason(state: State, sample: Sample, confirmed: Sequence[str], settings: WatchdogSettings) -> str:
    """Return why the engine counts as hung, "" if it does not."""
    without = "requests run, and the engine reported no step for {:.0f} s"
    unanswered = state.stalled >= settings.witness_seconds
    if confirmed and unanswered:
        return f"{without.format(state.stalled)}; {'; '.join(confirmed)}"
    # A busy API server answers late. Without a witness, only its own figures show a lack of progress.
    if sample.engine and not sample.compiling and unanswered and state.waited >= settings.stall_seconds:
        return without.format(state.waited)
    return ""


def _with_rest(decision: Decision, settings: WatchdogSettings) -> Decision:
    """Add the rest of a model that nobody asks."""
    state = decision.state
    if state.alarm or not 0 < settings.rest_after <= state.quiet:
        return decision
    return replace(decision, state=replace(state, quiet=0.0), rest=True)


def _with_restart(decision: Decision, sample: Sample, settings: WatchdogSettings) -> Decision:
    """Add the restart that an alarm requires, once for each alarm. It waits for unreachable nodes."""
    state, alarm = decision.state, decision.state.alarm
    if alarm is None or alarm.handled or sample.unreachable:
        return decision
    if settings.mode != RESTART and not (settings.mode == AUTO and alarm.witness):
        return decision
    handled = replace(state, alarm=replace(alarm, handled=True))
    if len(state.restarts) >= settings.restarts_per_hour:
        refused = (
            f"no restart: {len(state.restarts)} in the last hour, at most {settings.restarts_per_hour} are permitted"
        )
        return replace(decision, state=handled, refused=refused)
    return replace(decision, state=replace(handled, restarts=(*state.restarts, sample.time)), restart=True)


def local(known: Local, processes: Sequence[Process]) -> Local:
    """Return the witnesses among the processes of this node's services, after ``known`` of the sample before.

    A witness is a stopped process, and a rank that is a zombie or ended while its service runs on. A new rank belongs
    to a new start, where the former ranks no longer count. State t is a debugger's and not a witness.
    """
    ranks = local_ranks(processes)
    if not processes or ranks - known.ranks:
        known = Local(ranks)
    lasting = {each.pid: f"process {each.pid} ({each.name}) is stopped" for each in processes if each.state == "T"}
    lasting |= {
        each.pid: f"rank process {each.pid} ({each.name}) is dead"
        for each in processes
        if each.pid in ranks and each.state in "ZX"
    }
    ended = [f"rank process {pid} ended" for pid in sorted(known.ranks - ranks)]
    stopped = frozenset(each.pid for each in processes if each.state == "T" and each.pid in ranks)
    compiling = any(each.name in _COMPILERS for each in processes)
    return Local(known.ranks, (*lasting.values(), *ended), compiling, stopped, lasting)


def local_ranks(processes: Sequence[Process]) -> frozenset[int]:
    """Return the IDs of the processes with a share of the model, and of the engine."""
    return frozenset(process.pid for process in processes if process.name.startswith(RANKS))

"""The rule: alarms on measured and synthetic series, and none over the load patterns of a day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import decide
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import (
    DOWN,
    SILENT,
    UP,
    Alarm,
    Decision,
    Engine,
    Local,
    Process,
    Sample,
    State,
    WatchdogSettings,
)

SETTINGS = WatchdogSettings(mode="restart", witness_seconds=15, stall_seconds=120, restarts_per_hour=3)
STOPPED = "spark2: process 7 (ray::RayWorkerP) is stopped"
INTERVAL = 2.0


def engine(mark: float, running: float = 1, generated: float = 100) -> Engine:
    return Engine((mark, generated, running), generated, running)


def hung(start: float, seconds: float, **sample: object) -> Iterator[Sample]:
    """Yield samples of an engine that reports nothing new."""
    for number in range(int(seconds / INTERVAL)):
        known = Sample(start + number * INTERVAL, UP, engine(5))
        yield replace(known, **sample)  # type: ignore[arg-type]


def healthy(start: float, seconds: float, per_second: float = 1, running: float = 1) -> Iterator[Sample]:
    """Yield samples of an engine with steps."""
    for number in range(int(seconds / INTERVAL)):
        time = start + number * INTERVAL
        yield Sample(time, UP, engine(int(time * per_second), running, 100 + int(time * per_second)))


def run(
    samples: Iterable[Sample], settings: WatchdogSettings = SETTINGS, state: State | None = None
) -> list[tuple[float, Decision]]:
    """Return (time, decision) of each sample."""
    decisions = []
    state = State() if state is None else state
    for sample in samples:
        decision = decide.step(state, sample, settings)
        decisions.append((sample.time, decision))
        state = decision.state
    return decisions


def alarms(decisions: Iterable[tuple[float, Decision]]) -> list[tuple[float, str]]:
    return [(time, decision.raised) for time, decision in decisions if decision.raised]


def restarts(decisions: Iterable[tuple[float, Decision]]) -> list[float]:
    return [time for time, decision in decisions if decision.restart]


@pytest.mark.parametrize(
    "witness",
    [
        STOPPED,
        "spark1: rank process 9 (VLLM::Worker_TP) is dead",
        "spark2: rank process 9 ended",
        "spark1: NCCL RAS reports INCOMPLETE",
        "spark1: the port of NCCL RAS is silent",
    ],
)
def test_a_hang_with_a_witness_alarms_and_restarts_within_30_s(witness: str) -> None:
    decisions = run([*healthy(0, 20), *hung(20, 60, witnesses=(witness,))])
    ((time, reason),) = alarms(decisions)
    assert 15 <= time - 20 <= 30
    assert witness in reason
    assert restarts(decisions) == [time]


def test_a_hang_without_a_witness_alarms_after_the_longer_time() -> None:
    ((time, reason),) = alarms(run([*healthy(0, 20), *hung(20, 300)]))
    assert 120 <= time - 20 <= 126
    assert reason == "requests run, and the engine reported no step for 120 s"


def idle_with_requests(seconds: float, answered_after: float) -> list[tuple[float, Decision]]:
    """Run the rule over an engine that reports no request while the API has one, and that answers the watchdog's or
    not."""
    decisions, state, probed, steps, time = [], State(), -1000.0, 5.0, 0.0
    while time < seconds:
        age = time - probed
        steps += age == answered_after
        probing = age < min(answered_after, 60)
        sample = Sample(time, UP, replace(engine(steps, running=0), requests=1 + probing), probing)
        decision = decide.step(state, sample, SETTINGS)
        decisions.append((time, decision))
        state, probed, time = decision.state, time if decision.probe else probed, time + INTERVAL
    return decisions


def test_a_hang_before_the_first_step_of_a_request_is_found() -> None:
    """The metrics are those of an idle engine, because it reports a request after its first step."""
    ((time, reason),) = alarms(idle_with_requests(300, answered_after=1000))
    assert 120 <= time <= 126
    assert reason == "requests run, and the engine reported no step for 120 s"


def test_a_request_that_does_not_reach_the_engine_is_no_hang() -> None:
    """Such as one that waits for a tool, or whose body comes slowly: the engine answers the watchdog."""
    decisions = idle_with_requests(1800, answered_after=4)
    assert alarms(decisions) == []
    assert 25 <= sum(decision.probe for _time, decision in decisions) <= 30, "at most one request a minute"


def test_a_witness_that_comes_and_goes_does_not_count() -> None:
    samples = [replace(sample, witnesses=(STOPPED,) * (number % 2)) for number, sample in enumerate(hung(20, 100))]
    assert alarms(run([*healthy(0, 20), *samples])) == []


def test_a_hang_that_exists_when_the_watchdog_starts_is_found() -> None:
    assert len(alarms(run(hung(1000, 60, witnesses=(STOPPED,))))) == 1


DAY = {
    "idle": [Sample(time, UP, engine(5, running=0)) for time in range(0, 3600, 2)],
    "64 streams": list(healthy(0, 600, per_second=40, running=64)),
    # Chunks of a long prompt: a step each 20 s changes only the use of the KV cache.
    "long prefill": list(healthy(0, 1200, per_second=0.05)),
    "bursts": [
        *healthy(0, 60),
        *(Sample(60 + time, UP, engine(5, running=0)) for time in range(0, 600, 2)),
        *healthy(660, 60),
    ],
    "cancelled requests": [Sample(time, UP, engine(time // 30, running=time // 30 % 2)) for time in range(0, 1200, 2)],
    "a load": [Sample(time, DOWN if time < 300 else SILENT) for time in range(0, 900, 2)],
    "a server before its first answer": list(hung(0, 900, engine=engine(5, generated=0))),
    "a compilation in service": [*healthy(0, 20), *hung(20, 600, compiling=True), *healthy(620, 20)],
    "slow metrics under load": [
        replace(sample, **({"server": SILENT, "engine": None} if sample.time % 100 else {}))
        for sample in healthy(0, 1200)
    ],
    "a restart by systemd": [
        *healthy(0, 60),
        *(Sample(60 + time, DOWN) for time in range(0, 60, 2)),
        *hung(120, 300, engine=engine(0, generated=0)),
    ],
}


@pytest.mark.parametrize("pattern", DAY)
def test_a_load_pattern_of_a_day_raises_no_alarm(pattern: str) -> None:
    assert DAY[pattern], "an empty series tests nothing"
    assert alarms(run(DAY[pattern])) == []


@pytest.mark.parametrize(
    "pattern", ["idle", "64 streams", "bursts", "a load", "a server before its first answer", "a restart by systemd"]
)
def test_a_stale_witness_raises_no_alarm_while_the_engine_works_or_is_idle(pattern: str) -> None:
    assert alarms(run(replace(sample, witnesses=(STOPPED,)) for sample in DAY[pattern])) == []


def test_silent_metrics_count_with_a_witness_only() -> None:
    silent = [replace(sample, server=SILENT, engine=None) for sample in hung(20, 400)]
    assert alarms(run([*healthy(0, 20), *silent])) == []
    assert len(alarms(run([*healthy(0, 20), *(replace(sample, witnesses=(STOPPED,)) for sample in silent)]))) == 1


def test_a_suspended_host_does_not_count_as_a_stall() -> None:
    samples = [*healthy(0, 20), *hung(20, 10), Sample(7230, UP, engine(5)), *healthy(7232, 20)]
    assert alarms(run(samples)) == []


def test_a_stopped_rank_of_an_idle_engine_is_found_by_a_request() -> None:
    idle = {"engine": engine(5, running=0), "witnesses": (STOPPED,)}
    probed = run([*healthy(0, 20), *hung(20, 100, **idle)])
    assert [time for time, decision in probed if decision.probe] == [22, 82], "once a minute"
    decisions = run([*healthy(0, 20), *hung(20, 10, **idle)])
    waiting = hung(30, 60, engine=engine(5, running=0), witnesses=(STOPPED,), probing=True)
    ((time, _reason),) = alarms(run(waiting, state=decisions[-1][1].state))
    assert time - 22 <= 30


def test_the_restart_waits_for_an_unreachable_node_and_is_dropped_when_the_engine_continues() -> None:
    lost = "spark2: no connection on the fabric"
    out = hung(20, 60, witnesses=(lost,), unreachable=("spark2",))
    decisions = run([*healthy(0, 20), *out, *healthy(80, 20)])
    assert len(alarms(decisions)) == 1
    assert restarts(decisions) == []
    assert [time for time, decision in decisions if decision.cleared] == [80]
    back = run([*healthy(0, 20), *hung(20, 60, witnesses=(lost,), unreachable=("spark2",)), *hung(80, 20)])
    assert restarts(back) == [80]


LOST = {"witnesses": ("spark2: no connection on the fabric",), "unreachable": ("spark2",)}
#: Samples of a hang with one alarm, and when each mode restarts. The last sample of health is at 18 s.
HANGS: dict[str, tuple[list[Sample], dict[str, list[float]]]] = {
    "a witness": ([*hung(20, 60, witnesses=(STOPPED,))], {"restart": [36], "auto": [36]}),
    "no witness": ([*hung(20, 200)], {"restart": [140], "auto": []}),
    "a witness after the alarm, in two samples": (
        [*hung(20, 140), *hung(160, 40, witnesses=(STOPPED,))],
        {"restart": [140], "auto": [162]},
    ),
    "a witness in one sample only": (
        [*hung(20, 140), *hung(160, 2, witnesses=(STOPPED,)), *hung(162, 40)],
        {"restart": [140], "auto": []},
    ),
    "a lost node that returns": ([*hung(20, 60, **LOST), *hung(80, 20)], {"restart": [80], "auto": [80]}),
}


@pytest.mark.parametrize("mode", ["auto", "off", "report", "restart"])
@pytest.mark.parametrize(("samples", "expected"), HANGS.values(), ids=HANGS)
def test_each_mode_restarts_after_its_alarms(
    samples: list[Sample], expected: dict[str, list[float]], mode: str
) -> None:
    decisions = run([*healthy(0, 20), *samples], replace(SETTINGS, mode=mode))
    assert len(alarms(decisions)) == 1
    assert restarts(decisions) == expected.get(mode, [])


def hangs(number: int) -> Iterator[Sample]:
    """Yield a number of hangs, each after a start of the server, in 200 s each."""
    for start in range(0, number * 200, 200):
        yield from healthy(start, 20)
        yield from hung(start + 20, 40, witnesses=(STOPPED,))
        yield from (Sample(start + 60 + time, DOWN) for time in range(0, 140, 2))


def test_restarts_are_limited_and_the_refusal_is_reported_once_for_each_alarm() -> None:
    decisions = run(hangs(5))
    assert len(alarms(decisions)) == 5
    assert len(restarts(decisions)) == 3
    refused = [decision.refused for _time, decision in decisions if decision.refused]
    assert refused == ["no restart: 3 in the last hour, at most 3 are permitted"] * 2


def test_restarts_of_an_hour_ago_do_not_count() -> None:
    old = State(time=4000.0, restarts=(100.0, 200.0, 300.0))
    decisions = run([*healthy(4000, 20), *hung(4020, 60, witnesses=(STOPPED,))], state=old)
    assert len(restarts(decisions)) == 1
    recent = replace(old, restarts=(3800.0, 3900.0, 3950.0))
    assert restarts(run([*healthy(4000, 20), *hung(4020, 60, witnesses=(STOPPED,))], state=recent)) == []


def test_an_alarm_without_effect_is_repeated() -> None:
    decisions = run([*healthy(0, 20), *hung(20, 1400, witnesses=(STOPPED,))])
    # A repetition has the times of a new hang: 20 minutes and one sample after the alarm, and 15 s without progress.
    assert [time for time, _reason in alarms(decisions)] == restarts(decisions) == [36, 1254]
    assert [time for time, decision in decisions if decision.cleared] == [1238]


def test_the_hour_of_a_restart_ends_after_an_hour_and_has_no_restart_of_later() -> None:
    old = State(time=4000.0, restarts=(399.9, 400.0, 400.1, 3999.0, 4000.0, 4000.1))
    kept = (400.1, 3999.0, 4000.0)
    for sample in (Sample(4000.0, UP, engine(5)), Sample(4000.0, DOWN)):
        assert decide.step(old, sample, SETTINGS).state.restarts == kept


def test_a_load_forgets_the_alarm_and_keeps_the_witnesses() -> None:
    alarm = Alarm(10.0, "x", handled=True)
    known = State(18.0, True, engine(5), 30.0, 30.0, (), 12.0, alarm, (16.0,))
    down = decide.step(known, Sample(20.0, DOWN, witnesses=(STOPPED,)), SETTINGS)
    assert down == Decision(State(20.0, witnesses=(STOPPED,), restarts=(16.0,)), cleared=True)
    assert not decide.step(replace(known, alarm=None), Sample(20.0, DOWN), SETTINGS).cleared
    again = decide.step(known, Sample(20.0, UP, engine(1, generated=1)), SETTINGS)
    assert again == Decision(State(20.0, True, engine(1, generated=1), restarts=(16.0,)), cleared=True), "a new start"
    further = decide.step(known, Sample(20.0, UP, engine(6, generated=101)), SETTINGS)
    expected = State(20.0, True, engine(6, generated=101), probed=12.0, restarts=(16.0,))
    assert further == Decision(expected, cleared=True), "progress is no start, so the last request counts"
    before = decide.step(known, Sample(20.0, UP, engine(1, generated=0)), SETTINGS)
    assert before.state.armed is False, "no answer yet"


@pytest.mark.parametrize(
    ("passed", "sample", "stalled", "waited"),
    [
        (2, {}, 12, 22),
        (40, {}, 25, 35),
        (-5, {}, 10, 20),
        (2, {"engine": None, "server": SILENT}, 12, 22),
        (2, {"engine": engine(6)}, 0, 0),
        (2, {"engine": engine(5, running=0)}, 0, 0),
        (2, {"engine": engine(5, running=0), "probing": True}, 12, 22),
        (2, {"engine": replace(engine(5, running=0), requests=1)}, 0, 22),
    ],
)
def test_only_an_observed_time_without_progress_counts(
    passed: float, sample: dict[str, Any], stalled: float, waited: float
) -> None:
    marks = sample.get("engine") or engine(5)
    known = State(100.0, True, replace(marks, marks=engine(5, marks.running).marks), 10.0, 20.0, probed=99.0)
    found = decide.step(known, replace(Sample(100.0 + passed, UP, engine(5)), **sample), SETTINGS).state
    assert (found.stalled, found.waited) == (stalled, waited)


def test_an_engine_with_open_requests_gets_a_probe_after_ten_seconds_and_then_each_minute() -> None:
    decisions = idle_with_requests(150, answered_after=4)
    assert [time for time, decision in decisions if decision.probe] == [10, 70, 130]
    assert not any(decision.probe for _time, decision in run([*healthy(0, 20), *hung(20, 30, witnesses=(STOPPED,))]))
    unarmed = replace(engine(5, running=0, generated=0), requests=1)
    assert not any(decision.probe for _time, decision in run(hung(0, 100, engine=unarmed)))


@pytest.mark.parametrize(
    ("stalled", "waited", "witnesses", "expected"),
    [
        (14.0, 14.0, (STOPPED,), True),
        (13.9, 13.9, (STOPPED,), False),
        (14.0, 119.0, (), True),
        (100.0, 119.5, (), True),
        (13.9, 119.0, (), False),
        (100.0, 118.9, (), False),
    ],
)
def test_an_alarm_comes_at_its_time(stalled: float, waited: float, witnesses: tuple[str, ...], expected: bool) -> None:
    known = State(100.0, True, engine(5), stalled, waited, witnesses)
    assert bool(decide.step(known, Sample(101.0, UP, engine(5), witnesses=witnesses), SETTINGS).raised) is expected


@pytest.mark.parametrize(
    ("waited", "probed", "expected"),
    [(9.0, None, True), (8.9, None, False), (9.0, 41.0, True), (9.0, 41.1, False), (200.0, 0.0, True)],
)
def test_a_request_of_the_watchdog_comes_at_its_time(waited: float, probed: float | None, expected: bool) -> None:
    idle = replace(engine(5, running=0), requests=1)
    known = State(100.0, True, idle, 0.0, waited, probed=probed)
    found = decide.step(known, Sample(101.0, UP, idle), SETTINGS)
    assert (found.probe, found.state.probed) == (expected, 101.0 if expected else probed)


def test_no_restart_is_permitted_by_a_limit_of_none() -> None:
    decisions = run([*healthy(0, 20), *hung(20, 60, witnesses=(STOPPED,))], replace(SETTINGS, restarts_per_hour=0))
    refused = [(time, decision.refused) for time, decision in decisions if decision.refused]
    assert refused == [(36, "no restart: 0 in the last hour, at most 0 are permitted")]
    assert restarts(decisions) == []
    alarm = Alarm(100.0, "x", witness=True)
    known = State(100.0, True, engine(5), alarm=alarm, restarts=(1.0, 2.0))
    found = decide.step(known, Sample(101.0, UP, engine(5)), replace(SETTINGS, restarts_per_hour=1))
    assert found.refused.startswith("no restart: 2 in"), "before the limit was lowered"


@pytest.mark.parametrize(("compiling", "expected"), [(False, [140]), (True, [])])
def test_a_compilation_excuses_only_a_hang_without_a_witness(compiling: bool, expected: list[float]) -> None:
    found = alarms(run([*healthy(0, 20), *hung(20, 200, compiling=compiling)]))
    assert [time for time, _reason in found] == expected
    found = alarms(run([*healthy(0, 20), *hung(20, 200, compiling=compiling, witnesses=(STOPPED,))]))
    assert [time for time, _reason in found] == [36]


def process(pid: int, state: str = "S", name: str = "ray::RayWorkerProc") -> Process:
    return Process(pid, name, state)


def test_local_witnesses() -> None:
    first = decide.local(Local(), [process(1, name="raylet"), process(7), process(8)])
    assert first == Local(frozenset({7, 8}))
    for state in "SRDtI":
        assert decide.local(first, [process(7, state), process(8), process(1, state, "raylet")]) == first
    assert decide.local(first, [process(7), process(8), process(9, name="cicc")]).compiling
    assert decide.local(first, [process(7, "T"), process(8)]).witnesses == (
        "process 7 (ray::RayWorkerProc) is stopped",
    )
    assert decide.local(first, [process(7), process(8), process(1, "T", "raylet")]).witnesses == (
        "process 1 (raylet) is stopped",
    )
    assert decide.local(first, [process(7, "Z"), process(8)]).witnesses == (
        "rank process 7 (ray::RayWorkerProc) is dead",
    )
    assert decide.local(first, [process(1, "Z", "sh"), process(7), process(8)]).witnesses == ()
    ended = decide.local(first, [process(1, name="raylet"), process(7)])
    assert ended.witnesses == ("rank process 8 ended",)
    assert decide.local(ended, [process(1, name="raylet"), process(7)]).witnesses == ended.witnesses
    assert decide.local(ended, [process(1, name="raylet"), process(20)]) == Local(frozenset({20})), "a new start"
    assert decide.local(ended, []) == Local(), "a stopped service"


def test_an_ended_rank_does_not_outlive_a_restart() -> None:
    """Its service has no process left that a restart would end.

    The next start may need a minute to bring the next rank.
    """
    known = decide.local(Local(), [process(1, name="raylet"), process(7)])
    ended = decide.local(known, [process(1, name="raylet")])
    assert (ended.witnesses, ended.lasting) == (("rank process 7 ended",), {})
    stopped = decide.local(known, [process(7, "T"), process(8, "T", "sh")])
    assert stopped.lasting == {
        7: "process 7 (ray::RayWorkerProc) is stopped",
        8: "process 8 (sh) is stopped",
    }
    assert stopped.stopped == {7}, "only a rank is to be killed"


REST = replace(SETTINGS, rest_after=30)


def quiet(samples: Sequence[Sample], settings: WatchdogSettings = REST) -> list[float]:
    """Return the times at which the model may rest."""
    return [time for time, decision in run(samples, settings) if decision.rest]


def idle(begin: int, end: int, *, requests: int = 0, **more: Any) -> list[Sample]:
    same = Engine((1.0,), 5.0, 0.0, requests)
    return [Sample(float(when), UP, same, **more) for when in range(begin, end)]


def test_a_model_rests_after_the_time_without_a_request_and_is_tried_again() -> None:
    assert quiet(idle(0, 100)) == [30.0, 60.0, 90.0]
    assert quiet(idle(0, 100), replace(SETTINGS, rest_after=0)) == []


@pytest.mark.parametrize(
    "between",
    [
        [Sample(20.0, UP, Engine((2.0,), 6.0, 0.0))],
        [Sample(20.0, UP, Engine((1.0,), 5.0, 1.0))],
        [Sample(20.0, UP, Engine((1.0,), 5.0, 0.0, 1))],
        [Sample(20.0, UP, Engine((1.0,), 5.0, 0.0), probing=True)],
        [Sample(20.0, SILENT)],
        [Sample(20.0, DOWN)],
    ],
    ids=["a step", "a running request", "an open request", "the watchdog's own", "no answer", "a restart"],
)
def test_anything_else_than_silence_begins_the_time_again(between: list[Sample]) -> None:
    assert quiet([*idle(0, 20), *between, *idle(21, 60)]) in ([50.0], [51.0])


def test_a_model_that_hangs_does_not_rest() -> None:
    stopped = idle(0, 200, requests=1)
    assert quiet(stopped) == []

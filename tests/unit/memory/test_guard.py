"""The memory guard: when a start begins and ends, and the program with real processes and files in place of a
node's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rendered_units import planned
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard, io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.memory.guard import Start, State

GIB = 1 << 30

LIMIT, WINDOW = 2400.0, 14400.0
#: Observations as (time, ranks, whether the API listens), and how and when the start ends.
SERIES: dict[str, tuple[list[tuple[float, set[int], bool]], str, float]] = {
    "a head that answers": (
        [
            (100, {7}, False),
            (110, {7, 8}, False),
            (200, {7, 8}, True),
            (259, {7, 8}, True),
            (260, {7, 8}, True),
            (262, {7, 8}, True),
        ],
        guard.ANSWERED,
        260,
    ),
    "a worker without a watchdog": (
        [(100, {7}, False), (2498, {7}, False), (2500, {7}, False), (2502, {7}, False)],
        guard.OVER,
        2500,
    ),
    "a start that fails": ([(100, {7}, False), (110, set(), False)], guard.ENDED, 110),
    "an API that closes again": (
        [(100, {7}, False), (110, {7}, True), (150, {7}, False), (175, {7}, True), (190, set(), False)],
        guard.ENDED,
        190,
    ),
}


@pytest.mark.parametrize(("series", "end", "when"), SERIES.values(), ids=SERIES)
def test_a_start_ends(series: list[tuple[float, set[int], bool]], end: str, when: float) -> None:
    state, ends = State(known=frozenset()), []
    for now, ranks, listens in series:
        state, ended = guard.observe(state, frozenset(ranks), listens, now, LIMIT)
        ends += [(ended, now)] if ended else []
    assert ends == [(end, when)]
    assert state.start is None


SERVED, ALL = State(known=frozenset({7})), frozenset({7, 8})


@pytest.mark.parametrize(
    ("state", "ranks", "expected", "end"),
    [
        pytest.param(SERVED, {7}, SERVED, "", id="ranks that serve"),
        pytest.param(State(), {7}, SERVED, "", id="the guard was restarted beside a rank that may serve"),
        pytest.param(SERVED, {7, 8}, State(Start(300, ALL)), "", id="a new rank"),
        pytest.param(SERVED, set(), State(known=frozenset()), "", id="no rank"),
        pytest.param(
            State(known=frozenset()), {7}, State(Start(300, frozenset({7}))), "", id="an ID that is used again"
        ),
        pytest.param(
            State(Start(200, ALL)),
            {8, 9},
            State(Start(200, frozenset({7, 8, 9}))),
            "",
            id="a rank that ended and a new one",
        ),
        pytest.param(
            State(Start(200, frozenset({7}))),
            {8},
            State(known=frozenset()),
            guard.ENDED,
            id="a start between two looks",
        ),
    ],
)
def test_only_new_ranks_begin_a_start(state: State, ranks: set[int], expected: State, end: str) -> None:
    assert guard.observe(state, frozenset(ranks), False, 300.0, LIMIT) == (expected, end)


def test_a_record_names_the_floor_and_the_time() -> None:
    found = guard.entry(Start(100, frozenset({7})), GIB, 2 * GIB, 134.4, 1_800_000_034, guard.STOPPED)
    assert found == {
        "time": 1_800_000_000,
        "seconds": 34,
        "minimum": GIB,
        "floor": 2 * GIB,
        "phase": "start",
        "end": "stopped",
    }
    assert guard.reason(found) == (
        "only 1.0 GiB of memory were available 34 s after the start of the ranks, less than 2 GiB "
        "(vllm_serve_memory_floor)"
    )
    later = guard.entry(Start(100, frozenset({7}), 120), GIB, 2 * GIB, 130, 0)
    assert " 30 s after the start of the ranks, in the first requests, less than 2 GiB " in guard.reason(later)
    assert [guard.lowest(starts) for starts in ([found], [])] == [", lowest 1.0", ""]
    served = guard.acted(
        guard.entry(None, GIB, 2 * GIB, 500, 1_800_000_000, guard.RESTARTED),
        guard.FLOOR,
        guard.Process("convert", 70 * GIB),
    )
    assert (served["time"], served["other"]) == (1_800_000_000, {"name": "convert", "size": 70 * GIB})
    assert guard.reason(served) == (
        "only 1.0 GiB of memory were available while the model served, less than 2 GiB (vllm_serve_memory_floor); the "
        "largest other process is convert with 70.0 GiB"
    )
    refused = guard.acted({**found, "minimum": 7 * GIB}, guard.DRIVER, guard.Process("sshd", 9 << 20))
    assert guard.reason(refused) == (
        "the GPU's driver refused memory (NV_ERR_NO_MEMORY) when 7.0 GiB of memory were available 34 s after the start "
        "of the ranks, less than 5 x 2 GiB (vllm_serve_memory_floor)"
    )
    assert guard.kept(list(map(str, range(10))), "10") == list(map(str, range(1, 11)))  # type: ignore[arg-type,list-item]


def test_the_memory_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text(
        "MemTotal:       24117248 kB\nMemFree:        100 kB\nMemAvailable:   22315688 kB\nBuffers:         1 kB\n",
        encoding="ascii",
    )
    meminfo = io_guard.Meminfo(str(file))
    assert meminfo.available() == 22315688 << 10
    file.write_text("MemTotal:       24117248 kB\nMemAvailable:   9 kB\nBuffers: 1 kB\n", encoding="ascii")
    assert meminfo.available() == 9 << 10
    assert io_guard.Meminfo().available() > 0


def test_ranks_are_those_of_the_services(tmp_path: Path) -> None:
    for pid, name, unit in (
        (7, "VLLM::Worker_TP", "system.slice/gb10-vllm.service"),
        (8, "ray::RayWorkerP", "gb10.slice/gb10-ray.slice/docker-1.scope"),
        (9, "VLLM::EngineCor", "user.slice/user-1000.slice/session-1.scope"),
        (10, "python3", "system.slice/gb10-vllm.service"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n", encoding="ascii")
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/{unit}\n", encoding="ascii")
    (tmp_path / "11").mkdir()
    assert io_guard.ranks(str(tmp_path)) == {7, 8}


def test_a_port_that_is_only_bound_does_not_listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert not io_guard.listens(server.getsockname())
        server.listen()
        assert io_guard.listens(server.getsockname())


def test_a_worker_learns_from_its_watchdog_that_the_api_answers(tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    assert not io_guard.listens(None, str(status))
    for text, expected in (('{"serves": true}', True), ('{"serves": 1}', False), ("{}", False), ("damaged", False)):
        status.write_text(text, encoding="utf-8")
        assert io_guard.listens(None, str(status)) is expected, text
    status.write_text('{"serves": true}', encoding="utf-8")
    os.utime(status, (0, 0))
    assert not io_guard.listens(None, str(status)), "its watchdog ended"


class Fake(io_guard.Guard):
    """A guard whose node has ``left`` bytes, and whose driver logged ``lines`` since the last sample."""

    def __init__(self, floor: int, address: tuple[str, int] | None = None, mode: str = guard.RESTART) -> None:
        super().__init__(floor, LIMIT, mode, WINDOW, address)
        self.left, self.lines = 10 * GIB, b""
        self.meminfo.available = lambda: self.left  # type: ignore[method-assign]
        self.kmsg.refused = self._refused  # type: ignore[method-assign]

    def _refused(self) -> bool:
        found, self.lines = guard.refused(self.lines), b""
        return found

    def begin(self, node: dict[str, Any], *ranks: int) -> None:
        """Let ranks start."""
        self.look()
        node["ranks"] = frozenset(ranks)
        self.look()

    def pressed(self, *left: int) -> None:
        """Take samples with so many bytes left."""
        for self.left in left:
            self.sample()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A node in a folder: its ranks, and the calls of the guard."""
    state: dict[str, Any] = {"ranks": frozenset(), "calls": []}
    for name in ("STARTS", "STOP", "PRESENT"):
        monkeypatch.setattr(paths, f"MEMORY_GUARD_{name}", str(tmp_path / name))
    read = io_guard.starts
    monkeypatch.setattr(io_guard, "starts", lambda: read(str(tmp_path / "STARTS")))
    monkeypatch.setattr(io_guard, "ranks", lambda: state["ranks"])
    monkeypatch.setattr(io_guard, "largest", lambda: guard.Process("convert", 9 * GIB))
    monkeypatch.setattr(io_guard, "kill", lambda: state["calls"].append("kill"))
    monkeypatch.setattr(io_guard, "stop", lambda: state["calls"].append(f"stop, record {(tmp_path / 'STOP').exists()}"))
    monkeypatch.setattr(io_guard.time, "monotonic", lambda: state["now"])
    state["now"] = 100.0
    yield state


def recorded(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_below_the_floor_it_kills_records_and_stops(node: dict[str, Any], tmp_path: Path) -> None:
    found = Fake(2 * GIB)
    found.left = GIB
    found.look()
    found.sample()
    assert node["calls"] == [], "without a start, the memory is not the guard's"
    found.left, node["ranks"] = 10 * GIB, frozenset({7})
    found.look()
    assert recorded(tmp_path, "PRESENT")["minimum"] == 10 * GIB
    found.pressed(4 * GIB, 2 * GIB, 3 * GIB)
    assert node["calls"] == []
    found.left, node["now"] = GIB, 134.0
    found.sample()
    assert node["calls"] == ["kill", "stop, record True"]
    assert (recorded(tmp_path, "STOP")["minimum"], recorded(tmp_path, "STOP")["seconds"]) == (GIB, 34)
    assert [each["end"] for each in recorded(tmp_path, "STARTS")] == ["stopped"]
    assert not (tmp_path / "PRESENT").exists()
    found.look()
    found.sample()
    assert node["calls"] == ["kill", "stop, record True"], "a killed rank may stay for a while"


def test_a_floor_of_zero_only_records(node: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "STARTS").write_text("damaged", encoding="utf-8")
    found = Fake(0)
    found.begin(node, 7)
    found.pressed(0)
    found.left, node["ranks"], node["now"] = 9 * GIB, frozenset(), 150.0
    found.look()
    assert node["calls"] == []
    assert [(each["minimum"], each["end"]) for each in recorded(tmp_path, "STARTS")] == [(0, "ended")]


#: Samples of ranks that serve as (available GiB, whether the driver refused memory), and the causes of actions.
PRESSURES: dict[str, tuple[list[tuple[float, bool]], list[str]]] = {
    "a dip of one sample": ([(3, False), (1, False), (3, False), (1, False), (2, False)], []),
    "two samples": ([(1, False), (1, False)], ["", guard.FLOOR]),
    "no second action": ([(1, False)] * 6, ["", guard.FLOOR]),
    "a refusal with much memory": ([(10, True), (22, True), (15, True)], []),
    "a refusal with little memory": ([(9.9, False), (9.9, True), (9.9, True)], ["", guard.DRIVER]),
}


@pytest.mark.parametrize(("samples", "expected"), PRESSURES.values(), ids=PRESSURES)
def test_only_lasting_pressure_acts(samples: list[tuple[float, bool]], expected: list[str]) -> None:
    pressure, causes = guard.Pressure(), []
    for now, (left, refusal) in enumerate(samples):
        pressure, cause = guard.sampled(pressure, round(left * GIB), 2 * GIB, False, refusal, now)
        causes.append(cause)
    assert causes == [*expected, *[""] * (len(samples) - len(expected))]
    assert guard.sampled(pressure, GIB, 2 * GIB, True, False, 10_000)[1] == guard.FLOOR, "a start has no second sample"
    assert guard.sampled(guard.Pressure(9), 0, 0, True, True, 0)[1] == "", "a floor of 0 never acts"


#: The lines of NVIDIA/open-gpu-kernel-modules#1358 and #848.
RETRIED = b"NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
GIVEN_UP = b"3,812,90061,-;" + RETRIED + b"rmStatus @ system_mem.c:356"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (GIVEN_UP, True),
        (b"4,9,8,-;NVRM: GPU0 " + RETRIED[6:] + b"rmStatus @ system_mem.c:353", True),
        (b"4,9,8,-;NVRM: sysmemConstruct_IMPL: *** Cannot allocate sysmem through fb heap", True),
        (b"3,812,90061,-;" + RETRIED + b"_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359", False),
        (b"12,9,8,-;" + GIVEN_UP.partition(b";")[2], False),
        (b"3,9,8,-;Xid: " + RETRIED[6:] + b"rmStatus @ system_mem.c:356", False),
        (b"3,9,8,-;NVRM: Xid (PCI:000f:01:00): 13, Graphics Exception", False),
        (b" SUBSYSTEM=pci", False),
        (b"", False),
    ],
    ids=["given up", "with the GPU", "an older driver", "retried", "a process's", "not NVRM", "Xid", "a field", "none"],
)
def test_only_the_driver_refuses_for_good(record: bytes, expected: bool) -> None:
    assert guard.refused(record) is expected


def test_kmsg_is_read_from_its_end_and_each_record_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(GIVEN_UP + b"\n")
    kmsg = io_guard.Kmsg(str(file))
    assert not kmsg.refused()
    with file.open("ab") as log:
        log.write(b"6,1,2,-;usb 1-1: new device\n" + GIVEN_UP + b"\n")
    assert [kmsg.refused(), kmsg.refused()] == [True, False]


def test_lost_records_and_no_record_are_no_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    kmsg = io_guard.Kmsg(str(tmp_path / "kmsg"))
    results: list[Any] = [BrokenPipeError(), b"6,1,2,-;usb\n", GIVEN_UP, BlockingIOError(), GIVEN_UP]

    def kernel(*_arguments: int) -> bytes:
        if isinstance(result := results.pop(0), OSError):
            raise result
        return bytes(result)

    monkeypatch.setattr(io_guard.os, "read", kernel)
    assert kmsg.refused()
    assert results == [GIVEN_UP]


def test_the_reads_of_one_sample_are_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    kmsg, reads = io_guard.Kmsg(str(tmp_path / "kmsg")), []
    monkeypatch.setattr(io_guard.os, "read", lambda *_arguments: reads.append(0) or b"6,1,2,-;usb\n")
    assert not kmsg.refused()
    assert len(reads) == 1000


def test_without_kmsg_the_guard_runs_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not io_guard.Kmsg(str(tmp_path / "kmsg")).refused()
    assert "kmsg cannot be read, so the guard does not see errors of the GPU's driver: " in capsys.readouterr().out


def test_the_largest_other_process_has_no_secret_and_is_outside_of_the_services(tmp_path: Path) -> None:
    for pid, name, size, unit in (
        (7, "VLLM::Worker_TP", 90, "system.slice/gb10-vllm.service"),
        (8, "python3", 80, "gb10.slice/gb10-ray.slice/docker-1.scope"),
        (9, "con\x1bvert", 3, "user.slice/user-1000.slice/session-1.scope"),
        (10, "sshd", 1, "system.slice/ssh.service"),
    ):
        (tmp_path / str(pid)).mkdir()
        status = f"Name:\t{name}\nRssAnon:\t{size << 19} kB\nRssFile:\t{90 << 20} kB\nRssShmem:\t{size << 19} kB\n"
        (tmp_path / str(pid) / "status").write_text(status, encoding="ascii")
        (tmp_path / str(pid) / "cmdline").write_text("--token=planted", encoding="ascii")
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/{unit}\n", encoding="ascii")
    # A thread of the kernel has no memory, and a process may end between two reads.
    for pid in ("2", "11"):
        (tmp_path / pid).mkdir()
    # So has one that has ended and that nobody waited for, whatever it calls itself.
    (tmp_path / "2/status").write_bytes(b"Name:\tx\rRssAnon: all\x0bRssShmem: 9999999 kB\n")
    assert io_guard.largest(str(tmp_path)) == guard.Process("convert", 3 * GIB)
    assert io_guard.largest(str(tmp_path / "2")) is None


def serve(found: Fake, node: dict[str, Any], ranks: set[int]) -> None:
    """Let ranks serve after their start."""
    node["ranks"] = frozenset()
    found.begin(node, *ranks)
    node["now"] += LIMIT
    found.look()


def test_ranks_that_serve_are_restarted_once_and_then_stopped(node: dict[str, Any], tmp_path: Path) -> None:
    found = Fake(2 * GIB)
    serve(found, node, {7})
    found.pressed(GIB)
    assert node["calls"] == []
    found.sample()
    assert node["calls"] == ["kill"], "systemd starts the unit again"
    assert not (tmp_path / "STOP").exists()
    found.pressed(GIB, GIB)
    assert node["calls"] == ["kill"], "killed ranks may stay for a while"
    found.left = 10 * GIB
    serve(found, node, {8})
    node["calls"] = []
    found.pressed(GIB, GIB)
    assert node["calls"] == ["kill", "stop, record True"]
    assert recorded(tmp_path, "STOP")["other"] == {"name": "convert", "size": 9 * GIB}
    ends = [each["end"] for each in recorded(tmp_path, "STARTS")]
    assert ends == ["over", "restarted", "over", "stopped"]


def test_a_new_start_is_guarded_at_once_after_a_restart(node: dict[str, Any]) -> None:
    found = Fake(2 * GIB)
    serve(found, node, {7})
    found.pressed(GIB, GIB)
    node["ranks"] = frozenset()
    found.look()
    node["ranks"], node["calls"] = frozenset({8}), []
    found.look()
    found.sample()
    assert node["calls"] == ["kill", "stop, record True"]


@pytest.mark.parametrize("starting", [True, False], ids=["a start", "serving"])
def test_a_refusal_of_the_driver_acts_while_little_memory_is_left(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str], starting: bool
) -> None:
    found = Fake(2 * GIB, mode=guard.STOP)
    if starting:
        found.begin(node, 7)
    else:
        serve(found, node, {7})
    found.lines = GIVEN_UP
    found.pressed(22 * GIB)
    assert node["calls"] == []
    assert "driver refused memory (NV_ERR_NO_MEMORY) with 22.0 GiB available" in capsys.readouterr().out
    found.pressed(7 * GIB)
    assert node["calls"] == [], "the record of before counts no more"
    found.lines = GIVEN_UP
    found.sample()
    assert node["calls"] == ["kill", "stop, record True"]


def test_a_refusal_before_the_start_does_not_count(node: dict[str, Any]) -> None:
    found = Fake(2 * GIB)
    found.look()
    node["ranks"], found.left, found.lines = frozenset({7}), 7 * GIB, GIVEN_UP
    found.look()
    found.sample()
    assert node["calls"] == []


def test_the_mode_report_only_records(node: dict[str, Any], tmp_path: Path) -> None:
    found = Fake(2 * GIB, mode=guard.REPORT)
    found.look()
    node["ranks"], found.left = frozenset({7}), GIB
    found.look()
    found.pressed(*[GIB] * 9)
    assert (tmp_path / "PRESENT").exists(), "the start goes on"
    node["now"] += LIMIT
    found.look()
    found.pressed(*[GIB] * 9)
    assert node["calls"] == []
    assert [each["end"] for each in recorded(tmp_path, "STARTS")] == ["reported", "over", "reported"]


def record(end: str, time: float = 0) -> dict[str, Any]:
    return {**guard.entry(None, GIB, 2 * GIB, 0, time, end), "time": time}


@pytest.mark.parametrize(
    ("mode", "starting", "records", "expected"),
    [
        (guard.RESTART, False, [], guard.RESTARTED),
        (guard.RESTART, True, [], guard.STOPPED),
        (guard.RESTART, False, [record("restarted", 5)], guard.STOPPED),
        (guard.RESTART, False, [record("restarted", 1000 - WINDOW)], guard.RESTARTED),
        (guard.RESTART, False, [record("restarted", 5), record("stopped", 6)], guard.RESTARTED),
        (guard.RESTART, False, [record("restarted", 5), record("reported", 6), record("over", 7)], guard.STOPPED),
        (guard.RESTART, False, [{"damaged": True}], guard.RESTARTED),
        (guard.STOP, False, [], guard.STOPPED),
        (guard.REPORT, True, [], guard.REPORTED),
    ],
)
def test_a_restart_is_followed_by_a_stop(
    mode: str, starting: bool, records: list[dict[str, Any]], expected: str
) -> None:
    assert guard.action(mode, starting, records, 1000, WINDOW) == expected


def test_the_status_shows_a_restart_and_a_report_for_a_day() -> None:
    said = guard.shown([record("restarted", 1000), record("over", 5000)], 8200)
    assert said.startswith(
        "had its ranks ended once by the memory guard 2 h ago: only 1.0 GiB of memory were available "
    )
    assert guard.shown([record("reported", 1000)], 1030).startswith("has a report of the memory guard 30 s ago: only ")
    assert "report of the memory guard 1 h ago" in guard.shown([record("restarted", 1), record("reported", 4600)], 8200)
    assert guard.shown([record("reported", 1000)], 87400) == ""
    assert guard.shown([record("stopped", 1000)], 1001) == ""


@pytest.mark.parametrize("unit", ["gb10-ray", "gb10-vllm"])
def test_the_record_of_a_stop_keeps_the_units_stopped(unit: str) -> None:
    assert f"\nConditionPathExists=!{paths.MEMORY_GUARD_STOP}\n" in planned(fact({}), unit)["unit"]["text"]


def test_every_cgroup_of_a_service_is_killed(tmp_path: Path) -> None:
    names = [
        *("system.slice/gb10-ray.service", "gb10.slice/gb10-vllm.slice"),
        *("system.slice/ssh.service", "gb10.slice/gb10-vllm.service"),
    ]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    io_guard.kill(str(tmp_path))
    killed = {
        str(path.relative_to(tmp_path)): path.read_text(encoding="ascii") for path in tmp_path.rglob("cgroup.kill")
    }
    assert killed == {f"{name}/cgroup.kill": "1" for name in names[:2]}


def test_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    names = ("floor", "limit", "mode", "window", "address")
    monkeypatch.setattr(
        io_guard.Guard, "run", lambda found: calls.append(tuple(getattr(found, name) for name in names))
    )
    monkeypatch.setattr(io_guard, "lock", lambda: calls.append("locked"))
    argv = ["--floor=1.5", "--limit=60", "--mode=stop", "--window=90"]
    for more in ([], ["--api", "10.0.0.1", "8000"]):
        monkeypatch.setattr("sys.argv", ["guard", *argv, *more])
        io_guard.main()
    given = (GIB * 3 // 2, 60.0, "stop", 90.0)
    assert calls == ["locked", (*given, None), "locked", (*given, ("10.0.0.1", 8000))]
    for left_out in argv:
        monkeypatch.setattr("sys.argv", ["guard", *(word for word in argv if word != left_out)])
        with pytest.raises(SystemExit):
            io_guard.main()


def test_a_start_is_sampled_four_times_a_second_ranks_that_serve_once_and_none_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    class Ended(Exception):
        pass

    class Loop(io_guard.Guard):
        def look(self) -> None:
            calls.append("look")
            if calls.count("look") == 5:
                raise Ended
            start = State(start=Start(0, frozenset()))
            self.state = (State(known=frozenset()), start, start, State(known=frozenset({7})))[calls.count("look") - 1]

        def sample(self) -> None:
            calls.append("sample")
            if calls.count("sample") == 11:
                self.state = State()

    monkeypatch.setattr(io_guard.time, "sleep", calls.append)
    with pytest.raises(Ended):
        Loop(0, 60, guard.RESTART, WINDOW, None).run()
    start = ["look", *[0.25, "sample"] * 8]
    assert calls == ["look", 2.0, *start, "look", *[0.25, "sample"] * 3, 2.0, "look", *[1.0, "sample"] * 2, "look"]


def test_existing_services_are_stopped_the_server_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []

    def stop(argv: list[str], timeout: float, check: bool) -> None:
        calls.append((argv, timeout, check))
        if argv[-1] == "gb10-vllm.service":
            raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(io_guard.subprocess, "run", stop)
    monkeypatch.setattr(paths, "UNIT_FOLDER", str(tmp_path))
    io_guard.stop()
    assert calls == []
    for unit in paths.UNITS:
        (tmp_path / unit).touch()
    io_guard.stop()
    assert calls == [(["systemctl", "stop", unit], 120, True) for unit in ("gb10-vllm.service", "gb10-ray.service")]
    assert "gb10-vllm.service was not stopped: " in capsys.readouterr().out


def test_the_api_is_asked_only_during_a_start(
    node: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(io_guard, "listens", lambda address: asked.append(address) or True)
    found = Fake(2 * GIB, ("10.0.0.1", 8000))
    found.begin(node, 7)
    assert asked == []
    found.look()
    assert asked == [("10.0.0.1", 8000)]
    node["now"] = 161.0
    found.look()
    assert [each["end"] for each in recorded(tmp_path, "STARTS")] == [guard.ANSWERED]


def test_the_present_start_is_written_when_its_minimum_changes(
    node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(io_guard, "_write", lambda _path, content: written.append(content["minimum"]))
    found = Fake(0)
    found.look()
    node["ranks"] = frozenset({7})
    for left in (10, 10, 12, 9, 9):
        found.pressed(left * GIB)
        found.look()
    assert written == [10 * GIB, 9 * GIB]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, []),
        ("[]", []),
        ("{}", []),
        ("{", []),
        ('[{"end": "ended"}]', [{"end": "ended"}]),
        ('[{"end": "ended"}, 7]', [{"end": "ended"}]),
        ("[" + " " * 65536 + "]", []),
    ],
)
def test_a_record_that_cannot_be_used_is_none(tmp_path: Path, text: str | None, expected: Any) -> None:
    if text is not None:
        (tmp_path / "starts").write_text(text, encoding="utf-8")
    assert io_guard.starts(str(tmp_path / "starts")) == expected


def test_a_record_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    io_guard._write(str(tmp_path / "no/folder"), {})
    assert "no/folder was not written: " in capsys.readouterr().out

"""The screen of a running cluster: the answer of a node, its state, and the lines at several sizes."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_module import program

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, paths
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema, screen
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu
from ansible_collections.gb10.cluster.plugins.plugin_utils import templates

GIB = 1 << 30
ENGINE = Engine(running=3, waiting=0, generated=1000, read=5000, kv_cache=0.43, cache_hits=62, cache_queries=100)
GPU = Gpu("0", "580.95", 74, 71.2, 2411, 96, 0)
RAILS = tuple(
    SampledRail(name, True, 200_000, 9000, 0, 0, 0, 0, "up", "ACTIVE") for name in ("enp1s0f0np0", "enp1s0f1np1")
)
SAMPLE = Sample(100.0, "spark1", 12 * GIB, 120 * GIB, 0, 0.0, 3.0, (GPU,), RAILS, ENGINE)
UNITS = (*paths.UNITS, paths.WATCHDOG_UNIT, paths.MEMORY_GUARD_UNIT, paths.RECORDER_UNIT)
ACTIVE = dict.fromkeys(UNITS, "active")
ARMED = {"mode": "auto", "head": True, "armed": True, "stalled": 0, "witnesses": []}
STARTS = [{"time": 1.0, "minimum": 9 * GIB}]
STOP = {"time": 7, "seconds": 3, "minimum": 3 * GIB, "floor": 4 * GIB, "phase": "start", "end": ""}


def answer(
    sample: Sample | None = SAMPLE,
    age: float = 1.0,
    services: dict[str, str] = ACTIVE,
    watchdog: Any = ARMED,
    starts: Any = STARTS,
    stop: Any = None,
) -> str:
    """Return a node's answer to the query."""
    text = schema.dump(sample).decode() if sample else ""
    files = [json.dumps(each) if each is not None else "" for each in (watchdog, None, starts, stop)]
    blocks = [f"Id={unit}\nLoadState=loaded\nActiveState={state}" for unit, state in services.items()]
    absent = [f"Id={unit}\nLoadState=not-found\nActiveState=inactive" for unit in UNITS if unit not in services]
    return "\x1e".join([text, *files, str((sample.time if sample else 0) + age), "\n\n".join(blocks + absent)])


def later(sample: Sample, seconds: float = 5.0, **counts: float) -> Sample:
    """Return the sample after some seconds, in which the counters of the engine grew."""
    engine = sample.engine and replace(
        sample.engine, **{name: getattr(sample.engine, name) + count for name, count in counts.items()}
    )
    return replace(sample, time=sample.time + seconds, engine=engine)


def watched(*samples: Sample, **changes: Any) -> screen.Watched:
    """Return a node after these samples, one in five seconds."""
    node = screen.Watched()
    for number, sample in enumerate(samples):
        node.hear(answer(sample, **changes), "", 1000.0 + 5 * number)
    assert node.error == ""
    return node


NOW = 1006.0


def frame(
    nodes: dict[str, screen.Watched], width: int = 80, height: int = 23, now: float = NOW
) -> list[tuple[str, str]]:
    """Return the lines with their styles. The first node is the head."""
    given = {"nodes": nodes, "heads": list(nodes)[:1], "floors": dict.fromkeys(nodes, 2.0), "title": "tiny-model"}
    template = templates.environment("gb10", foreign.line, markup=False).get_template("watch.j2")
    text = template.render(given, clock="22:16:08", interval=5, width=width, now=now)
    lines = screen.fitted(text, width, height)
    assert len(lines) <= height and max(len(line) for _style, line in lines) <= width, lines
    return lines


def drawn(*nodes: screen.Watched, **size: Any) -> list[str]:
    """Return the lines of some nodes."""
    named = {f"spark{number}": node for number, node in enumerate(nodes, 1)}
    return [line.rstrip() for _style, line in frame(named, **size)]


def decoding() -> screen.Watched:
    return watched(SAMPLE, later(SAMPLE, generated=170, read=600))


def test_a_cluster_that_decodes_at_80_columns() -> None:
    worker = watched(replace(SAMPLE, engine=None), watchdog={"witnesses": [], "serves": True})
    assert drawn(decoding(), worker) == [
        "tiny-model   22:16:08   every 5 s   floor 2 GiB   q ends",
        "DECODING   34.0 tokens/s   prompts 120 tokens/s   3 running   0 waiting",
        "KV cache 43%   prefix hits 62%   draft accepted -",
        "node       GiB free   low GPU%    W  MHz  °C slowed by   rails    watchdog  age",
        "spark1         12.0   9.0   96   71 2411  74 -           2/2 200G armed      2s",
        "spark2         12.0   9.0   96   71 2411  74 -           2/2 200G on         7s",
    ]


def test_a_wide_terminal_shows_waits_load_and_traffic() -> None:
    rails = (replace(RAILS[0], rx=10**9, rdma_tx=4 * 10**9), RAILS[1])
    node = watched(SAMPLE, replace(later(SAMPLE), pressure=12.4, rails=rails))
    assert drawn(node, width=100)[3].endswith("  age wait%  load  Gb/s")
    assert drawn(node, width=100)[4].endswith("   2s    12   3.0   8.0")


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize(("width", "height"), [(80, 23), (100, 23), (140, 39)])
def test_each_node_has_a_line_and_the_problems_that_fit(count: int, width: int, height: int) -> None:
    broken = replace(SAMPLE, rails=tuple(replace(rail, carrier=False) for rail in RAILS))
    lines = drawn(*[watched(broken) for _number in range(count)], width=width, height=height)
    rows = [line.split()[0] for line in lines if " 0/2 DOWN" in line]
    assert rows == [f"spark{number}" for number in range(1, count + 1)]
    told = [line for line in lines if ": rail enp1s0f" in line]
    rest = [int(line.split()[1]) for line in lines if line.startswith("and ")]
    assert len(told) + sum(rest) == 2 * count and told


def test_a_long_name_and_a_narrow_terminal() -> None:
    lines = frame({"spark-in-the-basement-1": decoding()})
    assert lines[-1][1].startswith("spark-in-t     12.0 ")
    assert drawn(decoding(), width=40, height=9)


def test_missing_values_are_dashes() -> None:
    empty = Sample(
        100.0, "spark1", gpus=(Gpu("0", "", None, None, None, None, None),), rails=(SampledRail("enp1s0f0np0"),)
    )
    nothing: dict[str, Any] = {"watchdog": {}, "starts": [], "services": {}}
    lines = drawn(watched(empty, **nothing), watched(replace(empty, gpus=()), **nothing), screen.Watched())
    assert lines[3].split() == ["spark1", "-", "-", "-", "-", "-", "-", "-", "-", "-", "7s"]
    assert lines[4].split() == ["spark2", *lines[3].split()[1:]] and lines[5].split() == ["spark3", *"-" * 10]
    assert frame({"spark1": screen.Watched()})[1] == ("-", "UNKNOWN: spark1 has no new sample")


#: Counters that grew, running requests, and the engine's state after a minute of the same.
STATES: dict[str, tuple[dict[str, float], float, tuple[str, str]]] = {
    "decoding": ({"generated": 5}, 1, ("+", "DECODING")),
    "prompts": ({"read": 5}, 1, ("+", "READING PROMPTS")),
    "idle": ({}, 0, ("-", "IDLE")),
    "a stall": ({}, 2, ("!", "NO TOKEN for 60 s")),
    "a new start": ({"generated": -1}, 2, ("-", "MEASURING")),
}


@pytest.mark.parametrize(("counts", "running", "state"), STATES.values(), ids=STATES)
def test_the_state_of_the_engine(counts: dict[str, float], running: float, state: tuple[str, str]) -> None:
    samples = [replace(SAMPLE, engine=replace(ENGINE, running=running))]
    for _number in range(12):
        samples.append(later(samples[-1], **counts))
    style, line = frame({"spark1": watched(*samples)}, now=1060)[1]
    assert (style, line.split("   ")[0]) == state


@pytest.mark.parametrize(("state", "style"), [("activating", "?"), ("failed", "!")])
def test_no_server(state: str, style: str) -> None:
    node = watched(replace(SAMPLE, engine=None), services={**ACTIVE, paths.VLLM_UNIT: state})
    assert frame({"spark1": node})[1] == (style, f"THE API DOES NOT ANSWER: gb10-vllm is {state}")


def test_the_same_sample_again_keeps_the_speed() -> None:
    node = decoding()
    node.hear(answer(later(SAMPLE, generated=170, read=600), age=4.0), "", 1008.0)
    assert "DECODING   34.0 tokens/s   prompts 120 tokens/s" in drawn(node)[1]


def test_a_node_that_does_not_answer_keeps_its_values() -> None:
    node = decoding()
    node.hear("", "Connection timed out\x1b[2J", 1010.0)
    lines = frame({"spark1": node}, now=1064.0)
    assert lines[1] == ("!", "UNKNOWN: spark1 has no new sample")
    assert lines[3][0] == "!" and lines[3][1].split()[1] == "12.0" and lines[3][1].endswith("  60s")
    assert lines[-1] == ("!", "spark1: does not answer: Connection timed out [2J")
    node.hear(answer(), "", 1070.0)
    assert frame({"spark1": node}, now=1071.0)[-1][0] == "."
    assert frame({"spark1": node}, now=1091.0)[-2][0] == "-", "old values are gray"


#: A change of the sample or the answer, and the problem that it shows with its style.
PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "memory": ({"memory_available": GIB}, {}, "only 1.0 GiB are free, less than the floor of 2", "!"),
    "a rail": ({"rails": (replace(RAILS[0], rdma="DOWN"), RAILS[1])}, {}, "rail enp1s0f0np0: RDMA DOWN", "!"),
    "heat": ({"gpus": (replace(GPU, reasons=0x20),)}, {}, "the GPU is slowed by heat: 2411 MHz, 71 W, 74 °C", "?"),
    "the clock": (
        {"gpus": (replace(GPU, reasons=0x84, clock=612),)},
        {},
        "the GPU is stuck by power brake, power cap: 612 MHz, 71 W, 74 °C (gpu-clock-stuck)",
        "!",
    ),
    "a witness": ({}, {"watchdog": {**ARMED, "witnesses": ["spark2: x\x1b[2J"]}}, "watchdog: spark2: x [2J", "!"),
    "an alarm": ({}, {"watchdog": {**ARMED, "last_alarm": "noon: why"}}, "watchdog: last alarm noon: why", "?"),
    "a stop": (
        {},
        {"stop": STOP},
        "the memory guard stopped the services: only 3.0 GiB of memory were available 3 s after the start of the ranks, "
        "less than 4 GiB (vllm_serve_memory_floor)",
        "!",
    ),
    "no guard": (
        {},
        {"services": {**ACTIVE, paths.MEMORY_GUARD_UNIT: "inactive"}},
        "gb10-memory-guard.service is inactive",
        "!",
    ),
    "nothing installed": (
        {},
        {"age": 60.0, "services": {}},
        "no new sample: gb10-flight-recorder.service is not installed",
        "!",
    ),
    "no recorder": (
        {},
        {"age": 60.0, "services": {**ACTIVE, paths.RECORDER_UNIT: "inactive"}},
        "no new sample: gb10-flight-recorder.service is inactive",
        "!",
    ),
}


@pytest.mark.parametrize(("sample", "given", "text", "style"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_named_with_its_node(sample: dict[str, Any], given: dict[str, Any], text: str, style: str) -> None:
    lines = frame({"spark1": watched(replace(SAMPLE, **sample), **given)}, width=200)
    assert lines[-1] == (style, f"spark1: {text}") and lines[-2][1].startswith("spark1 ")


def test_the_worst_problems_come_first_and_a_long_one_has_several_lines() -> None:
    alarm = {**ARMED, "last_alarm": "a reason " * 40, "witnesses": ["w"]}
    lines = frame({"spark1": watched(SAMPLE, watchdog=alarm)})
    assert [style for style, _line in lines[4:]] == ["!", *"!???"]
    assert lines[6][1].startswith("spark1: watchdog: last alarm a reason") and lines[-1][1].endswith(" ...")


#: The state of the watchdog's unit, its status, and the cell of the table.
WATCHDOGS = [
    ("active", ARMED, "armed"),
    ("active", {**ARMED, "armed": False}, "unarmed"),
    ("active", {**ARMED, "stalled": 12}, "stall12s"),
    ("active", {"witnesses": ["x"]}, "WITNESS"),
    ("active", {"witnesses": 7, "stalled": "x", "head": "yes", "last_alarm": ["x"]}, "WITNESS"),
    ("active", {"witnesses": {"x": 1}, "stalled": True}, "WITNESS"),
    ("active", {"stalled": "x", "head": "yes"}, "on"),
    ("failed", ARMED, "DOWN"),
    (None, {}, "-"),
]


@pytest.mark.parametrize(("state", "status", "cell"), WATCHDOGS)
def test_the_state_of_the_watchdog(state: str | None, status: dict[str, Any], cell: str) -> None:
    services = {unit: found for unit, found in {**ACTIVE, paths.WATCHDOG_UNIT: state}.items() if found}
    assert drawn(watched(SAMPLE, services=services, watchdog=status))[3 + 1].split()[-2] == cell


def test_the_reasons_of_a_clock() -> None:
    slow = watched(replace(SAMPLE, gpus=(replace(GPU, reasons=0x24), replace(GPU, reasons=0x4))))
    assert drawn(slow)[4].split()[7:9] == ["power", "cap+h"]
    idle = watched(replace(SAMPLE, gpus=(replace(GPU, reasons=1, clock=208, utilization=0),)))
    assert drawn(idle)[4].split()[7] == "idle" and len(drawn(idle)) == 5


def test_the_lowest_memory_is_that_since_the_last_start() -> None:
    dip = replace(later(SAMPLE), memory_available=5 * GIB)
    node = watched(SAMPLE, dip, later(dip))
    assert node.lowest == 5 * GIB
    node.hear(answer(starts=[{"time": 2.0, "minimum": 9 * GIB}]), "", 1020.0)
    assert node.lowest == 9 * GIB


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "x\x1e" * 6,
        answer(watchdog=[1]),
        answer(starts=["x"]),
        answer(starts=[{"time": 10**400}]),
        answer(stop={"phase": 7}),
        answer().replace("101.0", "noon"),
        answer().replace('"running":3', '"running":"x"'),
        "[" + answer(),
    ],
)
def test_any_other_answer_is_an_error(damaged: str) -> None:
    node = screen.Watched()
    node.hear(damaged, "", 1.0)
    assert node.error.startswith("its answer cannot be read: ")
    assert drawn(node)


def test_an_answer_of_a_terminal_is_read_too() -> None:
    node = screen.Watched()
    node.hear(answer(services={"gb10-vllm.service": "active"}).replace("\n", "\r\n"), "", 1.0)
    assert (node.sample, node.sampled, node.services) == (SAMPLE, 0.0, {"gb10-vllm.service": "active"})


def test_no_text_of_a_node_reaches_the_screen_as_it_is() -> None:
    evil = "\x1b[2J\x07\u202e\x9b2J"
    status = {**ARMED, "witnesses": [evil], "last_alarm": evil, "mode": evil}
    node = watched(SAMPLE, watchdog=status, services={**ACTIVE, evil: "failed", paths.MEMORY_GUARD_UNIT: evil})
    broken = screen.Watched(error=evil)
    text = "".join(line for _style, line in frame({"spark1": node, "spark2": broken}, width=200, height=60))
    assert "[2J" in text and text.isprintable(), ascii(text)


def test_the_command_runs_without_files_and_on_a_terminal(tmp_path: Path) -> None:
    shown = "Id=gb10-vllm.service\nLoadState=loaded\nActiveState=active"
    program(tmp_path, "systemctl", f"printf '{shown}'; [ ! -t 1 ] || printf '\033[m'")
    command = screen.COMMAND.replace("/run/", f"{tmp_path}/").replace("/var/lib/", f"{tmp_path}/")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for argv in (["sh", "-c", command], ["script", "--quiet", "--return", "--command", command, "/dev/null"]):
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        node = screen.Watched()
        node.hear(done.stdout, "", 1.0)
        assert (node.error, node.sample, node.services) == ("", None, {"gb10-vllm.service": "active"})


def test_numbers_of_any_size_are_drawn() -> None:
    huge = replace(ENGINE, generated=1.7e308, kv_cache=-1e308)
    rails = (replace(RAILS[0], rx=10**39),)
    samples = [replace(SAMPLE, time=1e-300), replace(SAMPLE, time=2e-300, engine=huge, rails=rails)]
    text = "\n".join(drawn(watched(*samples), width=120))
    assert "DECODING   - tokens/s" in text and "KV cache -   prefix" in text

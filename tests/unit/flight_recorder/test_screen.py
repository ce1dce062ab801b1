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

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema, screen
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.screen import (
    BAD,
    GOOD,
    WARN,
    Reading,
    Watched,
)
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu

GIB = 1 << 30
ENGINE = Engine(running=3, waiting=0, generated=1000, read=5000, kv_cache=0.43, cache_hits=62, cache_queries=100)
GPU = Gpu("0", "580.95", 74, 71.2, 2411, 96, 0)
RAILS = tuple(
    SampledRail(name, True, 200_000, 9000, 0, 0, 0, 0, "up", "ACTIVE") for name in ("enp1s0f0np0", "enp1s0f1np1")
)
SAMPLE = Sample(100.0, "spark1", 12 * GIB, 120 * GIB, 0, 0.0, 3.0, (GPU,), RAILS, ENGINE)
UNITS = (*paths.UNITS, paths.WATCHDOG_UNIT, paths.MEMORY_GUARD_UNIT, "gb10-flight-recorder.service")
ACTIVE = dict.fromkeys(UNITS, "active")
ARMED = {"mode": "auto", "head": True, "armed": True, "stalled": 0, "witnesses": []}
READING = Reading(SAMPLE, 1.0, ACTIVE, ARMED, 9 * GIB, 1.0)


def later(sample: Sample, seconds: float = 5.0, **counts: float) -> Sample:
    """Return the sample after some seconds, in which the counters of the engine grew."""
    engine = sample.engine and replace(
        sample.engine, **{name: getattr(sample.engine, name) + count for name, count in counts.items()}
    )
    return replace(sample, time=sample.time + seconds, engine=engine)


def watched(*samples: Sample, name: str = "spark1", head: bool = True, **changes: Any) -> Watched:
    """Return a node after these samples, one in five seconds."""
    node = Watched(name, head, 2 * GIB)
    for number, sample in enumerate(samples):
        node = screen.advance(node, replace(READING, sample=sample, **changes), 1000.0 + 5 * number)
    return node


DECODING = watched(SAMPLE, later(SAMPLE, generated=170, read=600))
NOW = 1006.0


def drawn(*nodes: Watched, width: int = 80, height: int = 23, now: float = NOW) -> list[str]:
    lines = screen.frame(nodes, "tiny-model", "22:16:08", now, 5, width, height)
    texts = ["".join(text for text, _style in line) for line in lines]
    assert len(texts) <= height and max(map(len, texts)) <= width, texts
    return [text.rstrip() for text in texts]


def styles(node: Watched, text: str, now: float = NOW) -> str:
    """Return the style of the span that has a text."""
    lines = screen.frame([node], "tiny-model", "22:16:08", now, 5, 120, 40)
    return next(style for line in lines for found, style in line if text in found)


def test_a_cluster_that_decodes_at_80_columns() -> None:
    worker = watched(
        replace(SAMPLE, engine=None), name="spark2", head=False, watchdog={"witnesses": [], "serves": True}
    )
    assert drawn(DECODING, worker) == [
        "tiny-model   22:16:08   every 5 s   floor 2 GiB   q ends",
        "DECODING   34.0 tokens/s   prompts 120 tokens/s   3 running   0 waiting",
        "KV cache [#########-----------] 43%   prefix hits 62%   draft accepted -",
        "tokens/s █ at most 34.0",
        "",
        "node       GiB free   low GPU%    W  MHz  °C slowed by   rails    watchdog  age",
        "spark1         12.0   9.0   96   71 2411  74 -           2/2 200G armed      2s",
        "spark2         12.0   9.0   96   71 2411  74 -           2/2 200G on         7s",
    ]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize(("width", "height"), [(80, 23), (100, 23), (140, 39)])
def test_each_node_has_a_line_and_the_problems_that_fit(count: int, width: int, height: int) -> None:
    broken = replace(SAMPLE, rails=tuple(replace(rail, carrier=False) for rail in RAILS))
    nodes = [watched(broken, name=f"spark{number}", head=number == 1) for number in range(1, count + 1)]
    lines = drawn(*nodes, width=width, height=height)
    rows = [line for line in lines if " 0/2 DOWN" in line]
    assert [row.split()[0] for row in rows] == [node.name for node in nodes]
    told = [line for line in lines if ": rail enp1s0f" in line]
    rest = [int(line.split()[1]) for line in lines if line.startswith("and ")]
    assert len(told) + sum(rest) == 2 * count and told
    assert any("Gb/s" in line for line in lines) is (width >= 100)


def test_a_long_name_and_a_narrow_terminal_cut_nothing_else() -> None:
    node = replace(DECODING, name="spark-in-the-basement-1")
    assert drawn(node)[-1].startswith("spark-in-t     12.0 ") and drawn(node, width=120)[-1].startswith(
        "spark-in-the-bas     12.0"
    )
    assert drawn(node, width=40, height=5)


def test_missing_values_are_dashes() -> None:
    nothing: dict[str, Any] = {"watchdog": {}, "lowest": None, "services": {}, "start": 0.0}
    empty = Sample(
        100.0, "spark1", gpus=(Gpu("0", "", None, None, None, None, None),), rails=(SampledRail("enp1s0f0np0"),)
    )
    lines = drawn(watched(empty, **nothing), watched(replace(empty, gpus=()), head=False))
    assert lines[6].split() == ["spark1", "-", "-", "-", "-", "-", "-", "-", "-", "-", "7s"]
    assert lines[7].split()[3:8] == ["-", "-", "-", "-", "-"]
    assert "KV cache -   prefix hits -   draft accepted -" in lines
    assert drawn(Watched("spark1", head=True))[-1].split() == ["spark1", *"-" * 10]


#: Counters that grew, running requests, and the engine's state after 5 s and after a minute of the same.
STATES: dict[str, tuple[dict[str, float], float, str]] = {
    "decoding": ({"generated": 5}, 1, "DECODING"),
    "prompts": ({"read": 5}, 1, "READING PROMPTS"),
    "idle": ({}, 0, "IDLE"),
    "a stall": ({}, 2, "NO TOKEN for 60 s"),
}


@pytest.mark.parametrize(("counts", "running", "state"), STATES.values(), ids=STATES)
def test_the_state_of_the_engine(counts: dict[str, float], running: float, state: str) -> None:
    samples = [replace(SAMPLE, engine=replace(ENGINE, running=running))]
    for _number in range(12):
        samples.append(later(samples[-1], **counts))
    node = watched(*samples)
    assert drawn(node, now=1060)[1].startswith(f"{state}   ")
    assert state != "NO TOKEN for 60 s" or styles(node, state, 1060) == BAD


def test_an_engine_that_started_again_has_no_speed() -> None:
    node = watched(SAMPLE, later(SAMPLE, generated=-900))
    assert screen.rate(node, "generated") is None and node.speeds == ()
    assert " - tokens/s " in drawn(node)[1]


def test_no_server() -> None:
    services = {**ACTIVE, paths.VLLM_UNIT: "activating"}
    node = watched(replace(SAMPLE, engine=None), services=services)
    assert drawn(node)[1].startswith("THE API DOES NOT ANSWER: gb10-vllm is activating")
    assert styles(node, "THE API") == WARN
    assert (
        styles(watched(replace(SAMPLE, engine=None), services={**ACTIVE, paths.VLLM_UNIT: "failed"}), "THE API") == BAD
    )


def test_the_same_sample_again_keeps_the_speed() -> None:
    again = screen.advance(DECODING, replace(DECODING.reading, age=4.0), 1010.0)
    assert screen.rate(again, "generated") == screen.rate(DECODING, "generated") == 34.0
    assert again.speeds == DECODING.speeds


def test_a_node_that_does_not_answer_keeps_its_values_and_is_gray() -> None:
    node = screen.failed(DECODING, "Connection timed out\nduring banner\x1b[2J exchange")
    lines = screen.frame([node], "tiny-model", "22:16:08", 1064.0, 5, 80, 23)
    (row,) = [line for line in lines if line and line[0][0].startswith("spark1 ")]
    assert [style for _text, style in row] == [BAD, *["dim"] * 9, BAD]
    assert row[1][0].strip() == "12.0" and row[-1] == ("  60s", BAD)
    assert lines[1][0][0] == "UNKNOWN: spark1 has no new sample"
    assert lines[-1] == [("spark1: does not answer: Connection timed out during banner [2J exchange", BAD)]
    back = screen.advance(node, READING, 1070.0)
    assert back.error == "" and not screen.stale(back, 1071.0, 5)


#: A change of the sample or the reading, and the problem that it shows with its style.
PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "memory": ({"memory_available": GIB}, {}, "only 1.0 GiB are free, less than the floor of 2", BAD),
    "a rail": ({"rails": (replace(RAILS[0], rdma="DOWN"), RAILS[1])}, {}, "rail enp1s0f0np0: RDMA DOWN", BAD),
    "heat": (
        {"gpus": (replace(GPU, reasons=0x20),)},
        {},
        "the GPU is slowed by heat: 2411 MHz, 71 W, 74 °C",
        WARN,
    ),
    "the clock": (
        {"gpus": (replace(GPU, reasons=0x84, clock=612),)},
        {},
        "the GPU is stuck by power brake, power cap: 612 MHz, 71 W, 74 °C (gpu-clock-stuck)",
        BAD,
    ),
    "a witness": ({}, {"watchdog": {**ARMED, "witnesses": ["spark2: x\x1b[2J"]}}, "watchdog: spark2: x [2J", BAD),
    "an alarm": ({}, {"watchdog": {**ARMED, "last_alarm": "noon: why"}}, "watchdog: last alarm noon: why", WARN),
    "a stop": ({}, {"stopped": "only 1 GiB"}, "the memory guard stopped the services: only 1 GiB", BAD),
    "no guard": (
        {},
        {"services": {**ACTIVE, paths.MEMORY_GUARD_UNIT: "inactive"}},
        "gb10-memory-guard.service is inactive",
        BAD,
    ),
    "no recorder": (
        {},
        {"age": 60.0, "services": {**ACTIVE, "gb10-flight-recorder.service": "inactive"}},
        "no new sample: gb10-flight-recorder.service is inactive",
        BAD,
    ),
}


@pytest.mark.parametrize(("sample", "reading", "text", "style"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_named_with_its_node(
    sample: dict[str, Any], reading: dict[str, Any], text: str, style: str
) -> None:
    node = watched(replace(SAMPLE, **sample), **reading)
    assert list(screen.problems(node, NOW, 5)) == [(text, style)]
    assert f"spark1: {text}" in drawn(node, width=120)
    assert list(screen.problems(watched(SAMPLE), NOW, 5)) == []


def test_the_reasons_of_a_clock_and_the_state_of_the_watchdog_in_the_table() -> None:
    slow = watched(replace(SAMPLE, gpus=(replace(GPU, reasons=0x24),)))
    assert drawn(slow)[6].split()[7:9] == ["power", "cap+h"] and styles(slow, "power cap") == WARN
    idle = watched(replace(SAMPLE, gpus=(replace(GPU, reasons=1, clock=208, utilization=0),)))
    assert drawn(idle)[6].split()[7] == "idle" and styles(idle, " 208") == ""
    found = {
        "armed": (ACTIVE, ARMED, GOOD),
        "unarmed": (ACTIVE, {**ARMED, "armed": False}, WARN),
        "stall12s": (ACTIVE, {**ARMED, "stalled": 12}, WARN),
        "DOWN": ({**ACTIVE, paths.WATCHDOG_UNIT: "failed"}, ARMED, BAD),
        "-": ({}, {}, ""),
    }
    for text, (services, status, style) in found.items():
        assert screen.watchdog(watched(SAMPLE, services=services, watchdog=status)) == (text, style)


def test_the_lowest_memory_is_that_since_the_last_start() -> None:
    dip = replace(later(SAMPLE), memory_available=5 * GIB)
    assert watched(SAMPLE, dip, later(dip)).lowest == 5 * GIB
    started = screen.advance(watched(SAMPLE, dip), replace(READING, sample=SAMPLE, start=2.0), 1010.0)
    assert started.lowest == 9 * GIB


def test_the_answer_of_a_node_is_parsed() -> None:
    start = {"time": 7, "seconds": 3, "minimum": 3 * GIB, "floor": 2 * GIB, "phase": "start", "end": ""}
    files = (schema.dump(SAMPLE).decode(), json.dumps(ARMED), "", json.dumps([{"time": 1, "minimum": GIB}, start]))
    shown = "Id=gb10-vllm.service\nLoadState=loaded\nActiveState=active\n\nId=gb10-ray.service\nLoadState=not-found\n"
    answer = "\x1e".join([*files, json.dumps(start), "102.5\n", shown])
    found = screen.parse(answer)
    assert (found.sample, found.age, found.lowest, found.start) == (SAMPLE, 2.5, 3 * GIB, 7.0)
    assert found.services == {"gb10-vllm.service": "active"} and found.stopped.startswith("only 3.0 GiB of memory")
    for damaged in (
        "",
        *(answer.replace("102.5", clock) for clock in ("noon", "inf", "nan")),
        answer.replace('"armed"', "armed"),
        "[" + answer,
    ):
        with pytest.raises(ValueError, match=r"."):
            screen.parse(damaged)
    assert screen.parse(answer.replace("\n", "\r\n")) == found, "from a terminal"


def test_no_text_of_a_node_reaches_the_screen_as_it_is() -> None:
    evil = "\x1b[2J\x07\u202e\x9b2J"
    status = json.dumps({**ARMED, "witnesses": [evil], "last_alarm": evil, "mode": evil})
    shown = "\n\n".join(f"Id={unit}\nLoadState={evil}\nActiveState={evil}" for unit in screen._UNITS)
    answer = "\x1e".join((schema.dump(SAMPLE).decode(), status, "", "", json.dumps({"reason": evil}), "102.5\n", shown))
    node = screen.advance(screen.Watched("spark1", True), screen.parse(answer), 100.0)
    lines = screen.frame([node, screen.failed(node, evil)], "model", "12:00:00", 101.0, 2, 200, 60)
    text = "".join(text for line in lines for text, _style in line)
    assert "[2J" in text and text.isprintable(), ascii(text)


def test_the_command_runs_without_files_and_on_a_terminal(tmp_path: Path) -> None:
    program(tmp_path, "systemctl", "printf 'Id=gb10-vllm.service\nActiveState=active'; [ ! -t 1 ] || printf '\033[m'")
    command = screen.COMMAND.replace("/run/", f"{tmp_path}/").replace("/var/lib/", f"{tmp_path}/")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for argv in (["sh", "-c", command], ["script", "--quiet", "--return", "--command", command, "/dev/null"]):
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        found = screen.parse(done.stdout)
        assert (found.sample, found.services) == (None, {"gb10-vllm.service": "active"})


def test_a_long_problem_has_several_lines() -> None:
    node = watched(SAMPLE, stopped="only 1.0 GiB of memory were available 134 s after the start of the ranks " * 4)
    lines = drawn(node)
    assert len(lines) == 11 and lines[8].startswith("spark1: the memory guard") and lines[-1].endswith(" ...")


def test_numbers_of_any_size_are_drawn() -> None:
    huge = replace(ENGINE, generated=1.7e308, kv_cache=-1e308)
    rails = (replace(RAILS[0], rx=10**39),)
    samples = [replace(SAMPLE, time=1e-300), replace(SAMPLE, time=2e-300, engine=huge, rails=rails)]
    node = watched(*samples)
    assert (screen.rate(node, "generated"), node.speeds) == (None, ())
    assert "KV cache [--------------------] -inf%" in "\n".join(drawn(node, width=120))

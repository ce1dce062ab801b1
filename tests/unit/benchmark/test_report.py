"""The result of vllm bench serve as untrusted input, and its comparison with earlier documents."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import fake_benchmark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network, parse, report
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import MOST, Run

SNAPSHOT = json.loads((Path(__file__).parents[1] / "data" / "plan_two_spark.json").read_text(encoding="utf-8"))
ONE = Run(1, 1024, 128, 6)
DRIVERS = {"spark1": "580.142", "spark2": "580.142"}
FACTS = {
    "date": "2026-11-22T21:30:00Z",
    "mode": "quick",
    "seed": 7,
    "drivers": DRIVERS,
    "network": network.figures([], ""),
}
CLOCKS = {"sm_mhz": 2405.0, "power_w": 60.5, "temperature_c": 71.0}


def plan(published: tuple[float, ...] = (), roofline: float = 54.6) -> dict[str, Any]:
    found = copy.deepcopy(SNAPSHOT)
    found["serve"]["expected"] = {
        "context": 8192,
        "max_num_seqs": 8,
        "tokens_per_second": roofline,
        "published": list(published),
    }
    return {**found, "node": found["nodes"][0]}


def measured(concurrency: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a run as the module returns it."""
    result = parse.result(json.dumps(fake_benchmark.result(**changes)), ONE)
    sizes = {"concurrency": concurrency, "input_tokens": 1024, "output_tokens": 128, "requests": 6}
    return {**sizes, "result": result, "clocks": CLOCKS, "hit_rate": 0.125}


def document(*runs: dict[str, Any], published: tuple[float, ...] = (), **facts: Any) -> dict[str, Any]:
    return report.document(typed(plan(published)), {**FACTS, **facts}, runs or (measured(),))


def saved(found: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**found, "findings": [], **changes})


# --- the result ---


def test_a_result_is_read() -> None:
    found = parse.result(json.dumps(fake_benchmark.result()), ONE)
    assert (found["completed"], found["failed"], found["total_output_tokens"]) == (6, 0, 768)
    assert found["tokens_per_second"] == pytest.approx(46.5, abs=0.1)
    assert found["ttft_ms"] == {"mean": 210.5, "median": 210.5, "p99": 210.5}
    assert found["acceptance_percent"] is None
    drafted = parse.result(json.dumps(fake_benchmark.result(spec_decode_acceptance_rate=71.5)), ONE)
    assert drafted["acceptance_percent"] == 71.5


def test_a_release_without_failures_in_its_result() -> None:
    old = {key: value for key, value in fake_benchmark.result(completed=4).items() if key != "failed"}
    assert parse.result(json.dumps(old), ONE)["failed"] == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"completed": 7}, "completed is '7', expected a number from 0 to 6"),
        ({"completed": True}, "completed is 'True'"),
        ({"completed": 2.5}, "completed is 2.5, expected a whole number"),
        ({"completed": 5}, "5 completed and 0 failed requests of 6"),
        ({"output_throughput": "fast"}, "output_throughput is 'fast'"),
        ({"output_throughput": -1}, "output_throughput is '-1'"),
        ({"median_tpot_ms": None}, "median_tpot_ms is 'None'"),
        ({"p99_itl_ms": 1e13}, "p99_itl_ms is '10000000000000.0'"),
        ({"total_output_tokens": 10**6}, "total_output_tokens is '1000000', expected a number from 0 to 1536"),
        ({"spec_decode_acceptance_rate": [1]}, "spec_decode_acceptance_rate is '[1]'"),
        ({"duration": {"x": 1}, "request_throughput": []}, "; request_throughput is '[]'"),
    ],
)
def test_an_impossible_result_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError) as error:
        parse.result(json.dumps(fake_benchmark.result(**changes)), ONE)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "NaN", '{"completed": NaN}', '{"duration": 1e999}', "[" * 1000, " " * (MOST + 1)]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse.result(text, ONE)


VALUES = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from(list(fake_benchmark.result())), VALUES))
def test_any_value_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        found = parse.result(json.dumps(fake_benchmark.result() | changes).replace("Infinity", "1e999"), ONE)
    except ValueError:
        return
    assert found["completed"] + found["failed"] == 6 and 0 <= found["tokens_per_second"] <= 1e12


def test_clocks() -> None:
    samples = [
        parse.clocks(text) for text in ("2405, 60.50, 71\n", "2200, [N/A], 74\n", "", "Failed to initialize NVML")
    ]
    assert samples == [
        {"clocks.sm": 2405.0, "power.draw": 60.5, "temperature.gpu": 71.0},
        {"clocks.sm": 2200.0, "temperature.gpu": 74.0},
        {},
        {},
    ]
    assert parse.clock_summary(samples) == {"sm_mhz": 2302.5, "power_w": 60.5, "temperature_c": 74.0}
    assert parse.clock_summary([]) == {"sm_mhz": None, "power_w": None, "temperature_c": None}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((100.0, 50.0), (300.0, 75.0), 0.125),
        ((100.0, 50.0), (100.0, 50.0), None),
        ((100.0, 50.0), (40.0, 0.0), None),
    ],
)
def test_hit_rate(before: tuple[float, float], after: tuple[float, float], expected: float | None) -> None:
    names = ("cache_queries", "cache_hits")
    assert parse.hit_rate(dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True))) == expected
    assert parse.hit_rate({}, dict(zip(names, after, strict=True))) is None


# --- the document ---


def test_the_document_has_the_roofline_of_one_request_alone() -> None:
    found = document(measured(), measured(8))
    assert [run["decode_tokens_per_second"] for run in found["runs"]] == [50.0, 50.0]
    assert [run["roofline_percent"] for run in found["runs"]] == [91.6, None]
    assert (found["nodes"], found["tensor"], found["drivers"]) == (2, 2, FACTS["drivers"])
    unknown = report.document(typed(plan(roofline=0.0)), FACTS, [measured()])
    assert (unknown["roofline_tokens_per_second"], unknown["runs"][0]["roofline_percent"]) == (None, None)


def test_its_file_is_named_after_model_and_date() -> None:
    assert report.file_name({"served_model_name": "tiny", "date": FACTS["date"]}) == "tiny-20261122T213000Z.json"
    assert report.file_name({"served_model_name": "../a b", "date": FACTS["date"]}) == ".._a_b-20261122T213000Z.json"


def test_the_text_fits_and_has_every_figure() -> None:
    old = {**document(date="2026-11-20T08:00:00Z"), "vllm": "0.31.0"}
    old["runs"][0]["tokens_per_second"] *= 2
    lines = report.lines(document(measured(), measured(8)), old)
    assert all(len(line) <= 118 for line in lines), lines
    assert (
        lines[1].split()
        == "at once input output failed req/s tok/s change TTFT ms p99 TPOT ms p99 ITL ms hits MHz".split()
    )
    assert lines[2].split() == "1 1024 128 0 0.36 46.5 -50% 210.5 210.5 20.00 20.00 20.10 12% 2405".split()
    assert lines[3].split()[6] == "-"
    assert (
        lines[4] == "decode with 1024 input tokens: 50.0 tokens/s, 91.6 % of 54.6, the upper bound by memory bandwidth"
    )
    assert lines[5] == f"compared with: 2026-11-20T08:00:00Z (vllm 0.31.0 -> {SNAPSHOT['stack']['vllm']})"
    assert report.lines(document(), {})[-1] == "compared with: no earlier benchmark of this model and distribution"


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ((57.0, 60.0), "warning: slower than the published 57 to 60 tokens/s (docs/models.md)"),
        ((39.0, 39.0), "the published 39 tokens/s (docs/models.md)"),
    ],
)
def test_the_published_figures(published: tuple[float, float], expected: str) -> None:
    assert expected in report.lines(document(published=published), {})


# --- the comparison ---


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        ({"output_throughput": 42.0}, []),
        (
            {"output_throughput": 41.0},
            ["benchmark.1-1024-128.tokens_per_second: 41.0 tokens/s of all requests. Expected: 41.9 or more"],
        ),
        (
            {"median_tpot_ms": 25.0},
            ["benchmark.1-1024-128.decode_tokens_per_second: 40.0 tokens/s of one request. Expected: 45.0 or more"],
        ),
        ({"completed": 5, "failed": 1}, ["benchmark.1-1024-128: 1 of 6 requests failed"]),
    ],
)
def test_a_slower_model_is_a_finding(changes: dict[str, Any], findings: list[str]) -> None:
    found = list(map(str, report.findings(document(measured(**changes)), document(), 0.1)))
    assert len(found) == len(findings)
    assert all(text.startswith(start) for text, start in zip(found, findings, strict=True)), found


def test_other_lengths_are_not_compared() -> None:
    assert report.findings(document(measured(2, output_throughput=1.0)), document(), 0.1) == []


def test_the_newest_good_document_of_the_same_distribution_is_the_reference() -> None:
    now = document()
    texts = {
        "a.json": saved(document(date="2026-11-01T00:00:00Z")),
        "b.json": saved(document(date="2026-11-10T00:00:00Z")),
        "slow.json": saved(document(date="2026-11-20T00:00:00Z"), findings=["slower"]),
        "tp1.json": saved(document(date="2026-11-21T00:00:00Z"), tensor=1),
        "other.json": saved(document(date="2026-11-21T00:00:00Z"), revision="1"),
    }
    found, notes = report.earlier(texts, now)
    assert (found["date"], notes) == ("2026-11-10T00:00:00Z", [])
    assert report.earlier({}, now) == ({}, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '"text"',
        saved({**document(), "format": 2}),
        saved(document(), runs=[{"concurrency": "1"}]),
        saved(document(), runs=[{**document()["runs"][0], "tokens_per_second": "fast"}]),
        saved(document(), runs=7),
        " " * 2**20 + "{}",
    ],
)
def test_a_damaged_document_is_a_note(text: str) -> None:
    found, notes = report.earlier({"x.json": text, "good.json": saved(document())}, document())
    assert found["date"] == FACTS["date"]
    assert len(notes) == 1 and notes[0].startswith("ignored x.json, which is not a document of a benchmark: ")

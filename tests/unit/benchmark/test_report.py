"""The result of vllm bench serve as untrusted input, and its comparison with earlier documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fake_benchmark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network, parse, report
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import MOST, Run
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

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


def plan(published: tuple[float, ...] = (), roofline: float = 54.6, source: tuple[Mapping[str, Any], ...] = ()) -> Plan:
    return typed({"serve": {"expected": {"tokens_per_second": roofline, "published": published, "measured": source}}})


def measured(concurrency: int = 1, data: str = "random", **changes: Any) -> dict[str, Any]:
    """Return a run as the module returns it."""
    result = parse.result(json.dumps(fake_benchmark.result(**changes)), ONE)
    sizes = {"concurrency": concurrency, "input_tokens": 1024, "output_tokens": 128, "requests": 6, "data": data}
    return {**sizes, "result": result, "clocks": CLOCKS, "hit_rate": 0.125}


def document(*runs: dict[str, Any], published: tuple[float, ...] = (), **facts: Any) -> dict[str, Any]:
    return report.document(plan(published), {**FACTS, **facts}, runs or (measured(),))


def saved(found: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**found, "findings": [], **changes})


# --- the result ---


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        (
            {"spec_decode_acceptance_rate": 71.5, "spec_decode_acceptance_length": 3.15},
            {"acceptance_percent": 71.5, "acceptance_length": 3.15},
        ),
        ({"completed": 4, "failed": None}, {"completed": 4, "failed": 2}),
    ],
    ids=["plain", "with drafts", "a release without failures in its result"],
)
def test_a_result_is_read(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    given = {key: value for key, value in fake_benchmark.result(**changes).items() if value is not None}
    assert parse.result(json.dumps(given), ONE) == {
        "completed": 6,
        "failed": 0,
        "seconds": given["duration"],
        "total_input_tokens": 6144,
        "total_output_tokens": 768,
        "requests_per_second": given["request_throughput"],
        "tokens_per_second": given["output_throughput"],
        "ttft_ms": dict.fromkeys(("mean", "median", "p99"), 210.5),
        "tpot_ms": dict.fromkeys(("mean", "median", "p99"), 20.0),
        "itl_ms": dict.fromkeys(("mean", "median", "p99"), 20.1),
        "acceptance_percent": None,
        "acceptance_length": None,
        **expected,
    }


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
        ({"spec_decode_acceptance_rate": 101}, "spec_decode_acceptance_rate is '101', expected a number from 0 to 100"),
        ({"spec_decode_acceptance_length": [1]}, "spec_decode_acceptance_length is '[1]'"),
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
    samples = list(map(parse.clocks, ("2405, 60.50, 71\n", "2200, [N/A], 74\n", "", "Failed to initialize NVML")))
    assert samples == [
        {"clocks.sm": 2405.0, "power.draw": 60.5, "temperature.gpu": 71.0},
        {"clocks.sm": 2200.0, "temperature.gpu": 74.0},
        {},
        {},
    ]
    assert parse.clock_summary(samples) == {"sm_mhz": 2302.5, "power_w": 60.5, "temperature_c": 74.0}
    assert parse.clock_summary([]) == {"sm_mhz": None, "power_w": None, "temperature_c": None}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"cache_queries": 300.0, "cache_hits": 75.0}, 0.125),
        ({"cache_queries": 400.0, "cache_hits": 150.0}, 0.333),
        ({"cache_queries": 300.0, "cache_hits": 50.0}, 0.0),
        ({"cache_queries": 300.0, "cache_hits": 250.0}, 1.0),
        ({"cache_queries": 100.0, "cache_hits": 50.0}, None),
        ({"cache_queries": 40.0, "cache_hits": 0.0}, None),
        ({"cache_queries": 300.0}, None),
        ({}, None),
    ],
)
def test_hit_rate(after: dict[str, float], expected: float | None) -> None:
    before = {"cache_queries": 100.0, "cache_hits": 50.0}
    assert parse.hit_rate(before, after) == expected
    assert parse.hit_rate({}, after) is None


# --- the document ---


def test_the_document_has_the_roofline_of_one_request_alone() -> None:
    found = document(measured(), measured(8))
    assert [run["decode_tokens_per_second"] for run in found["runs"]] == [50.0, 50.0]
    assert [run["roofline_percent"] for run in found["runs"]] == [91.6, None]
    assert (found["nodes"], found["tensor"], found["drivers"]) == (2, 2, FACTS["drivers"])
    unknown = report.document(plan(roofline=0.0), FACTS, [measured()])
    assert (unknown["roofline_tokens_per_second"], unknown["runs"][0]["roofline_percent"]) == (None, None)


@pytest.mark.parametrize(("model", "stem"), [("tiny", "tiny"), ("../a b", ".._a_b")])
def test_its_file_is_named_after_model_and_date(model: str, stem: str) -> None:
    assert report.file_name({"served_model_name": model, "date": FACTS["date"]}) == f"{stem}-20261122T213000Z.json"


def test_the_text_fits_and_has_every_figure() -> None:
    old = {**document(date="2026-11-20T08:00:00Z"), "vllm": "0.31.0"}
    old["runs"][0]["tokens_per_second"] *= 2
    lines = report.lines(document(measured(), measured(8)), old)
    assert all(len(line) <= 118 for line in lines), lines
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "at once input output failed req/s tok/s change TTFT ms p99 TPOT ms p99 ITL ms hits MHz",
        "1 1024 128 0 0.36 46.5 -50% 210.5 210.5 20.00 20.00 20.10 12% 2405",
        "8 1024 128 0 0.36 46.5 - 210.5 210.5 20.00 20.00 20.10 12% 2405",
        "decode with 1024 input tokens: 50.0 tokens/s, 91.6 % of 54.6, the upper bound by memory bandwidth",
        f"compared with: 2026-11-20T08:00:00Z (vllm 0.31.0 -> {VLLM})",
    ]
    assert report.lines(document(), {})[-1] == "compared with: no earlier benchmark of this model and distribution"


def test_a_draft_has_a_column() -> None:
    draft = {"spec_decode_acceptance_rate": 71.5, "spec_decode_acceptance_length": 3.15}
    lines = report.lines(document(measured(**draft), measured(8)), {})
    assert all(len(line) <= 120 for line in lines), lines
    assert [line.split()[-2:] for line in lines[1:4]] == [["MHz", "draft"], ["2405", "72%/3.1"], ["2405", "-"]]


def test_text_is_shown_with_its_real_tokens() -> None:
    changes = {"total_input_tokens": 6060, "total_output_tokens": 600}
    lines = report.lines(document(measured(data="text", **changes)), {})
    assert lines[2].split()[:3] == ["1", "1010", "100"]
    assert "prompts: natural text and code; input and output are the average real tokens" in lines
    failed = measured(data="text", completed=0, failed=6, total_input_tokens=0, total_output_tokens=0)
    assert report.lines(document(failed), {})[2].split()[:3] == ["1", "1024", "128"]
    (line,) = [
        line for line in report.lines(document(measured(data="text"), mode="speed-bench"), {}) if "prompts:" in line
    ]
    assert "in place of SPEED-Bench" in line
    assert not any("prompts:" in line for line in report.lines(document(), {}))


def test_text_is_not_compared_with_random_tokens() -> None:
    text, random = document(measured(data="text", output_throughput=1.0)), document()
    for run in random["runs"]:
        # As earlier releases wrote it.
        run.pop("data")
    assert report.findings(text, random, 0.1) == []
    assert report.findings(document(measured(output_throughput=1.0)), random, 0.1)


VLLM = plan().stack.vllm
NVIDIA = {
    "source": "NVIDIA",
    "dataset": "nvidia/SPEED-Bench throughput_8k",
    "input_tokens": 1024,
    "output_tokens": 128,
    "concurrency": 1,
    "decode": 50.5,
    "prefill": 5000.0,
    "harness": "aiperf 0.12.0",
    "date": "2026-09-03",
    "driver": "580.142",
    "vllm": VLLM,
    "revision": "?",
    "image": "?",
}


def ratios(run: dict[str, Any], **theirs: Any) -> list[str]:
    found = report.document(plan(source=({**NVIDIA, **theirs},)), {**FACTS, "mode": "speed-bench"}, [run])
    return [
        line
        for line in report.lines(found, {})
        if line.startswith(("decode:", "prefill:", "NVIDIA:", "differs:", "seen:", "compare with"))
    ]


def test_the_speed_is_compared_with_the_recipes_source() -> None:
    assert ratios(measured(data="speed-bench")) == [
        "decode: measured 50.0, NVIDIA 50.5, ratio 0.99",
        "prefill: measured 4864.6, NVIDIA 5000.0, ratio 0.97",
        "NVIDIA: nvidia/SPEED-Bench throughput_8k, aiperf 0.12.0, 2026-09-03",
    ]


def test_a_lower_speed_comes_with_the_known_differences_alone() -> None:
    draft = {"spec_decode_acceptance_rate": 40.0, "spec_decode_acceptance_length": 2.0}
    seen = "seen: GPU clock 2405 MHz, at most 71 °C{}; NVIDIA does not publish them"
    assert ratios(measured(data="speed-bench"), decode=60.0)[3:] == [seen.replace("{}", "")]
    other = {"driver": "580.173.02", "vllm": "0.28.0", "revision": "7" * 40, "image": f"sha256:{'1' * 64}"}
    assert ratios(measured(data="text", **draft), prefill=6000.0, **other)[3:] == [
        "differs: driver 580.142, NVIDIA 580.173.02",
        f"differs: vLLM {VLLM}, NVIDIA 0.28.0",
        f"differs: revision of the model unknown, NVIDIA {'7' * 40}",
        f"differs: runtime native, NVIDIA sha256:{'1' * 64}",
        "differs: prompts of this collection, NVIDIA nvidia/SPEED-Bench throughput_8k",
        seen.replace("{}", ", 40 % of draft tokens accepted"),
    ]


@pytest.mark.parametrize(
    ("run", "theirs"),
    [
        (measured(), {}),
        (measured(8, "text"), {}),
        (measured(data="text"), {"input_tokens": 8192}),
        (measured(data="text"), {"decode": 0, "prefill": 0}),
    ],
    ids=["random tokens", "more at once", "another length", "unknown figures"],
)
def test_other_conditions_are_not_compared(run: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ratios(run, **theirs) == []


def test_a_recipe_with_figures_names_the_mode_that_compares() -> None:
    found = report.document(plan(source=(NVIDIA,)), FACTS, [measured()])
    assert "compare with NVIDIA's figures: -e benchmark_model_mode=speed-bench" in report.lines(found, {})


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ((57.0, 60.0), "warning: slower than the published 57 to 60 tokens/s (docs/models.md)"),
        ((50.0, 60.0), "the published 50 to 60 tokens/s (docs/models.md)"),
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


def test_the_best_speeds_are_one_sentence() -> None:
    found = document(measured(1), measured(16))
    alone, most = (found["runs"][0]["decode_tokens_per_second"], found["runs"][1]["tokens_per_second"])
    fast = {**found, "runs": [found["runs"][0], {**found["runs"][1], "tokens_per_second": most + 1}]}
    sentence = f"{found['model']}: {most + 1:.1f} tokens/s with 16 at once"
    assert report.best(fast) == f"{sentence}, {alone:.1f} for a single request"
    assert report.best({**fast, "runs": fast["runs"][1:]}) == sentence
    assert report.best({**found, "runs": []}) == ""

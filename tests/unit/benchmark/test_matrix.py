"""Benchmarks of several models: candidates, interrupted runs, the table, and the heat map."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import BenchmarkSettings

QUICK = BenchmarkSettings("quick", [1], [1024], 128, 0, 600)
DATE = "2026-11-22T21:30:00Z"
GIB = 1 << 30


def candidate(
    name: str = "a", problem: str = "", settings: BenchmarkSettings = QUICK, **changes: Any
) -> dict[str, Any]:
    expected = {"context": 8192, "max_num_seqs": 8, "tokens_per_second": 50.0}
    serve = {"expected": expected, "needs": {"spark1": 60 * GIB, "spark2": 60 * GIB}}
    plan = typed({"serve": serve, "model": f"/srv/models/{name}", **changes})
    return matrix.candidate(plan, name, settings, problem)


def run(concurrency: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a run of a benchmark's document."""
    sizes = {"concurrency": concurrency, "input_tokens": 1024, "output_tokens": 128}
    speeds = {
        "tokens_per_second": 40.0,
        "decode_tokens_per_second": 41.25,
        "roofline_percent": 82.5 if concurrency == 1 else None,
    }
    return {**sizes, **speeds, "ttft_ms": {"mean": 1.0, "median": 512.0, "p99": 2.0}, **changes}


def result(name: str = "a", *runs: dict[str, Any]) -> dict[str, Any]:
    return {"model": f"/srv/models/{name}", "runs": list(runs or (run(), run(8)))}


def begun(*candidates: dict[str, Any], text: str = "", restart: bool = False, date: str = DATE) -> dict[str, Any]:
    """Return the state of a run whose models are planned."""
    return matrix.begun({"candidates": candidates, "date": date, "served": "/srv/models/served"}, text, restart)


def test_a_candidate_has_an_estimate() -> None:
    found = candidate()
    assert (found["name"], found["model"], found["problem"]) == ("a", "/srv/models/a", "")
    # A start of 180 s and 129 s for the memory, and runs of 56 s and 43 s.
    assert found["minutes"] == round((180 + 60 * GIB / 5e8 + 56 + 43) / 60)
    blank = {"name": "a", "model": "", "key": "", "minutes": 0}
    assert candidate(problem="it does not fit") == {**blank, "problem": "it does not fit"}


@pytest.mark.parametrize(
    "other",
    [
        candidate("b"),
        candidate(executor="mp"),
        candidate(stack={"vllm": "0.33.0"}),
        candidate(serve={"user_args": ["--enforce-eager"]}),
        candidate(settings=replace(QUICK, mode="full")),
        candidate(settings=replace(QUICK, data="text")),
    ],
    ids=["model", "executor", "stack", "arguments", "mode", "prompts"],
)
def test_the_key_depends_on_the_inputs(other: dict[str, Any]) -> None:
    assert other["key"] != candidate()["key"]


def test_the_key_does_not_depend_on_the_seed_and_the_server() -> None:
    assert candidate(settings=replace(QUICK, seed=99))["key"] == candidate()["key"]


def test_folders_of_models() -> None:
    models = {"mine": {"path": "/srv/models/mine"}}
    found = matrix.folders(models, "/opt/gb10")
    assert found["mine"] == "/srv/models/mine"
    assert found["gpt-oss-120b"].startswith("/opt/gb10/models/openai--gpt-oss-120b/")
    assert all(folder.startswith("/") for folder in found.values())


def test_an_interrupted_run_continues() -> None:
    one, two = candidate(), candidate("b")
    record = matrix.added(begun(one, two)["record"], one, result(), "a.json", "")
    again = begun(one, two, text=json.dumps(record), date="2026-11-23T00:00:00Z")
    assert (again["record"], again["due"]) == (record, [two])
    assert again["lines"] == [
        f"1 models, about {two['minutes']} minutes; /srv/models/served stops, and serves again at the end",
        f"b: about {two['minutes']} minutes",
        f"a: has a result of the interrupted run of {DATE}",
    ]


@pytest.mark.parametrize(
    "case", ["finished", "restart", "other inputs", "failed", "no JSON", "no record", "text as figure"]
)
def test_other_records_are_dropped(case: str) -> None:
    one = candidate()
    record = matrix.added(begun(one)["record"], one, result(), "a.json", "the start failed" if case == "failed" else "")
    texts = {
        "finished": json.dumps({**record, "finished": True}),
        "other inputs": json.dumps(record).replace(one["key"], "0" * 64),
        "no JSON": "{",
        "no record": "[]",
        "text as figure": json.dumps(record).replace("41.25", '"<script>"'),
    }
    found = begun(one, text=texts.get(case, json.dumps(record)), restart=case == "restart")
    assert found["record"] == {"format": 1, "date": DATE, "finished": False, "rows": []}


def test_the_table() -> None:
    record = matrix.added(begun(candidate())["record"], candidate(), result(), "a.json", "")
    record = matrix.added(record, candidate("b"), {}, "", "vLLM did not start:\n no memory")
    record = matrix.added(record, candidate("c"), result("a"), "a.json", "")
    assert matrix.lines(record) == [
        "model at once  input output    tok/s  decode  prefill   TTFT ms roofline %",
        "a           1   1024    128     40.0    41.2   2000.0     512.0       82.5",
        "a           8   1024    128     40.0    41.2        -     512.0          -",
        "b: vLLM did not start: no memory",
    ]
    assert [(row["file"], len(row["runs"])) for row in record["rows"]] == [("a.json", 2), ("", 0), ("", 0)]
    assert matrix.lines(begun()["record"]) == ["no result"]
    text = matrix.added(begun(candidate())["record"], candidate(), result("a", run(input_mean=768)), "a.json", "")
    assert " 1500.0 " in matrix.lines(text)[1]


def test_the_reasons_of_a_part_are_those_of_its_last_failures() -> None:
    failures = {
        "spark1": {"part": "a", "reason": "no memory"},
        "spark2": {"part": "b", "reason": "other"},
        "spark3": {"part": "a", "reason": "no memory"},
        "spark4": {},
    }
    assert matrix.problem(failures, "a") == "no memory" and matrix.problem(failures, "c") == ""
    assert matrix.problem({"spark1": {"part": "a", "reason": ""}}, "a") == "no reason given"


def test_models_without_a_plan_are_refused_or_left_out() -> None:
    refused = candidate("b", "it does not fit")
    assert matrix.refusal([candidate(), refused], chosen=True) == "b: it does not fit"
    assert matrix.refusal([candidate(), refused], chosen=False) == matrix.refusal([candidate()], chosen=True) == ""
    assert matrix.refusal([refused], chosen=False).startswith("No model to measure.")
    for chosen, left_out in ((False, ["b: left out, because the planner refuses it"]), (True, [])):
        found = matrix.planned({"candidates": [candidate()], "chosen": chosen}, refused)
        assert found == {"candidates": [candidate(), refused], "left_out": left_out}


def test_the_stored_models_are_the_default() -> None:
    known, copies = {"a": "/x/a", "b": "/x/b"}, ["/x/b", "/y"]
    assert matrix.start("s", DATE, [], known, copies)["models"] == ["b"]
    assert matrix.start("s", DATE, ["c", "a", "c"], known, copies)["models"] == ["c", "a"]

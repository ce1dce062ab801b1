"""The runs of a benchmark, and the command of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import parse
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as benchmark_plan
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import BenchmarkSettings, Run
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

EXPECTED = {"context": 131072, "max_num_seqs": 256, "tokens_per_second": 50.0, "published": [57.0, 60.0]}
ONE = Run(1, 1024, 128, 6)
PROGRAM = "import vllm"
DRAFT = {"speculative": True}


CONTAINER = {
    "runtime": {"kind": "container", "image": "image", "engine": "docker", "engine_args": ["--shm-size=1g"]},
    "node": {"state": {"service_user": "995:994"}},
}


def plan(changes: Mapping[str, Any] | None = None, **expected: Any) -> Plan:
    """Return the head's plan, whose expected speed and limits are known."""
    given = {"serve": {"expected": EXPECTED | expected}, "model": "/srv/models/tiny", "api_key": True}
    return typed({**given, **(changes or {})})


def settings(mode: str = "quick", **changes: Any) -> BenchmarkSettings:
    return replace(BenchmarkSettings(mode, [1, 8], [512], 64, seed=7, timeout=600), **changes)


def command(given: Plan, run: Run = ONE, **changes: Any) -> list[str]:
    return benchmark_plan.command(given, run, settings(**changes), PROGRAM)


def script(words: list[str]) -> list[str]:
    """Return the command of a unit as systemd runs it."""
    first = next(index for index, word in enumerate(words) if index and not word.startswith("--"))
    return [word.replace("$$", "$") for word in words[first:]]


def test_a_line_has_the_size_and_the_estimated_time() -> None:
    assert benchmark_plan.lines(plan(), [ONE]) == ["1 at a time, 1024 + 128 tokens, 6 requests, about 56 s"]
    unknown = benchmark_plan.lines(plan(tokens_per_second=0.0), [ONE])
    assert unknown == ["1 at a time, 1024 + 128 tokens, 6 requests"]


@pytest.mark.parametrize(
    ("expected", "given", "runs"),
    [
        ({}, settings(), [ONE, Run(8, 1024, 128, 24)]),
        ({"context": 0}, settings("single", context=1024), [Run(1, 752, 256, 6)]),
        (
            {},
            settings("sweep", concurrencies=[1, 8, 1], input_tokens=[512, 2048]),
            [Run(1, 512, 64, 8), Run(8, 512, 64, 16), Run(1, 2048, 64, 8), Run(8, 2048, 64, 16)],
        ),
        (
            {},
            settings("llama-benchy"),
            [Run(1, tokens, output, 3, "text") for tokens in (2048, 6144, 10240, 18432, 34816) for output in (32, 128)],
        ),
        (
            {},
            settings("spark-arena"),
            [
                Run(concurrency, tokens, 128, requests, "text")
                for tokens in (2048, 6144, 10240, 18432, 34816, 67583, 102048)
                for concurrency, requests in ((1, 3), (2, 6), (5, 15), (10, 30))
            ],
        ),
    ],
    ids=[
        "quick",
        "the server's context wins over the plan's",
        "each combination of a sweep once",
        "as llama-benchy measures",
        "as Spark Arena measures",
    ],
)
def test_the_runs_of_a_mode(expected: dict[str, Any], given: BenchmarkSettings, runs: list[Run]) -> None:
    assert benchmark_plan.runs(plan(**expected), given) == runs


@pytest.mark.parametrize("mode", [mode for mode in benchmark_plan.MODES if mode != "sweep"])
@pytest.mark.parametrize("context", [0, 64, 2048, 131072])
@pytest.mark.parametrize("sequences", [0, 1, 4, 256])
@pytest.mark.parametrize("data", benchmark_plan.DATA)
def test_a_fixed_mode_fits_the_server(mode: str, context: int, sequences: int, data: str) -> None:
    found = benchmark_plan.runs(plan(context=context, max_num_seqs=sequences), settings(mode, data=data))
    assert found and len(found) == len(set(found))
    for run in found:
        assert min(run.concurrency, run.input_tokens, run.output_tokens, run.requests) >= 1
        assert not context or run.input_tokens + run.output_tokens < context
        assert not sequences or run.concurrency <= sequences


@pytest.mark.parametrize(
    ("mode", "expected", "changes", "data"),
    [
        ("quick", {}, {}, "random"),
        ("quick", DRAFT, {}, "text"),
        ("quick", DRAFT, {"data": "random"}, "random"),
        ("sweep", {}, {"data": "text"}, "text"),
        ("llama-benchy", {}, {}, "text"),
        ("speed-bench", {}, {}, "text"),
        ("speed-bench", {}, {"speed_bench": "/srv/speed"}, "speed-bench"),
        ("speed-bench", {}, {"speed_bench": "/srv/speed", "data": "random"}, "random"),
        ("speed-bench", {"context": 9000}, {"speed_bench": "/srv/speed"}, "text"),
        ("quick", DRAFT, {"speed_bench": "/srv/speed"}, "text"),
    ],
)
def test_the_prompts_of_a_mode(mode: str, expected: dict[str, Any], changes: dict[str, Any], data: str) -> None:
    assert {run.data for run in benchmark_plan.runs(plan(**expected), settings(mode, **changes))} == {data}


def test_a_line_names_other_prompts_than_random_tokens() -> None:
    chosen = benchmark_plan.runs(plan(**DRAFT), settings("single"))
    assert benchmark_plan.lines(plan(**DRAFT), chosen)[0].startswith("1 at a time, 1024 + 256 tokens of text, 6 ")


def test_text_is_a_question_in_a_chat_with_a_natural_end() -> None:
    given = plan()
    words = benchmark_plan.client(given, Run(1, 1024, 128, 6, "text"), settings(), PROGRAM)
    assert words[:3] == [f"{given.runtime.path}/bin/python3", "-c", PROGRAM]
    assert json.loads(words[3]) == {"tokens": 1024, "words": 128, "seed": "7-1-1024-128", "file": ""}
    assert words[4:6] == ["bench", "serve"]
    assert {"--backend=openai-chat", "--endpoint=/v1/chat/completions", "--skip-chat-template"} < set(words)
    assert {"--dataset-name=custom", "--custom-output-len=128", "--temperature=0", "--num-warmups=1"} < set(words)
    assert "--ignore-eos" not in words and not any("random" in word for word in words)
    as_others = benchmark_plan.client(given, Run(1, 8192, 256, 10, "text"), settings("speed-bench"), PROGRAM)
    assert "--num-warmups=3" in as_others and "--temperature=0" not in as_others


def test_each_run_of_a_benchmark_has_prompts_of_its_own() -> None:
    given = plan()
    shapes = [(1, 1024, 128, 6), (8, 1024, 128, 24), (1, 1024, 256, 6), (1, 2048, 128, 6)]
    seeds = {
        word
        for shape in shapes
        for word in benchmark_plan.client(given, Run(*shape), settings(), PROGRAM)
        if word.startswith("--seed=")
    }
    assert len(seeds) == len(shapes) and all(0 <= int(word[7:]) < 2**32 for word in seeds)


def test_a_container_can_read_speed_bench_and_nothing_else_of_its_folder() -> None:
    run, changes = Run(1, 8192, 256, 10, "speed-bench"), {"mode": "speed-bench", "speed_bench": "/srv/speed/"}
    inner = script(command(plan(CONTAINER), run, **changes))
    file = "/srv/speed/throughput_8k.jsonl"
    assert f"--mount=type=bind,source={file},target={file},readonly" in inner
    assert json.loads(inner[inner.index(PROGRAM) + 1])["file"] == file
    assert not any("speed" in word for word in script(command(plan(CONTAINER), **changes)))


@pytest.mark.parametrize("folder", ["speed", "/srv/a,target=/etc", "/srv/a b", "~/speed"])
def test_another_folder_of_speed_bench_is_refused(folder: str) -> None:
    (problem,) = benchmark_plan.problems(plan(), settings("speed-bench", speed_bench=folder))
    assert (problem.path, problem.found) == ("benchmark_model_speed_bench", folder)


UNKNOWN = {"context": 0, "max_num_seqs": 0}


@pytest.mark.parametrize(
    ("limits", "changes", "expected"),
    [
        ({}, {"concurrencies": []}, ["benchmark_model_concurrencies: []. Expected: numbers above 0"]),
        (
            {},
            {"concurrencies": [0], "output_tokens": -1},
            ["benchmark_model_concurrencies: [0]", "benchmark_model_output_tokens: [-1]"],
        ),
        ({}, {"timeout": 0}, ["benchmark_model_timeout: [0]"]),
        (
            {},
            {"input_tokens": [4096, 131072]},
            ["benchmark_model_input_tokens: requests of 131152 tokens. Expected: at most 131072"],
        ),
        (
            {},
            {"input_tokens": [1024], "context": 1024},
            ["benchmark_model_input_tokens: requests of 1104 tokens. Expected: at most 1024"],
        ),
        ({}, {"concurrencies": [1, 512]}, ["benchmark_model_concurrencies: 512. Expected: at most 256"]),
        (UNKNOWN, {"input_tokens": [10**6], "concurrencies": [10**4]}, []),
        ({}, {}, []),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(
    limits: dict[str, int], changes: dict[str, Any], expected: list[str]
) -> None:
    found = list(map(str, benchmark_plan.problems(plan(**limits), settings("sweep", **changes))))
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


def test_the_client_is_confined_and_gets_its_key_from_systemd() -> None:
    given = plan()
    words = command(given)
    assert words[:6] == ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", "--uid=gb10"]
    options = words[: words.index("--unit=gb10-benchmark") + 1]
    assert {f"--property={line}" for line in confinement.properties("gb10", []) if "RemoveIPC" not in line} < set(
        options
    )
    assert {
        "--unit=gb10-benchmark",
        "--property=RuntimeMaxSec=660",
        "--property=LoadCredential=key:/etc/gb10/api.key",
    } < set(options)
    assert "--property=EnvironmentFile=-/etc/gb10/cluster.env" in options
    assert not any("PrivateNetwork" in word or "OPENAI_API_KEY" in word for word in options)
    client = script(words)
    assert client[2] == 'OPENAI_API_KEY=$(cat "$CREDENTIALS_DIRECTORY/key") && export OPENAI_API_KEY && exec "$@"'
    assert client[4:9] == ["/usr/bin/env", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "NO_PROXY=*", "no_proxy=*"]
    assert "timeout 600" in client[11]
    assert client[13:16] == [f"{given.runtime.path}/bin/vllm", "bench", "serve"]
    assert {
        "--random-input-len=1024",
        "--random-output-len=128",
        "--num-prompts=6",
        "--max-concurrency=1",
    } < set(client)
    assert {
        "--tokenizer=/srv/models/tiny",
        f"--model={given.served_model_name}",
        "--ignore-eos",
        "--save-result",
    } < set(client)


def test_without_key_no_credential_is_loaded() -> None:
    words = command(plan({"api_key": False}))
    assert not any("LoadCredential" in word or "OPENAI_API_KEY" in word for word in words)


def test_options_follow_the_plan() -> None:
    assert not {"--insecure", "--trust-remote-code"} & set(command(plan()))
    given = plan({"serve": {"user_args": ["--trust-remote-code"]}, "api_tls": {"digest": "1", "until": "2027"}})
    assert {"--insecure", "--trust-remote-code"} <= set(command(given))


def test_a_container_gets_the_model_and_the_name_of_the_key_alone() -> None:
    words = command(plan(CONTAINER))
    assert not any(word.startswith(("--uid=", "--property=NoNew")) for word in words)
    inner = script(words)
    assert inner[4:8] == ["docker", "run", "--rm", "--pull=never"]
    engine = inner[4 : inner.index("image")]
    assert {
        "--name=gb10-benchmark",
        "--network=host",
        "--user=995:994",
        "--cap-drop=ALL",
        "--shm-size=1g",
        "--entrypoint=/usr/bin/env",
    } < set(engine)
    assert "--env=OPENAI_API_KEY" in engine and not any("EnvironmentFile" in word for word in words)
    assert "--mount=type=bind,source=/srv/models/tiny,target=/srv/models/tiny,readonly" in engine
    assert inner[inner.index("image") + 1 :][:2] == ["HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1"]
    assert inner[inner.index("image") + 9 :][:3] == ["vllm", "bench", "serve"]


def test_a_dollar_reaches_the_client() -> None:
    words = command(plan({"served_model_name": "a$b"}))
    assert "--model=a$$b" in words
    assert "--model=a$b" in script(words)


def embedding() -> Plan:
    return plan({"kind": "embed"}, context=2048)


def test_an_embedding_model_reads_texts_without_output() -> None:
    runs = benchmark_plan.runs(embedding(), settings())
    assert [(run.concurrency, run.input_tokens, run.output_tokens) for run in runs] == [(1, 1024, 0), (8, 1024, 0)]
    sweep = benchmark_plan.runs(embedding(), settings("sweep", data="text"))
    assert {(run.output_tokens, run.data) for run in sweep} == {(0, "random")}
    words = benchmark_plan.client(embedding(), runs[0], settings(), PROGRAM)
    assert {"--backend=openai-embeddings", "--endpoint=/v1/embeddings", "--percentile-metrics=e2el"} <= set(words)
    assert not {"--ignore-eos", "--temperature=0"} & set(words)


def test_a_reranker_is_refused_by_name() -> None:
    (problem,) = benchmark_plan.problems(plan({"kind": "rerank"}), settings())
    assert (problem.path, problem.found) == ("gb10_model", "the model is of the kind rerank")
    assert benchmark_plan.problems(embedding(), settings()) == []


def test_the_result_of_an_embedding_model() -> None:
    statistics = {f"{name}_e2el_ms": value for name, value in (("mean", 21.0), ("median", 20.0), ("p99", 30.0))}
    found = {
        "completed": 6,
        "duration": 2.0,
        "total_input_tokens": 6144,
        "request_throughput": 3.0,
        "total_token_throughput": 3072.0,
    }
    measured = parse.result(json.dumps({**found, **statistics}), Run(1, 1024, 0, 6))
    assert (measured["tokens_per_second"], measured["ttft_ms"]["median"]) == (3072.0, 20.0)
    assert measured["tpot_ms"] == measured["itl_ms"] == {"mean": 0.0, "median": 0.0, "p99": 0.0}
    assert (measured["completed"], measured["failed"], measured["total_output_tokens"]) == (6, 0, 0)
    with pytest.raises(ValueError, match="median_e2el_ms is 'None'"):
        parse.result(json.dumps(found), Run(1, 1024, 0, 6))

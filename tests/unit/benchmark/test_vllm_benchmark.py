"""The module vllm_benchmark and the role benchmark_model, with stand-ins for systemd-run, vLLM's client and the
server."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fake_benchmark
import pytest
import yaml
from decisions import decide
from repository import ROOT
from run_module import program, run_module
from run_playbook import Run, run
from small_server import serving
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import checks, io_prompts, io_run
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as benchmark_plan
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client

KEY = "5ec0e7-0123456789"
SIZE = {"concurrency": 1, "input_tokens": 1024, "output_tokens": 128, "requests": 6}
SETTINGS = benchmark_plan.BenchmarkSettings("quick", [1], [1024], 128, 7, 60)
METRICS = """vllm:num_requests_running{{engine="0",model_name="tiny"}} 0.0
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} 0.0
vllm:prefix_cache_queries_total{{engine="0",model_name="tiny"}} {queries}
vllm:prefix_cache_hits_total{{engine="0",model_name="tiny"}} {hits}
"""


@pytest.fixture
def url() -> Iterator[str]:
    """Run a fake vLLM. Its prefix cache has a quarter of the tokens between two readings."""
    readings = itertools.count(1)
    models = json.dumps({"data": [{"id": "tiny", "root": "/srv/models/tiny", "max_model_len": 1024}]})

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        if request.path == "/metrics":
            number = next(readings)
            return 200, METRICS.format(queries=1000.0 * number, hits=250.0 * number), {}
        return 200, models if request.path == "/v1/models" else "{}", {}

    with serving(answer) as found:
        yield found


def plan(folder: Path, url: str, keyed: bool) -> dict[str, Any]:
    """Return the plan of a single node whose runtime has the fake vLLM."""
    expected = {"context": 131072, "max_num_seqs": 8, "tokens_per_second": 54.6, "published": [57.0, 60.0]}
    changes = {"model": "/srv/models/tiny", "served_model_name": "tiny", "nodes": [{}], "api_key": keyed}
    changes |= {"api": {"url": url}, "runtime": {"path": f"{folder}/runtime"}, "serve": {"expected": expected}}
    return fact(changes)


def command(folder: Path, url: str, keyed: bool = False) -> list[str]:
    return benchmark_plan.command(typed(plan(folder, url, keyed)), benchmark_plan.Run(**SIZE), SETTINGS, "")


def measure(folder: Path, url: str) -> dict[str, Any]:
    return run_module("vllm_benchmark", {**SIZE, "command": command(folder, url), "url": url}, folder / "bin")


# --- the module ---


def test_a_run_is_measured(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result())
    found = measure(tmp_path, url)
    assert found["changed"] is False
    assert (found["result"]["completed"], found["result"]["ttft_ms"]["median"]) == (6, 210.5)
    assert found["hit_rate"] == 0.25
    assert found["clocks"] == {"sm_mhz": None, "power_w": None, "temperature_c": None}
    given = json.loads((tmp_path / "vllm.json").read_text(encoding="utf-8"))
    assert given["argv"][:2] == ["bench", "serve"] and f"--base-url={url}" in given["argv"]
    assert (given["environment"]["HF_HUB_OFFLINE"], given["environment"]["NO_PROXY"]) == ("1", "*")
    assert "OPENAI_API_KEY" not in given["environment"]


def test_the_program_of_the_prompts_reaches_the_runtimes_python(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result())
    run = benchmark_plan.Run(**SIZE, data="text")
    words = benchmark_plan.command(typed(plan(tmp_path, url, False)), run, SETTINGS, io_prompts.program())
    found = run_module("vllm_benchmark", {**SIZE, "command": words, "url": url}, tmp_path / "bin")
    assert found["result"]["completed"] == 6
    given = json.loads((tmp_path / "vllm.json").read_text(encoding="utf-8"))["argv"]
    assert given[:2] == ["-c", io_prompts.program()] and given[3:5] == ["bench", "serve"]
    options = json.loads((tmp_path / "systemd-run.json").read_text(encoding="utf-8"))
    assert [word for word in options if word.startswith("--description=")] == [
        "--description=Benchmark of the served model"
    ]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"completed": 6}, "invalid result of vllm bench serve: duration is 'None', expected a number"),
        ("no JSON", "invalid result of vllm bench serve: "),
        ("[" * 50_000, "invalid result of vllm bench serve: it is nested deeper than 32"),
        (" " * (benchmark_plan.MOST + 9), f"it is longer than {benchmark_plan.MOST} characters"),
    ],
)
def test_a_hostile_result_is_refused(tmp_path: Path, url: str, result: Any, expected: str) -> None:
    fake_benchmark.install(tmp_path, result)
    found = measure(tmp_path, url)
    assert found["failed"] and found["msg"].startswith("1 at a time, 1024 + 128 tokens: ")
    assert expected in found["msg"] and len(found["msg"]) < 1000


def keyed(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Measure with a key, whose port the serving unit owns."""
    key_file = folder / "credentials/key"
    monkeypatch.setattr(io_local, "_unit", lambda _pid: io_client.UNIT)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.defpath}")
    return io_run.measure(
        command(folder, url, True),
        benchmark_plan.Run(**SIZE),
        io_client.Server(url),
        io_client.api_key(str(key_file)),
        lambda _argv: (1, "", ""),
    )


def test_only_the_clients_environment_has_the_key(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result(), KEY)
    assert KEY not in repr(keyed(tmp_path, url, monkeypatch))
    assert KEY not in (tmp_path / "systemd-run.json").read_text(encoding="utf-8")
    given = json.loads((tmp_path / "vllm.json").read_text(encoding="utf-8"))
    assert given["environment"]["OPENAI_API_KEY"] == KEY
    assert KEY not in str(given["argv"])


def test_a_server_that_ends_is_explained_by_its_log(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result())
    (tmp_path / "error").touch()
    entry = json.dumps({"__MONOTONIC_TIMESTAMP": "9" * 15, "MESSAGE": "RuntimeError: out of luck"})
    program(tmp_path / "bin", "journalctl", f"echo '{entry}'")
    said = measure(tmp_path, url)["msg"]
    assert "vllm bench serve failed with status 1" in said
    assert "The log of gb10-vllm.service since then: RuntimeError: out of luck" in said


def test_no_error_has_the_key(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result(), KEY)
    (tmp_path / "error").touch()
    with pytest.raises(ValueError) as error:
        keyed(tmp_path, url, monkeypatch)
    assert str(error.value).startswith("vllm bench serve failed with status 1: ")
    # The order of its two outputs is not fixed.
    assert "| ValueError: key is | ***" in str(error.value) and KEY not in str(error.value)
    (tmp_path / "error").unlink()
    (tmp_path / "result.json").write_text(f'{{"completed": "{KEY}"}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"completed is '\*\*\*'"):
        keyed(tmp_path, url, monkeypatch)


def test_the_key_needs_the_serving_unit_on_the_port(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result(), KEY)
    arguments = {
        **SIZE,
        "command": command(tmp_path, url, True),
        "url": url,
        "key_file": str(tmp_path / "credentials/key"),
    }
    found = run_module("vllm_benchmark", arguments, tmp_path / "bin")
    assert "instead of gb10-vllm.service, so the API's key was not sent" in found["msg"]
    assert not (tmp_path / "systemd-run.json").exists()


# --- the role ---

UNIT = """LoadState=not-found
UnitFileState=
ActiveState=inactive
SubState=dead
Result=success
MainPID=0
NRestarts=0
InvocationID=
ExecMainStatus=0
Environment=
ExecMainStartTimestampMonotonic=0
"""


def role(folder: Path, url: str, *arguments: str) -> Run:
    """Run the role on this machine, on the plan of a single node."""
    (folder / "unit").write_text(UNIT, encoding="utf-8")
    for name, script in (("systemctl", f"cat {folder}/unit"), ("journalctl", "true"), ("ip", "echo '[]'")):
        program(folder / "bin", name, script)
    host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    play = {
        "name": "Measure",
        "hosts": "head",
        "gather_facts": False,
        "roles": [{"role": "gb10.cluster.benchmark_model"}],
    }
    inventory, playbook, variables = folder / "mine/hosts.yml", folder / "role.yml", folder / "plan.json"
    inventory.parent.mkdir(exist_ok=True)
    inventory.write_text(yaml.safe_dump({"head": {"hosts": {"spark1": host}}}), encoding="utf-8")
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    variables.write_text(json.dumps({"gb10_plan": plan(folder, url, False)}), encoding="utf-8")
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return run(
        str(playbook),
        ["-i", str(inventory), "-e", f"@{variables}", "-e", "benchmark_model_mode=single", *arguments],
        environment,
    )


@pytest.mark.slow
def test_the_role_writes_a_result_and_compares_the_next_one(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result(output_tokens=256))
    done = role(tmp_path, url).assert_ok()
    lines = done.shown("Show the speed of the model")
    (file,) = (tmp_path / "mine/.gb10/benchmarks").glob("tiny-*.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["model"], found["nodes"], found["findings"], found["mode"]) == ("/srv/models/tiny", 1, [], "single")
    assert found["runs"][0]["hit_rate"] == 0.25
    assert (
        f"result: {file}" in done.output
        and "warning: slower than the published 57 to 60 tokens/s (docs/models.md)" in lines
    )
    (tmp_path / "result.json").write_text(
        json.dumps(fake_benchmark.result(output_tokens=256, output_throughput=20.0)), encoding="utf-8"
    )
    # A relative path starts at the working directory.
    relative = os.path.relpath(tmp_path / "mine/.gb10/benchmarks", ROOT)
    slower = role(tmp_path, url, "-e", f"benchmark_model_directory={relative}")
    assert slower.status != 0
    assert "benchmark.1-752-256.tokens_per_second: 20.0 tokens/s of all requests. Expected:" in slower.output
    documents = sorted((tmp_path / "mine/.gb10/benchmarks").glob("tiny-*.json"))
    assert [bool(json.loads(path.read_text(encoding="utf-8"))["findings"]) for path in documents] == [False, True]


@pytest.mark.slow
def test_check_mode_lists_the_runs(tmp_path: Path, url: str) -> None:
    fake_benchmark.install(tmp_path, fake_benchmark.result())
    done = role(tmp_path, url, "--check").assert_unchanged()
    assert done.shown("Show the runs of the benchmark") == ["1 at a time, 752 + 256 tokens, 6 requests, about 77 s"]
    assert not (tmp_path / "systemd-run.json").exists() and not (tmp_path / "mine/.gb10/benchmarks").exists()


API = {"healthy": True, "answers": True, "root": "/srv/models/tiny", "running": 1, "waiting": 1}


@pytest.mark.parametrize(
    ("api", "running", "busy_ok", "expected"),
    [
        pytest.param(
            {"root": "/srv/models/other"},
            False,
            True,
            "serves /srv/models/other. Expected: /srv/models/tiny",
            id="other",
        ),
        pytest.param(
            {"healthy": False, "root": None}, False, True, "serves no model. Expected: /srv/models/tiny", id="down"
        ),
        pytest.param(
            {"answers": None, "reason": "timed out"},
            False,
            True,
            "/srv/models/tiny (timed out). Expected:",
            id="silent",
        ),
        pytest.param({}, False, False, "2 requests of other clients run or wait. Expected: none.", id="busy"),
        pytest.param(
            {}, True, True, "gb10-benchmark.service runs on spark1. Expected: one benchmark at a time.", id="unit"
        ),
        pytest.param({"waiting": None, "running": 0}, False, False, "", id="idle"),
        pytest.param({}, False, True, "", id="busy, as permitted"),
    ],
)
def test_a_server_that_cannot_be_measured(
    tmp_path: Path, api: dict[str, Any], running: bool, busy_ok: bool, expected: str
) -> None:
    found = checks.refusal(typed(plan(tmp_path, "http://127.0.0.1:8000", False)), API | api, running, busy_ok)
    assert expected in found and bool(found) is bool(expected)


@pytest.mark.parametrize(
    ("changes", "pid", "expected"),
    [
        ({"mode": "sweep", "concurrencies": [512]}, None, "benchmark_model_concurrencies: 512. Expected: at most 8."),
        ({}, 7, "gb10-benchmark.service runs on spark1."),
        ({"busy_ok": False}, None, "2 requests of other clients run or wait."),
    ],
)
def test_the_action_refuses(tmp_path: Path, changes: dict[str, Any], pid: int | None, expected: str) -> None:
    sizes = {"concurrencies": [1], "input_tokens": [512], "output_tokens": 64, "timeout": 600}
    found, calls = decide(
        "benchmark_runs",
        {"mode": "single", **sizes, "busy_ok": True, "api": API, **changes},
        plan(tmp_path, "http://127.0.0.1:8000", False),
        result={"service": {"pid": pid}},
    )
    assert found["failed"] and expected in found["msg"]
    assert calls == [{"name": "gb10-benchmark.service"}]


@pytest.mark.parametrize(("there", "data"), [(True, "speed-bench"), (False, "text")])
def test_the_action_looks_for_speed_bench(tmp_path: Path, there: bool, data: str) -> None:
    sizes = {"concurrencies": [1], "input_tokens": [512], "output_tokens": 64, "timeout": 600}
    found, calls = decide(
        "benchmark_runs",
        {"mode": "speed-bench", "speed_bench": "/srv/speed", **sizes, "busy_ok": True, "api": API},
        plan(tmp_path, "http://127.0.0.1:8000", False),
        result={"service": {"pid": None}, "stat": {"isreg": there}},
    )
    assert calls[1] == {"path": "/srv/speed/throughput_8k.jsonl"}
    assert [run["data"] for run in found["runs"]] == [data]
    command = " ".join(found["runs"][0]["command"])
    assert ("/srv/speed" in command) is there
    # The program that vLLM's Python runs.
    assert "--dataset-name=custom" in command and "def texts(" in command

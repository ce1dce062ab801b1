# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runs of a benchmark of the served model, and the command of each: vLLM's own ``vllm bench serve`` on the head.

Source of the options: vLLM's benchmarks/serve.py and benchmarks/datasets, equal in 0.18.1, 0.32.0 and 0.33.0.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Expected, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: The unit of a run, and its container.
UNIT = "gb10-benchmark"
SWEEP, SPEED_MODE = "sweep", "speed-bench"
_DEPTHS = (0, 4096, 8192, 16384, 32768, 65535, 100000)
#: The variable with the key for vLLM's client. Source: vLLM, benchmarks/lib/endpoint_request_func.py.
KEY_VARIABLE = "OPENAI_API_KEY"
#: The runs of each mode as (concurrency, input tokens, output tokens, requests); SWEEP has the user's.
MODES: Mapping[str, Sequence[tuple[int, int, int, int]]] = {
    "single": ((1, 1024, 256, 6),),
    "quick": ((1, 1024, 128, 6), (8, 1024, 128, 24)),
    "full": (
        (1, 1024, 256, 8),
        (2, 1024, 256, 8),
        (4, 1024, 256, 16),
        (8, 1024, 256, 32),
        (16, 1024, 256, 64),
        (32, 1024, 256, 96),
        (1, 16384, 256, 4),
        (4, 16384, 256, 8),
    ),
    SWEEP: (),
    # The profile throughput_8k of nvidia/SPEED-Bench, as in NVIDIA's performance.yaml.
    SPEED_MODE: ((1, 8192, 256, 10),),
    # Depth is text before the prompt of 2048 tokens. Source: llama-benchy 0.4.0, config.py and README.
    "llama-benchy": tuple((1, depth + 2048, output, 3) for depth in _DEPTHS[:5] for output in (32, 128)),
    # Source: sparkrun's profile spark-arena-v2, and the commands of published results.
    "spark-arena": tuple((many, depth + 2048, 128, 3 * many) for depth in _DEPTHS for many in (1, 2, 5, 10)),
}
#: The modes with other people's conditions: natural text, and the server's own temperature.
OTHERS = (SPEED_MODE, "llama-benchy", "spark-arena")
#: The kinds of prompts, and the words for each.
AUTO, RANDOM, TEXT, SPEED_BENCH = "auto", "random", "text", "speed-bench"
DATA = (AUTO, RANDOM, TEXT)
_WORDS: Mapping[str, str] = {RANDOM: "", TEXT: " of text", SPEED_BENCH: " of SPEED-Bench"}
#: The file of SPEED-Bench in a folder, and the paths that a container's mount and the client take.
_SPEED_FILE = "throughput_8k.jsonl"
_FOLDER = re.compile(r"(/[\w.+-]+)+/?", re.ASCII)
#: vLLM's client for each kind: its backend, the endpoint, its other arguments, and the measured latencies. An embedding
#: has one latency, that of the whole answer. A question in a chat gets a natural answer.
_BACKENDS: Mapping[str, tuple[str, str, Sequence[str], str]] = {
    "generate": ("openai", "/v1/completions", ("--ignore-eos", "--temperature=0"), "ttft,tpot,itl"),
    "embed": ("openai-embeddings", "/v1/embeddings", (), "e2el"),
    "chat": ("openai-chat", "/v1/chat/completions", (), "ttft,tpot,itl"),
}
#: A tokenizer can add some tokens to a prompt. A chat's template adds more, and rows of SPEED-Bench have up to 8,856
#: tokens. At most a quarter of the context.
_SPARE, _SPARE_TEXT = 16, 1024
_LEAST = 8
#: Most bytes of a result. Without --save-detailed it has about 10 KB and some bytes for each request.
MOST = 4 * 1024**2
#: Seconds until the client has imported vLLM and read the tokenizer, and a typical share of the roofline. Estimates.
_START, _SHARE = 30, 0.6
#: The unit's time after the limit of the client, which ends by itself first.
_GRACE = 60
_ENVIRONMENT = (
    "HF_HUB_OFFLINE=1",
    "VLLM_NO_USAGE_STATS=1",
    # The client uses proxies from the environment, and the server is on this host.
    "NO_PROXY=*",
    "no_proxy=*",
)
#: The variables of the ranks, on which the runtime may depend.
_RANKS = f"EnvironmentFile=-{paths.RANK_ENVIRONMENT}"
#: The key is a credential of the unit. An argument or a variable of a transient unit would be readable by every user.
_WITH_KEY = f'{KEY_VARIABLE}=$(cat "$CREDENTIALS_DIRECTORY/key") && export {KEY_VARIABLE} && exec "$@"'
#: The unit and the container have their own /tmp, so that the result is all that leaves them.
_RESULT = (
    'folder=$(mktemp -d) && timeout {seconds} "$@" "--result-dir=$folder" >&2 '
    '&& exec head -c {most} "$folder/result.json"'
)


@dataclass(frozen=True)
class Run:
    """One run: ``requests`` with ``input_tokens`` and ``output_tokens`` each, ``concurrency`` at a time.

    An embedding model has 0 ``output_tokens``. ``data``: RANDOM, TEXT or SPEED_BENCH. Answers to the last two may end
    early.
    """

    concurrency: int
    input_tokens: int
    output_tokens: int
    requests: int
    data: str = RANDOM

    @property
    def name(self) -> str:
        """The run in words."""
        return f"{self.concurrency} at a time, {self.input_tokens} + {self.output_tokens} tokens{_WORDS[self.data]}"


@dataclass(frozen=True)
class BenchmarkSettings:
    """The variables of the role benchmark_model without their prefix. ``timeout``: seconds for each run.

    ``concurrencies``, ``input_tokens`` and ``output_tokens`` are for SWEEP. ``seed`` must differ in each benchmark:
    equal prompts would come from the prefix cache. ``context``: the server's maximum tokens of a request, 0 if unknown.
    ``speed_bench``: the head's folder with SPEED-Bench, "" without one.
    """

    mode: str
    concurrencies: Sequence[int]
    input_tokens: Sequence[int]
    output_tokens: int
    seed: int
    timeout: int
    context: int = 0
    data: str = AUTO
    speed_bench: str = ""


def problems(plan: Plan, settings: BenchmarkSettings) -> list[Problem]:
    """Return all errors in the settings, and the runs of a sweep that the planned server cannot serve."""
    found = []
    if plan.kind not in _BACKENDS:
        kinds = f"a model of the kind {' or '.join(_BACKENDS)}, whose requests have one length"
        found.append(Problem("gb10_model", f"the model is of the kind {plan.kind}", kinds, "use another model"))
    for name, values in (
        ("concurrencies", settings.concurrencies),
        ("input_tokens", settings.input_tokens),
        ("output_tokens", [settings.output_tokens]),
        ("timeout", [settings.timeout]),
    ):
        if not values or min(values) < 1:
            found.append(
                Problem(f"benchmark_model_{name}", str(values), "numbers above 0", f"correct benchmark_model_{name}")
            )
    if settings.speed_bench and not _FOLDER.fullmatch(settings.speed_bench):
        found.append(
            Problem(
                "benchmark_model_speed_bench",
                settings.speed_bench[:100],
                "an absolute path of letters, digits and ._+-",
                "correct benchmark_model_speed_bench",
            )
        )
    expected = _limits(plan, settings)
    if settings.mode != SWEEP or found:
        return found
    spare = _spare(expected.context, _data(plan, settings))
    longest, most = max(settings.input_tokens) + settings.output_tokens + spare, max(settings.concurrencies)
    if 0 < expected.context < longest:
        fix = "shorten the requests, or raise gb10_max_model_len"
        found.append(
            Problem(
                "benchmark_model_input_tokens",
                f"requests of {longest} tokens",
                f"at most {expected.context} tokens",
                fix,
            )
        )
    if 0 < expected.max_num_seqs < most:
        fix = "lower it, or raise gb10_max_num_seqs; vLLM would queue the other requests"
        found.append(Problem("benchmark_model_concurrencies", str(most), f"at most {expected.max_num_seqs}", fix))
    return found


def runs(plan: Plan, settings: BenchmarkSettings) -> list[Run]:
    """Return the runs of a mode, each once. Those of a fixed mode are cut to the limits of the planned server."""
    generates, data = plan.kind == "generate", _data(plan, settings)
    if settings.mode == SWEEP:
        return [
            Run(concurrency, tokens, settings.output_tokens * generates, max(_LEAST, 2 * concurrency), data)
            for tokens in dict.fromkeys(settings.input_tokens)
            for concurrency in dict.fromkeys(settings.concurrencies)
        ]
    modes = [
        Run(concurrency, tokens, output * generates, requests, data)
        for concurrency, tokens, output, requests in MODES[settings.mode]
    ]
    cut = list(dict.fromkeys(_cut(run, _limits(plan, settings)) for run in modes))
    if data == TEXT and settings.mode == SPEED_MODE and settings.speed_bench and cut == modes:
        return [replace(run, data=SPEED_BENCH) for run in cut]
    return cut


def _data(plan: Plan, settings: BenchmarkSettings) -> str:
    """Return RANDOM or TEXT. A draft cannot foresee random tokens."""
    if plan.kind != "generate":
        return RANDOM
    if settings.data != AUTO:
        return settings.data
    return TEXT if settings.mode in OTHERS or plan.serve.expected.speculative else RANDOM


def _spare(context: int, data: str) -> int:
    return _SPARE if data == RANDOM else min(_SPARE_TEXT, context // 4)


def _limits(plan: Plan, settings: BenchmarkSettings) -> Expected:
    """Return the plan's limits with the context of the running server: the memory of a CPU build is not planned."""
    expected = plan.serve.expected
    return replace(expected, context=settings.context or expected.context)


def _cut(run: Run, expected: Expected) -> Run:
    if context := expected.context:
        output = min(run.output_tokens, max(1, context // 4))
        longest = max(1, context - output - _spare(context, run.data))
        run = replace(run, output_tokens=output, input_tokens=min(run.input_tokens, longest))
    if most := expected.max_num_seqs:
        run = replace(run, concurrency=min(run.concurrency, most), requests=min(run.requests, max(_LEAST, 4 * most)))
    return run


def seconds(plan: Plan, run: Run) -> int:
    """Return the estimated time of a run, 0 if unknown, without the time to read long prompts."""
    speed = plan.serve.expected.tokens_per_second * _SHARE
    rounds = -(-run.requests // run.concurrency)
    return _START + round(rounds * run.output_tokens / speed) if speed else 0


def lines(plan: Plan, chosen: Sequence[Run]) -> list[str]:
    """Return a line for each run with its size, its prompts and its estimated time."""
    times = [(run, seconds(plan, run)) for run in chosen]
    return [f"{run.name}, {run.requests} requests{f', about {time} s' if time else ''}" for run, time in times]


def command(plan: Plan, run: Run, settings: BenchmarkSettings, program: str) -> list[str]:
    """Return the argv for root on the head. Its standard output is the result of ``vllm bench serve`` alone.

    Without the key: systemd reads it. The owner of a container is the numeric user of gb10_service_user. ``program``:
    of io_prompts.
    """
    native = plan.runtime.kind == stacks.NATIVE
    script = _RESULT.format(seconds=settings.timeout, most=MOST + 1)
    saved = ["/usr/bin/env", *_ENVIRONMENT, "/bin/sh", "-c", script, "sh", *client(plan, run, settings, program)]
    variables = [KEY_VARIABLE] if plan.api_key else []
    files = [speed_file(settings)] if run.data == SPEED_BENCH else []
    inner = launch_argv.client_argv(plan, UNIT, variables, saved, plan.node.state.service_user, files)
    limits = [f"RuntimeMaxSec={settings.timeout + _GRACE}", *([_RANKS] if native else [])]
    if plan.api_key:
        inner = ["/bin/sh", "-c", _WITH_KEY, "sh", *inner]
        limits.append(f"LoadCredential=key:{paths.API_KEY[0]}")
    return [
        *confinement.transient(plan.user if native else "", plan.writable, limits),
        f"--unit={UNIT}",
        # Otherwise it would be the command, with the program.
        "--description=Benchmark of the served model",
        # systemd replaces variables in the command.
        *(word.replace("$", "$$") for word in inner),
    ]


def speed_file(settings: BenchmarkSettings) -> str:
    """Return the path of SPEED-Bench's prompts."""
    return f"{settings.speed_bench.rstrip('/')}/{_SPEED_FILE}"


def client(plan: Plan, run: Run, settings: BenchmarkSettings, program: str) -> list[str]:
    """Return the argv of vLLM's client. The warm-up repeats the first prompt, so the prefix cache has that one."""
    given = [*plan.serve.args, *plan.serve.user_args]
    backend, endpoint, more, latencies = _BACKENDS[plan.kind if run.data == RANDOM else "chat"]
    # The runs of a benchmark have different prompts, too.
    seed = f"{settings.seed}-{run.concurrency}-{run.input_tokens}-{run.output_tokens}"
    if run.data == RANDOM:
        start = [launch_argv.program(plan, "vllm")]
        # The client needs an output, and requests none of an embedding model.
        dataset = [f"--random-input-len={run.input_tokens}", f"--random-output-len={run.output_tokens or 1}"]
    else:
        source = {"tokens": run.input_tokens, "words": run.output_tokens, "seed": seed}
        start = [launch_argv.program(plan, "python3"), "-c", program]
        start.append(json.dumps({**source, "file": speed_file(settings) if run.data == SPEED_BENCH else ""}))
        # The server applies the chat's template.
        dataset = [f"--custom-output-len={run.output_tokens}", "--skip-chat-template"]
        more = () if settings.mode in OTHERS else ("--temperature=0",)
    return [
        *start,
        "bench",
        "serve",
        f"--backend={backend}",
        f"--base-url={plan.api.url}",
        f"--endpoint={endpoint}",
        f"--model={plan.served_model_name}",
        f"--tokenizer={plan.model}",
        *(["--trust-remote-code"] if "--trust-remote-code" in given else []),
        f"--dataset-name={'random' if run.data == RANDOM else 'custom'}",
        *dataset,
        f"--num-prompts={run.requests}",
        f"--max-concurrency={run.concurrency}",
        f"--num-warmups={3 if settings.mode == SPEED_MODE else 1}",
        *more,
        f"--seed={zlib.crc32(seed.encode())}",
        f"--percentile-metrics={latencies}",
        "--metric-percentiles=99",
        "--disable-tqdm",
        "--save-result",
        "--result-filename=result.json",
        # The head's own address is not in the certificate. The module verified that the unit owns the port.
        *(["--insecure"] if plan.api_tls else []),
    ]

"""The parts of a start: a recorded one, one on GPUs, and logs that say less."""

from __future__ import annotations

import start_logs

from ansible_collections.gb10.cluster.plugins.module_utils.launch import log_line, start

#: A start of two lab hosts with Ray and vLLM 0.32.0 (CPU build), recorded and abridged: seconds of the journal, text.
RAY = [
    (1139.4, "Starting gb10-vllm.service - vLLM on the GB10 cluster..."),
    (1139.9, "Ray counts all 2 nodes"),
    (1140.9, "gb10-gates open after 0 s"),
    (1157.6, "W1201 00:19:17.595000 2005 torch/_library/triton.py:53] Triton not available, find_triton_kernels = []"),
    (1158.9, "(APIServer pid=2005) INFO 12-01 00:19:18 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0"),
    (1171.5, "(APIServer pid=2005) INFO 12-01 00:19:31 [model.py:733] Resolved architecture: LlamaForCausalLM"),
    (1171.8, "(EngineCore pid=2141) INFO 12-01 00:19:31 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config"),
    (1205.8, "(RayWorkerProc pid=2161) (Worker_TP0 pid=2161) INFO 12-01 00:20:02 [c.py:68] Starting to load model /m..."),
    (1205.8, "(RayWorkerProc pid=1484, ip=10.110.0.2) (Worker_TP1 pid=1484) INFO 12-01 00:20:03 [c.py:68] Starting to load model /m..."),
    (1205.8, "(RayWorkerProc pid=2161) (Worker_TP0 pid=2161) INFO 12-01 00:20:04 [d.py:501] Loading weights took 0.07 seconds"),
    (1205.8, "(EngineCore pid=2141) INFO 12-01 00:20:05 [k.py:2327] CPU KV cache size: 32,768 tokens, Maximum"),
    (1206.0, "(EngineCore pid=2141) INFO 12-01 00:20:06 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.25 s"),
    (1209.4, "(APIServer pid=2005) INFO 12-01 00:20:09 [launcher.py:186] Available routes are:"),
    (1209.6, "INFO:     Application startup complete."),
    (1300.0, "(Worker_TP0 pid=2161) INFO 12-01 00:21:40 [d.py:501] Loading weights took 9 seconds"),
]  # fmt: skip
#: The second start of two lab hosts with one H200, Ray, and vLLM 0.33.0 with its second model runner, the same way.
SECOND_RUNNER = [
    (0.0, "Starting gb10-vllm.service - vLLM on the GB10 cluster..."),
    (1.0, "gb10-gates open after 0 s"),
    (14.0, "(APIServer pid=12214) INFO 12-01 05:02:28 [startup.py:38]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.33.0"),
    (31.0, "(EngineCore pid=12390) INFO 12-01 05:02:45 [core.py:139] Initializing a V1 LLM engine (v0.33.0) with config"),
    (56.0, "(RayWorkerProc pid=13314) (Worker_TP0 pid=13314) INFO 12-01 05:03:07 [model_runner.py:399] Loading model from scratch..."),
    (56.0, "(RayWorkerProc pid=13314) (Worker_TP0 pid=13314) INFO 12-01 05:03:07 [default_loader.py:506] Loading weights took 0.11 seconds"),
    (56.0, "(RayWorkerProc pid=13314) (Worker_TP0 pid=13314) INFO 12-01 05:03:10 [model_runner.py:428] Model loading took 0.05 GiB memory and 3.443184 seconds"),
    (66.0, "(RayWorkerProc pid=13314) (Worker_TP0 pid=13314) INFO 12-01 05:03:12 [monitor.py:62] [backbone] torch.compile took 0.28 s in total"),
    (66.0, "(EngineCore pid=12390) INFO 12-01 05:03:20 [kv_cache_utils.py:1147] GPU KV cache size: 21,484,480 tokens, Maximum"),
    (83.0, "(RayWorkerProc pid=13314) (Worker_TP0 pid=13314) INFO 12-01 05:03:35 [model_runner.py:1163] Graph capturing finished in 7 secs, took 0.21 GiB"),
    (83.0, "(EngineCore pid=12390) INFO 12-01 05:03:37 [core.py:405] init engine (profile, create kv cache, warmup model) took 26.32 s (compilation: 0.29 s)"),
    (89.0, "INFO:     Application startup complete."),
]  # fmt: skip
PARTS = {
    "gates": 1.5,
    "imports": 18.0,
    "config": 12.9,
    "ranks": 31.2,
    "weights": 1.0,
    "memory": 1.8,
    "engine": 0.2,
    "server": 3.6,
}


def test_a_recorded_start_has_the_seconds_of_its_log_and_not_those_of_rays_batches() -> None:
    assert start.read(RAY) == PARTS
    assert start.summary(PARTS) == (
        "ready after 70 s (gates 2, imports 18, config 13, ranks 31, weights 1, memory 2, server 4)"
    )


def test_a_start_of_the_second_model_runner_has_all_parts() -> None:
    assert start.summary(start.read(SECOND_RUNNER)) == (
        "ready after 89 s (gates 1, imports 13, config 17, ranks 22, weights 3, compile 2, memory 8, kernels 8, graphs 7, "
        "engine 2, server 6)"
    )


def test_graphs_have_their_own_seconds_and_the_kernels_those_before() -> None:
    lines = start_logs.H200.splitlines()
    clocks = [log_line.clock(line) for line in lines]
    # The journal got the lines of the ranks 20 s late, and those of the engine at once.
    known = [clock for clock in clocks if clock]
    whens = [
        clock + (0 if "EngineCore" in line else 20)
        if clock
        else known[0] - 1
        if line.startswith("Start")
        else known[-1] + 30
        for clock, line in zip(clocks, lines, strict=True)
    ]
    found = start.read(list(zip(whens, lines, strict=True)))
    assert list(found) == ["config", "weights", "compile", "memory", "kernels", "graphs", "server"]
    assert [found[name] for name in ("weights", "compile", "kernels", "graphs")] == [8.0, 6.0, 1.0, 7.0]
    assert sum(found.values()) == whens[-1] - whens[0]


def test_a_start_that_is_not_ready_has_no_parts() -> None:
    assert start.read(RAY[:-2]) == {} == start.read([])
    assert start.summary({}) == ""


def test_another_clock_counts_no_more_than_the_journal() -> None:
    """A worker's clock is a day behind, one is ahead, and one line's time is none."""
    lines = [
        (when, text.replace("12-01 00:20:03", "11-30 00:20:03").replace("12-01 00:20:04", "12-41 00:20:04"))
        for when, text in RAY
    ]
    found = start.read(lines)
    # The day behind would otherwise move all others.
    assert round(sum(found.values()), 1) == 70.2 and all(seconds >= 0 for seconds in found.values())
    ahead = start.read([(when, text.replace("12-01 00:20:03", "12-01 00:29:03")) for when, text in RAY])
    assert round(sum(ahead.values()), 1) == 70.2


def test_a_part_without_a_message_counts_for_the_next() -> None:
    found = start.read([entry for entry in RAY if "Initializing" not in entry[1]])
    assert "config" not in found and round(found["ranks"], 1) == 44.1
    assert start.summary({"gates": 0.4, "server": 9.6}) == "ready after 10 s (server 10)"

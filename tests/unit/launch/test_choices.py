"""The choices that each rank logs: recorded starts, hostile lines, and the stored form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT
from start_logs import CPU, CUDA, H200

from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices


def process(name: str, address: str = "", **found: list[str]) -> dict[str, Any]:
    return {"process": name, "address": address, "found": found}


def test_a_recorded_start_on_cpus_has_no_choice() -> None:
    lines = (ROOT / "tests/unit/data/logs/ray_tp2_success.log").read_text(encoding="utf-8").splitlines()
    read = choices.read(lines)
    assert choices.summary(read) == ""
    assert read == [
        process("EngineCore", release=["0.32.0"], kv_cache=["524,288 tokens"]),
        process("Worker_TP0", weights_seconds=["0.05"]),
    ]


def test_the_second_rank_of_a_host_is_silent() -> None:
    read = choices.read(CPU.splitlines())
    assert [each["process"] for each in read] == ["EngineCore", "Worker_TP0"]
    assert read[1]["found"] == {"moe_backend": ["CPU Unquantized"], "weights_seconds": ["0.15"]}


def test_the_choices_of_each_rank() -> None:
    assert choices.read(CUDA.splitlines()) == [
        process(
            "EngineCore",
            release=["0.33.0"],
            device=["cuda"],
            speculative=["SpeculativeConfig"],
            prefix_caching=["True"],
            kv_cache=["1,823,372 tokens"],
        ),
        process("RayWorkerProc", "10.110.0.2", attention=["TRITON_ATTN"], sampler=["native"]),
        process(
            "Worker_TP0",
            attention=["FLASH_ATTN"],
            moe_backend=["MARLIN NvFp4", "FlashInfer CUTLASS Unquantized"],
            kernel=["CutlassFP8ScaledMMLinearKernel"],
            weight_only=["FP4"],
            table=["MoE config"],
            patch=["cutlass_fp8_supported() is False on 12.1", "CutlassFP8ScaledMMLinearKernel is off on 12.1"],
            autotune=["off"],
            network=["IB", "Socket"],
            nccl=["2.30.7"],
            graphs=["Graph capturing finished"],
            graph_seconds=["14"],
            compile_seconds=["21.50", "30.25"],
            fallback=["MXFP4 linear layer is not implemented - falling back to UnquantizedLinearMethod."],
        ),
    ]


def test_the_choices_of_two_h200_in_one_host() -> None:
    read = choices.read(H200.splitlines())
    assert [each["process"] for each in read] == ["EngineCore", "Worker_TP0"]
    assert read[1]["found"] == {
        "nccl": ["2.28.9"],
        "sampler": ["FlashInfer"],
        "attention": ["FLASH_ATTN"],
        "moe_backend": ["TRITON Fp8"],
        "kernel": ["CutlassFP8ScaledMMLinearKernel"],
        "weights_seconds": ["3.25"],
        "model_seconds": ["4.512345"],
        "compile_seconds": ["6.25"],
        "kv_gib": ["100.52"],
        "autotune": ["on"],
        "graphs": ["Graph capturing finished"],
        "graph_seconds": ["7"],
    }
    assert "alice" not in json.dumps(read)
    shown = (
        "attention FLASH_ATTN; MoE TRITON Fp8; linear layers CutlassFP8ScaledMMLinearKernel; sampler FlashInfer; "
        "autotuning on"
    )
    assert choices.summary(read) == shown


def test_the_kernels_that_ray_would_drop_as_repeated_lines_differ() -> None:
    """Without RAY_DEDUP_LOGS=0 Ray compares lines without their words that contain digits."""
    lines = [
        f"(Worker_TP{rank} pid={rank}) INFO 11-21 19:20:02 [a.py:1] Selected {name} for Fp8"
        for rank, name in enumerate(("AFP8", "BFP8"))
    ]
    first, second = choices.read(lines)
    assert choices.differ(first["found"]["kernel"], second["found"]["kernel"])


@pytest.mark.parametrize(
    "line",
    [
        f"Selected {'K' * 61} for Q",
        "Using $(reboot) Fp8 MoE backend out of potential backends",
        "Graph capturing finished in 1e9 secs",
        "Received request: Selected A for B",
        f"{' ' * 5000}Selected A for B",
        "NCCL version 2.27.3 or higher is required for NCCL symmetric memory",
    ],
)
def test_other_lines_have_no_value(line: str) -> None:
    read = choices.read([f"(Worker_TP0 pid=1) INFO 11-21 19:20:02 [a.py:1] {line}", line])
    assert {name for each in read for name in each["found"]} <= {"graphs"}


def test_the_name_of_a_process_is_its_last_one() -> None:
    lines = [
        "(Worker pid=7) INFO 1-1 1:1 [a.py:1] vLLM is using nccl==2.30.7",
        "(Worker_PP0_TP1 pid=7) INFO 1-1 1:1 [a.py:1] Selected A for B",
        "(RayWorkerProc pid=7) spark1:7:9 [0] NCCL INFO Using network IB",
    ]
    assert choices.read(lines) == [process("Worker_PP0_TP1", nccl=["2.30.7"], kernel=["A"], network=["IB"])]


@given(st.lists(st.text(max_size=80)))
def test_any_line_is_read(lines: list[str]) -> None:
    assert isinstance(choices.summary(choices.read(lines)), str)


def ranks(count: int, *texts: str) -> list[str]:
    return [
        f"(Worker_TP{number} pid={number}) INFO 11-25 10:00:00 [a.py:1] {text}"
        for number in range(count)
        for text in texts
    ]


def test_a_log_has_limits() -> None:
    assert len(choices.read(ranks(70, "Graph capturing finished in 3 secs"))) == 64
    (one,) = choices.read(ranks(1, *(f"Loading weights took {number}.5 seconds" for number in range(20))))
    assert one["found"]["weights_seconds"] == [f"{number}.5" for number in range(16)]


def test_the_ranks_of_a_message() -> None:
    found = [
        process("Worker_PP1_TP0", nccl=["2"]),
        process("", nccl=["3"]),
        process("APIServer", nccl=["2"]),
        process("Worker_TP1", nccl=[]),
    ]
    assert choices.ranks(found, "nccl") == found[:2]
    assert [choices.stage(each) for each in found] == ["PP1", "", "", ""]
    assert choices.values(found, "nccl") == ["2", "3"]
    differ = [
        (["a"], ["a", "b"], False),
        (["a", "b"], ["b", "c"], True),
        ([], ["a"], False),
        (["a"], ["b"], True),
        (["a"], ["a"], False),
    ]
    for one, other, expected in differ:
        assert choices.differ(one, other) is choices.differ(other, one) is expected


def test_all_ranks_must_make_these_choices_alike() -> None:
    compared = {name for name, message in choices.MESSAGES.items() if message.compared}
    assert compared == {"attention", "moe_backend", "kernel", "sampler", "autotune", "nccl", "network"}
    assert {name for name, message in choices.MESSAGES.items() if message.warning} == {
        "table",
        "weight_only",
        "fallback",
    }

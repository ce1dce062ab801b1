"""The free memory required for a launch: the refusal, the processes in it, and no needless waiting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim, reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.memory.reclaim import GIB

STATUS = "Name:\tVLLM::Worker_TP0\nUmask:\t0022\nVmPeak:\t 9000000 kB\nVmRSS:\t 3145728 kB\nThreads:\t12\n"
PROCESSES = [{"pid": number, "name": f"p{number}", "bytes": number * GIB} for number in range(1, 9)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (STATUS, ("VLLM::Worker_TP0", 3 * GIB)),
        ("Name:\tkthreadd\nThreads:\t1\n", None),
        ("Name:\tx\rVmRSS: 9 kB\x1b\nVmRSS:\t 4 kB\n", ("xVmRSS: 9 kB", 4096)),
        ("Name:\tx\nVmRSS: all\n", None),
        ("", None),
    ],
)
def test_the_resident_memory_of_a_process(status: str, expected: Any) -> None:
    assert reclaim.resident(status) == expected


OTHER = {"pid": 7, "name": "other", "bytes": GIB}


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (0, "7, other, 1024\n900, python3, [N/A]\n", [OTHER, {"pid": 900, "name": "python3", "bytes": None}]),
        (0, "No devices were found\n", []),
        (0, "7, other\n, name, 1\nx, name, 1\n7, name, 1, more\n", []),
        (1, "7, other, 1024\n", []),
        (-9, "7, other, 1024\n", []),
    ],
)
def test_the_processes_on_the_gpu(status: int, said: str, expected: list[Any]) -> None:
    assert io_reclaim.gpu_processes(lambda _argv: (status, said, "")) == expected


def test_a_refusal_has_numbers_and_names() -> None:
    gpu = [{"pid": 812, "name": "VLLM::EngineCore", "bytes": None}]
    assert reclaim.refusal("spark1", 10 * GIB, 10 * GIB, 120 * GIB, 0, PROCESSES, gpu) is None
    problem = reclaim.refusal("spark1", 96 * GIB, 20 * GIB, 120 * GIB, 61.4, PROCESSES, gpu)
    assert str(problem) == (
        "spark1.memory: spark1 has 20.0 of 120.0 GiB memory available after waiting 61 s; "
        "the largest processes are p8 (pid 8, 8.0 GiB), p7 (pid 7, 7.0 GiB), p6 (pid 6, 6.0 GiB), p5 (pid 5, 5.0 GiB), "
        "p4 (pid 4, 4.0 GiB); the GPU processes are VLLM::EngineCore (pid 812, unknown). "
        "Expected: 96.0 GiB available, as in the memory plan. "
        "Fix: stop the processes that hold the memory; if there are none, reboot the node."
    )


def test_it_waits_until_memory_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([1, 2, 3])
    monkeypatch.setattr(io_reclaim, "available", lambda: next(found))
    monkeypatch.setattr(io_reclaim.time, "sleep", lambda _seconds: None)
    assert io_reclaim.wait(3, 60)[0] == 3


@pytest.mark.parametrize(("timeout", "pauses"), [(3, 3), (0, 0), (2.5, 3)])
def test_the_wait_ends(monkeypatch: pytest.MonkeyPatch, timeout: float, pauses: int) -> None:
    now = [100.0]
    monkeypatch.setattr(io_reclaim, "available", lambda: 1)
    monkeypatch.setattr(io_reclaim.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(io_reclaim.time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    assert io_reclaim.wait(2, timeout) == (1, float(pauses))
    assert io_reclaim.wait(1, timeout) == (1, 0.0)


def test_this_process_is_found() -> None:
    (found,) = [process for process in io_reclaim.processes() if process["pid"] == os.getpid()]
    assert found["name"] == Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert found["bytes"] > 1 << 20


def test_caches_are_given_up(tmp_path: Path) -> None:
    file = tmp_path / "drop_caches"
    io_reclaim.drop_caches(str(file))
    assert file.read_text(encoding="ascii") == "3"


@pytest.mark.parametrize(
    ("given", "check", "refused"),
    [
        ({"needed": 1 << 60, "timeout": 0}, False, True),
        ({"needed": 1 << 60, "timeout": 0, "required": False}, False, True),
        ({"needed": 0, "timeout": 600}, False, False),
        # Check mode neither drops the cache nor waits.
        ({"needed": 1 << 60, "timeout": 600, "drop_caches": True}, True, True),
    ],
    ids=["refused", "told", "enough", "check mode"],
)
def test_the_module(tmp_path: Path, given: dict[str, Any], check: bool, refused: bool) -> None:
    path = program(tmp_path, "nvidia-smi", "echo '7, other, 1024'")
    answer = run_module("memory_wait", {"node": "spark1", "drop_caches": False, **given}, path, check)
    failed = refused and not check and given.get("required", True)
    text = answer["msg"] if failed else answer["problem"]
    assert (answer.get("failed", False), text.startswith("spark1.memory: ")) == (failed, refused)
    assert not refused or "the GPU processes are other (pid 7, 1.0 GiB)" in text
    assert failed or (answer["changed"], answer["waited"] == 0.0, answer["available"] > 0) == (False, True, True)

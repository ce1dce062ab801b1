"""The free memory required for a launch: the refusal, the processes in it, and no needless waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim, reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.memory.reclaim import GIB

STATUS = "Name:\tVLLM::Worker_TP0\nUmask:\t0022\nVmPeak:\t 9000000 kB\nVmRSS:\t 3145728 kB\nThreads:\t12\n"
PROCESSES = [{"pid": number, "name": f"p{number}", "bytes": number * GIB} for number in range(1, 9)]


def test_resident() -> None:
    assert reclaim.resident(STATUS) == ("VLLM::Worker_TP0", 3 * GIB)
    assert reclaim.resident("Name:\tkthreadd\nThreads:\t1\n") is None
    assert reclaim.resident("") is None


def test_gpu_processes() -> None:
    said = "812, VLLM::EngineCore, 51200\n900, python3, [N/A]\n"
    assert reclaim.gpu_processes(said) == [
        {"pid": 812, "name": "VLLM::EngineCore", "bytes": 50 * GIB},
        {"pid": 900, "name": "python3", "bytes": None},
    ]
    assert reclaim.gpu_processes("No devices were found\n") == []
    assert reclaim.gpu_processes("7, other\n, name, 1\nx, name, 1\n7, name, 1, more\n") == []


def test_enough_is_no_problem() -> None:
    assert reclaim.refusal("spark1", 10 * GIB, 10 * GIB, 120 * GIB, 0, [], []) is None


def test_a_refusal_has_numbers_and_names() -> None:
    gpu = [{"pid": 812, "name": "VLLM::EngineCore", "bytes": None}]
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


@pytest.mark.parametrize("status", [0, 1, -9])
def test_the_processes_on_the_gpu(status: int) -> None:
    found = io_reclaim.gpu_processes(lambda _argv: (status, "7, other, 1024\n", ""))
    assert found == ([{"pid": 7, "name": "other", "bytes": GIB}] if status == 0 else [])


def test_this_process_is_found() -> None:
    (found,) = [process for process in io_reclaim.processes() if process["pid"] == os.getpid()]
    assert found["name"] == Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert found["bytes"] > 1 << 20


def test_caches_are_given_up(tmp_path: Path) -> None:
    file = tmp_path / "drop_caches"
    io_reclaim.drop_caches(str(file))
    assert file.read_text(encoding="ascii") == "3"


def test_the_module_refuses_or_tells(tmp_path: Path) -> None:
    path = program(tmp_path, "nvidia-smi", "echo '7, other, 1024'")
    given = {"node": "spark1", "needed": 1 << 60, "timeout": 0, "drop_caches": False}
    refused = run_module("memory_wait", given, path)
    assert refused["failed"] and "the GPU processes are other (pid 7, 1.0 GiB)" in refused["msg"]
    told = run_module("memory_wait", {**given, "required": False}, path)
    assert told["changed"] is False
    assert told["problem"].startswith("spark1.memory: ")


def test_the_module_has_nothing_to_wait_for() -> None:
    answer = run_module("memory_wait", {"node": "spark1", "needed": 0, "timeout": 600, "drop_caches": False})
    assert (answer["problem"], answer["waited"]) == ("", 0.0)
    assert answer["available"] > 0


def test_check_mode_neither_drops_nor_waits() -> None:
    answer = run_module("memory_wait", {"node": "spark1", "needed": 1 << 60, "timeout": 600}, check=True)
    assert (answer["waited"], answer.get("failed", False)) == (0.0, False)
    assert answer["problem"]

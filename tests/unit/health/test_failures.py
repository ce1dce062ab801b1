"""The cause in logs of several processes, chains of exceptions and later consequences.

The logs have the form of public reports (vllm-project/vllm#52877, #57423; eugr/spark-vllm-docker#348; LocalAI#10722).
"""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.health import failures, symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.health.kinds import KINDS, Kind

ENGINE = "(EngineCore pid=171) ERROR 09-10 08:23:49 [core.py:1242] "
RANK0, RANK1 = (f"(Worker_TP{rank} pid=30{rank}) ERROR 09-10 08:23:49 [multiproc_executor.py:987] " for rank in "01")
API = "(APIServer pid=1) ERROR 09-10 08:24:10 [async_llm.py:704] "
TRACEBACK = "Traceback (most recent call last):"
DIRECT = "The above exception was the direct cause of the following exception:"
HANDLING = "During handling of the above exception, another exception occurred:"
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)."
WATCHDOG = (
    "[rank3]:[E907 14:09:45.118 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88121, OpType=_ALLGATHER_BASE) ran for 600012 milliseconds before timing out."
)
TRITON = "RuntimeError: Triton Error [CUDA]: operation not permitted"
CLOSED = "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.110.0.2]:41022"


def frame(path: str, function: str) -> str:
    return f'  File "/usr/lib/python3/dist-packages/{path}", line 7, in {function}'


def raised(prefix: str, *lines: str) -> list[str]:
    """Return the lines of a traceback."""
    return [prefix + line for line in (TRACEBACK, *lines)]


CHAIN = [
    *raised(ENGINE, frame("vllm/distributed/shm_broadcast.py", "timeout_ms"), "    raise TimeoutError", "TimeoutError"),
    *(ENGINE + line for line in ("", DIRECT, "")),
    *raised(ENGINE, "TimeoutError: RPC call to sample_tokens timed out."),
    API + DEAD,
]


@pytest.mark.parametrize(
    ("lines", "error", "symptom", "later"),
    [
        pytest.param(
            CHAIN, "TimeoutError: RPC call to sample_tokens timed out.", "nccl-timeout", "", id="bare innermost"
        ),
        pytest.param(
            [*raised(RANK0, TRITON), WATCHDOG, API + DEAD], TRITON, "triton-load", WATCHDOG[8:], id="a later timeout"
        ),
        pytest.param(
            [*raised(RANK0, "OSError: new"), WATCHDOG], "OSError: new", "", WATCHDOG[8:], id="a later timeout, unknown"
        ),
        pytest.param([WATCHDOG, *raised(RANK0, TRITON)], TRITON, "triton-load", "", id="an earlier timeout"),
        pytest.param(
            [*raised(RANK0, CLOSED), *raised(RANK1, "KeyError: 'x'")],
            "KeyError: 'x'",
            "",
            "",
            id="the rank that is alone with its error",
        ),
        pytest.param(
            [*raised(RANK0, CLOSED), *raised(RANK0, "OSError: handle is closed")],
            CLOSED,
            "peer-closed",
            "",
            id="what the same rank reports at its end",
        ),
        pytest.param(
            raised(RANK0, frame("vllm/model_executor/warmup/kernel_warmup.py", "flashinfer_autotune"), CLOSED),
            CLOSED,
            "autotune-cache",
            "",
            id="the place tells the cause",
        ),
        pytest.param(
            [
                *raised(RANK0, "KeyError: 5"),
                RANK0 + HANDLING,
                *raised(RANK0, "ValueError: No common block size for 64."),
            ],
            "ValueError: No common block size for 64.",
            "block-size-none",
            "",
            id="the outer one is known",
        ),
        pytest.param(
            [*raised(RANK0, "KeyError: 5"), RANK0 + HANDLING, *raised(RANK0, "ValueError: new")],
            "KeyError: 5",
            "",
            "",
            id="both are unknown",
        ),
        pytest.param(
            [
                RANK0 + "Exception ignored in: <function f at 0x1>",
                *raised(RANK0, "OSError: bad"),
                *raised(RANK1, TRITON),
            ],
            TRITON,
            "triton-load",
            "",
            id="Python ignores an exception",
        ),
        pytest.param(
            ["[rank1]: " + TRACEBACK, "[rank1]: " + TRITON, "[rank0]: " + CLOSED],
            TRITON,
            "triton-load",
            CLOSED,
            id="torchrun",
        ),
        pytest.param(
            [API + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"],
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "loading-killed",
            "",
            id="no process failed",
        ),
        pytest.param(
            [
                "spark1:310:351 [0] ibvwrap.cc:241 NCCL WARN Call to ibv_modify_qp failed with 61 No data available",
                *raised("(Worker_TP0 pid=310) ", "RuntimeError: NCCL error: unhandled system error"),
            ],
            "RuntimeError: NCCL error: unhandled system error",
            "rdma-gid",
            "",
            id="NCCL said why",
        ),
        pytest.param(
            [
                "spark1:310:351 [0] ibvwrap.cc:241 NCCL WARN Call to ibv_modify_qp failed with 61 No data available",
                *raised(RANK1, "KeyError: 'x'"),
            ],
            "KeyError: 'x'",
            "",
            "",
            id="a word of another process is no cause of an unknown error",
        ),
    ],
)
def test_cause(lines: list[str], error: str, symptom: str, later: str) -> None:
    found = symptoms.diagnose(lines)
    assert (found.error, found.symptom.id if found.symptom else "", found.later) == (error, symptom, later)


def test_chains_and_places() -> None:
    (engine, api) = failures.failures(failures.read(CHAIN))
    assert [(error.text, error.bare, error.place) for error in engine.chain] == [
        ("TimeoutError", True, "vllm/distributed/shm_broadcast.py in timeout_ms"),
        ("TimeoutError: RPC call to sample_tokens timed out.", False, ""),
    ]
    assert (engine.process, engine.echo, api.process, api.echo) == ("171", False, "1", True)


def test_processes_that_write_at_the_same_time() -> None:
    both = zip(
        raised(RANK0, frame("torch/a.py", "a"), "ValueError: first", "", DIRECT, TRACEBACK, "KeyError: 1"),
        raised(RANK1, frame("vllm/b.py", "b"), "ValueError: second", "", HANDLING, TRACEBACK, "KeyError: 2"),
        strict=True,
    )
    found = failures.failures(failures.read([line for pair in both for line in pair]))
    assert [[(error.text, error.place) for error in failure.chain] for failure in found] == [
        [("ValueError: first", "torch/a.py in a"), ("KeyError: 1", "")],
        [("ValueError: second", "vllm/b.py in b"), ("KeyError: 2", "")],
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_unknown_error_has_its_place_and_kind(kind: Kind) -> None:
    place, text = kind.example
    path, _in, function = place.partition(" in ")
    said = symptoms.explain(raised(RANK0, *([frame(path, function)] if place else []), text))
    shown = f", at {place}" if place else ""
    assert said == f"{text} (unknown cause{shown}: {kind.name}; next step: {kind.fix}; see docs/troubleshooting.md)"


def test_a_consequence_is_named_after_the_cause() -> None:
    said = symptoms.explain([*raised(RANK0, "OSError: new"), WATCHDOG])
    assert said.startswith("OSError: new (followed by: [E907 14:09:45.118 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog")
    assert said.endswith("... (unknown cause; see docs/troubleshooting.md)") is False
    assert "(unknown cause" in said

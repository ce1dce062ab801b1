"""Metrics, processes, NCCL RAS, messages between nodes, and redaction."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import decide, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Engine, Local, Process

#: Printed by vLLM 0.32.0, abridged.
METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 40.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 48.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 2.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7952198717871225e+09
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="tiny"} 30.0
vllm:iteration_tokens_total_count{engine="0",model_name="tiny"} 31.0
"""
#: Measured on two H200 with NCCL 2.28.9, rank 1 stopped, abridged.
RAS = """Communicators... (0.00s)
    0         1         1         2         2         2   RUNNING  INCOMPLETE

Errors
======
#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 1 -- GPU 1 managed by process 4711 on node 10.0.0.2
"""
KEY = "0" * 64


def test_metrics() -> None:
    found = parse.engine(METRICS)
    assert found is not None
    assert (found.processed, found.running) == (90.0, 3.0)
    assert found.marks == (31.0, 50.0, 40.0, 0.25, 3.0, 1.0)
    assert parse.engine("vllm:generation_tokens_total 2") == Engine((0.0, 2.0, 0.0, 0.0, 0.0, 0.0), 2.0, 0.0, 0)
    assert parse.engine("") is None
    assert parse.engine("<html>") is None


@pytest.mark.parametrize(("old", "new"), [("} 31.0", "} 32.0"), ("} 0.25", "} 0.26"), ("} 40.0", "} 41.0")])
def test_each_kind_of_step_changes_a_mark(old: str, new: str) -> None:
    changed = METRICS.replace(old, new)
    assert changed != METRICS
    assert parse.engine(changed) != parse.engine(METRICS)


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("12 (ray::RayWorkerP) T 1 12", Process(12, "ray::RayWorkerP", "T")),
        ("12 (a) R) (b) S 1 12", Process(12, "a??R???b", "S")),
        ("12 (\x1b[2J\nALARM: forged) T 1 12", Process(12, "??2J?ALARM:?for", "T")),
        (f"12 ({'a' * 16}) S 1", Process(12, "a" * 15, "S")),
        ("", None),
    ],
)
def test_a_process(stat: str, expected: Process | None) -> None:
    assert parse.process(stat) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RAS, "NCCL RAS reports INCOMPLETE"),
        ("   RUNNING  INCOMPLETE,ERROR", "NCCL RAS reports ERROR and INCOMPLETE"),
        ("Errors\n======\n   RUNNING  OK", ""),
        ("#0-0 (27a0) MISMATCH\n  Communicator ranks have different collective operation counts", ""),
        ("DEAD: 1 process is considered dead (unreachable via the RAS network)", ""),
        ("", ""),
    ],
)
def test_ras(text: str, expected: str) -> None:
    assert parse.ras(text) == expected


def test_a_message_needs_the_key() -> None:
    data = parse.message({"node": "spark2", "witnesses": ["x"]}, KEY)
    assert parse.content(data, KEY) == {"node": "spark2", "witnesses": ["x"]}
    assert parse.content(data, "1" * 64) is None
    assert parse.message({"b": [1, 2], "a": "x"}, KEY)[64:] == b'{"a":"x","b":[1,2]}'
    assert parse.content(data[:-1] + b"]", KEY) is None
    assert parse.content(b"", KEY) is None
    assert parse.content(parse.message(["x"], KEY), KEY) is None  # type: ignore[arg-type]
    assert parse.content(b"\xff" * 100, KEY) is None
    for body in (b"{", b"\xff"):
        wrong = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest().encode() + body
        assert parse.content(wrong, KEY) is None, "the key, and no JSON"


@pytest.mark.parametrize(("length", "read"), [(1400, True), (1401, False)])
def test_a_message_fits_into_a_datagram_of_the_fabric(length: int, read: bool) -> None:
    data = parse.message({"x": "y" * (length - 64 - len('{"x":""}'))}, KEY)
    assert len(data) == length and (parse.content(data, KEY) is not None) is read
    assert parse.content(data, KEY, most=length) is not None


def test_a_report_with_many_witnesses_fits_into_a_message() -> None:
    report = {
        "witnesses": parse.witnesses([f"rank process {10**9} ({'n' * 15}) is stopped"] * 50),
        "failed": ["gb10-ray.service", "gb10-vllm.service"],
        "nonce": "0" * 16,
        "sender": "0" * 16,
        "number": 10**9,
    }
    assert len(report["witnesses"]) == 6
    assert len(parse.message(report, KEY)) <= parse.MOST_MESSAGE


def test_a_report_has_the_words_of_a_watchdog_and_no_others() -> None:
    processes = [Process(7, "VLLM::Worker_TP", "S"), Process(8, "VLLM::EngineCor", "S")]
    known = decide.local(Local(), processes)
    found = decide.local(known, [Process(8, "VLLM::EngineCor", "Z"), Process(9, "ray::IDLE", "T")])
    assert len(found.witnesses) == 3 and parse.witnesses(found.witnesses) == found.witnesses
    wrong = [
        "process 7 (a b) is stopped",
        "rank process 7 ended\n",
        "process x (a) is dead",
        " rank process 7 ended",
        f"process 7 ({'a' * 16}) is dead",
        f"rank process {10**10} ended",
        7,
        None,
    ]
    assert parse.witnesses(wrong) == parse.witnesses("rank process 7 ended") == parse.witnesses(None) == ()
    assert parse.units(["b", "x\n", ["a"], "a"], ("a", "b")) == ("a", "b") and parse.units("a", ("a",)) == ()


def test_a_log_without_requests() -> None:
    text = 'ok\nReceived request cmpl-1: prompt: "mine"\n{"messages": ["hi"]}\nlast'
    assert parse.without_requests(text).splitlines() == ["ok", parse.LEFT_OUT, parse.LEFT_OUT, "last"]


def test_redaction() -> None:
    assert [parse.redacted("abcd", {"abcd"[:length]}) for length in (3, 4)] == ["abcd", parse.REDACTED]
    text = "key sk-1234 ok\nlong sk-1234-5678\nplain ab"
    assert parse.redacted(text, {"sk-1234", "sk-1234-5678", "ab"}).splitlines() == [
        "key [redacted] ok",
        "long [redacted]",
        "plain ab",
    ]


def test_a_unit_between_two_starts_has_not_failed() -> None:
    assert parse.failed("Id=a.service\nActiveState=activating\n\nId=b.service\nActiveState=failed\n") == ("b.service",)
    assert parse.failed("") == ()

"""The lines of a log in a report: known messages with their own words, and the number of the others."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import excerpt
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES

LOGS = Path(__file__).parents[1] / "data" / "logs"
SYMPTOMS = (*CAUSES, *CONSEQUENCES)
SHOWN = [line for symptom in SYMPTOMS for line in symptom.shows.splitlines()]
LEAKS = (
    "acme/secret-merger-llm",
    "intranet.acme.ai",
    "build.acme.xyz",
    "db.prod.acme.consulting",
    "buildbox",
    "Bearer abcdefgh1234",
    "Basic YWxpY2U6aHVudGVyMg==",
    "password is hunter2",
    "sk_live_" + "abcdefgh1234",
    "gsk_" + "abcdefgh1234",
    "pplx-" + "abcdefgh1234",
    "npm_" + "abcdefgh1234",
    r"C:\\Users\\alison",
    "the merger of the two",
)
PARTS = ("merger", "acme.", ".acme", "buildbox", "abcdefgh", "YWxp", "hunter2", "alison")
FRAME = '  File "/opt/gb10/runtime/7f/lib/python3.12/site-packages/{}", line {}, in {}'


@pytest.mark.parametrize("line", SHOWN)
def test_a_line_of_a_symptom_has_only_the_words_of_the_symptom(line: str) -> None:
    for leak in LEAKS:
        found = "\n".join(excerpt.known([f"{leak} {line} {leak}", f"{line}, {leak}"]))
        assert not [part for part in PARTS if part in found], found
    (shown,) = excerpt.known([line])
    assert shown.split(": ")[0] in {symptom.id for symptom in SYMPTOMS}


def test_numbers_beside_a_symptom_are_dropped_unless_they_have_a_unit() -> None:
    line = "card 4111 1111 1111 1111, 12/27, pin 9876: CUDA out of memory. Tried to allocate 20.00 GiB, 9 times"
    (shown,) = excerpt.known([line])
    assert not set(re.findall(r"\d+", shown)) & {"4111", "1111", "12", "27", "9876", "9"}, shown
    assert "20.00 GiB" in shown


@pytest.mark.parametrize("leak", LEAKS)
def test_another_line_is_counted(leak: str) -> None:
    assert excerpt.known([leak, f"INFO 11-21 00:12:38 [core.py:1] {leak}", ""]) == [
        "lines without a known symptom, left out: 2"
    ]


def test_an_exception_keeps_its_class_and_the_frames_before_it() -> None:
    log = [
        "Traceback (most recent call last):",
        *(FRAME.format("vllm/v1/engine/core.py", number, "run_engine_core") for number in range(9)),
        FRAME.format("acme_plugin/merger.py", 1, "acme"),
        FRAME.format("torch/nn/modules/module.py", 1775, "_wrapped_call_impl"),
        "    raise AcmeError(merger)",
        "torch.OutOfMemoryError: the merger",
        "acme.MergerError: the merger",
    ]
    assert excerpt.known(log) == [
        *(f"vllm/v1/engine/core.py:{number}:run_engine_core" for number in (6, 7, 8)),
        "torch/nn/modules/module.py:1775:_wrapped_call_impl",
        "torch.OutOfMemoryError: REDACTED",
        "REDACTED",
        "lines without a known symptom, left out: 2",
    ]


def test_a_recorded_failure_is_explained() -> None:
    log = (LOGS / "fail_worker_lacks_weights.log").read_text(encoding="utf-8").splitlines()
    found = excerpt.known(log)
    for line in (
        "vLLM 0.32.0 starts",
        "ranks connected, world size 2",
        "weights read in 0.01 seconds",
        "vllm/model_executor/models/utils.py:272:_groupby_prefix",
        "ray.exceptions.ActorHandleNotFoundError: REDACTED",
    ):
        assert line in found
    assert any(line.startswith("weights-missing: RuntimeError: Cannot find any model weights with ") for line in found)
    assert found[-1].startswith("lines without a known symptom, left out: ")


# Hypothesis also draws texts of the code, such as symptoms. Each has a vowel.
@given(st.lists(st.text(st.characters(exclude_characters="aeiouAEIOU"), max_size=80), max_size=20))
def test_words_that_no_symptom_has_are_only_counted(lines: list[str]) -> None:
    assert len(excerpt.known(lines)) <= 1


@pytest.mark.parametrize("part", ["a", "a.", "ab:", "Error ", "1.", 'File "a/'])
def test_the_time_is_no_square_of_the_length(part: str) -> None:
    begin = time.process_time()
    excerpt.known([part * (4000 // len(part))] * 20)
    assert time.process_time() - begin < 3.0


def test_a_number_inside_of_a_symptom_is_dropped_too() -> None:
    line = (
        "ValueError: Free memory on device 4111 1111 1111 1111 cuda:0 (91.4/121.69 GiB) on startup is less than desired"
    )
    (shown,) = excerpt.known([line])
    assert "4111" not in shown and "91.4/121.69 GiB" in shown

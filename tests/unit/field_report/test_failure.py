"""The record of failed runs: small, redacted, one for each playbook, and untrusted when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import failure, io_words

TASK = "gb10.cluster.qsfp_netplan : Apply the network"
KEY = "hf_" + "AbCd1234" * 4


def recorded(text: str, playbook: str, date: str, failures: list[failure.Failure]) -> str:
    return failure.recorded(text, playbook, date, failures, io_words.public())


def of(text: str) -> dict[str, Any]:
    return {run["playbook"]: [each["lines"] for each in run["failures"]] for run in failure.parse(text)}


def test_the_last_failure_of_each_playbook_is_kept_until_it_succeeds() -> None:
    text = recorded("", "site.yml", "1", [(["a", "b"], TASK, ["first"])])
    text = recorded(text, "verify.yml", "2", [(["a"], TASK, ["second"])])
    text = recorded(text, "site.yml", "3", [(["a"], TASK, ["third"])])
    assert of(text) == {"site.yml": [["third"]], "verify.yml": [["second"]]}
    assert of(recorded(text, "site.yml", "4", [])) == {"verify.yml": [["second"]]}


def test_the_record_has_no_key_and_no_address() -> None:
    text = recorded(
        "",
        "site.yml",
        "1",
        [(["spark1"], f"{TASK} {KEY}", [f"{KEY} at 192.168.1.2", f"{'x ' * 299}{KEY}", "/home/lisa/x"])],
    )
    assert not [word for word in ("AbCd", "192.168", "lisa") if word in text]
    (run,) = failure.of_nodes(text, ["spark1"])
    assert run["failures"][0]["task"] == f"{TASK} REDACTED" and run["failures"][0]["hosts"] == ["spark1"]
    assert failure.of_nodes(text, ["spark2"]) == []


def test_the_record_is_small() -> None:
    text = ""
    for number in range(6):
        text = recorded(
            text, f"{number}.yml", "1", [([f"n{node}" for node in range(99)], "t " * 999, ["w " * 999] * 999)] * 99
        )
    assert len(text) < failure.MOST and len(failure.parse(text)) == 5


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "{}", "[7]", '[{"playbook": 1}]', '[{"playbook": "a", "date": "b", "failures": 7}]', "[" * 99999],
)
def test_another_file_is_no_record(text: str) -> None:
    assert failure.parse(text) == []
    assert of(recorded(text, "site.yml", "1", [(["a"], TASK, ["x"])])) == {"site.yml": [["x"]]}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("playbook", "date", "failures", "hosts", "task", "lines")), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_no_file_breaks_the_reader(value: Any) -> None:
    found = failure.of_nodes(json.dumps(value), ["a"])
    assert all("a" in each["hosts"] for run in found for each in run["failures"])

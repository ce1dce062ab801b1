"""The files of clients and their use: written content is read back, and other content is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, usage

ALICE = clients.create(clients.Clients(), "alice", "sk-alice", 7, ["small"])
BOTH = replace(clients.create(ALICE, "bob", "sk-bob", 8, []), operator=clients.digest("sk-host"))


def test_clients_are_read_back_without_their_keys() -> None:
    text = clients.text(BOTH)
    entries = {
        "alice": clients.Client(clients.digest("sk-alice"), 7, ("small",)),
        "bob": clients.Client(clients.digest("sk-bob"), 8, ()),
    }
    assert clients.parse(text) == clients.Clients(entries, clients.digest("sk-host"))
    assert not any(key in text for key in ("sk-alice", "sk-bob", "sk-host"))
    assert clients.parse(None) == clients.Clients()


def test_a_key_names_its_owner() -> None:
    names = [BOTH.of_key(key) for key in ("sk-alice", "sk-bob", "sk-host", "sk-none", "", clients.digest("sk-bob"))]
    assert names == ["alice", "bob", clients.OPERATOR, "", "", ""]
    assert clients.revoke(BOTH, "bob").of_key("sk-bob") == ""
    assert clients.Clients().of_key("") == "", "a missing operator's key is nobody's"


def test_changes_that_are_not_possible() -> None:
    with pytest.raises(clients.ClientsError, match="exists already"):
        clients.create(BOTH, "bob", "x", 1, [])
    with pytest.raises(clients.ClientsError, match="not a client's name"):
        clients.create(BOTH, "operator", "x", 1, [])
    with pytest.raises(clients.ClientsError, match="one of the existing clients \\(alice, bob\\)"):
        clients.revoke(BOTH, "carol")
    many = clients.Clients({f"c{number}": ALICE.clients["alice"] for number in range(clients.MOST_CLIENTS)})
    with pytest.raises(clients.ClientsError, match="there are 1000 clients"):
        clients.create(many, "one-more", "x", 1, [])


GOOD = json.loads(clients.text(BOTH))


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        GOOD | {"more": 1},
        GOOD | {"operator": "x"},
        GOOD | {"clients": []},
        GOOD | {"clients": {"A": GOOD["clients"]["bob"]}},
        GOOD | {"clients": {"bob": {**GOOD["clients"]["bob"], "sha256": "x"}}},
        GOOD | {"clients": {"bob": {**GOOD["clients"]["bob"], "created": "x"}}},
        GOOD | {"clients": {"bob": {**GOOD["clients"]["bob"], "models": "small"}}},
    ],
)
def test_a_file_that_is_no_list_of_clients(data: Any) -> None:
    with pytest.raises(clients.ClientsError):
        clients.parse(json.dumps(data))


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    for parse in (clients.parse, usage.parse):
        with pytest.raises(ValueError):
            parse(text)


def test_use_adds_up_and_is_read_back() -> None:
    found = usage.Usage()
    found.add("alice", "small", 5, requests=1, prompt_tokens=7)
    found.add("alice", "small", 4, failures=1, completion_tokens=-3)
    assert found.clients["alice"] == usage.Client(5, {"small": usage.Count(1, 1, 7, 0)})
    assert usage.parse(usage.text(found)) == found
    assert usage.parse(None) == usage.Usage()


def test_use_is_bounded() -> None:
    found = usage.Usage()
    for number in range(usage.MOST_CLIENTS + 1):
        found.add(f"c{number}", "small", number + 1, requests=1)
    assert len(found.clients) == usage.MOST_CLIENTS and "c0" not in found.clients and "c1" in found.clients
    for number in range(usage.MOST_MODELS + 5):
        found.add("c1", f"m{number}", 1, requests=1)
    assert len(found.clients["c1"].models) <= usage.MOST_MODELS + 1
    assert found.clients["c1"].models["other"].requests > 0
    assert len(usage.text(found)) < usage.MOST


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"clients": {"a": 1}},
        {"clients": {"a": {"last": 1, "models": {"m": {}}}}},
        {"clients": {"a": {"last": True, "models": {}}}},
    ],
)
def test_a_file_that_is_no_use(data: Any) -> None:
    with pytest.raises(ValueError, match=r"is not|has no"):
        usage.parse(json.dumps(data))


def test_a_list_of_clients_has_its_limits() -> None:
    assert clients.text(clients.Clients()) == '{\n  "clients": {},\n  "operator": ""\n}\n'
    known = {f"c{number}": ALICE.clients["alice"] for number in range(999)}
    assert len(clients.create(clients.Clients(known), "a" * 63, "x", 1, []).clients) == 1000
    padded = clients.text(BOTH).ljust(1 << 20)
    assert clients.parse(padded) == BOTH
    with pytest.raises(clients.ClientsError, match="it is longer than 1048576 characters"):
        clients.parse(f"{padded} ")
    with pytest.raises(clients.ClientsError, match=f"^'{'A' * 63}' is not a client$"):
        clients.parse(json.dumps(GOOD | {"clients": {"A" * 90: {}}}))


@pytest.mark.parametrize(
    ("changes", "valid"),
    [({}, True), ({"created": -1}, True), ({"created": True}, False), ({"created": 1.0}, False), ({"models": [1]}, False),
     ({"sha256": "A" * 64}, False), ({"sha256": 7}, False), ({"more": 1}, False)],
)  # fmt: skip
def test_an_entry_of_a_client_is_complete(changes: dict[str, Any], valid: bool) -> None:
    text = json.dumps(GOOD | {"clients": {"bob": GOOD["clients"]["bob"] | changes}})
    if valid:
        assert clients.parse(text).clients["bob"].models == ()
    else:
        with pytest.raises(clients.ClientsError, match="bob"):
            clients.parse(text)


def test_a_restricted_key_has_its_models_only() -> None:
    assert ALICE.clients["alice"].may("small") and not ALICE.clients["alice"].may("big")
    assert BOTH.clients["bob"].may("big")


def test_the_client_that_was_idle_longest_goes_first() -> None:
    found = usage.Usage({f"c{number}": usage.Client(9 if number == 5 else 10 + number) for number in range(2000)})
    found.add("c7", "small", 1, requests=1)
    assert len(found.clients) == 2000 and found.clients["c7"].last == 17
    found.add("new", "small", 11, requests=1)
    assert len(found.clients) == 2000 and "c5" not in found.clients and "new" in found.clients


def test_further_models_count_as_other_and_known_ones_as_themselves() -> None:
    found = usage.Usage()
    for number in [*range(102), 0]:
        found.add("a", f"m{number}", 1, requests=1)
    counts = found.clients["a"].models
    assert (len(counts), counts["other"].requests, counts["m99"].requests, counts["m0"].requests) == (101, 2, 1, 2)


def test_a_count_ends_at_a_number_that_other_programs_read() -> None:
    found = usage.Usage()
    for _request in range(2):
        found.add("a", "m", 1, prompt_tokens=(1 << 62) - 1)
    assert found.clients["a"].models["m"] == usage.Count(prompt_tokens=1 << 62)


def test_a_file_of_counts_has_its_limits() -> None:
    zero = {
        "clients": {
            "a": {
                "last": 0,
                "models": {"m": {"requests": 0, "failures": 0, "prompt_tokens": 0, "completion_tokens": 0}},
            }
        }
    }
    text = json.dumps(zero).ljust(1 << 24)
    assert usage.parse(text) == usage.Usage({"a": usage.Client(0, {"m": usage.Count()})})
    with pytest.raises(ValueError, match="it is longer than 16777216 characters"):
        usage.parse(f"{text} ")
    for count in (-1, True, 1.0):
        zero["clients"]["a"]["models"]["m"]["failures"] = count  # type: ignore[index]
        with pytest.raises(ValueError, match="an entry is not the use of a model"):
            usage.parse(json.dumps(zero))

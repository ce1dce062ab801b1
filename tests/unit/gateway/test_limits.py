"""The limits of bodies and connections."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import limits
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.limits import Budget, Share, Sources


def test_marks_are_the_characters_that_begin_an_element() -> None:
    assert limits.marks(b'{"a": [1, 2, {}]}') == 6
    assert limits.marks(b"[]," * 7_000_000) > limits.MOST_MARKS > limits.marks(b"[1]," * 131_072), (
        "but not the tokens of a long prompt"
    )


def test_one_client_leaves_room_for_others() -> None:
    budget = Budget()
    first, second, other, small = (Share(budget, name) for name in ("alice", "alice", "bob", "carol"))
    assert first.grow(64 << 20) and second.grow(64 << 20) and not second.grow((64 << 20) + 1)
    assert other.grow(64 << 20) and other.grow(128 << 20)
    assert small.grow(limits.FREE) and not small.grow(limits.FREE + 1), "small bodies always have room"
    first.close()
    assert budget.held == {"alice": 64 << 20, "bob": 128 << 20}
    for share in (first, second, other):
        share.close()
    assert budget.held == {}


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_source_is_an_address_or_a_network_of_version_6(address: str, source: str) -> None:
    assert limits.source(address) == source


def test_beyond_its_limit_a_sources_oldest_silent_connection_goes() -> None:
    sources: Sources[int] = Sources(most=3, total=100)
    assert [sources.open(link, "a") for link in (1, 2, 3)] == [None] * 3
    sources.work(1)
    assert sources.open(4, "a") == 2
    # The connection itself reports its end later.
    sources.close(2)
    assert sources.open(5, "b") is None
    sources.wait(1)
    assert [sources.open(link, "a") for link in (6, 7, 8)] == [3, 4, 1]


def test_without_a_silent_one_the_new_connection_goes() -> None:
    sources: Sources[int] = Sources(most=1, total=100)
    sources.open(1, "a")
    sources.work(1)
    assert [sources.open(link, "a") for link in (2, 3)] == [2, 3]
    sources.close(1)
    assert sources.open(3, "a") is None


def test_beyond_the_limit_of_all_the_largest_source_gives_way() -> None:
    sources: Sources[int] = Sources(most=100, total=3)
    for link, source in ((1, "a"), (2, "b"), (3, "b")):
        assert sources.open(link, source) is None
    assert sources.open(4, "c") == 2
    sources.wait(2)
    sources.work(2)
    assert sources.open(5, "c") in (1, 3, 4)

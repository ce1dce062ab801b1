"""The limits of bodies and connections."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits
from ansible_collections.gb10.cluster.plugins.module_utils.common.limits import Budget, Share, Sources

MIB = 1 << 20


def share(budget: Budget | None = None, client: str = "alice", most: int | None = limits.MOST_MARKS) -> Share:
    return Share(budget or Budget(), client, most)


def added(data: bytes, step: int = 1 << 16, most: int | None = limits.MOST_MARKS) -> tuple[str, Share]:
    """Return the code of the refusal of a body that arrives in parts, and its share."""
    found = share(most=most)
    parts = (data[begin : begin + step] for begin in range(0, len(data), step))
    return next(filter(None, map(found.add, parts)), ""), found


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("body", "marks"),
    [
        (b'{"a": [1, 2, {}]}', 6),
        (b'{"a,b:[": "{,,,"}', 2),
        (rb'["\",[", "\\", "\\\",[{", [1]]', 5),
        (rb'["\\\\", "\"", [], "\n\\"]', 5),
        (b'"' + b"\\" * 50 + b'" , [', 2),
        (b'"' + b"\\" * 51 + b'" , [', 0),
    ],
)
def test_marks_begin_an_element_outside_of_strings(body: bytes, marks: int, step: int) -> None:
    assert added(body, step)[1].marks == marks


@pytest.mark.parametrize("step", [1, 7, 100, 1 << 16])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" + b"9" * 101 + b"]", limits.COMPLEX),
        (b'{"a": -1' + b"0" * 4299 + b"}", limits.COMPLEX),
        (b"[" + b"9" * 100 + b"," + b"1" * 100 + b"]", ""),
        (b'["' + b"9" * 5000 + b'", 1, "x", 2]', ""),
    ],
    ids=["long", "longest", "not that long", "digits in a text"],
)
def test_a_number_has_a_limit_of_digits(body: bytes, code: str, step: int) -> None:
    """Python parses and prints it in the square of its digits: 60 MiB of them took 7 s."""
    assert added(body, step)[0] == code


def test_structure_is_limited_and_text_is_not() -> None:
    assert limits.most("/v1/completions") == limits.MOST_TOKENS and limits.most("/v1/responses") == limits.MOST_MARKS
    assert added(b"[" + b"[]," * 7_000_000)[0] == limits.COMPLEX
    assert added(b"[" + b"1," * 60_000)[0] == limits.COMPLEX
    assert added(b"[" + b"[1]," * 131_072, most=limits.MOST_TOKENS)[0] == "", "the tokens of a long prompt"
    assert added(b'"' + b"{[,:" * 5_000_000 + b'"')[0] == "", "a long text of code"
    assert added(b"," * MIB, most=None)[0] == "", "a file of a form"


@pytest.mark.parametrize("step", [1, 1 << 16])
@pytest.mark.parametrize(
    ("text", "width"),
    [
        (b"a", 1),
        (b"\\n\\\\u", 1),
        ("é".encode(), 2),
        ("你".encode(), 2),
        ("😀".encode(), 4),
        (b"\\ud83d\\ude00", 4),
        (b"\\\\\\u4f60", 4),
    ],
)
def test_a_long_character_makes_the_others_long(text: bytes, width: int, step: int) -> None:
    assert added(b'"aaa' + text + b'aaa"', step)[1].width == width


def test_a_body_is_weighed_by_what_it_becomes() -> None:
    """Measured: decoding, parsing and writing it again takes up to this many bytes more."""
    emoji = "😀".encode()
    assert added(b'"' + b"a" * (63 * MIB))[0] == ""
    assert added(b'"' + b"a" * (64 * MIB))[0] == limits.LARGE
    assert added(b'"' + emoji + b"a" * (31 * MIB))[0] == ""
    assert added(b'"' + emoji + b"a" * (32 * MIB))[0] == added(emoji * (9 * MIB))[0] == limits.LARGE
    assert added(b"[" + b"[]," * 100)[1].memory == 2 * 301 + 100 * 201


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("step", [1, 1000])
def test_other_encodings_are_refused(codec: str, step: int) -> None:
    """Python's parser reads them, and a quotation mark has other bytes there."""
    assert added('{"a": 1}'.encode(codec), step)[0] == limits.ENCODING
    assert added('{"a": 1}'.encode("utf-8-sig"), step)[0] == ""


def test_one_client_leaves_room_for_others() -> None:
    budget = Budget(of_client=20 * MIB, of_all=30 * MIB, free=MIB)
    first, second, other, small = (share(budget, name) for name in ("alice", "alice", "bob", "carol"))
    assert [each.add(b"a" * (5 * MIB)) for each in (first, second, first)] == ["", "", limits.FULL]
    assert [other.add(b"a" * size) for size in (4 * MIB, MIB, 1)] == ["", "", limits.FULL]
    assert [small.add(b"a" * size) for size in (MIB // 2, 1)] == ["", limits.FULL], "small bodies always have room"
    first.close()
    assert budget.held == {"alice": 10 * MIB, "bob": 10 * MIB}
    for each in (first, second, other, small):
        each.close()
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


def test_the_memory_of_answers_leaves_room_for_bodies() -> None:
    bodies, answers = (limits.Budget(of_client=1000, of_all=1500, free=0) for _each in range(2))
    first, second = (limits.Share(bodies, name, answers=answers) for name in ("a", "b"))
    assert first.add(b"x" * 100) == "" and first.expect(500) == ""
    assert (bodies.held["a"], answers.held["a"]) == (200, 500)
    assert first.expect(1001) == limits.ANSWERS
    assert second.expect(1001) == limits.ANSWERS and second.expect(1000) == ""
    assert first.expect(300) == limits.FULL and second.add(b"x" * 500) == ""
    first.close()
    second.close()
    assert (bodies.held, answers.held) == ({}, {})


def test_a_body_may_reach_each_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BODY", 100)
    monkeypatch.setattr(limits, "MOST_MEMORY", 300)
    assert added(b'"' + b"a" * 99)[0] == "" and added(b'"' + b"a" * 100)[0] == limits.LARGE
    assert added(b"," + b" " * 99)[0] == "", "200 bytes of text and 100 of a mark"
    assert added(b",," + b" " * 48)[0] == "" and added(b",," + b" " * 49)[0] == limits.LARGE
    assert added(b",,", most=2)[0] == "" and added(b",,,", most=2)[0] == limits.LARGE
    assert added(b",,", most=1)[0] == limits.COMPLEX


def test_a_budget_may_be_used_up_and_is_given_back_once() -> None:
    budget = Budget(of_client=10, of_all=15, free=4)
    assert [budget.take("a", size) for size in (0, 10, 1, 0)] == [True, True, False, True]
    assert [budget.take("b", size) for size in (6, 5, 1)] == [False, True, False]
    budget.give("a", 0)
    budget.give("c", 0)
    assert budget.held == {"a": 10, "b": 5}
    budget.give("a", 9)
    assert budget.held == {"a": 1, "b": 5}
    small = share(budget, "b")
    assert small.add(b"ab") == "" and small.held == 0, "4 bytes are free"
    assert small.add(b"c") == limits.FULL
    small.close()
    assert budget.held == {"a": 1, "b": 5}
    answer = Share(budget, "a", answers=budget)
    assert answer.expect(11) == limits.ANSWERS and answer.expect(10) == limits.FULL and answer.expect(9) == ""
    answer.close()
    answer.close()
    assert budget.held == {"a": 1, "b": 5}


def test_a_refusal_has_its_status_and_names_its_limits() -> None:
    """The statuses are those of HTTP: a client repeats a request after 503, and not after 413."""
    codes = (limits.LARGE, limits.COMPLEX, limits.ENCODING, limits.SLOW, limits.ANSWERS, limits.FULL)
    assert {code: limits.REFUSALS[code][0] for code in codes} == dict(
        zip(codes, (413, 413, 400, 408, 413, 503), strict=True)
    )
    assert "larger than 64 MiB, or needs more than 256 MiB" in limits.REFUSALS[limits.LARGE][1]
    assert "At most 50000, or 500000 in" in limits.REFUSALS[limits.COMPLEX][1]
    assert limits.REFUSALS[limits.SLOW][1].endswith("within 20 s.")


def test_a_connection_that_waits_again_is_the_newest_silent_one() -> None:
    sources: Sources[int] = Sources(most=2, total=100)
    assert [sources.open(link, "a") for link in (1, 2)] == [None, None]
    sources.work(1)
    sources.wait(1)
    sources.wait(9)
    assert sources.open(3, "a") == 2, "an unknown one waits nowhere"
    for link in (1, 3, 3, 9):
        sources.close(link)
    assert (sources._count, sources._waiting, sources._of) == ({}, {}, {})

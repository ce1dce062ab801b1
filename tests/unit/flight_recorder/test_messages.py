"""Messages between recorders: forged, repeated, too large, and the silence of a node."""

from __future__ import annotations

import secrets
from dataclasses import replace
from ipaddress import IPv4Interface

import pytest
from flight_records import FULL

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages, watch
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.messages import Message
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.watch import Entry, Memory, Sender
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import parse

KEY, OTHER = "a" * 64, "b" * 64
MESSAGE = Message(messages.SAMPLE, "spark2", "spark1", "session", 1, "nonce", FULL, ("line",), ("192.168.1.12",))
#: What a message has at least.
PLAIN = {"kind": "sample", "sender": "spark2", "to": "spark1", "session": "session"}


def test_a_message_survives_its_datagram_and_fits_one_frame() -> None:
    data = messages.encode(MESSAGE, KEY)
    assert messages.decode(data, KEY) == MESSAGE
    # The smallest MTU of the fabric, without the headers of IP and UDP.
    assert len(data) < 1500 - 28


def test_a_forged_or_damaged_message_is_none() -> None:
    data = messages.encode(MESSAGE, KEY)
    assert messages.decode(data, OTHER) is None
    assert messages.decode(data[:-1], KEY) is None
    assert messages.decode(data.replace(b"line", b"lime"), KEY) is None


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "sample"},
        PLAIN | {"kind": 1},
        PLAIN | {"sample": {"time": 1, "node": "a\x1b"}},
        PLAIN | {"addresses": ["evil.example.com"]},
        PLAIN | {"lines": ["x" * messages.MOST]},
        PLAIN | {"command": "x"},
    ],
)
def test_a_message_of_another_form_is_none(content: dict[str, object]) -> None:
    assert messages.decode(parse.message(PLAIN, KEY), KEY)
    assert messages.decode(parse.message(content, KEY), KEY) is None


def test_the_receiver_connects_to_few_addresses_of_a_message() -> None:
    many = replace(MESSAGE, addresses=tuple(f"192.168.1.{number}" for number in range(1, 100)))
    found = messages.decode(messages.encode(many, KEY), KEY)
    assert found and 1 < len(found.addresses) < 10 and many.addresses[: len(found.addresses)] == found.addresses


def test_lines_have_no_control_characters_and_are_sent_in_frames() -> None:
    given = Message(messages.KERNEL, "a", "b", "c", lines=("\x1b[2J", "x" * 1000))
    found = messages.decode(messages.encode(given, KEY), KEY)
    assert found is not None
    assert found.lines == (" [2J", "x" * foreign.MOST)
    lines = ["\N{DEGREE SIGN}" * foreign.MOST] * 20
    groups = list(messages.batches(lines))
    assert [line for group in groups for line in group] == lines
    for group in messages.batches(["x" * foreign.MOST] * 20):
        assert len(messages.encode(replace(given, lines=group), KEY)) < 1500 - 28
    assert list(messages.batches([])) == []
    assert list(messages.batches(["one", "two"])) == [("one", "two")], "short lines share a frame"


def sender() -> Sender:
    return Sender("spark2", "nonce")


def test_a_repeated_message_is_not_accepted() -> None:
    one = sender()
    assert one.accept(MESSAGE, 1.0)
    assert not one.accept(MESSAGE, 2.0)
    assert one.heard == 1.0
    assert one.accept(replace(MESSAGE, session="next", number=1), 3.0), "the node started again"
    assert not one.accept(replace(MESSAGE, number=1), 4.0), "a recorded message of its former session"
    assert one.accept(replace(MESSAGE, number=2), 5.0)
    assert not one.accept(replace(MESSAGE, number=3, nonce="of an earlier recorder"), 6.0)
    unnumbered = messages.decode(parse.message({**PLAIN, "session": "another", "nonce": "nonce"}, KEY), KEY)
    assert unnumbered and not one.accept(unnumbered, 6.0), "it could be repeated"
    assert not one.accept(replace(MESSAGE, number=3, sender="spark3"), 6.0)


def test_many_sessions_change_the_nonce_and_do_not_grow() -> None:
    one = sender()
    for number in range(1000):
        one.accept(replace(MESSAGE, session=str(number), nonce=one.nonce), 1.0)
        assert len(one.numbers) <= 100
    assert one.nonce != "nonce"
    assert len(one.nonce) == len(secrets.token_hex(8)), "a message keeps its size"
    assert not one.accept(MESSAGE, 2.0)


def test_silence_is_reported_once_and_a_goodbye_is_no_silence() -> None:
    one = sender()
    assert not one.fell_silent(1e6), "it was never heard"
    one.accept(MESSAGE, 1.0)
    assert not one.fell_silent(10.9)
    assert one.fell_silent(11.0)
    assert not one.fell_silent(20.0)
    assert one.accept(replace(MESSAGE, number=2), 30.0)
    assert one.returned() and not one.returned()
    one.accept(replace(MESSAGE, kind=messages.GOODBYE, number=3), 31.0)
    assert not one.fell_silent(1e6)


def test_a_recorder_that_was_stopped_begins_to_wait_again() -> None:
    one = sender()
    one.accept(MESSAGE, 1.0)
    one.paused(100.0)
    assert not one.fell_silent(105.0)
    assert one.fell_silent(110.0)


def test_the_memory_is_bounded_in_time_number_and_size() -> None:
    memory = Memory(4000, 1 << 20)
    for second in range(2000):
        memory.add(Entry(float(second), messages.KERNEL, "x"))
    assert [memory.entries()[0].time, len(memory.entries())] == [1399.0, 601]
    for _number in range(10000):
        memory.add(Entry(2000.0, messages.KERNEL, "x"))
    assert len(memory.entries()) == 4000
    for _number in range(1000):
        memory.add(Entry(2001.0, messages.KERNEL, "x" * 4000))
    assert sum(len(each.text) for each in memory.entries()) <= 1 << 20


def test_only_addresses_in_a_network_of_this_host_are_probed() -> None:
    own = tuple(map(IPv4Interface, ("172.17.0.1/16", "192.168.1.11/24", "169.254.7.7/16", "100.64.0.9/32")))
    here = ("192.168.1.12", "172.17.0.1", "192.168.1.11")
    elsewhere = ("127.0.0.1", "198.51.100.9", "224.0.0.1", "169.254.169.254", "192.168.2.12", "100.64.0.8")
    assert watch.outside((*elsewhere, *here), own) == ("192.168.1.12",)
    assert watch.outside((*elsewhere, *here), ()) == ()


def test_neither_memory_pushes_out_the_other_one() -> None:
    one = sender()
    one.memory.add(Entry(2.0, messages.SAMPLE, "sample"))
    for number in range(10000):
        one.netconsole.add(Entry(1.0 + number / 1e4, "netconsole", "x" * foreign.MOST))
    found = one.entries()
    assert found[-1].text == "sample" and len(found) == 1 + (1 << 17) // foreign.MOST

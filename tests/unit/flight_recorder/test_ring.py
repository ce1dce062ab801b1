"""The file of a node without a peer: a power cut at any moment, and a clean end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from flight_records import FULL

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import ring, schema


def file(count: int, boot: str = "one", kind: str = ring.SAMPLE) -> bytes:
    """Return a file after that many writes, the last one of a kind."""
    data = bytearray(ring.SIZE)
    for number in range(1, count + 1):
        place = ring.place(number)
        each = kind if number == count else ring.SAMPLE
        data[place : place + ring.SLOT] = ring.slot(number, boot, each, float(number), asdict(FULL), ["line"])
    return bytes(data)


def numbers(data: bytes) -> list[int]:
    return [int(each["number"]) for each in ring.slots(data)]


def test_the_file_keeps_the_newest_slots_in_order() -> None:
    assert numbers(file(5)) == [1, 2, 3, 4, 5]
    assert numbers(file(ring.SLOTS + 7)) == list(range(8, ring.SLOTS + 8))
    assert schema.of_plain(ring.slots(file(1))[0]["sample"]) == FULL


@pytest.mark.parametrize("written", [0, 1, 43, 44, 45, 512, 900])
def test_a_slot_that_a_power_cut_left_half_is_left_out(written: int) -> None:
    before, after = file(ring.SLOTS + 3), file(ring.SLOTS + 4)
    place = ring.place(ring.SLOTS + 4)
    torn = before[:place] + after[place : place + written] + before[place + written :]
    found = numbers(torn)
    assert found[-1] == ring.SLOTS + 3
    assert len(found) in (ring.SLOTS, ring.SLOTS - 1), "at most the slot that was written is lost"


@pytest.mark.parametrize("length", [0, 1, 100, ring.SLOT - 1, ring.SLOT, ring.SLOT + 50])
def test_a_shorter_file_has_its_whole_slots(length: int) -> None:
    # The first slot is empty: the first number is 1.
    assert numbers(file(3)[: ring.SLOT + length]) == ([1] if length >= 1200 else [])


@pytest.mark.parametrize("change", [b"GB10REC2", b"GB10REC1\xff\xff\xff\xff"])
def test_a_damaged_slot_is_left_out(change: bytes) -> None:
    data = file(2)
    assert numbers(data[: ring.SLOT] + change + data[ring.SLOT + len(change) :]) == [2]


@pytest.mark.parametrize(("number", "time"), [("2", 2.0), (None, 2.0), (2, "noon"), (2, None)])
def test_a_whole_slot_of_another_form_is_left_out(number: Any, time: Any) -> None:
    data = ring.slot(1, "boot", ring.SAMPLE, 1.0, lines=["line"]) + ring.slot(number, "boot", ring.SAMPLE, time)
    assert numbers(data) == [1]


def test_each_slot_is_one_block_of_the_disk() -> None:
    for number in (0, 1, ring.SLOTS - 1, ring.SLOTS, 10**6):
        assert ring.place(number) % 4096 == 0 <= ring.place(number) < ring.SIZE
    assert len(ring.slot(1, "boot", ring.SAMPLE, 1.0)) == 4096


def test_lines_that_do_not_fit_are_left_out_oldest_first() -> None:
    lines = [f"{number} " + "x" * 290 for number in range(50)]
    data = ring.slot(1, "boot", ring.SAMPLE, 1.0, asdict(FULL), lines)
    assert len(data) == ring.SLOT
    kept = ring.slots(data)[0]["lines"]
    assert kept and kept == lines[-len(kept) :]


def test_only_a_former_boot_without_a_clean_end_is_a_record() -> None:
    found = ring.slots(file(5))
    assert ring.former(found, "one") == []
    assert ring.former(found, "two") == found
    assert ring.former(ring.slots(file(5, kind=ring.END)), "two") == []
    assert ring.former([], "two") == []

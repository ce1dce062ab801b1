"""Wait for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def last_reading(read: Callable[[], Found], right: Callable[[Found], bool], within: float, pause: float = 1) -> Found:
    """Return the first reading that is right, or the last one within this time."""
    end = time.monotonic() + within
    while not right(found := read()) and time.monotonic() < end:
        time.sleep(pause)
    return found


def wait_until(condition: Callable[[], Found | None], within: float, problem: str = "", pause: float = 1) -> Found:
    """Return the first true value of a condition. Fails if there is none within this time."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, problem or f"not within {within} s; the last value is {found!r}"
        time.sleep(pause)
    return found

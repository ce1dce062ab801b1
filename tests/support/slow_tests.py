"""Tests with the marker `slow`, which `make test` leaves out and `make test-all` runs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def note(items: Iterable[pytest.Item]) -> None:
    """Write the marker into the report of each slow test, for the table of docs/testing.md."""
    for item in items:
        if item.get_closest_marker("slow"):
            item.user_properties.append(("slow", "`make test` leaves it out"))

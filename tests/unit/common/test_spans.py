"""Durations: as readable text, and from a setting."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("0", 0), ("90s", 90), ("30m", 1800), ("2h", 7200)]
    + [(wrong, None) for wrong in ("30", "0m", "-1m", "1.5h", "30 m", "30M", "1d", "m", "30m\n", "1234567s")],
)
def test_a_setting_has_a_number_and_its_unit(text: str, seconds: int | None) -> None:
    assert spans.seconds(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86400 * 3, "3 d")]
)
def test_a_duration_has_its_largest_unit(seconds: float, text: str) -> None:
    assert spans.span(seconds) == text

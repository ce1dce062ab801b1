"""Names of flags."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import flags


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--enable-x", "--disable-x"),
        ("--disable-enable-x", "--enable-enable-x"),
        ("--no-enable-x", ""),
        ("--enabled", ""),
        ("-enable-x", ""),
        ("", ""),
    ],
)
def test_the_opposite_of_a_flag(flag: str, expected: str) -> None:
    assert flags.inverse(flag) == expected

"""What a test compares with a file of the repository that a person has reviewed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def assert_recorded(path: Path, text: str) -> None:
    """Fail unless the file holds the text. GB10_RENEW=1 writes it there first, but not in CI, where nobody reviews it."""
    if os.environ.get("GB10_RENEW"):
        if os.environ.get("CI"):
            pytest.fail("GB10_RENEW accepts whatever comes, so it is refused in CI", pytrace=False)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"if {path.name} should change, renew it with GB10_RENEW=1 and review it"

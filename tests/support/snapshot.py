"""Compare results of tests with reviewed files of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def assert_recorded(path: Path, text: str) -> None:
    """Fail unless the file contains the text.

    GB10_RENEW=1 writes the text first; it is refused in CI, which has no review.
    """
    if os.environ.get("GB10_RENEW"):
        if os.environ.get("CI"):
            pytest.fail("GB10_RENEW accepts every result without review, so it is refused in CI", pytrace=False)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{path.name} differs. Fix: if the change is intended, run with GB10_RENEW=1 and review the file"
    )

"""New snapshots are accepted only where a person reviews them."""

from __future__ import annotations

from pathlib import Path

import pytest
from snapshot import assert_recorded


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GB10_RENEW", raising=False)
    path = tmp_path / "page.md"
    path.write_text("old\n", encoding="utf-8")
    return path


def test_another_text_is_a_failure(recorded: Path) -> None:
    assert_recorded(recorded, "old\n")
    with pytest.raises(AssertionError, match=r"page.md differs. Fix: .* run with GB10_RENEW=1"):
        assert_recorded(recorded, "new\n")


def test_it_is_renewed_on_request(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GB10_RENEW", "1")
    assert_recorded(recorded, "new\n")
    assert recorded.read_text(encoding="utf-8") == "new\n"


def test_ci_renews_nothing(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GB10_RENEW", "1")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="refused in CI"):
        assert_recorded(recorded, "new\n")
    assert recorded.read_text(encoding="utf-8") == "old\n"

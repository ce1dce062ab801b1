"""Fixtures of the tests of playbooks that plan from recorded facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_nodes import observed


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with the recorded facts of a sample's two nodes."""
    for number in (1, 2):
        text = json.dumps({**observed(f"192.168.1.{10 + number}"), "model": None})
        (tmp_path / f"spark{number}.json").write_text(text, encoding="utf-8")
    return tmp_path

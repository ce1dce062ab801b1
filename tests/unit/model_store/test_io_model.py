"""Tests of a model's folder that another user reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that every user can read."""
    base = tmp_path_factory.mktemp("model")
    for above in (base, *base.parents[:3]):
        if str(above) != "/tmp":
            above.chmod(above.stat().st_mode | 0o055)
    for name in ("config.json", "model.safetensors"):
        (base / name).write_text("{}", encoding="utf-8")
        (base / name).chmod(0o644)
    return base


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", ["nobody", "no-such-user"])
def test_a_file_that_the_service_user_cannot_read_is_a_reason(folder: Path, user: str) -> None:
    assert io_model.planned_model(str(folder), "", [], user)["model_reason"] == ""
    (folder / "model.safetensors").chmod(0o600)
    assert io_model.planned_model(str(folder), "", [], user)["model_reason"] == f"{user} cannot read model.safetensors"
    assert io_model.planned_model(str(folder), "", [], "root")["model_reason"] == ""
    (folder / "model.safetensors").chmod(0o644)
    folder.chmod(0o700)
    assert io_model.planned_model(str(folder), "", [], user)["model_reason"] == f"{user} cannot read config.json"

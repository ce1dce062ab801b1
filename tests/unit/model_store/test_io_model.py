"""Tests of a model's folder that another user reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, io_model
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import File, Manifest


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


def test_of_a_complete_copy_only_its_own_files_count(folder: Path) -> None:
    (folder / "other.safetensors").write_bytes(bytes(100))
    assert io_model.planned_model(str(folder), "", [])["model_bytes"] == 102
    files = tuple(File(name, 2, "0" * 64) for name in ("config.json", "model.safetensors"))
    io_files.write_manifest(str(folder), Manifest("org/m", "main", "c", files))
    found = io_model.planned_model(str(folder), "", [])
    assert (found["model_bytes"], found["model_complete"]) == (2, True)

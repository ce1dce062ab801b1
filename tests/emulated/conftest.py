"""Fixtures: the emulated host (from the integration tests), and wheels that it can install."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.conftest import cluster, head, nodes, pytest_addoption
from stand_in_wheels import RAY, StandIn, collect

__all__ = ["cluster", "head", "nodes", "pytest_addoption", "runtime"]

#: Compiled for aarch64: a program and a Python module.
COMPILED = ("uv", "msgpack")
#: The role queries only its version.
VLLM = StandIn("0.32.0", {"vllm.py": b'__version__ = "0.32.0"\n'})


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lock file and the archive of its aarch64 wheels, as gb10_runtime_lock and
    vllm_runtime_wheelhouse_archive."""
    return collect(tmp_path_factory.mktemp("wheels"), "aarch64", COMPILED, {"vllm": VLLM, "ray": RAY})

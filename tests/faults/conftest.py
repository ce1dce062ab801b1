"""Fixtures: the running lab of `make faults`, from the integration tests."""

from __future__ import annotations

from integration.conftest import cluster, head, nodes, pytest_addoption, pytest_configure

__all__ = ["cluster", "head", "nodes", "pytest_addoption", "pytest_configure"]

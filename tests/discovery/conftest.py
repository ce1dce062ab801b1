"""The fixtures of the integration tests, for a lab that nothing has been installed on yet."""

from __future__ import annotations

from integration.conftest import cluster, nodes, pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["cluster", "nodes", "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

"""All filters and tests of the collection, from the files that Ansible loads them from."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from repository import files


def _plugins(kind: str) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for path in files(f"plugins/{kind}/*.py"):
        module = import_module(f"ansible_collections.gb10.cluster.plugins.{kind}.{PurePosixPath(path).stem}")
        plugins = getattr(getattr(module, f"{kind.title()}Module")(), f"{kind}s")()
        assert not found.keys() & plugins.keys(), f"{path} defines a {kind} again: {found.keys() & plugins.keys()}"
        found |= plugins
    return found


FILTERS = _plugins("filter")
TESTS = _plugins("test")

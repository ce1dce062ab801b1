"""All filters of the collection, from the files that Ansible loads them from."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from repository import files

FILTERS: dict[str, Callable[..., Any]] = {}
for _path in files("plugins/filter/*.py"):
    _module = import_module(f"ansible_collections.gb10.cluster.plugins.filter.{PurePosixPath(_path).stem}")
    _found = _module.FilterModule().filters()
    assert not FILTERS.keys() & _found.keys(), f"{_path} defines a filter again: {FILTERS.keys() & _found.keys()}"
    FILTERS |= _found

"""Modules in place of packages that no unit test installs, such as vLLM's, and of parts of installed ones."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def changed(module: ModuleType, **content: Any) -> SimpleNamespace:
    """Return a module with other content, for the one that imports it. Other threads keep the module itself."""
    return SimpleNamespace(**vars(module) | content)


def add(patch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Add a module, and the packages that it is in, until the end of the test."""
    above, _dot, _last = name.rpartition(".")
    if above and above not in sys.modules:
        add(patch, above, __path__=[])
    found = ModuleType(name)
    vars(found).update(content)
    patch.setitem(sys.modules, name, found)

"""Recorded machines (see tests/unit/data/hosts): write their files into a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repository import ROOT, load_yaml, read

_FOLDER = "tests/unit/data/hosts"
HOSTS = sorted(path.stem for path in (ROOT / _FOLDER).glob("*.yml"))


def plant(name: str, root: Path) -> Path:
    """Write a machine's files below the folder, and return the folder."""
    _write(machine(name), root)
    return root


def machine(name: str) -> dict[str, Any]:
    """Return a machine's files: of one like another machine, the other's with its own changes."""
    own: dict[str, Any] = load_yaml(read(f"{_FOLDER}/{name}.yml"))
    if "like" not in own:
        return own
    text = read(f"{_FOLDER}/{own.pop('like')}.yml")
    for theirs, its in own.pop("invented").items():
        text = text.replace(theirs, its)
    return _changed(load_yaml(text), own)


def _changed(files: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a folder with its changed files; None removes one."""
    inner = {
        name: _changed(files[name], change)
        if isinstance(change, dict) and isinstance(files.get(name), dict)
        else change
        for name, change in changes.items()
    }
    return {name: content for name, content in {**files, **inner}.items() if content is not None}


def _write(node: Any, path: Path) -> None:
    if isinstance(node, dict):
        path.mkdir(parents=True, exist_ok=True)
        for name, child in node.items():
            _write(child, path / str(name))
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(node, str) and node.startswith("-> "):
        path.symlink_to(node.removeprefix("-> "))
    else:
        path.write_text(json.dumps(node) if isinstance(node, list) else f"{node}\n", encoding="utf-8")

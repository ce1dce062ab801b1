"""Recorded machines (see tests/unit/data/hosts): write their files into a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repository import ROOT, load_yaml, read

HOSTS = sorted(path.stem for path in (ROOT / "tests/unit/data/hosts").glob("*.yml"))


def plant(name: str, root: Path) -> Path:
    """Write a machine's files below the folder, and return the folder."""
    _write(load_yaml(read(f"tests/unit/data/hosts/{name}.yml")), root)
    return root


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

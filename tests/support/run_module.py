"""Run a module as on a node: a separate process, arguments in, JSON out. Needs neither root nor a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from repository import ROOT


def program(folder: Path, name: str, script: str) -> Path:
    """Write an executable POSIX shell script of this name into the folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return folder


def run_module(name: str, arguments: dict[str, Any], path: Path | None = None, check: bool = False) -> dict[str, Any]:
    """Run a module of the collection and return its result.

    ``path`` is a folder with programs that precede the system's.
    """
    module = ROOT / ".collections" / "ansible_collections" / "gb10" / "cluster" / "plugins" / "modules" / f"{name}.py"
    given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
    environment = {
        "PYTHONPATH": str(ROOT / ".collections"),
        "PATH": f"{path}:{os.defpath}" if path else os.defpath,
        "LC_ALL": "C.UTF-8",
    }
    result = subprocess.run(
        [sys.executable, str(module)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in result.stderr, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode != 0) is answer.get("failed", False)
    return answer

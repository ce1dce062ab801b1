"""Shared functions of the programs in this folder: run a module of the collection on this host, like a play, and write reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def module(name: str, arguments: Mapping[str, Any], check: bool = False) -> dict[str, Any]:
    """Run a module through ansible, and return its result. Exits if it fails."""
    command = [sys.executable, "-m", "ansible", "adhoc", "localhost", "-m", f"gb10.cluster.{name}", "-a", json.dumps(arguments) if arguments else ""]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", *(["--check"] if check else [])]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    result = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{name} failed:\n{result.stdout}{result.stderr}")
    answer: dict[str, Any] = json.loads(result.stdout.partition("=> ")[2])
    return answer


def conclude(folder: Path, report: Mapping[str, Any], section: Callable[[Mapping[str, Any]], str]) -> None:
    """Write report.json and report.md into a folder, and report.md also to stdout. Exits with 1 if one of the report's checks fails."""
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = section(report)
    (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if failed := [check for check, holds in report["checks"].items() if not holds]:
        sys.exit("failed: " + "; ".join(failed))

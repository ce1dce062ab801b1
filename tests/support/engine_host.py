"""A host with a container engine whose images are files, and a registry."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repository import ROOT
from run_module import program
from run_playbook import LOCAL, Run, run_plays

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


class EngineHost:
    """The host. ``path`` is the folder with the engine's program, ``state`` has its images and its containers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        for place in ("images", "containers", "registry"):
            (self.state / place).mkdir(parents=True)
        engine = f'exec {sys.executable} {ROOT}/tests/support/fake_engine.py {self.state} "$@"'
        self.path = program(folder / "bin", "podman", engine)

    def has(
        self, place: str, image_id: str, names: Sequence[str], path: Sequence[Path] = (), root: str = "/", **said: Any
    ) -> None:
        """Put an image into the engine or the registry. ``path``: its Python packages; ``said``: what inspect shows."""
        shown = {"Architecture": MACHINE, "Size": 1000, **said}
        entry = {"names": list(names), "root": root, "path": list(map(str, path)), "said": shown}
        (self.state / place / f"{image_id}.json").write_text(json.dumps(entry), encoding="utf-8")

    def lacks(self, place: str, image_id: str) -> None:
        """Remove an image."""
        (self.state / place / f"{image_id}.json").unlink()

    def trouble(self, what: str) -> None:
        """Let a command of the engine fail or hang, such as "cp 1"."""
        (self.state / "trouble").write_text(what, encoding="utf-8")

    def calls(self) -> list[str]:
        """Return the engine's commands since the last call."""
        path = self.state / "calls"
        calls = path.read_text(encoding="utf-8").split() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls

    def names(self, place: str) -> list[str]:
        """Return the IDs of the images or containers."""
        return sorted(path.stem for path in (self.state / place).iterdir())

    def options(self, container: str) -> list[str]:
        """Return the options with which a container was created."""
        text = (self.state / "containers" / f"{container}.json").read_text(encoding="utf-8")
        return list(json.loads(text)["options"])


def play(folder: Path, tasks: list[Any], hosts: dict[str, Any], *arguments: str, path: object, files: str = "") -> Run:
    """Run tasks on hosts that are all this machine. ``path``: the engine's folder; ``files``: the role's variables."""
    found = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": f"{path}:{os.environ['PATH']}"},
        "vars_files": [str(ROOT / "roles/vllm_runtime" / name / "main.yml") for name in files.split()],
        "tasks": tasks,
    }
    return run_plays([found], {name: LOCAL | given for name, given in hosts.items()}, folder, *arguments)

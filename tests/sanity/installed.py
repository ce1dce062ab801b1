"""Build the collection and install it into an empty folder, as a user gets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, load_yaml, read

BIN = Path(sys.executable).parent
VERSION = str(load_yaml(read("galaxy.yml"))["version"])


@dataclass(frozen=True)
class Installed:
    """A collections path that contains only gb10.cluster."""

    path: Path

    @property
    def root(self) -> Path:
        return self.path / "ansible_collections" / "gb10" / "cluster"

    def run(
        self, *argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool of this Python environment without the caller's settings."""
        settings = {
            "PATH": f"{BIN}{os.pathsep}{os.defpath}",
            "HOME": str(self.path),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(self.path),
        }
        command = [str(BIN / argv[0]), *(str(word) for word in argv[1:])]
        return subprocess.run(
            command, cwd=cwd or self.path, env=settings | dict(env or {}), capture_output=True, text=True, check=False
        )


def install(path: Path) -> Installed:
    """Build the collection and install it into a folder."""
    collections = Installed(path)
    build = collections.run("ansible-galaxy", "collection", "build", "--force", "--output-path", path, ROOT)
    assert build.returncode == 0, build.stderr
    tarball = path / f"gb10-cluster-{VERSION}.tar.gz"
    installed = collections.run("ansible-galaxy", "collection", "install", "--offline", "-p", path, tarball)
    assert installed.returncode == 0, installed.stderr
    tarball.unlink()
    assert (collections.root / "MANIFEST.json").is_file(), installed.stdout
    return collections

"""NCCL's source from Debian (nvidia-nccl in contrib of sid), fetched once into a cache outside the repository.

apt verifies Debian's signature. The machine's own apt is not changed: sources and lists are in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

CACHE = Path.home() / ".cache" / "gb10-lab" / "nccl-src"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class NotFetchedError(Exception):
    """Debian's sources are unreachable, or the release has just changed. The text is apt's."""


def tarball(cache: Path = CACHE) -> Path:
    """Return the upstream tarball, from this machine's Debian mirror. Raises NotFetchedError."""
    if kept := sorted(cache.glob("nvidia-nccl_*.orig.tar.*")):
        return kept[-1]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as text:
        folder = Path(text)
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb-src [signed-by={_KEYS}] {_mirror()} sid contrib\n", encoding="utf-8")
        settings = {"Dir::Etc::sourcelist": "sources.list", "Dir::State::lists": "lists", "Dir::Cache": "cache"}
        options = [f"-o={key}={folder / name}" for key, name in settings.items()] + [
            "-o=Dir::Etc::sourceparts=/dev/null",
            "-o=APT::Sandbox::User=",
        ]
        _run(["apt-get", *options, "-q", "update"], folder)
        # Debian's own part of the source package is not needed.
        _run(["apt-get", *options, "-q", "source", "--download-only", "--tar-only", "nvidia-nccl/sid"], folder)
        (found,) = folder.glob("nvidia-nccl_*.orig.tar.*")
        return Path(shutil.move(found, cache / found.name))


def tree(target: Path) -> Path:
    """Unpack the tarball into a folder and return the source tree in it."""
    with tarfile.open(tarball()) as archive:
        # An attribute, because Debian 12's Python does not have the argument yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)
    (found,) = target.iterdir()
    return found


def _mirror() -> str:
    shown = _run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"], Path("/")
    )
    # The mirror of security updates has no sources of sid.
    found = [line for line in shown.splitlines() if "security" not in line]
    if not found:
        raise NotFetchedError("the apt sources of this machine contain no Debian mirror")
    return found[0]


def _run(argv: list[str], folder: Path) -> str:
    try:
        return subprocess.run(
            argv, cwd=folder, env=os.environ | {"LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError as error:
        raise NotFetchedError(f"{argv[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NotFetchedError(error.stderr.strip()) from error

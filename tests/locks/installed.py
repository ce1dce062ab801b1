"""Install the locks for their own platform, on any machine. The files that the tests read are kept outside the
repository.

A lock takes 8 GB during its installation, mostly CUDA libraries that no test reads; 1 GB is kept.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from patch.sources import CACHE

#: Python of DGX OS.
PYTHON = "3.12"
#: Kept files: the code that the tests read, and each wheel's metadata.
KEPT = ("vllm/*.so", "nvidia/nccl/lib/libnccl.so.2", "*.dist-info/WHEEL")
#: A requirement with its hashes, as uv writes it. If it is pinned by a URL, it is on another index, which may be
#: unreachable.
_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)(?:\[[^]]*\])?(?P<pin>==(?P<version>\S+)| @ \S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Requirement:
    """One entry of a lock; the version is empty if a URL pins it."""

    name: str
    version: str
    text: str


def requirements(lock: str) -> list[Requirement]:
    """Return the entries of a lock's text, each with its hashes."""
    return [
        Requirement(match["name"].lower().replace("_", "-"), match["version"] or "", match[0])
        for match in _ENTRY.finditer(lock)
    ]


def site(lock: Path) -> Path:
    """Return the folder with the kept files of a lock's site-packages.

    Installs the lock if needed; raises CalledProcessError if uv fails.
    """
    text = lock.read_text(encoding="utf-8")
    target = CACHE / "locks" / hashlib.sha256(text.encode()).hexdigest()[:12]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            entries = requirements(text)
            whole = install([entry for entry in entries if entry.version], uv(entries), Path(folder))
            kept = Path(folder) / "kept"
            for path in (path for pattern in KEPT for path in whole.glob(pattern)):
                place = kept / path.relative_to(whole)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, place)
            # Another process may have installed the same lock meanwhile.
            if not target.exists():
                shutil.move(kept, target)
    return target


def install(entries: Iterable[Requirement], program: Path, folder: Path, python: str = PYTHON) -> Path:
    """Install a lock's wheels by their hashes below a folder, and return their folder.

    Nothing is resolved, built or run. ``python`` is the release that the wheels are for.
    """
    listed, target = folder / "requirements.txt", folder / "site"
    listed.write_text("".join(f"{entry.text}\n" for entry in entries), encoding="utf-8")
    # The cache is on the target's file system, so that hard links avoid copies.
    command = [
        program,
        "pip",
        "install",
        "--quiet",
        f"--cache-dir={folder / 'cache'}",
        "--link-mode=hardlink",
        "--target",
        target,
        "--python-platform=aarch64-manylinux_2_39",
        f"--python-version={python}",
    ]
    done = subprocess.run(
        [*command, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", listed],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return target


def uv(entries: Iterable[Requirement]) -> Path:
    """Return the uv that a lock pins, for this machine. It is downloaded once."""
    (pinned,) = (entry for entry in entries if entry.name == "uv")
    target = CACHE / "uv" / pinned.version
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            listed, made = Path(folder) / "requirements.txt", Path(folder) / "made"
            listed.write_text(f"{pinned.text}\n", encoding="utf-8")
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--require-hashes",
            ]
            subprocess.run([*command, "--target", made, "-r", listed], check=True)
            if not target.exists():
                shutil.move(made, target)
    return target / "bin" / "uv"

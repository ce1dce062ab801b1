"""A runtime with stand-ins for vLLM and Ray, for machines on which the real packages take too long.

The other packages are those of the lab's lock.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import fake_openai
import fake_vllm
import pytest
import stand_in_vllm
from repository import ROOT

#: Python of the machines, as in bookworm.
PYTHON = "3.11"


@dataclass(frozen=True)
class StandIn:
    """A package that has this version, these files by path, and these entry points."""

    version: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    entry_points: str = ""


#: Roles query only its version.
RAY = StandIn("2.60.0", {"ray.py": b'__version__ = "2.60.0"\n'})


#: What stand_in_vllm needs of the lab's lock.
_SERVER = ("click", "h11", "typing-extensions", "uv", "uvicorn")


def serving(folder: Path) -> dict[str, object]:
    """Return the variables of a cluster without Ray whose runtime has stand_in_vllm, and files that vllm_patch
    changes."""
    package = {f"vllm/{name}": text.encode() for name, text in fake_vllm.FILES.items()}
    package["vllm/_version.py"] = f'__version__ = version = "{stand_in_vllm.VERSION}"\n'.encode()
    package["vllm/__init__.py"] = b"from vllm._version import __version__\n"
    for module in (stand_in_vllm, fake_openai):
        package[f"vllm/{module.__name__}.py"] = inspect.getsource(module).encode()
    vllm = StandIn(stand_in_vllm.VERSION, package, "[console_scripts]\nvllm = vllm.stand_in_vllm:main\n")
    wheels = folder / "wheels"
    wheels.mkdir()
    found = collect(wheels, "x86_64", _SERVER, {"vllm": vllm, "ray": RAY})
    return {"gb10_distributed_executor_backend": "mp", **{name: str(path) for name, path in found.items()}}


def collect(folder: Path, architecture: str, names: Collection[str], made: Mapping[str, StandIn]) -> dict[str, Path]:
    """Return a lock file and the archive of its wheels, as gb10_runtime_lock and vllm_runtime_wheelhouse_archive.

    ``names`` come from the lab's lock, ``made`` are written here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests/lab/roles/lab/files"))
        import make_wheelhouse  # noqa: PLC0415  (a script of the role, not a package)

    listed, _pins = make_wheelhouse.requirements(ROOT / "inventories/lab/requirements.txt")
    lines = [line for line in listed if line.partition("==")[0] in names]
    lock = folder / "requirements.txt"
    lock.write_text("".join(f"{line}\n" for line in lines))
    platforms = [f"--platform=manylinux{glibc}_{architecture}" for glibc in ("2014", "_2_17", "_2_28")]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        f"--python-version={PYTHON}",
        *platforms,
    ]
    subprocess.run([*pip, "--dest", folder, "--require-hashes", "--requirement", lock], check=True)
    for name, package in made.items():
        given = dict(package.files), package.entry_points
        digest = make_wheelhouse.write_wheel(folder, name, package.version, *given)
        lines.append(f"{name}=={package.version} --hash=sha256:{digest}")
    lock.write_text("".join(f"{line}\n" for line in lines))
    archive = folder / "wheelhouse.tar"
    with tarfile.open(archive, "w") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            tar.add(wheel, arcname=wheel.name)
    return {"gb10_runtime_lock": lock, "vllm_runtime_wheelhouse_archive": archive}

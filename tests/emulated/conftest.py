"""Fixtures: the emulated host (from the integration tests), and wheels that it can install."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from integration.conftest import cluster, head, nodes, pytest_addoption
from repository import ROOT

__all__ = ["cluster", "head", "nodes", "pytest_addoption", "runtime"]

#: Python of the host, as in bookworm.
PYTHON = "3.11"
#: Compiled for aarch64: a program and a Python module.
COMPILED = ("uv", "msgpack")
#: Stand-ins for packages of hundreds of megabytes that other tests cover. The role queries only their version.
STANDING_IN = {"vllm": "0.32.0", "ray": "2.60.0"}


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lock file and the archive of its aarch64 wheels, as gb10_runtime_lock and
    vllm_runtime_wheelhouse_archive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests/lab/roles/lab/files"))
        import make_wheelhouse  # noqa: PLC0415  (a script of the role, not a package)

    folder = tmp_path_factory.mktemp("wheels")
    listed, _pins = make_wheelhouse.requirements(ROOT / "inventories/lab/requirements.txt")
    lines = [line for line in listed if line.partition("==")[0] in COMPILED]
    lock = folder / "requirements.txt"
    lock.write_text("".join(f"{line}\n" for line in lines))
    platforms = [f"--platform=manylinux{glibc}_aarch64" for glibc in ("2014", "_2_17", "_2_28")]
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
    for name, version in STANDING_IN.items():
        digest = make_wheelhouse.write_wheel(
            folder, name, version, {f"{name}.py": f'__version__ = "{version}"\n'.encode()}
        )
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    lock.write_text("".join(f"{line}\n" for line in lines))
    archive = folder / "wheelhouse.tar"
    with tarfile.open(archive, "w") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            tar.add(wheel, arcname=wheel.name)
    return {"gb10_runtime_lock": lock, "vllm_runtime_wheelhouse_archive": archive}

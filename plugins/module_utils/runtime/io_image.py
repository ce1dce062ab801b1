# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Getting a container image onto this host, from a registry or a tar file, and into a tar file for other hosts."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image, short
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine, refused

#: What uname calls the architectures that vLLM has images for, by Go's names.
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}


def get(engine: Engine, reference: str, archive: str | None, pull: bool) -> Image | None:
    """Have the image here, from ``archive`` if that is given, else from its registry if it may be pulled, and return it.

    Raises ProblemsError if that cannot be.
    """
    if archive:
        said = engine.load(archive)
        found = engine.find(reference)
        if found is None:
            fix = "correct gb10_container_image, or take the tar file of that image"
            raise refused("archive", f"{archive} holds another image ({said})", reference, fix)
        return found
    if not pull:
        return None
    engine.pull(reference)
    return engine.image(reference)


def check_machine(image: Image, reference: str, machine: str) -> None:
    """Raise ProblemsError for an image that this machine cannot run."""
    wanted = _MACHINES.get(image.architecture, image.architecture)
    if wanted and wanted != machine:
        raise refused("image", f"{reference} is for {image.architecture}", f"an image for {machine}", "take the image, or the digest, for it")


def save(engine: Engine, image: Image, path: str) -> str:
    """Write the image into a tar file, whole or not at all, and return its SHA-256. Raises ProblemsError where there is no room."""
    folder, part = os.path.dirname(path), f"{path}.part"
    os.makedirs(folder, mode=0o755, exist_ok=True)
    # Podman refuses to write into a file that is there.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if free < image.size:
        raise refused("save", f"{free // 2**20} MiB are free in {folder}", f"{image.size // 2**20 + 1} MiB for the image", "make room")
    try:
        engine.save(image, f"gb10.cluster/runtime:{short(image.id)}", part)
        os.chmod(part, 0o644)
        sha256 = io_file.sha256(part)
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return sha256

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pull or load a container image, and save it to a tar file for other hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image, short
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine, check_room, refused

#: Go's name -> uname's name, for the architectures that vLLM has images for.
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}


def get(engine: Engine, reference: str, archive: str | None, pull: bool) -> Image | None:
    """Load the image from ``archive`` if given, else pull it if ``pull`` allows, and return it.

    Raises ProblemsError if that fails.
    """
    if archive:
        reported = engine.load(archive)
        found = engine.find(reference)
        if found is None:
            fix = "correct gb10_container_image, or use the tar file of that image"
            raise refused("archive", f"{archive} holds another image ({reported})", reference, fix)
        return found
    if not pull:
        return None
    engine.pull(reference)
    return engine.image(reference)


def build(engine: Engine, reference: str, how: Mapping[str, Any]) -> Image:
    """Build the image ``reference`` on another image of this host; ``how`` is the module's argument ``build``."""
    engine.build(engine.image(how["base"]), how["base_name"], how["context"], reference, how["network"], how["args"])
    return engine.image(reference)


def check_machine(image: Image, reference: str, machine: str) -> None:
    """Raise ProblemsError for an image that this machine cannot run."""
    wanted = _MACHINES.get(image.architecture, image.architecture)
    if wanted and wanted != machine:
        fix = "use the image, or the digest, for this machine"
        raise refused("image", f"{reference} is for {image.architecture}", f"an image for {machine}", fix)


def save(engine: Engine, image: Image, path: str) -> str:
    """Save the image to a tar file, completely or not at all, and return its SHA-256.

    Raises ProblemsError if the disk has too little space.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    # Podman refuses to overwrite a file.
    with io_file.part(path) as part:
        check_room("save", folder, image.size, "image", "free disk space")
        engine.save(image, f"gb10.cluster/runtime:{short(image.id)}", part)
        os.chmod(part, 0o644)
    return io_file.sha256(path)

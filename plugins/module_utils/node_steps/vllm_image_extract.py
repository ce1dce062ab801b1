# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy the vLLM of a container image to the host, to patch it there.

Copies the package ``vllm`` of an image, and the other files that ``vllm_patch`` reads, to a folder named after the
image's id. Containers of that image then mount the copy over their own; the image does not change.
The interpreter inside the image finds the package, in a temporary container without network and GPU. It does not
import vLLM.
A copy is complete or does not exist, also if a run is killed. The next run with changes removes leftovers of killed
runs.
Tested with Podman 4.3 on a simulated host, with the Python sources of a vLLM. Docker's commands are the same but were
not run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``image``: The image by reference or id. It has to be on the host.
    ``dest``: A folder only for copies. Each has a subfolder, named after the first 12 digits of the image's id.
    ``state``: Whether the copy should exist. ``absent`` removes the copies of the image that ``image`` means now, and
    of the images that it meant before.
    ``engine``: The container engine.
    ``engine_args``: More arguments of the engine's command ``create``.
    ``python``: The interpreter inside the image that runs vLLM, by name or path.
    """

    image: str
    dest: str = field(metadata={"type": "path"})
    state: str = field(default="present", metadata={"choices": ["present", "absent"]})
    engine: str = field(default="docker", metadata={"choices": ["docker", "podman"]})
    engine_args: Sequence[str] = ()
    python: str = "python3"


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {image_id, package_dir, container_package_dir, config_folder, mounts, toolkit}.

    ``image_id``: 64 hexadecimal digits. With ``absent`` it is alone, and null if the image is not on the host.
    ``package_dir``: The package's folder in the copy, and ``container_package_dir`` in the image.
    ``config_folder``: The folder for tables of the patch moe_config. Containers have it at the same path.
    ``mounts``: Each ``source`` on the host at ``target`` in the container. In check mode without a copy it is empty,
    and ``container_package_dir`` is null.
    ``toolkit``: The assembler of the image's CUDA toolkit, if any: its ``path`` in the copy, and ``runs_as``.
    """
    image_copy.check_reference(given.image)
    engine = Engine(runner(module), given.engine, list(given.engine_args))
    see_to = _present if given.state == "present" else _absent
    return see_to(engine, os.path.abspath(given.dest), given, module.check_mode)


def _present(engine: Engine, dest: str, given: Inputs, check: bool) -> dict[str, Any]:
    """Create the copy if it does not exist."""
    image = engine.image(given.image)
    folder, copy = io_image_copy.folder_of(dest, image), io_image_copy.existing(dest, image)
    changed = copy is None
    if copy is None and not check:
        copy = io_image_copy.make(engine, dest, image, given.image, given.python)
    answer = image_copy.answer(folder, copy or Copy(image.id, given.image, "", ""))
    if copy is None:
        answer.update(container_package_dir=None, mounts=[])
    text = f"{folder}: {image.id}\n"
    return {
        "changed": changed,
        "image_id": image.id,
        **answer,
        "diff": {"before": "" if changed else text, "after": text},
    }


def _absent(engine: Engine, dest: str, given: Inputs, check: bool) -> dict[str, Any]:
    """Remove the copies, even if the image or the engine does not exist any more."""
    try:
        image_id = engine.image(given.image).id
    except ProblemsError:
        image_id = None
    copies = io_image_copy.of_image(dest, given.image, image_id)
    changed = bool(copies or io_image_copy.unfinished(dest))
    if changed and not check:
        io_image_copy.remove(engine, dest, list(copies))
    before = "".join(f"{folder}: {copy.image_id}\n" for folder, copy in copies.items())
    return {"changed": changed, "image_id": image_id, "diff": {"before": before, "after": ""}}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put a built wheel into the folder of an image's build, if the wheel and the image below have the same releases.

pip keeps the other packages of the image, and the wheel belongs to a release of torch and of Python.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheels, layers
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import last


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``wheel``: The wheel in the node's store.
    ``sha256``: Its hash.
    ``vllm``: The release of vLLM that the image must have.
    ``torch``: The same of torch.
    ``image``: The name of the image below, for messages.
    ``argv``: The command that reads the releases in it.
    ``folder``: The folder to copy the wheel to.
    """

    wheel: str = field(metadata={"type": "path"})
    sha256: str
    vllm: str
    torch: str
    image: str
    argv: Sequence[str]
    folder: str = field(metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {}. Check mode runs no container."""
    if module.check_mode:
        return {"changed": True}
    refuse(io_wheels.check(given.wheel, given.sha256, built=True))
    status, stdout, stderr = runner(module)(list(given.argv))
    if status != 0:
        fix = "use an image whose interpreter runs, or correct vllm_runtime_image_python"
        raise ProblemsError([Problem(given.image, last(stderr), "its releases", fix)])
    name = os.path.basename(given.wheel)
    refuse(layers.release_problems(given.image, stdout, given.vllm, given.torch, name))
    io_file.install_folder(given.folder)
    shutil.copy(given.wheel, f"{given.folder}/{name}")
    os.chmod(f"{given.folder}/{name}", io_file.READABLE)
    return {"changed": True}

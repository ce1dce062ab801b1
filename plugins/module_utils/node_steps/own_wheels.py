# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install a node's own wheels in place of those that an environment has from its lock.

The dependencies come from the lock. Every hash is verified before the first wheel is installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheels
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import last

_INSTALL = ("install", "--no-cache", "--no-index", "--no-deps", "--reinstall")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``environment``: The environment, with uv.
    ``wheels``: The wheels of the plan: ``wheel``, ``sha256``, and whether it is ``built``.
    ``folder``: The folder of the wheels that were not built here. It is removed.
    ``compile``: Whether uv compiles bytecode.
    """

    environment: str = field(metadata={"type": "path"})
    wheels: Sequence[Mapping[str, Any]]
    folder: str = field(metadata={"type": "path"})
    compile: bool = True


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {}. Check mode installs nothing, because it has copied nothing."""
    if module.check_mode:
        return {"changed": True}
    paths = [_path(given.folder, wheel) for wheel in given.wheels]
    refuse(
        [
            problem
            for path, wheel in zip(paths, given.wheels, strict=True)
            for problem in io_wheels.check(path, str(wheel["sha256"]), bool(wheel["built"]))
        ]
    )
    uv = [f"{given.environment}/bin/uv", "pip", *_INSTALL, f"--python={given.environment}/bin/python"]
    status, _stdout, stderr = runner(module)(["env", f"UV_COMPILE_BYTECODE={int(given.compile)}", *uv, *paths])
    if status != 0:
        # The environment has changed already.
        raise ValueError(f"uv failed: {last(stderr)}. Expected: an installed wheel. Fix: see its message.")
    shutil.rmtree(given.folder)
    # Every user could hold uv's lock.
    io_file.install(f"{given.environment}/.lock", None)
    return {"changed": True}


def _path(folder: str, wheel: Mapping[str, Any]) -> str:
    return str(wheel["wheel"]) if wheel["built"] else f"{folder}/{os.path.basename(str(wheel['wheel']))}"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage a file with secret environment variables for the units of the ranks.

Root owns the file, with mode 0600; systemd reads it. Neither the result nor the difference contains a value.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths, secret_environment

_MODE = 0o600


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``variables``: The variables with their values. Without any, the file is removed.
    ``path``: The file.
    """

    variables: Mapping[str, Any] = field(default_factory=dict, metadata={"no_log": True})
    path: str = field(default=paths.SECRET_ENVIRONMENT, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {version}, which changes with the file, "" without one.

    It reveals nothing about the values, because it is keyed with a random salt that only the file has. Launch inputs
    may therefore contain it.
    """
    path = given.path
    variables = {str(name): str(value) for name, value in given.variables.items()}
    found, mode = io_file.read_file(path)
    # Keep the salt while the file exists, so that the version changes only with the values.
    salt = secret_environment.salt_of(found or "") or secrets.token_hex(16)
    wanted = secret_environment.text(variables, salt) if variables else None
    changed = (found, mode) != (wanted, None if wanted is None else _MODE)
    if changed and not module.check_mode:
        if wanted is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            io_file.add_folder(os.path.dirname(path))
            io_file.write_file(path, wanted, _MODE, (os.geteuid(), os.getegid()))
    summary = f"{path}: {'no such file' if wanted is None else 'only root can read it'}\n" if changed else ""
    version = secret_environment.version(wanted or "")
    return {"changed": changed, "version": version, "diff": {"before": "", "after": summary}}

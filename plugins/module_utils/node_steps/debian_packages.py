# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read which Debian packages are missing, and which process holds a lock of apt or dpkg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``names``: Packages in apt's syntax, such as ``g++`` or ``g++=4:13.2.0-7ubuntu1``.
    """

    names: Sequence[str]


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return io_packages.read()."""
    return {"changed": False, **io_packages.read(runner(module), given.names)}

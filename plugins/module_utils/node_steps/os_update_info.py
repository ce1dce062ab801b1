# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the updates of DGX OS on a node.

Reads the level of DGX OS, pending packages, kernels with their modules, the boot loader, and what updates the node by
itself. Needs root, as NVIDIA's checker does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, plan


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``packages``: Whether to query apt and NVIDIA's checker, which takes seconds.
    """

    packages: bool = True


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {state, stage, lines}.

    ``state``: ``os_update.schema.State``.
    ``stage``: What comes next. ``upgrade``, ``boot`` and ``verify`` are an update under way. With ``fell back``, the
    new kernel did not start and the former one runs.
    ``lines``: The state as text.
    """
    found = io_state.read(runner(module), given.packages)
    return {"changed": False, "state": asdict(found), "stage": plan.stage(found), "lines": plan.about(found)}

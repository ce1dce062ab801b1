# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the evidence of a node that needs no plan, no runtime and no model.

Reads versions, memory and clocks of the GPU, the files and profiles of the network, the requirements of a compilation
of kernels, and the state of apt and systemd. Only known lines of the logs leave the node: steps of a start, symptoms
and exceptions. The others are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import io_evidence

#: Seconds for each command: nvidia-smi may hang on a faulty node.
_TIMEOUT = 30


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``install_dir``: The folder of the runtimes and models.
    """

    install_dir: str = field(metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {evidence, unread}: the items, and item -> reason of those that could not be read, each read alone."""
    run_all = parallel_runner(module, _TIMEOUT)
    return {"changed": False, **io_evidence.read(lambda argv: run_all([argv])[0], given.install_dir)}

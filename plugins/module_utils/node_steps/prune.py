# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the stored models, runtimes, builds, images and caches of a node, and remove named ones.

Lists the items that this collection stored, with sizes and with the launches that need them. Removes only named items,
and none that the inputs of a recorded launch or of an installed service name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_prune, prune


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``names``: The items to remove, as ``stored`` lists them. The node may lack some.
    ``install_dir``: The folder with the runtimes. Another one that an installed service uses is found by itself.
    ``user``: The name of the service user, in whose home the caches are.
    """

    names: Sequence[str] = ()
    install_dir: str = field(default="/opt/gb10", metadata={"type": "path"})
    user: str = "gb10"


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {stored, lines, problems}.

    ``stored``: The names of the items, such as ``runtime/c38aa75c644e``.
    ``lines``: The items as text, with size and the launches that need them.
    ``problems``: Why named items may not be removed. Without check mode they are an error.
    """
    command = runner(module)
    items = io_prune.read(command, given.install_dir, given.user)
    refused = prune.refused(items, given.names)
    removed = [item for item in items if item.name in given.names and not item.kept]
    if not module.check_mode:
        problems.refuse(refused)
        io_prune.remove(command, removed)
    return {
        "changed": bool(removed),
        "stored": [item.name for item in items],
        "lines": prune.lines(items, given.names),
        "problems": list(map(str, refused)),
        "diff": {"before": "".join(f"{item.name}\n" for item in removed), "after": ""},
    }

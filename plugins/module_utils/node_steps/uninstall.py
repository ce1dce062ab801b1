# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove this collection from a node, or list the items to remove.

Removes the services, containers, files, users and firewall rules of this collection, and no others. It decides from the
node's own state, and a second run completes an interrupted one.
Removes neither the network configuration, which ``netplan_apply`` restores, nor its saved state until then. Run it
again after that.
Keeps links and other content of an administrator, folders with mounts in them, images that were on the node before, and
a user without a record that this collection created it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.io_nftables import FirewallError
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, plan, report


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``state``: Whether to only stop the services, or to remove everything.
    ``install_dir``: The folder with the runtimes. Another one that an installed service uses is found by itself.
    ``user``: The name of the service user. Without a record of its creation it is kept, and listed.
    ``models``: Whether to remove the stored models too.
    """

    state: str = field(default="absent", metadata={"choices": ["absent", "stopped"]})
    install_dir: str = field(default="/opt/gb10", metadata={"type": "path"})
    user: str = "gb10"
    models: bool = False


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {lines, due, network}.

    ``lines``: The steps as text, with kept items and their reasons last. In check mode with sizes.
    ``due``: Whether there is anything to remove or to restore, also in check mode.
    ``network``: Whether the node has a network configuration to restore.
    """
    command = runner(module)
    verbs = ("stop",) if given.state == "stopped" else ("stop", "remove", "empty")
    try:
        steps = plan.decide(io_node.read(command, given.install_dir, given.user), given.models)
        due = [step for step in steps if step.verb in verbs]
        sizes = io_node.sizes(command, steps) if module.check_mode else {}
        if not module.check_mode:
            io_node.apply(command, due)
    except FirewallError as error:
        raise ValueError(str(error)) from error
    network = any(step.kind == "network" for step in steps)
    return {
        "changed": bool(due),
        "due": bool(due) or network,
        "network": network,
        "lines": report.lines(steps, sizes),
        "diff": {"before": "".join(f"{line}\n" for line in report.lines(due, sizes)) if due else "", "after": ""},
    }

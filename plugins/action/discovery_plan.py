# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of discovery_plan, which documents it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, report
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import machines
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Reads the answers of all machines on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {machines, pending} with what their query needs, or with the inventory if none is pending."""
        arguments = self.arguments(
            machines={"type": "list", "elements": "dict", "required": True},
            answers={"type": "list", "elements": "dict", "default": []},
            folder={"type": "path", "required": True},
            partial={"type": "bool", "default": False},
            model={"type": "str", "default": ""},
        )
        answers = [answer["machine"] for answer in arguments["answers"]]
        known = [machines.validated(machine) for machine in [*arguments["machines"], *answers]]
        pending = [machines.validated(machine) for machine in plan.pending_hosts(known)]
        try:
            if pending:
                found = ssh_files([*known, *pending], arguments["folder"])
            else:
                found = result(known, arguments["partial"], arguments["model"])
        except ProblemsError as error:
            return {"failed": True, "msg": str(error)}
        return {
            "changed": False,
            "machines": known,
            "pending": pending,
            **found,
            "_ansible_verbose_override": True,
        }


def ssh_files(known: Sequence[Mapping[str, Any]], folder: str) -> dict[str, Any]:
    """Return {ssh_config, known_hosts, trusted}: the files of ssh for validated machines, and a line for each new key.

    Raises ProblemsError.
    """
    new = [
        machine
        for machine in plan.settled(known)
        if not (machine["observed"] or machine["unreachable"] or machine["invalid"])
    ]
    return {
        "ssh_config": inventory.ssh_config(known, folder),
        "known_hosts": inventory.known_hosts(known),
        "trusted": inventory.trusted(new),
    }


def result(known: Sequence[Mapping[str, Any]], partial: bool, model: str) -> dict[str, Any]:
    """Return {topology, summary, notes, problems, report, files, trusted} of validated machines. Raises ProblemsError.

    ``trusted``: lines about the keys in the inventory, [] without one.
    """
    settled = plan.settled(known)
    found = plan.discover(settled, partial)
    trusted = inventory.inventory(settled, found)["trusted"]
    return {
        "topology": found.proposal.topology,
        "summary": inventory.summary(settled, found),
        "notes": [str(note) for note in found.notes],
        "problems": [str(problem) for problem in found.problems],
        "report": report(found.problems),
        "files": inventory.files(settled, found, model),
        "trusted": [inventory.TRUST, *trusted] if trusted else [],
    }

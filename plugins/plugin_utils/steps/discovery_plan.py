# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derive cables, topology and an inventory from the answers of machines.

Derives the topology (none, direct, ring or switch) from the neighbors on every machine's QSFP ports.
As long as a machine on a cable was not queried, returns these machines and what their query needs, instead of the
inventory.
Validates each machine, which is untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, report
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import answer, inventory, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``machines``: The known machines, the given ones first, as ``machine`` of ``fabric_neighbors_info``.
    ``answers``: Results of ``fabric_neighbors_info``, whose machines are added.
    ``folder``: The folder of ssh's files for the pending machines.
    ``partial``: Whether to omit a machine that could not be queried, with a note, instead of a problem.
    ``model``: The value of ``gb10_model`` in the inventory; empty for a line to fill in.
    """

    machines: Sequence[Mapping[str, Any]]
    answers: Sequence[Mapping[str, Any]] = ()
    folder: str = field(metadata={"type": "path"})
    partial: bool = False
    model: str = ""


def run(_step: Decision, given: Inputs, _variables: dict[str, Any]) -> dict[str, Any]:
    """Return {machines, pending} with what their query needs, or with the inventory if none is pending."""
    answers = [each["machine"] for each in given.answers]
    known = [answer.machine(machine) for machine in [*given.machines, *answers]]
    pending = [answer.machine(machine) for machine in plan.pending_hosts(known)]
    try:
        found = ssh_files([*known, *pending], given.folder) if pending else result(known, given.partial, given.model)
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

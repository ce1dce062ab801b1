# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: from the answers of discovered machines to an inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def _mac(value: str) -> str:
    """Return a MAC address in netaddr's format. Raises ValueError for anything else."""
    try:
        import netaddr  # type: ignore[import-untyped]  # The development tools have no types-netaddr.
    except ImportError as error:
        raise AnsibleFilterError("netaddr is not installed on the controller. Fix: pip install netaddr") from error
    try:
        return str(netaddr.EUI(value, version=48, dialect=netaddr.mac_unix_expanded))
    except (netaddr.AddrFormatError, TypeError) as error:
        raise ValueError(str(error)) from error


def discovery_machine(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a machine with its valid facts and the problems in them."""
    from ansible_collections.gb10.cluster.plugins.module_utils.discovery import answer

    return answer.machine(machine, _mac)


def _machines(machines: Sequence[Any]) -> list[dict[str, Any]]:
    """Validate all machines: only validated facts may reach a file, a command or a message."""
    return [discovery_machine(machine) for machine in machines]


def discovery_pending_hosts(machines: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the machines on cables that were not queried yet."""
    from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan

    return plan.pending_hosts(_machines(machines))


def discovery_ssh_files(machines: Sequence[Any], folder: str) -> dict[str, Any]:
    """Return {ssh_config, known_hosts, trusted}: the SSH configuration for the machines on cables."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
    from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory, plan

    known = _machines(machines)
    new = [
        machine
        for machine in plan.settled(known)
        if not (machine["observed"] or machine["unreachable"] or machine["invalid"])
    ]
    try:
        return {
            "ssh_config": inventory.ssh_config(known, str(folder)),
            "known_hosts": inventory.known_hosts(known),
            "trusted": inventory.trusted(new),
        }
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def discovery_result(machines: Sequence[Any], partial: bool, model: str = "") -> dict[str, Any]:
    """Return {topology, summary, notes, problems, report, files, trusted}."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, report
    from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory, plan

    known = plan.settled(_machines(machines))
    found = plan.discover(known, bool(partial))
    try:
        return {
            "topology": found.proposal.topology,
            "summary": inventory.summary(known, found),
            "notes": [str(note) for note in found.notes],
            "problems": [str(problem) for problem in found.problems],
            "report": report(found.problems),
            "files": inventory.files(known, found, str(model)),
            "trusted": inventory.inventory(known, found)["trusted"],
        }
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "discovery_machine": discovery_machine,
            "discovery_pending_hosts": discovery_pending_hosts,
            "discovery_ssh_files": discovery_ssh_files,
            "discovery_result": discovery_result,
        }

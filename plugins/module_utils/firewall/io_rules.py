# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the rules of a node's firewall with wanted ones, and load, confirm or remove them."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_local
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import host as firewall_host
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import published as firewall_published

#: The options of the module peer_firewall, which documents them.
ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "peers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "interface": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
        },
    },
    "peer_ports": {"type": "dict", "default": {}},
    "api_port": {"type": "int", "default": 0},
    "wake_port": {"type": "int", "default": 0},
    "api_clients": {"type": "list", "elements": "str", "default": []},
    "open_ports": {"type": "list", "elements": "str", "default": []},
    "interfaces": {"type": "list", "elements": "str", "default": []},
    "monitoring_ports": {"type": "list", "elements": "int", "default": []},
    "monitoring_clients": {"type": "list", "elements": "str", "default": []},
    "served_ports": {"type": "list", "elements": "str", "default": []},
    "service_user": {"type": "str", "default": ""},
    "confirm_timeout": {"type": "int", "default": 60},
    "confirm": {"type": "bool", "default": False},
    "client": {"type": "str", "default": ""},
    "witness": {"type": "str", "default": ""},
}


#: Groups whose members may become root. An administrator may serve on any port, such as after stop.yml.
_OF_ROOT = ("root", "sudo", "admin", "wheel", "docker")


@dataclass(frozen=True)
class Host:
    """How to run commands on the node, the path of its nft, "" without one, and whether nothing may change."""

    run: Run
    nft: str
    check_mode: bool


def outcome(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of module peer_firewall. Raises ProblemsError, FirewallError, ValueError or OSError."""
    run = host.run
    access = firewall_plan.Access(
        [(peer["interface"], peer["address"]) for peer in params["peers"]],
        params["api_port"],
        params["api_clients"],
        params["open_ports"],
        params["interfaces"],
        params["monitoring_ports"],
        params["monitoring_clients"],
        params["wake_port"],
        params["served_ports"],
        serving_users(params["service_user"]),
    )
    installed, active_firewalls = io_nftables.active_firewalls(run)
    listeners, links, forwarded = io_local.listeners(), io_nftables.links(run), io_nftables.published_ports(run)
    ssh = io_nftables.ssh_ports(run, listeners)
    other_host, came_by = io_nftables.entrance(run, params["client"])
    unverified = [] if other_host or params["witness"] else [firewall_host.unverified(params["client"])]
    present = params["state"] == "present"
    active_firewall = " and ".join(dict.fromkeys(active_firewalls.values())) if all(active_firewalls.values()) else ""
    wanted = present and not active_firewall
    problems = firewall_plan.check(access)
    if wanted:
        problems += firewall_host.problems(access, links, ssh, came_by)
        problems += unverified if problems else []
    refuse(problems)
    result = {
        "active_firewall": active_firewall,
        "active_firewalls": active_firewalls,
        "installed": installed,
        "advice": firewall_plan.advice(active_firewalls, access, params["peer_ports"]) if present else [],
        "ssh_ports": ssh,
        "matches": firewall_host.matches(access, links),
        "closed": firewall_host.closed(listeners, access, ssh, forwarded) if wanted else [],
        "published": [firewall_published.shown(port) for port in forwarded],
        "pending": False,
        "api_port": params["api_port"],
        "witness": params["witness"],
    }
    if not wanted:
        return {**result, **_remove(host, installed)}
    text = firewall_plan.ruleset(access, ssh, [family for family, other in active_firewalls.items() if other])
    load = _load if installed else _load_later
    return {**result, **load(host, params, text, unverified)}


def serving_users(service_user: str) -> list[int]:
    """Return the IDs of root, of the service user, and of all who may become root, none without the service user."""
    try:
        found = {0, pwd.getpwnam(service_user).pw_uid}
    except KeyError:
        return []
    groups = {group.gr_name: group for group in grp.getgrall() if group.gr_name in _OF_ROOT}
    numbers, members = (
        {group.gr_gid for group in groups.values()},
        {name for group in groups.values() for name in group.gr_mem},
    )
    found |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid in numbers or user.pw_name in members}
    return sorted(found)


def _remove(host: Host, installed: bool) -> dict[str, Any]:
    """Remove the collection's rules. Returns part of the result."""
    found = io_nftables.existing_objects(host.run) if installed else []
    if found and not host.check_mode:
        io_nftables.remove(host.run)
    return _change("".join(f"{line}\n" for line in found), "", bool(found))


def _load_later(host: Host, _params: Mapping[str, Any], text: str, unverified: list[Problem]) -> dict[str, Any]:
    """Return part of the result on a host without nft, which the role installs only outside check mode."""
    refuse(unverified)
    if not host.check_mode:
        raise io_nftables.FirewallError("nft is not installed: install the package nftables")
    return _change("", text, True)


def _load(host: Host, params: Mapping[str, Any], text: str, unverified: list[Problem]) -> dict[str, Any]:
    """Compare the rules with those on the host, then load, confirm or save them. Returns part of the result."""
    run, nft = host.run, host.nft
    if not nft:
        raise io_nftables.FirewallError("nft is in no folder of root's programs, such as /usr/sbin")
    files = io_nftables.files(nft, text)
    before, after = io_nftables.loaded_ruleset(run), io_nftables.normalize(run, text)
    # Loaded rules without a file are left from a killed run.
    new = before != after or bool(io_nftables.pending(run)) or io_file.read_file(io_nftables.RULES)[0] != text
    changed_files = io_nftables.changed_files(run, files)
    due = new or bool(changed_files)
    if new:
        refuse(unverified)
    pending = new and not params["confirm"] and not host.check_mode
    if pending:
        io_nftables.attempt(run, nft, text, params["confirm_timeout"])
    elif due and not host.check_mode:
        if before != after:
            raise io_nftables.FirewallError("the rules to confirm are no longer loaded")
        io_nftables.save(run, nft, files)
    return {**_change(before, after + "".join(f"# {line}\n" for line in changed_files), due), "pending": pending}


def _change(before: str, after: str, due: bool) -> dict[str, Any]:
    return {"changed": due, "due": due, "diff": {"before": before, "after": after}}

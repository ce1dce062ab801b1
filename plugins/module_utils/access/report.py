# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's access to each node, or why it has none. A node is a mapping::

{"name": str, "address": str, "port": int, "user": str,
 "host_key": {...} | {},     # {key, fingerprint, state, reason} of io_host_key; {} for the controller itself
 "key": str,                 # the error of the login by key, "" if it works
 "password": str | None,     # the error of the login by password and the installation, None if it was not tried
 "sudo_free": bool,          # whether sudo asks for no password
 "sudo": str | None}         # the error of sudo with the password, "" if it works, None if it was not tried
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes, host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

Node = Mapping[str, Any]


def of_results(
    host_key_info: Mapping[str, Any], login: Mapping[str, Any], password: Mapping[str, Any], sudo: Mapping[str, Any]
) -> Node:
    """Return a node from the results of the role's tasks on it, {} for a task that no run reached.

    A task that was skipped tried nothing.
    """
    unanswered = str(password.get("msg") or "no answer") if password.get("unreachable") else ""
    tried = bool(password) and not password.get("skipped")
    return {
        **host_key_info["node"],
        "key": login.get("reason", str(login.get("msg") or "no answer")),
        "password": unanswered if tried else None,
        "sudo_free": bool(login.get("sudo_free")),
        "sudo": sudo.get("reason"),
    }


def target(node: Node) -> str:
    """Return the user and the address for a person."""
    return f"{node['user']}@{node['address']}" if node["user"] else str(node["address"])


def host_key_problems(nodes: Sequence[Node]) -> list[Problem]:
    """Return the machines that give no host key, or another one than known_hosts has."""
    problems = []
    for node in nodes:
        found = node["host_key"]
        if found.get("reason"):
            problems.append(_problem(node, found["reason"], "sshd at this address"))
        elif found.get("state") == host_key.CHANGED:
            text = f"{node['address']} has another host key than known_hosts: {found['fingerprint']}"
            problems.append(_problem(node, text, "the stored host key"))
    return problems


def unknown(nodes: Sequence[Node]) -> list[dict[str, str]]:
    """Return {name, key, line} of each host key that known_hosts does not have, for that file and for a person."""
    return [
        {
            "name": host_key.name(node["address"], int(node["port"])),
            "key": f"{host_key.name(node['address'], int(node['port']))} {node['host_key']['key']}",
            "line": f"{node['name']} ({target(node)}): {node['host_key']['fingerprint']} (ED25519)",
        }
        for node in nodes
        if node["host_key"].get("state") == host_key.NEW
    ]


def login_problems(nodes: Sequence[Node]) -> list[Problem]:
    """Return the nodes without a login by key or without sudo."""
    return [problem for node in nodes for problem in _login(node)]


def _login(node: Node) -> list[Problem]:
    if node["password"]:
        cause = causes.find(node["password"])
        # This login did not offer a key, so the refusal is about the password.
        reason = causes.PASSWORD_WRONG.shows if cause and cause.id == "login-denied" else node["password"]
        fix = causes.fix(reason, node["user"], node["address"])
        return [Problem(node["name"], causes.short(node["password"]), "a login with the given password", fix)]
    if node["key"] and node["password"] is not None:
        fix = causes.filled(
            "run 'ssh -v USER@ADDRESS': a key with a passphrase needs ssh-add first; on the node, 'chmod go-w "
            "~ ~/.ssh' and PubkeyAuthentication yes in /etc/ssh/sshd_config",
            node["user"],
            node["address"],
        )
        return [Problem(node["name"], f"the key is installed, but {causes.short(node['key'])}", "a login by key", fix)]
    if node["key"]:
        return [_problem(node, node["key"], "a login by key, or the login password at the prompt")]
    return [_problem(node, node["sudo"], "sudo")] if node["sudo"] else []


def _problem(node: Node, reason: str, expected: str) -> Problem:
    return Problem(node["name"], causes.short(reason), expected, causes.fix(reason, node["user"], node["address"]))


def report(problems: Sequence[Problem], count: int) -> str:
    """Return the problems of some of ``count`` nodes as one message. The others may have got the key already."""
    places = len({problem.path for problem in problems})
    return "\n".join(
        [
            f"{places} of {count} machines without access:",
            *(f"  {number}. {each}" for number, each in enumerate(problems, 1)),
        ]
    )


def lines(nodes: Sequence[Node]) -> list[str]:
    """Return a line for each node that has access, and what to append to each command."""
    found = [f"{node['name']} ({target(node)}): login by key, {_sudo(node)}" for node in nodes]
    if any(not node["sudo_free"] for node in nodes):
        found.append("Append -K to each ansible-playbook command: it asks for the sudo password.")
    return found


def _sudo(node: Node) -> str:
    if node["sudo_free"]:
        return "sudo without a password"
    return "sudo with the password" if node["sudo"] == "" else "sudo with a password, which was not verified"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render the discovery's output: ssh access to machines on cables, and the inventory. plan.py describes a machine.

Ansible and ssh load this output as trusted configuration. So each value is quoted, and no text from a machine can
become a template, although answer.py already validated it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access.host_key import fingerprint
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.plan import Discovery, Machine


class Template(str):
    """A text from this module that Ansible renders when it loads the inventory. Any other text is literal."""


#: The start of a template.
_OPENING = re.compile(r"\{[{%#]")
#: The inventory's folder has the host keys that were read over a cable. ssh uses the first value of an option, so these
#: options precede the user's arguments.
_PINNED = """-o 'UserKnownHostsFile="{{ inventory_dir }}/known_hosts.txt"' -o StrictHostKeyChecking=yes"""
_OTHERS = (
    "# Every other variable with its default: inventories/variables.yml of the package, or ansible-doc -t role "
    "gb10.cluster.<role>"
)
#: Explains the lines of trusted() after the inventory is written.
TRUST = (
    "These host keys were trusted on first use. The machine that sees each one read it over the cable; known_hosts.txt "
    "has all of them. If a cable may lead elsewhere, compare them with `ssh-keygen -lf "
    "/etc/ssh/ssh_host_ed25519_key.pub` on the machine's own console."
)
#: Numbers that divide the attention heads of common models.
_EVEN = (1, 2, 4, 8)


def ssh_config(machines: Sequence[Machine], folder: str) -> str:
    """Return the ssh configuration for the machines on cables. ssh reaches each through the machine that sees it.

    The user's keys, agent and configuration apply, with the host keys of known_hosts(). ``folder`` has both files,
    under the names ssh_config and known_hosts.
    """
    named = {machine["name"]: machine for machine in machines}
    lines = []
    for machine in machines:
        if "via" not in machine or not machine["host_key"]:
            continue
        lines += [
            f"Host {machine['name']}",
            f"  HostName {_escaped(machine['address'])}",
            f"  HostKeyAlias {machine['name']}",
            f'  UserKnownHostsFile "{_escaped(folder)}/known_hosts"',
            "  StrictHostKeyChecking yes",
            "  ConnectTimeout 10",
            "  ServerAliveInterval 5",
        ]
        lines += [f'  User "{machine["login"]["user"]}"'] if machine["login"]["user"] else []
        lines += [f'  IdentityFile "{_escaped(machine["login"]["key"])}"'] if machine["login"]["key"] else []
        jump = _jump(named[machine["via"]], folder)
        lines += [f"  ProxyCommand {jump}"] if jump else []
    return _text([*lines, "Match all", "  Include ~/.ssh/config"])


def _text(lines: Sequence[str]) -> str:
    """Return the lines of a file. Raises ProblemsError for a line with a character that may end a line."""
    if wrong := [line for line in lines if not line.isprintable()]:
        problems = [
            Problem("discovery", repr(line), "one line of printable characters", "correct the value in it")
            for line in wrong
        ]
        raise ProblemsError(problems)
    return "".join(f"{line}\n" for line in lines)


def _jump(via: Machine, folder: str) -> str:
    """Return the command that connects through a machine, or "" for the controller."""
    login = via["login"]
    if login["local"]:
        return ""
    words = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"]
    if "via" in via:
        words += ["-F", f"{folder}/ssh_config"]
    else:
        words += shlex.split(login["arguments"])
        words += ["-p", str(login["port"])] if login["port"] else []
        words += ["-l", login["user"]] if login["user"] else []
        words += ["-i", login["key"]] if login["key"] else []
    host = via["name"] if "via" in via else via["address"]
    # ssh expands %h and %p. Any other % is literal.
    return f"{_escaped(shlex.join(words))} -W '[%h]:%p' {_escaped(shlex.quote(host))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def known_hosts(machines: Sequence[Machine]) -> str:
    """Return a line for each machine on a cable, under its name in ssh_config()."""
    return _text(
        [f"{machine['name']} {machine['host_key']}" for machine in machines if "via" in machine and machine["host_key"]]
    )


def inventory(machines: Sequence[Machine], discovery: Discovery) -> dict[str, Any]:
    """Return {hosts, variables, known_hosts, trusted} of the proposed machines, in its order.

    ``variables`` has the group's variables, on which all hosts agree; ``hosts`` has each host's remaining variables.
    """
    by_name = {machine["name"]: machine for machine in machines}
    members = [by_name[name] for name in discovery.proposal.machines]
    settings = {
        machine["name"]: _settings(machine, discovery.proposal.ports.get(machine["name"], ())) for machine in members
    }
    first = next(iter(settings.values()), {})
    shared = {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in settings.values())
    }
    own = {name: {key: value for key, value in given.items() if key not in shared} for name, given in settings.items()}
    return {
        "hosts": {machine["name"]: {"ansible_host": _address(machine), **own[machine["name"]]} for machine in members},
        "variables": shared,
        "known_hosts": _text([f"{_address(machine)} {machine['host_key']}" for machine in members if "via" in machine]),
        "trusted": trusted(members),
    }


def of_addresses(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return hosts.yml for nodes with an address, a user ("" if ssh chooses it) and a port, the head first."""
    hosts = {}
    for number, node in enumerate(nodes, 1):
        settings = {
            "ansible_host": node["address"],
            "ansible_user": node["user"],
            "ansible_port": node["port"] if node["port"] != 22 else "",
        }
        hosts[f"spark{number}"] = {key: value for key, value in settings.items() if value}
    comments = ["Written by playbooks/access.yml, the head first. The model: openai/gpt-oss-20b is a smaller one."]
    return _hosts(hosts, ["gb10_model: openai/gpt-oss-120b", _OTHERS], comments)


def _settings(machine: Machine, ports: Sequence[int]) -> dict[str, Any]:
    login = machine["login"]
    settings = {
        "ansible_user": login["user"],
        "ansible_ssh_private_key_file": login["key"],
        "ansible_port": login["port"] if login["port"] not in (None, 22) else "",
        "ansible_ssh_common_args": Template(f"{_PINNED} {_literal(login['arguments'])}".strip())
        if "via" in machine
        else login["arguments"],
        "gb10_fabric_ports": list(ports),
    }
    return {name: value for name, value in settings.items() if value}


def _address(machine: Machine) -> str:
    """Return a machine's address: the user's, or the management address if that is a cable or the controller."""
    return str(
        machine["observed"]["management"] if "via" in machine or machine["login"]["local"] else machine["address"]
    )


def files(machines: Sequence[Machine], discovery: Discovery, model: str) -> dict[str, str]:
    """Return the inventory as file -> text, with paths relative to its folder; empty without a topology.

    ``model`` is the value of gb10_model, "" for a placeholder line.
    """
    if not discovery.proposal.topology:
        return {}
    found = inventory(machines, discovery)
    texts = {
        "hosts.yml": _hosts(
            found["hosts"],
            _variables(found["variables"], discovery.proposal.topology, len(found["hosts"]), model),
            ["Found on the QSFP cables, the head first.", *(f"  {line}" for line in summary(machines, discovery))],
        ),
        "known_hosts.txt": found["known_hosts"],
    }
    return {path: text for path, text in texts.items() if text}


def _hosts(hosts: Mapping[str, Mapping[str, Any]], variables: Sequence[str], comments: Sequence[str]) -> str:
    lines = ["---", *(f"# {_comment(line)}" for line in comments), "gb10_cluster:", "  children:"]
    for group, names in (("head", list(hosts)[:1]), ("worker", list(hosts)[1:])):
        lines += [f"    {group}:", "      hosts:" if names else "      hosts: {}"]
        for name in names:
            lines += [
                f"        {scalar(name)}:",
                *(f"          {key}: {scalar(value)}" for key, value in hosts[name].items()),
            ]
    return _text([*lines, "  vars:", *(f"    {line}" for line in variables)])


def _variables(variables: Mapping[str, Any], topology: str, count: int, model: str) -> list[str]:
    hint = "# TO FILL IN: the model to serve, a name on Hugging Face Hub or an absolute path that exists on every node."
    lines = [f"gb10_model: {scalar(model)}"] if model else [hint, "# gb10_model: openai/gpt-oss-120b"]
    lines += [f"gb10_fabric_topology: {topology}", *(f"{name}: {scalar(value)}" for name, value in variables.items())]
    if count not in _EVEN:
        lines.append(
            f"# {count} does not divide the attention heads of common models, so a pipeline splits the layers."
        )
        lines.append(f"gb10_pipeline_parallel_size: {count}")
    return [*lines, _OTHERS]


def scalar(value: str | int | Sequence[Any]) -> str:
    """Return a value as ASCII YAML on one line.

    A text that resembles a template but is not a Template is marked !unsafe.
    """
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        return f"[{', '.join(map(scalar, value))}]"
    mark = "!unsafe " if _OPENING.search(value) and not isinstance(value, Template) else ""
    return f'{mark}"{"".join(map(_character, value))}"'


def _character(letter: str) -> str:
    code = ord(letter)
    if letter in '"\\' or not " " <= letter <= "~":
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return letter


def _literal(text: str) -> str:
    """Return a template that renders to this text."""
    return _OPENING.sub(lambda found: f"{{{{ '{found[0]}' }}}}", text)


def _comment(line: str) -> str:
    """Return a line with non-printable characters escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def summary(machines: Sequence[Machine], discovery: Discovery) -> list[str]:
    """Return the Sparks in order and their topology, then one line for each cable."""
    queried = [machine for machine in machines if machine["observed"]]
    names = discovery.proposal.machines or [machine["name"] for machine in queried]
    lines = [f"{', '.join(names) or 'no Spark'}: topology {discovery.proposal.topology or 'unknown'}"]
    for segment in discovery.segments:
        ends = [str(port) for port in segment.ports] + ["an unqueried machine"] * len(segment.unlisted)
        lines.append(f"{'cable' if segment.is_cable else 'switch'}: {' - '.join(ends)}")
    return lines


def trusted(machines: Sequence[Machine]) -> list[str]:
    """Return the place and the fingerprint of each host key that was read over a cable."""
    return [
        (
            f"{machine['label'] or machine['name']} at {machine['via']} port {machine['port']}: "
            f"{fingerprint(machine['host_key'])}"
        )
        for machine in machines
        if "via" in machine and machine["host_key"]
    ]

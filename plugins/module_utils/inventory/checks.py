# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find valid YAML of an inventory file with an unintended meaning: groups, hosts and variables in a wrong place.

Ansible skips some of it with a warning, and takes the rest for hosts, groups or variables with these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.words_data import OF_VLLM, WORDS
from ansible_collections.gb10.cluster.plugins.module_utils.inventory import names
from ansible_collections.gb10.cluster.plugins.module_utils.inventory.names import shown
from ansible_collections.gb10.cluster.plugins.module_utils.inventory.schema import (
    Fault,
    Items,
    Keys,
    Place,
    Text,
    Value,
)
from ansible_collections.gb10.cluster.plugins.module_utils.inventory.syntax import joined

_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)


def check(root: Value) -> list[Fault]:
    """Return the faults of an inventory file that is valid YAML, in the order of its lines."""
    if not isinstance(root, Keys):
        if isinstance(root, Text) and not root.value:
            return [Fault(root.place, "an empty file", f"the group {select.ALL}", "copy a sample of inventories/")]
        found = "text instead of groups" if isinstance(root, Text) else "a list instead of groups"
        return [
            Fault(root.place, found, f"the group {select.ALL}, as '{select.ALL}:'", "copy a sample of inventories/")
        ]
    faults = chain(_repeated(root), *(_top(key, value) for key, value in root.entries), _roles(root))
    # A later one of the same line is a consequence.
    first: dict[int, Fault] = {}
    for fault in faults:
        first.setdefault(fault.place.line, fault)
    return sorted(first.values(), key=lambda each: (each.place.line, each.place.column))


def _top(key: Text, value: Value) -> Iterator[Fault]:
    if key.value == "plugin":
        fix = "add it to enable_plugins in ansible.cfg if you trust it"
        yield Fault(key.place, "the configuration of a plugin that is not enabled", "groups", fix)
        return
    if key.value in names.SECTIONS:
        fix = f"indent it below {select.ALL}"
        yield Fault(key.place, f"{shown(key.value)} at the level of groups", "the name of a group", fix)
        return
    # Other groups of an inventory are the user's, also those with similar names, such as workers.
    if (
        key.value != select.ALL
        and not key.value.startswith(select.PREFIX)
        and (name := names.meant(key.value, [select.ALL]))
    ):
        yield Fault(key.place, f"the group {shown(key.value)}, which no playbook reads", name, f"rename it to {name}")
    yield from _group(key, value)


def _group(key: Text, value: Value) -> Iterator[Fault]:
    """Yield the faults in a group."""
    if isinstance(value, Text) and not value.value:
        return
    if not isinstance(value, Keys):
        yield _no_keys(key, value, ", ".join(names.SECTIONS))
        return
    yield from _repeated(value)
    for own, below in value.entries:
        if own.value not in names.SECTIONS:
            yield _no_section(key, own, below, value)
        elif isinstance(below, Text):
            # A host's name alone is a list of one for Ansible.
            if below.value and (own.value != "hosts" or ":" in below.value):
                yield _no_keys(own, below, f"the names of {shown(own.value)}, each with a colon")
        elif isinstance(below, Items):
            yield Fault(
                below.place, f"{shown(own.value)} as a list", "each one as a key", "write 'NAME:' instead of '- NAME'"
            )
        else:
            yield from _repeated(below)
            yield from _SECTION[own.value](key, below)


def _no_section(group: Text, key: Text, value: Value, beside: Keys) -> Fault:
    """Return the fault of a key of a group that is none of its sections."""
    expected = f"hosts, children or vars in the group {shown(group.value)}"
    if ":" in key.value:
        return joined(key.place, key.value)
    if near := names.meant(key.value, [name for name in names.SECTIONS if name not in beside.named]):
        return Fault(key.place, f"{shown(key.value)} in the group {shown(group.value)}", near, f"rename it to {near}")
    hosts = beside.named.get("hosts")
    if _is_host(value) or (isinstance(hosts, Text) and not hosts.value):
        return Fault(key.place, f"{shown(key.value)} next to hosts, not below it", expected, "indent it below hosts")
    if key.value.startswith("ansible_") or isinstance(value, Text | Items):
        return Fault(key.place, f"the variable {shown(key.value)} outside of vars", expected, "indent it below vars:")
    if key.value in names.GROUPS:
        return Fault(
            key.place, f"the group {shown(key.value)} outside of children", expected, "indent it below children:"
        )
    return Fault(
        key.place,
        f"{shown(key.value)} in the group {shown(group.value)}",
        expected,
        "indent it below one of them, or remove it",
    )


def _hosts(group: Text, hosts: Keys) -> Iterator[Fault]:
    for name, value in hosts.entries:
        if name.value in (*names.CONNECTION, *names.SECTIONS) or name.value.startswith("gb10_"):
            fix = "write the host's name above it, and indent it below the name"
            if name.value in names.SECTIONS:
                fix = "move it left, to the column of hosts"
            yield Fault(name.place, f"{shown(name.value)} as a host of {shown(group.value)}", "the name of a host", fix)
        elif _is_joined(name.value):
            yield joined(name.place, name.value)
        elif isinstance(value, Keys):
            yield from _repeated(value)
            yield from _variables(value, of_host=True)
        elif isinstance(value, Items) or value.value:
            yield _no_keys(name, value, "variables of the host")


def _children(_name: Text, children: Keys) -> Iterator[Fault]:
    for name, value in children.entries:
        if name.value in names.SECTIONS:
            fix = "move it left, to the column of children"
            yield Fault(name.place, f"{shown(name.value)} as a group below children", "the name of a group", fix)
        elif name.value.startswith(("gb10_", "ansible_")) and not name.value.startswith(select.ALL):
            fix = "write vars: above it, in the column of children"
            yield Fault(name.place, f"the variable {shown(name.value)} among groups", "the name of a group", fix)
        else:
            yield from _group(name, value)


def _vars(_name: Text, variables: Keys) -> Iterator[Fault]:
    yield from _variables(variables, of_host=False)


def _variables(variables: Keys, of_host: bool) -> Iterator[Fault]:
    for name, value in variables.entries:
        if ":" in name.value:
            yield joined(name.place, name.value)
        elif (meant := _other_name(name.value, of_host)) and meant not in variables.named:
            yield Fault(name.place, f"{shown(name.value)}, which nothing reads", meant, f"use {meant}")
        elif of_host and name.value in names.SECTIONS:
            yield Fault(
                name.place,
                f"{shown(name.value)} below a host",
                "variables of the host",
                "move it to the group's column",
            )
        elif isinstance(value, Keys) and any(not key.value for key, _value in value.entries):
            yield Fault(
                value.place, "a value that begins with {{", "such a value in quotation marks", "quote the value"
            )
        elif isinstance(value, Text) and (expected := _wrong(name.value, value.value)):
            yield Fault(value.place, f"a wrong {name.value}", expected, f"correct {name.value}")


def _other_name(name: str, of_host: bool) -> str:
    """Return the variable that another name means, "" if there is none."""
    if of_host and name in names.OF_OTHERS:
        return names.OF_OTHERS[name]
    if name in OF_VLLM:
        return WORDS[name]
    known = not name.startswith("ansible_") or name in names.CONNECTION or name.startswith(names.OF_PLUGINS)
    return "" if known else names.meant(name, names.CONNECTION)


_SECTION = {"hosts": _hosts, "children": _children, "vars": _vars}


def _roles(root: Keys) -> Iterator[Fault]:
    """Yield the misspelled child groups of the cluster's group.

    Other files of an inventory may have the rest of it, so that only the planner finds hosts without a role.
    """
    children = _section(root.named.get(select.ALL), "children")
    for name, _value in children.entries if children else ():
        if name.value not in names.ROLES and (meant := names.meant(name.value, names.ROLES)):
            found = f"the group {shown(name.value)} in {select.ALL}"
            yield Fault(name.place, found, f"{names.HEAD} or {names.WORKER}", f"rename it to {meant}")


def _section(group: Value | None, name: str) -> Keys | None:
    found = group.named.get(name) if isinstance(group, Keys) else None
    return found if isinstance(found, Keys) else None


def _no_keys(key: Text, value: Value, expected: str) -> Fault:
    """Return the fault of a text or a list where keys are expected. A key without a space is a text."""
    if isinstance(value, Text) and ":" in value.value and " " not in value.value:
        return joined(value.place, value.value)
    if isinstance(value, Text) and (found := re.match(r"([a-z]\w*)=", value.value)):
        name = shown(found[1])
        return Fault(value.place, f"{name}= and its value", "a colon and a space", f"write '{name}: VALUE'")
    found_text = f"{shown(key.value)} with {'a text' if isinstance(value, Text) else 'a list'}"
    return Fault(value.place, found_text, expected, "write keys with a colon, one on each line")


def _repeated(keys: Keys) -> Iterator[Fault]:
    first: dict[str, Place] = {}
    for key, _value in keys.entries:
        if key.value and (place := first.setdefault(key.value, key.place)) != key.place:
            found = f"{shown(key.value)} again, as in line {place.line}"
            yield Fault(key.place, found, "each key once: YAML keeps only the last", "join the two, or rename one")


def _is_joined(name: str) -> bool:
    """Return whether a host's name is a variable with its value. A range of hosts, and a port, have a colon, too."""
    key, colon, _value = name.partition(":")
    return bool(colon) and (key in names.OF_OTHERS or key.startswith(("ansible_", "gb10_")))


def _is_host(value: Value) -> bool:
    found: Mapping[str, Value] = value.named if isinstance(value, Keys) else {}
    return any(name in names.CONNECTION or name in names.OF_OTHERS for name in found)


def _wrong(name: str, text: str) -> str:
    """Return the expected form of a connection's variable, "" if the text is possible."""
    if "{{" in text:
        return ""
    if name == "ansible_port" and not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65536):
        return "a number from 1 to 65535"
    if name == "ansible_host" and not _HOST.fullmatch(text):
        return "an address or a host name alone, without user, network or port"
    return ""

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate the answers of machines on a cable and convert them to values of known form, before any other use.

The machine at the other end of a cable is untrusted. Only the fields named here pass, in the form given here;
all others are dropped. One malformed value makes the whole answer unusable, and each one is reported.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import reprlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.parse import (
    NAME,
    PORT_OF,
    UNICAST_MAC,
    is_unicast,
)

#: Upper limits, at or above the counts of a cluster or an honest machine. Discovery follows at most MACHINES.
MACHINES, INTERFACES, NEIGHBORS, NOTES, TEXT = 64, 1024, 256, 16, 300
#: Report at most this many errors of one machine, because an answer may have thousands.
_REPORTED = 8
_FOUND = re.compile(r"found-[0-9a-f]{12}")
#: Type and 32-byte key, each after its length: 51 bytes, in base64 without padding. Source: RFC 8709, section 4.
_KEY, _KEY_START = re.compile(r"ssh-ed25519 ([A-Za-z0-9+/]{68})"), b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
_NO_MAC, _MAC = "00:00:00:00:00:00", re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)


def machine(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a machine in the form of discovery/plan.py. Only its values may reach a file, a command or a message.

    After any error it has no ``observed``, and ``invalid`` has the errors.

    ``given`` has the same shape, with the machine's own answer as ``observed``. A second pass changes nothing.
    """
    read = _Reader(str(given["name"]))
    result: dict[str, Any] = {
        "name": read.own("name", given["name"], "inventory_hostname"),
        "address": read.own("address", given["address"], "ansible_host"),
        "login": _login(read, given["login"]),
        "unreachable": text(given["unreachable"]),
        "observed": {},
    }
    if "via" in given:
        result |= _found(read, given)
    found = answer(read, given["observed"]) if given["observed"] else None
    if not read.problems and found:
        result["observed"] = found
    return {**result, "invalid": [*given.get("invalid", ()), *(vars(problem) for problem in read.problems)]}


def text(value: object) -> str:
    """Return a machine's text as one line, with non-printable characters (such as cursor movements) escaped."""
    reported = value if isinstance(value, str) else _shown(value)
    line = " ".join(reported[: 4 * TEXT].split())[:TEXT]
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)[
        :TEXT
    ].rstrip()


def answer(read: _Reader, given: object) -> dict[str, Any]:
    """Return the used fields of an answer, a result of fabric_neighbors_info, under the same names.

    If ``read.problems`` has errors, the caller must discard the result.
    """
    fields = read.mapping("", given, 64)
    interfaces, neighbors, unheard = (
        read.mapping(name, fields.get(name), most)
        for name, most in (("interfaces", INTERFACES), ("neighbors", len(PORT_OF)), ("unheard", len(PORT_OF)))
    )
    return {
        "hostname": read.value("hostname", fields.get("hostname"), *_HOSTNAME),
        "management": read.value("management", fields.get("management"), *_MANAGEMENT),
        "interfaces": {
            read.value("interfaces", name, *_INTERFACE): _interface(read, f"interfaces.{text(name)}", name, facts)
            for name, facts in interfaces.items()
        },
        "neighbors": {
            read.value("neighbors", name, *_PORT): [
                _sighting(read, f"neighbors.{text(name)}[{index}]", str(name), entry)
                for index, entry in enumerate(read.items(f"neighbors.{text(name)}", entries, NEIGHBORS))
            ]
            for name, entries in neighbors.items()
        },
        "unheard": {
            read.value("unheard", name, *_PORT): read.value(f"unheard.{text(name)}", reported, *_TEXT)
            for name, reported in unheard.items()
        },
        "notes": [
            read.value(f"notes[{index}]", reported, *_TEXT)
            for index, reported in enumerate(read.items("notes", fields.get("notes"), NOTES))
        ],
    }


def _interface(read: _Reader, path: str, name: object, value: object) -> dict[str, Any]:
    """Return {mac, up, carrier} of a network interface; ``mac`` is "" if it has none.

    Tunnels have other data as MAC address; it is ignored unless the port is QSFP.
    """
    facts = read.mapping(path, value, 64)
    given = facts.get("mac")
    ignored = name not in PORT_OF and not (isinstance(given, str) and _MAC.fullmatch(given.lower()))
    mac = "" if ignored or given in (None, "", _NO_MAC) else read.value(f"{path}.mac", given, _mac, "a MAC address")
    flags = {key: read.flag(f"{path}.{key}", facts.get(key)) for key in ("up", "carrier")}
    return {"mac": mac, **flags}


def _sighting(read: _Reader, path: str, interface: str, value: object) -> dict[str, str]:
    """Return {mac, address, name, host_key} of a machine seen on a cable. Unknown fields are "".

    ``address`` has a zone; the machine that sees this one reaches it there.
    """
    entry = read.mapping(path, value, 64)
    return {
        "mac": read.value(f"{path}.mac", entry.get("mac"), *_UNICAST),
        "address": read.value(f"{path}.address", entry.get("address"), *_address(interface)),
        "name": read.value(f"{path}.name", entry.get("name"), *_LABEL),
        "host_key": read.value(f"{path}.host_key", entry.get("host_key"), *_HOST_KEY),
    }


def _found(read: _Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details that other machines reported about this one, as plan.pending_hosts() collected them."""
    zone = str(given["address"]).partition("%")[2]
    if not _FOUND.fullmatch(str(given["name"])):
        read.refuse("name", given["name"], "found- and a MAC address")
    return {
        "address": read.value("address", given["address"], *_address(zone if zone in PORT_OF else "")),
        "via": read.own("via", given["via"], "inventory_hostname"),
        "port": given["port"] if given["port"] in (0, 1) else read.refuse("port", given["port"], "0 or 1", 0),
        "macs": [read.value("macs", mac, *_UNICAST) for mac in read.items("macs", given["macs"], MACHINES * NEIGHBORS)],
        "host_key": read.value("host_key", given["host_key"], *_HOST_KEY),
        "label": read.value("label", given["label"], *_LABEL),
        "direct": text(given["direct"]),
    }


def _login(read: _Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's login settings for Ansible. Each becomes one double-quoted line in the ssh configuration."""
    port, arguments = (
        str(given["port"] or ""),
        read.own("login.arguments", given["arguments"], "ansible_ssh_common_args", quotes=True),
    )
    try:
        shlex.split(arguments)
    except ValueError as error:
        read.refuse("login.arguments", arguments, f"words of a shell ({error})", "", "correct ansible_ssh_common_args")
    if port and not (re.fullmatch(r"[1-9][0-9]{0,4}", port) and int(port) < 1 << 16):
        port = read.refuse("login.port", port, "a port", "", "correct ansible_port")
    return {
        "user": read.own("login.user", given["user"], "ansible_user"),
        "key": read.own("login.key", given["key"], "ansible_ssh_private_key_file"),
        "port": int(port) if port else None,
        "arguments": arguments,
        "local": bool(given["local"]),
    }


def _shown(value: object) -> str:
    """Return a short representation of any value."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    try:
        return short.repr(value)
    except ValueError:  # a number with more digits than Python prints
        return f"a {type(value).__name__}"


class _Reader:
    """Reads the values of one machine and collects the errors.

    Each method returns a safe value, also for an invalid one.
    """

    def __init__(self, name: str) -> None:
        self.name = text(name)
        self.problems: list[Problem] = []

    def refuse(self, path: str, value: object, expected: str, instead: Any = "", fix: str = "") -> Any:
        """Record a problem, and return ``instead``."""
        default = "identify that machine and correct the value, or exclude the machine with -e discover_partial=true"
        if len(self.problems) < _REPORTED:
            where = ".".join(part for part in (self.name, path) if part)
            self.problems.append(Problem(where, f"invalid value {text(_shown(value))}", expected, fix or default))
        return instead

    def own(self, path: str, value: object, variable: str, quotes: bool = False) -> str:
        """Return a user-supplied text. It must be printable, without double quotes unless ``quotes``."""
        if isinstance(value, str) and value.isprintable() and (quotes or '"' not in value):
            return str(value)
        expected = "one line of printable characters" + ("" if quotes else ", without double quotes")
        return str(self.refuse(path, value, expected, "", f"correct {variable}"))

    def mapping(self, path: str, value: object, most: int) -> Mapping[Any, Any]:
        if isinstance(value, Mapping) and len(value) <= most:
            return value
        found: Mapping[Any, Any] = self.refuse(path, value, f"a mapping with {most} entries at most", {})
        return found

    def items(self, path: str, value: object, most: int) -> Sequence[Any]:
        if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) <= most:
            return value
        found: Sequence[Any] = self.refuse(path, value, f"a list with {most} entries at most", ())
        return found

    def value(self, path: str, value: object, form: Callable[[str], str], expected: str, fix: str = "") -> Any:
        """Return a text in its form, which raises ValueError for any other text."""
        try:
            if isinstance(value, str):
                return form(value)
        except ValueError:
            pass
        return self.refuse(path, value, expected, "", fix)

    def flag(self, path: str, value: object) -> bool:
        return value if isinstance(value, bool) else bool(self.refuse(path, value, "true or false", False))


def _matching(pattern: str, value: str) -> str:
    if not re.fullmatch(pattern, value, re.ASCII):
        raise ValueError
    return value


def _mac(value: str) -> str:
    return _matching(_MAC.pattern, value.lower())


def _unicast(value: str) -> str:
    return _matching(UNICAST_MAC.pattern, value.lower())


def _hostname(value: str) -> str:
    return _matching("[a-z0-9][a-z0-9-]{0,62}", value.lower())


def _management(value: str) -> str:
    """Return the IPv4 address for Ansible over a network: not a loopback, multicast or link-local address."""
    ip = ipaddress.IPv4Address(value) if value else None
    if ip and (not is_unicast(ip) or ip.is_link_local):
        raise ValueError
    return value


def _address(zone: str) -> tuple[Callable[[str], str], str]:
    """Return the form of an IPv4 address, or an IPv6 link-local address whose zone is the interface that sees it."""

    def form(value: str) -> str:
        number, percent, found = value.partition("%")
        ip = ipaddress.ip_address(number) if value else None
        if isinstance(ip, ipaddress.IPv4Address) and (percent or not is_unicast(ip)):
            raise ValueError
        if isinstance(ip, ipaddress.IPv6Address) and not (ip.is_link_local and zone and found == zone):
            raise ValueError
        return f"{ip}{percent}{found}" if ip else ""

    return form, f"an IPv4 address, or fe80::...%{zone or 'its interface'}"


def _host_key(value: str) -> str:
    found = _KEY.fullmatch(value)
    if value and not (found and base64.b64decode(found[1]).startswith(_KEY_START)):
        raise ValueError
    return value


#: Each form with its description in an error, and with the fix if it is an own one.
_HOSTNAME = (
    _hostname,
    "1 to 63 letters, digits and hyphens, not starting with a hyphen",
    "set such a name there (sudo hostnamectl set-hostname), or exclude it with -e discover_partial=true",
)
_UNICAST = (_unicast, "a MAC address of one machine, such as 4c:bb:47:00:00:03")
_MANAGEMENT = (_management, "the IPv4 address of one machine")
_LABEL = (
    partial(_matching, f"({NAME.pattern})?"),
    "at most 63 letters, digits, dots, hyphens and underscores",
)
#: Linux accepts more characters; no driver or tool uses them. Source: dev_valid_name() of net/core/dev.c, IFNAMSIZ.
_INTERFACE = (partial(_matching, r"[\w.@+-]{1,15}"), "the name of an interface")
_PORT = (partial(_matching, "|".join(PORT_OF)), f"one of {', '.join(PORT_OF)}")
_HOST_KEY = (_host_key, "ssh-ed25519 and the 68 characters of such a key")
_TEXT = (text, "a text")

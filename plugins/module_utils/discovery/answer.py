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
from typing import Any, TypedDict

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.parse import NAME, PORT_OF, is_unicast

#: Returns a MAC address as six pairs of lower-case digits with colons. Raises ValueError for any other text.
#: The standard library has no such type.
Mac = Callable[[str], str]

#: Upper limits, at or above the counts of a cluster or an honest machine. Discovery follows at most MACHINES.
MACHINES, INTERFACES, NEIGHBORS, NOTES, TEXT = 64, 1024, 256, 16, 300
#: Report at most this many errors of one machine, because an answer may have thousands.
_REPORTED = 8
_HOSTNAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_FOUND = re.compile(r"found-[0-9a-f]{12}")
#: Linux accepts more characters; no driver or tool uses them. Source: dev_valid_name() of net/core/dev.c, IFNAMSIZ.
_INTERFACE = re.compile(r"[\w.@+-]{1,15}", re.ASCII)
#: Type and 32-byte key, each after its length: 51 bytes, in base64 without padding. Source: RFC 8709, section 4.
_HOST_KEY, _KEY_START = re.compile(r"ssh-ed25519 ([A-Za-z0-9+/]{68})"), b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
_NO_MAC = "00:00:00:00:00:00"


class Interface(TypedDict):
    """A network interface. ``mac`` is "" if it has none."""

    mac: str
    up: bool
    carrier: bool


class Sighting(TypedDict):
    """A machine seen on a cable. Unknown fields are "".

    ``address`` has a zone; the machine that sees this one reaches it there.
    """

    mac: str
    address: str
    name: str
    host_key: str


class Answer(TypedDict):
    """The used fields of the result of fabric_neighbors_info, under the same names."""

    hostname: str
    management: str
    interfaces: dict[str, Interface]
    neighbors: dict[str, list[Sighting]]
    unheard: dict[str, str]
    notes: list[str]


def machine(given: Mapping[str, Any], mac: Mac) -> dict[str, Any]:
    """Return a machine in the form of discovery/plan.py.

    After any error it has no ``observed``, and ``invalid`` has the errors.

    ``given`` has the same shape, with the machine's own answer as ``observed``. A second pass changes nothing.
    """
    read = _Reader(str(given["name"]), mac)
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


def answer(read: _Reader, given: object) -> Answer:
    """Return the used fields of an answer. If ``read.problems`` has errors, the caller must discard the result."""
    fields = read.mapping("", given, 64)
    interfaces = read.mapping("interfaces", fields.get("interfaces"), INTERFACES)
    neighbors = read.mapping("neighbors", fields.get("neighbors"), len(PORT_OF))
    unheard = read.mapping("unheard", fields.get("unheard"), len(PORT_OF))
    return {
        "hostname": read.hostname(fields.get("hostname")),
        "management": read.management(fields.get("management")),
        "interfaces": {
            read.interface("interfaces", name): read.facts(f"interfaces.{text(name)}", name, facts)
            for name, facts in interfaces.items()
        },
        "neighbors": {
            read.zone("neighbors", name): [
                read.sighting(f"neighbors.{text(name)}[{index}]", str(name), entry)
                for index, entry in enumerate(read.items(f"neighbors.{text(name)}", entries, NEIGHBORS))
            ]
            for name, entries in neighbors.items()
        },
        "unheard": {
            read.zone("unheard", name): read.text(f"unheard.{text(name)}", reported)
            for name, reported in unheard.items()
        },
        "notes": [
            read.text(f"notes[{index}]", reported)
            for index, reported in enumerate(read.items("notes", fields.get("notes"), NOTES))
        ],
    }


def _found(read: _Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details that other machines reported about this one, as plan.pending_hosts() collected them."""
    zone = str(given["address"]).partition("%")[2]
    if not _FOUND.fullmatch(str(given["name"])):
        read.refuse("name", given["name"], "found- and a MAC address")
    return {
        "address": read.address("address", given["address"], zone if zone in PORT_OF else ""),
        "via": read.own("via", given["via"], "inventory_hostname"),
        "port": given["port"] if given["port"] in (0, 1) else read.refuse("port", given["port"], "0 or 1", 0),
        "macs": [read.mac("macs", mac) for mac in read.items("macs", given["macs"], MACHINES * NEIGHBORS)],
        "host_key": read.host_key("host_key", given["host_key"]),
        "label": read.label("label", given["label"]),
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

    def __init__(self, name: str, mac: Mac) -> None:
        self.name, self._mac = text(name), mac
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

    def text(self, path: str, value: object) -> str:
        return text(value) if isinstance(value, str) else str(self.refuse(path, value, "a text"))

    def flag(self, path: str, value: object) -> bool:
        return value if isinstance(value, bool) else bool(self.refuse(path, value, "true or false", False))

    def hostname(self, value: object) -> str:
        name = value.lower() if isinstance(value, str) else ""
        if _HOSTNAME.fullmatch(name):
            return name
        fix = "set such a name there (sudo hostnamectl set-hostname), or exclude it with -e discover_partial=true"
        expected = "1 to 63 letters, digits and hyphens, not starting with a hyphen"
        return str(self.refuse("hostname", value, expected, "", fix))

    def label(self, path: str, value: object) -> str:
        if isinstance(value, str) and (not value or NAME.fullmatch(value)):
            return str(value)
        return str(self.refuse(path, value, "at most 63 letters, digits, dots, hyphens and underscores"))

    def interface(self, path: str, value: object) -> str:
        return (
            str(value)
            if isinstance(value, str) and _INTERFACE.fullmatch(value)
            else str(self.refuse(path, value, "the name of an interface"))
        )

    def zone(self, path: str, value: object) -> str:
        return (
            str(value)
            if isinstance(value, str) and value in PORT_OF
            else str(self.refuse(path, value, f"one of {', '.join(PORT_OF)}"))
        )

    def facts(self, path: str, name: object, value: object) -> Interface:
        """Return the facts of one interface.

        Tunnels have other data as MAC address; it is ignored unless the port is QSFP.
        """
        facts = self.mapping(path, value, 64)
        mac = facts.get("mac")
        try:
            mac = self._canonical(mac) if mac not in (None, "", _NO_MAC) else ""
        except ValueError:
            mac = self.refuse(f"{path}.mac", mac, "a MAC address") if name in PORT_OF else ""
        return {
            "mac": str(mac),
            "up": self.flag(f"{path}.up", facts.get("up")),
            "carrier": self.flag(f"{path}.carrier", facts.get("carrier")),
        }

    def sighting(self, path: str, interface: str, value: object) -> Sighting:
        entry = self.mapping(path, value, 64)
        return {
            "mac": self.mac(f"{path}.mac", entry.get("mac")),
            "address": self.address(f"{path}.address", entry.get("address"), interface),
            "name": self.label(f"{path}.name", entry.get("name")),
            "host_key": self.host_key(f"{path}.host_key", entry.get("host_key")),
        }

    def mac(self, path: str, value: object) -> str:
        """Return a unicast MAC address."""
        try:
            mac = self._canonical(value)
        except ValueError:
            mac = ""
        if not mac or mac == _NO_MAC or int(mac[:2], 16) & 1:
            return str(self.refuse(path, value, "a MAC address of one machine, such as 4c:bb:47:00:00:03"))
        return mac

    def _canonical(self, value: object) -> str:
        if not isinstance(value, str) or len(value) != len(_NO_MAC) or (mac := self._mac(value)) != value.lower():
            raise ValueError
        return mac

    def management(self, value: object) -> str:
        """Return the IPv4 address for Ansible over a network: not a loopback, multicast or link-local address."""
        if value == "":
            return ""
        try:
            ip = ipaddress.IPv4Address(value) if isinstance(value, str) else None
        except ValueError:
            ip = None
        if ip is None or not is_unicast(ip) or ip.is_link_local:
            return str(self.refuse("management", value, "the IPv4 address of one machine"))
        return str(ip)

    def address(self, path: str, value: object, zone: str) -> str:
        """Return an IPv4 address, or an IPv6 link-local address whose zone is the interface that sees it."""
        if value == "":
            return ""
        number, percent, found = value.partition("%") if isinstance(value, str) else ("", "", "")
        try:
            ip = ipaddress.ip_address(number)
        except ValueError:
            ip = None
        if isinstance(ip, ipaddress.IPv4Address) and not percent and is_unicast(ip):
            return str(ip)
        if isinstance(ip, ipaddress.IPv6Address) and ip.is_link_local and zone and found == zone:
            return f"{ip}%{zone}"
        return str(self.refuse(path, value, f"an IPv4 address, or fe80::...%{zone or 'its interface'}"))

    def host_key(self, path: str, value: object) -> str:
        if value == "":
            return ""
        found = _HOST_KEY.fullmatch(value) if isinstance(value, str) else None
        if found and base64.b64decode(found[1]).startswith(_KEY_START):
            return found[0]
        return str(self.refuse(path, value, "ssh-ed25519 and the 68 characters of such a key"))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the files that configure an interface: netplan's, where later files amend earlier ones, and NetworkManager's.

Files may hold passwords: only names leave this module, also in its errors.
Sources: netplan(5), netplan-generate(8), nm-settings-keyfile(5), and the output of netplan 0.106 and NetworkManager
1.42.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

#: A file in a later folder shadows one of the same name in an earlier one.
NETPLAN_FOLDERS = ("/lib/netplan", "/etc/netplan", "/run/netplan")
NETWORK_MANAGER_FOLDERS = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")
NETWORK_MANAGER = "NetworkManager"
#: The key of a definition, of all of a kind, or of a whole file.
_RENDERER = "renderer"
#: Ubuntu's NetworkManager writes each of its profiles into a netplan file, with the SSID of a Wi-Fi after the UUID.
_OF_NETWORK_MANAGER = re.compile(r"90-NM-([0-9a-f-]{36})(?:-[^/]*)?\.yaml")
#: netplan's kinds of definitions.
_KINDS = "ethernets wifis modems bonds bridges vlans vrfs tunnels dummy-devices virtual-ethernets nm-devices".split()
#: Kind of a definition or type of a profile -> DEVTYPE of the devices that it matches without further conditions.
_DEVICE_TYPES = {
    "ethernets": "",
    "ethernet": "",
    "802-3-ethernet": "",
    "wifis": "wlan",
    "wifi": "wlan",
    "802-11-wireless": "wlan",
}


@dataclass(frozen=True)
class Device:
    """The properties of an interface that definitions match. ``mac`` is the permanent one, ``type`` the DEVTYPE."""

    name: str
    mac: str = ""
    driver: str = ""
    type: str = ""
    physical: bool = True


@dataclass(frozen=True)
class Definition:
    """One definition of one netplan file.

    ``match`` is None if it has none; ``members`` are the identifiers that it enslaves; ``renderer`` is "" if its file
    names none.
    """

    file: str
    id: str
    kind: str
    match: Mapping[str, Sequence[str]] | None = None
    set_name: str = ""
    members: tuple[str, ...] = ()
    renderer: str = ""


@dataclass(frozen=True)
class Profile:
    """One NetworkManager profile; ``parent`` is the interface below its VLAN.

    NetworkManager creates ``generated`` profiles for unconfigured devices, and drops them for any other profile
    (autoconnect-priority -999). They own nothing.
    """

    file: str
    id: str
    type: str
    interface: str
    patterns: tuple[str, ...]
    mac: str
    parent: str
    generated: bool


def netplan_files(listings: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the files that netplan merges, in netplan's order, from the names in each of its folders."""
    chosen = {
        name: f"{folder}/{name}"
        for folder in NETPLAN_FOLDERS
        for name in listings.get(folder, ())
        if re.fullmatch(r"[^.].*\.yaml", name)
    }
    return [chosen[name] for name in sorted(chosen)]


def is_network_manager_file(file: str) -> bool:
    """Return whether Ubuntu's NetworkManager wrote this netplan file."""
    return _OF_NETWORK_MANAGER.fullmatch(file.rpartition("/")[2]) is not None


def repair(file: str) -> str:
    """Return how to repair a file of netplan or NetworkManager that cannot be used."""
    if file in (*NETPLAN_FOLDERS, *NETWORK_MANAGER_FOLDERS):
        return "correct the file that `sudo netplan generate` names"
    uuid = _OF_NETWORK_MANAGER.fullmatch(file.rpartition("/")[2])
    remove = (
        f"`sudo nmcli connection delete {uuid[1]}`"
        if uuid
        else f"`sudo mv {shlex.quote(file)} {shlex.quote(file)}.off`"
    )
    check = "`sudo netplan generate` then shows no error" if file.startswith(NETPLAN_FOLDERS) else "run again"
    return f"correct the file, or remove it with {remove} unless the connection to the node needs it; {check}"


def network_manager_files(listings: Mapping[str, Iterable[str]]) -> list[str]:
    """Return NetworkManager's own profiles, without netplan's generated ones. The suffix is optional only in /etc."""
    return [
        f"{folder}/{name}"
        for folder in NETWORK_MANAGER_FOLDERS
        for name in sorted(listings.get(folder, ()))
        if re.fullmatch(
            r"[^.].*\.nmconnection" if folder.startswith("/run") else r"[^.].*\.nmconnection|[^.]+(?<!~)", name
        )
        and not (folder.startswith("/run") and name.startswith("netplan-"))
    ]


def definitions(file: str, document: Any) -> list[Definition]:
    """Return the definitions of a netplan document whose scalars are all strings.

    Raises ValueError where netplan rejects it too.
    """
    network = _mapping(_mapping(document or {}, "the document").get("network", {}), "network")
    sections = {kind: _mapping(network.get(kind, {}), f"network.{kind}") for kind in _KINDS}
    return [
        _definition(
            file,
            kind,
            name,
            _mapping(body, f"network.{kind}.{name}"),
            str(section.get(_RENDERER) or network.get(_RENDERER) or ""),
        )
        for kind, section in sections.items()
        for name, body in section.items()
        if name != _RENDERER
    ]


def _definition(file: str, kind: str, name: str, body: Mapping[str, Any], renderer: str) -> Definition:
    path = f"network.{kind}.{name}"
    match = _mapping(body["match"], f"{path}.match") if "match" in body else None
    return Definition(
        file,
        name,
        kind,
        None if match is None else {key: _strings(value, f"{path}.match.{key}") for key, value in match.items()},
        "".join(_strings(body.get("set-name", []), f"{path}.set-name")),
        (*_strings(body.get("interfaces", []), f"{path}.interfaces"), *_strings(body.get("link", []), f"{path}.link")),
        str(body.get(_RENDERER) or renderer),
    )


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{path} is not a mapping")
    return value


def _strings(value: Any, path: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in values):
        raise ValueError(f"{path} is neither a text nor a list of texts")
    return tuple(values)


def profile(file: str, text: str) -> Profile:
    """Parse a NetworkManager keyfile. Raises ValueError with the number of an invalid line."""
    sections: dict[str, dict[str, str]] = {}
    values: dict[str, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.partition("=")
        if group := re.fullmatch(r"\[(.*)\]\s*", line):
            values = sections.setdefault(group[1], {})
        elif equals and values is not None:
            values[key.strip()] = value.strip()
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"line {number} is neither a [group] nor key=value in one")
    connection = sections.get("connection", {})
    hardware = next(
        (sections[name] for name in ("ethernet", "802-3-ethernet", "wifi", "802-11-wireless") if name in sections), {}
    )
    return Profile(
        file,
        connection.get("id", ""),
        connection.get("type", ""),
        connection.get("interface-name", ""),
        tuple(filter(None, sections.get("match", {}).get("interface-name", "").split(";"))),
        hardware.get("mac-address", ""),
        sections.get("vlan", {}).get("parent", ""),
        sections.get(".nmmeta", {}).get("nm-generated") == "true",
    )


def owners(
    devices: Sequence[Device], found: Sequence[Definition], profiles: Sequence[Profile]
) -> dict[str, list[dict[str, str]]]:
    """Return name -> [{file, id, kind, by}] for every device.

    ``found`` are the definitions of all netplan files, in netplan's order. ``by`` is name, match, or member of a bond,
    bridge, VRF or VLAN; a member's owner is the definition that enslaves it.
    """
    merged = _merge(found)
    result = {}
    for device in devices:
        entries = []
        for definition in found:
            if by := _claim(merged[definition.id], device):
                entries.append(_owner(definition.file, definition.id, definition.kind, by))
            if any(
                _claim(merged[member], device) if member in merged else member == device.name
                for member in definition.members
            ):
                entries.append(_owner(definition.file, definition.id, definition.kind, "member"))
        entries += [
            _owner(entry.file, entry.id, NETWORK_MANAGER, by)
            for entry in profiles
            if (by := _profile_claim(entry, device))
        ]
        result[device.name] = entries
    return result


def _owner(file: str, name: str, kind: str, by: str) -> dict[str, str]:
    return {"file": file, "id": name, "kind": kind, "by": by}


def _merge(found: Sequence[Definition]) -> dict[str, Definition]:
    """Return each identifier's definition as netplan merges it: a later file may amend a match from an earlier one."""
    merged: dict[str, Definition] = {}
    for new in found:
        old = merged.get(new.id, new)
        match = old.match if new.match is None else {**(old.match or {}), **new.match}
        merged[new.id] = Definition(
            new.file, new.id, new.kind, match, new.set_name or old.set_name, (), new.renderer or old.renderer
        )
    return merged


def _claim(definition: Definition, device: Device) -> str:
    """Return how a merged definition owns a device: by name, by match, or "" if it does not."""
    match = definition.match
    if match is None:
        return "name" if definition.id == device.name else ""
    if not match and not definition.set_name:
        # NetworkManager's own file of a profile for any device. It owns nothing, like that profile, because a
        # definition with the device's name takes the device.
        generic = definition.renderer == NETWORK_MANAGER
        return "match" if not generic and _any_of_type(definition.kind, device) else ""
    # An interface that netplan renamed is matched by its new name.
    names = (definition.set_name,) if definition.set_name else match.get("name", ("*",))
    fits = (
        any(fnmatchcase(device.name, name) for name in names)
        and any(fnmatchcase(device.driver, driver) for driver in match.get("driver", ("*",)))
        and ("macaddress" not in match or _same_mac(match["macaddress"], device))
    )
    return "match" if fits else ""


def _profile_claim(entry: Profile, device: Device) -> str:
    if entry.generated:
        return ""
    if entry.parent == device.name:
        return "member"
    if entry.interface:
        return "name" if entry.interface == device.name else ""
    if entry.patterns:
        fits = _fits_patterns(entry.patterns, device.name) and _DEVICE_TYPES.get(entry.type) == device.type
    else:
        fits = _any_of_type(entry.type, device)
    return "match" if fits and (not entry.mac or _same_mac((entry.mac,), device)) else ""


def _any_of_type(kind: str, device: Device) -> bool:
    return device.physical and _DEVICE_TYPES.get(kind) == device.type


def _same_mac(macs: Sequence[str], device: Device) -> bool:
    # A bond or bridge has its member's address, but no permanent address.
    return device.type in _DEVICE_TYPES.values() and device.mac.lower() in (mac.lower() for mac in macs)


def _fits_patterns(patterns: Sequence[str], name: str) -> bool:
    """Apply NetworkManager's list of patterns: none with "!", all with "&", and one of the others must match."""
    plain = [pattern.removeprefix("|") for pattern in patterns if pattern[0] not in "!&"]
    return (
        not any(fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern[0] == "!")
        and all(fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern[0] == "&")
        and (not plain or any(fnmatchcase(name, pattern) for pattern in plain))
    )

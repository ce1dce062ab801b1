# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert files and output of apt, GRUB and NVIDIA's checker to the types of updates.

They are of the node, so each value is bounded, and a name is only kept in its own alphabet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    KERNEL_OPTIONS,
    Boot,
    Entry,
    Firmware,
    Level,
    Package,
    State,
    Trial,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

#: Modules without which a GB10 does not serve, alone or with others, or has no firewall; rdma_rxe is soft RoCE.
_MODULES = (
    "nvidia",
    "nvidia_uvm",
    "mlx5_core",
    "mlx5_ib",
    "ib_core",
    "ib_uverbs",
    "rdma_cm",
    "rdma_rxe",
    "nf_tables",
)
_MOST_JSON = 1 << 22
_MOST_DEVICES, _MOST_NAME = 50, 60
_VERSION_OF_FIRMWARE = r"[\w.+:~-]{1,60}"
_NAME = r"[a-z0-9][a-z0-9+.-]{0,99}"
_VERSION = r"[A-Za-z0-9.+:~-]{1,99}"
#: Lines of `apt-get --simulate`. Source: apt 2.6 and 2.8, apt-pkg/algorithms.cc.
_INSTALLED = re.compile(rf"^Inst ({_NAME})(?::\w+)? (?:\[({_VERSION})\] )?\(({_VERSION})[ )]", re.MULTILINE)
_REMOVED = re.compile(rf"^Remv ({_NAME})(?::\w+)? \[({_VERSION})\]", re.MULTILINE)
_RELEASE = re.compile(r"\d+\.[\w.+~-]{1,90}")
_OTA = re.compile(r"[\w.+ -]{1,40}")
#: GRUB's own menu entries. Source: GRUB 2.06, util/grub.d/10_linux.in.
_OPENED = re.compile(
    r"^\s*(menuentry|submenu) (['\"])(.*?)\2.*?(?:\$menuentry_id_option|--id) ['\"]?([^'\" ]+)['\"]?.*\{$"
)
_LINUX = re.compile(r"^\s*linux\S*\s+\S*/vmlinuz-(\S+)(.*)")
_ASSIGNED = re.compile(r'^\s*set default="([^"]*)"', re.MULTILINE)


def state(facts: Any) -> State | str:
    """Return the state in the plain data of io_state.facts(), or why there is none: "" if an earlier release did not
    read it."""
    if not isinstance(facts, Mapping) or not facts:
        return ""
    if "reason" in facts:
        return str(facts["reason"])
    try:
        return load.load(State, facts, "updates")
    except TypeError as error:
        return f"recorded by another release: {error}"


def level(release: str, summary: str, recipes: Sequence[str]) -> Level:
    """Return the level from /etc/dgx-release, the checker's `summary`, and the texts of its recipes."""
    # Each update appends its own lines.
    found = dict(re.findall(r'^(DGX_(?:OTA|SWBUILD)_VERSION)="?([\w.-]{1,20})"?$', release, re.MULTILINE))
    detected = _object(summary)
    torn = detected.get("torn")
    return Level(
        stamp=found.get("DGX_OTA_VERSION") or found.get("DGX_SWBUILD_VERSION", ""),
        installed=_ota(detected.get("detected_ota")),
        newest=max((each for text in recipes if (each := _recipe(text))), default=("", ""))[1],
        torn=float(torn) if isinstance(torn, int | float) and 0 <= torn <= 100 else None,
    )


def _recipe(text: str) -> tuple[str, str] | None:
    """Return (date, name) of a released OTA recipe. Its checker leaves out names with "ebeta"."""
    metadata = _object(text).get("metadata")
    if not isinstance(metadata, Mapping):
        return None
    date, name = metadata.get("releaseDate"), _ota(metadata.get("name"))
    return (date[:10], name) if isinstance(date, str) and name and "ebeta" not in name.lower() else None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = bounded_json.load(text, _MOST_JSON) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _ota(value: Any) -> str:
    return value if isinstance(value, str) and _OTA.fullmatch(value) else ""


def packages(simulated: str) -> tuple[Package, ...]:
    """Return the changes of `apt-get --simulate full-upgrade`, sorted by name."""
    new = [Package(name, before or "", after) for name, before, after in _INSTALLED.findall(simulated)]
    gone = [Package(name, before, "") for name, before in _REMOVED.findall(simulated)]
    return tuple(sorted((*new, *gone), key=lambda package: package.name))


def firmware(updates: str) -> tuple[Firmware, ...] | None:
    """Return what `fwupdmgr get-updates --json` offers, None for an invalid answer.

    Its releases begin with the newest one. Source: fwupd 2.0, src/fu-util.c.
    """
    devices = _object(updates).get("Devices")
    if not isinstance(devices, list):
        return None
    return tuple(filter(None, map(_firmware, devices[:_MOST_DEVICES])))


def _firmware(device: Any) -> Firmware | None:
    """Return a device with its newest release, None without one, or if fwupd does not update it."""
    flags, releases = (device.get(key) for key in ("Flags", "Releases")) if isinstance(device, Mapping) else ((), ())
    if not isinstance(flags, list) or "updatable" not in flags:
        return None
    newest = releases[0] if isinstance(releases, list) and releases else {}
    name, present = str(device.get("Name", "")), str(device.get("Version", ""))
    candidate = str(newest.get("Version", "")) if isinstance(newest, Mapping) else ""
    if not all(re.fullmatch(_VERSION_OF_FIRMWARE, each) for each in (present, candidate)):
        return None
    return Firmware("".join(char for char in name if char.isprintable())[:_MOST_NAME] or "a device", present, candidate)


def driver(version: str) -> str:
    """Return the driver's version in that of a package, such as 580.159.03; "" without one."""
    found = re.match(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)*)(?=[-+~]|$)", version)
    return found[1] if found else ""


def changed_driver(versions: Mapping[str, str], loaded: str) -> tuple[str, ...]:
    """Return the installed packages of the driver, () if the loaded module fits, or nothing is known about it.

    NVIDIA's tools fail until a reboot loads the module of their version, and no package requests it.
    """
    found = {
        name: driver(each) for name, each in versions.items() if name.startswith(("nvidia-driver-", "nvidia-kernel-"))
    }
    installed = {name for name, each in found.items() if each}
    fits = not loaded.strip() or loaded.strip() in found.values()
    return () if fits else tuple(sorted(installed))


def broken(audit: str) -> tuple[str, ...]:
    """Return the packages that `dpkg --audit` lists."""
    return tuple(dict.fromkeys(re.findall(rf"^ ({_NAME})(?::\w+)? ", audit, re.MULTILINE)))


def releases(names: Sequence[str]) -> list[str]:
    """Return the kernels of the files vmlinuz-RELEASE in /boot, the newest first."""
    found = [each.removeprefix("vmlinuz-") for each in names if each.startswith("vmlinuz-")]
    kept = [each for each in found if _RELEASE.fullmatch(each) and not each.endswith((".old", ".efi.signed"))]
    return sorted(kept, key=numbers, reverse=True)


def numbers(release: str) -> list[int]:
    """Return the numbers in a kernel's release, by which releases are sorted."""
    return [int(part) for part in re.findall(r"\d+", release)]


def wanted(loaded: str) -> tuple[str, ...]:
    """Return the modules that this node needs, from its /proc/modules: those of _MODULES that are loaded."""
    present = {line.partition(" ")[0] for line in loaded.splitlines()}
    return tuple(name for name in _MODULES if name in present)


def missing(needed: Sequence[str], dependencies: str, builtin: str) -> tuple[str, ...]:
    """Return the needed modules that a kernel's modules.dep and modules.builtin do not list."""
    listed = re.findall(r"^(?:[^:\n]*/)?([\w-]+)\.ko(?:\.\w+)?(?::|$)", f"{dependencies}\n{builtin}", re.MULTILINE)
    present = {name.replace("-", "_") for name in listed}
    return tuple(name for name in needed if name not in present)


#: One menu on the way to an entry: its identifier, its title and its number.
_Menu = tuple[str, str, int]
_Found = tuple[tuple[_Menu, ...], str, tuple[str, ...]]
#: Characters of an option.
_LONGEST = 40


def boot(config: str, environment: str, forgets: bool) -> Boot:
    """Return the boot loader from grub.cfg and the output of `grub-editenv list`."""
    found = list(_entries(config))
    values = dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)
    chosen = next((each for each in _ASSIGNED.findall(config) if each != "${next_entry}"), "0")
    default = values.get("saved_entry", "0") if chosen == "${saved_entry}" else chosen
    shown = [each for each in found if "recovery" not in each[0][-1][0]]
    entries = [Entry(">".join(each[0] for each in path), kernel) for path, kernel, _options in shown]
    common = set.intersection(*(set(each) for _path, _kernel, each in shown)) if shown else set[str]()
    once = _kernel(found, values.get("next_entry", ""))
    return Boot(tuple(entries), _kernel(found, default), once, forgets, tuple(sorted(common)))


def options(line: str) -> tuple[str, ...]:
    """Return the options of KERNEL_OPTIONS on a kernel's command line."""
    return tuple(word for word in line.split() if word.partition("=")[0] in KERNEL_OPTIONS and len(word) < _LONGEST)


def _entries(config: str) -> Iterator[_Found]:
    """Yield each entry with a kernel of Linux: its menus and itself, the kernel, and its options."""
    path: list[_Menu] = []
    counts = [0]
    for line in config.splitlines():
        if opened := _OPENED.match(line):
            path.append((opened[4], opened[3], counts[-1]))
            counts[-1] += 1
            counts.append(0)
        elif line.strip() == "}" and path and len(line) - len(line.lstrip()) < len(path):
            path.pop()
            counts.pop()
        elif path and (kernel := _LINUX.match(line)):
            yield tuple(path), kernel[1], options(kernel[2])


def _kernel(entries: Sequence[_Found], choice: str) -> str:
    """Return the kernel of a choice: identifiers, titles or numbers, one for each menu, joined by ">"; "" for none.

    A choice of a menu is its first entry. Source: GRUB 2.06, normal/menu.c.
    """
    words = choice.split(">") if choice else []
    for path, kernel, _options in entries:
        known = [word in (each[0], each[1], str(each[2])) for word, each in zip(words, path, strict=False)]
        if known and len(known) == len(words) and all(known):
            return kernel
    return ""


def updaters(settings: str, unattended: bool, dashboard: bool, configuration: str) -> tuple[str, ...]:
    """Return the sources of automatic updates of the node.

    ``settings``: `apt-config dump`; ``unattended``: whether unattended-upgrades is installed and its timer is enabled;
    ``dashboard``: whether the DGX Dashboard's administrator runs; ``configuration``: its settings.json, "" without one.
    """
    values = dict(re.findall(r'^(APT::Periodic::[\w-]+) "(.*)";$', settings, re.MULTILINE))
    enabled = values.get("APT::Periodic::Enable", "1") != "0"
    runs = enabled and values.get("APT::Periodic::Unattended-Upgrade", "0") not in ("", "0")
    update = _object(configuration).get("update")
    off = isinstance(update, Mapping) and update.get("enabled") is False
    found = {"unattended-upgrades": unattended and runs, "DGX Dashboard": dashboard and not off}
    return tuple(name for name, active in found.items() if active)


def trial(text: str) -> Trial | None:
    """Return the update under way from our file for GRUB, None without it."""
    if not text:
        return None
    values = dict(re.findall(r"^# (former|tried|served): (\S*)$", text, re.MULTILINE))
    return Trial(values.get("former", ""), values.get("tried", ""), values.get("served") == "yes")

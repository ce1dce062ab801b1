# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Debian packages of a node: those that are missing, the age of the lists, apt's lock and a pending reboot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

#: The format of dpkg-query for installed().
FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
#: Seconds after which lists are stale: the archive then lacks some of the files that they name.
_FRESH = 86400
#: A package in apt's syntax: name, architecture, version. An option of apt-get is none.
SPECIFICATION = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)?(?:=(\S+))?")
_SHOWN = 5


@dataclass(frozen=True)
class State:
    """The packages of a node. ``holder``: the process with apt's lock, "" if it is free; ``reboot``: the packages that
    wait for a reboot, None without one."""

    lacking: tuple[str, ...] = ()
    holder: str = ""
    reboot: tuple[str, ...] | None = None


def parse(facts: Mapping[str, Any] | None) -> State:
    """Return the state from the fact ``debian`` of node_info. Recorded facts may lack it."""
    facts = facts or {}
    reboot = facts.get("reboot") or {}
    packages = tuple(map(str, reboot.get("packages", ()))) if reboot.get("required") is True else None
    return State(tuple(map(str, facts.get("lacking", ()))), holder(facts.get("holder") or {}), packages)


def of_roles(settings: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the packages that each role needs, from the roles' variables."""
    roles = ("vllm_runtime", "vllm_build", "nccl_sm121_build")
    needed = {role: tuple(map(str, settings[f"{role}_packages"])) for role in roles}
    return {**needed, "model_store": ("python3-venv",)}


def lacking(wanted: Sequence[str], listing: str) -> list[str]:
    """Return the wanted packages that are not installed in the wanted version.

    ``listing``: output of dpkg-query in FORMAT.
    """
    versions: dict[str, list[str]] = {}
    for line in listing.splitlines():
        status, _tab, rest = line.partition("\t")
        if status[1:2] == "i":
            name, _tab, version = rest.partition("\t")
            versions.setdefault(name, []).append(version)
    return [each for each in wanted if not _installed(each, versions)]


def _installed(wanted: str, versions: Mapping[str, Sequence[str]]) -> bool:
    found = SPECIFICATION.fullmatch(wanted)
    return found is not None and any(fnmatchcase(version, found[2] or "*") for version in versions.get(found[1], ()))


def names(wanted: Sequence[str]) -> list[str]:
    """Return the names of packages without architecture and version. Words that are not packages are left out."""
    return [found[1] for each in wanted if (found := SPECIFICATION.fullmatch(each))]


def stale(age: float | None) -> bool:
    """Return whether lists of this age in seconds need an update.

    Without lists it is None; a clock may have been ahead.
    """
    return age is None or not 0 <= age < _FRESH


def holder(process: Mapping[str, Any]) -> str:
    """Return the holder of a lock, {pid, process, unit}, as text; "" for {}."""
    if not process:
        return ""
    if not process.get("pid"):
        return "a process that is not visible here, such as one in a container"
    where = f", {process['unit']}" if process.get("unit") else ""
    return f"{process.get('process') or 'a process'} (PID {process['pid']}{where})"


def reboot_packages(text: str) -> list[str]:
    """Return the packages in /run/reboot-required.pkgs, each once."""
    return list(dict.fromkeys(line for line in text.split() if SPECIFICATION.fullmatch(line)))


def pending_reboot(packages: Sequence[str]) -> str:
    """Return the end of a sentence about a pending reboot."""
    more = f" and {len(packages) - _SHOWN} more" if len(packages) > _SHOWN else ""
    whose = f" for {', '.join(packages[:_SHOWN])}{more}" if packages else ""
    return f"a reboot is pending{whose}. Fix: run playbooks/stop.yml, then reboot the node"

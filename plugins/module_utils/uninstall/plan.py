# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide from a node's own state which of the collection's items to remove, and which to keep and why."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import table
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.table import Place

Type = Literal["file", "folder", "link"]
#: restore: a step of the role qsfp_netplan. empty: remove the content of a mount point.
Verb = Literal["stop", "remove", "empty", "restore", "keep"]
KEEP: Verb = "keep"
#: Names that this collection and Ansible write next to a file before they replace it.
_TEMPORARY = (".{name}.*", ".ansible_tmp*{name}")
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_RUNTIME = re.compile(r"(/[A-Za-z0-9_./+-]+)/runtime/[0-9a-f]{12}/bin/")
_OCTAL = re.compile(r"\\([0-7]{3})")
_SHOWN = 5
_KILLED = "temporary file of a killed run"


@dataclass(frozen=True)
class Found:
    """A path on the node: its type, its owner's UID, a link's target, and the names in a folder."""

    type: Type
    owner: int = 0
    target: str = ""
    names: Sequence[str] = ()


@dataclass(frozen=True)
class NodeState:
    """The state of a node. ``paths`` has the existing paths only."""

    paths: Mapping[str, Found]
    #: Installation folders, without links above them, and why other users can change one, "" if they cannot.
    roots: Mapping[str, str]
    #: Installation folders that a link of an administrator names.
    linked: Sequence[str] = ()
    #: Temporary files of killed runs, by the path of the file that they were to replace.
    temporary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mounts: Sequence[str] = ()
    #: Units that run.
    units: Sequence[str] = ()
    #: (engine, name or ID), (engine, tag), and (name, ID) of the image that the runtime used.
    containers: Sequence[tuple[str, str]] = ()
    tags: Sequence[tuple[str, str]] = ()
    images: Sequence[tuple[str, str]] = ()
    #: Engines that do not respond.
    silent: Sequence[str] = ()
    #: Users with a record in table.USERS, and whether each exists.
    users: Mapping[str, bool] = field(default_factory=dict)
    #: The service user, if it exists without a record.
    other_user: str = ""
    #: The firewall's table, files and timers on the node.
    firewall: Sequence[str] = ()
    #: The newest kernel, if it did not start in an update; "" otherwise.
    hanging: str = ""


@dataclass(frozen=True)
class Step:
    """One line of the list. ``kind`` selects the action; ``engine`` is that of a container or a tag."""

    verb: Verb
    kind: Literal["unit", "container", "tag", "file", "tree", "folder", "user", "host", "firewall", "network", "image"]
    name: str
    note: str
    engine: str = ""


def roots(install_dir: str, texts: Iterable[str]) -> list[str]:
    """Return the installation folders: the variable's, and those in the texts of installed units.

    Raises ValueError for a folder of the operating system.
    """
    parts = [part for part in install_dir.split("/") if part]
    if not install_dir.startswith("/") or len(parts) < 2 or ".." in parts:
        expected = "the folder of gb10_install_dir, two levels below / or more"
        raise ValueError(f"install_dir: {install_dir!r}. Expected: {expected}. Fix: correct gb10_install_dir")
    used = [match[1] for text in texts for match in _RUNTIME.finditer(text)]
    return list(dict.fromkeys([posixpath.normpath(install_dir), *used]))


def mounts(mountinfo: str) -> list[str]:
    """Return the mount points in /proc/self/mountinfo. Source: proc(5)."""
    fields = [line.split() for line in mountinfo.splitlines()]
    return [_OCTAL.sub(lambda match: chr(int(match[1], 8)), entry[4]) for entry in fields if len(entry) > 4]


def patterns(path: str) -> list[str]:
    """Return the glob patterns of the temporary files of a path, which has no wildcards itself."""
    folder, name = posixpath.split(path)
    return [f"{folder}/{pattern.format(name=name)}" for pattern in _TEMPORARY]


def valid_users(names: Iterable[str]) -> list[str]:
    """Return the names that may be users of the collection: a record cannot name root or a path."""
    return [name for name in names if _NAME.fullmatch(name) and name != "root"]


def decide(node: NodeState, models: bool) -> list[Step]:
    """Return all steps in their order. ``models``: whether to remove the stored models."""
    steps = [Step("stop", "unit", unit, "service") for unit in table.UNITS if unit in node.units]
    steps += [Step("stop", "unit", unit, "query of a killed run") for unit in node.units if unit.startswith("run-")]
    steps += _containers(node)
    for root, exposed in node.roots.items():
        steps += _root(node, root, exposed, models)
    steps += [step for place in table.NODE for step in _place(node, place)]
    steps += _users(node)
    steps += _host(node)
    steps += _firewall(node)
    steps += _network(node)
    for path, content in table.FOLDERS.items():
        steps += _folder(node, path, content, steps)
    return steps


def _containers(node: NodeState) -> Iterator[Step]:
    for engine in node.silent:
        note = f"{engine} does not respond; start it, and run again"
        yield Step(KEEP, "image", f"containers and images of {engine}", note)
    yield from (Step("remove", "container", name, f"container of {engine}", engine) for engine, name in node.containers)
    yield from (
        Step("remove", "tag", tag, f"tag of {engine}, and its image if nothing else names it", engine)
        for engine, tag in node.tags
    )
    for name, identifier in node.images:
        note = f"the node may have had this image before; the engine's command removes it: rmi {identifier}"
        yield Step(KEEP, "image", name, note)


def _root(node: NodeState, root: str, exposed: str, models: bool) -> list[Step]:
    if root not in node.paths:
        return []
    if exposed:
        note = f"{exposed}, so root removes nothing in it; make root its only owner, and run again"
        return [Step(KEEP, "folder", root, note)]
    kept = {f"{root}/models": "models; -e reset_models=true removes them"} if not models else {}
    steps = []
    for place in table.STORE:
        path = f"{root}/{place.path}"
        if path in kept:
            steps += [Step(KEEP, "tree", path, kept[path])] if path in node.paths else []
        else:
            steps += _place(node, Place(path, place.content, place.kind))
    return [*steps, *_folder(node, root, "installation folder", steps)]


def _place(node: NodeState, place: Place) -> list[Step]:
    path, found = place.path, node.paths.get(place.path)
    if place.kind == "tree":
        return [] if found is None else _tree(node, place, found)
    steps = []
    if found is not None:
        folder = found.type == "folder"
        steps = [Step(KEEP, "file", path, "it is a folder") if folder else Step("remove", "file", path, place.content)]
    return steps + [Step("remove", "file", name, _KILLED) for name in node.temporary.get(path, ())]


def _tree(node: NodeState, place: Place, found: Found) -> list[Step]:
    path = place.path
    inside = [mount for mount in node.mounts if mount.startswith(f"{path}/")]
    if found.type != "folder":
        note = f"it is a link to {found.target}" if found.type == "link" else "it is not a folder"
        return [Step(KEEP, "tree", path, note)]
    if inside:
        return [Step(KEEP, "tree", path, f"{inside[0]} is mounted in it; unmount it, and run again")]
    if path not in node.mounts:
        return [Step("remove", "tree", path, place.content)]
    note = f"{place.content}; the folder is a mount point and stays"
    return [Step("empty", "tree", path, note)] if found.names else []


def _folder(node: NodeState, path: str, content: str, steps: Sequence[Step]) -> list[Step]:
    """Remove a folder if the steps before leave nothing in it. Report other content, unless a step has done that."""
    found = node.paths.get(path)
    if found is None:
        return []
    if found.type != "folder":
        return [Step(KEEP, "folder", path, "it is not a folder")]
    done = {step.name: step.verb for step in steps}
    done |= dict.fromkeys([*node.firewall, *(place.path for place in table.HOST)], "remove")
    left = {name: done.get(f"{path}/{name}") for name in sorted(found.names) if done.get(f"{path}/{name}") != "remove"}
    if others := [name for name, verb in left.items() if verb is None]:
        return [Step(KEEP, "folder", path, _left(node, path, others))]
    if left:
        return []
    if path in node.mounts or path in node.linked:
        return [Step(KEEP, "folder", path, "it is a mount point" if path in node.mounts else "a link leads to it")]
    return [Step("remove", "folder", path, content)]


def _left(node: NodeState, path: str, others: Sequence[str]) -> str:
    """Return why a folder with these names stays."""
    if mounted := [name for name in others if f"{path}/{name}" in node.mounts]:
        return f"{path}/{mounted[0]} is mounted in it; unmount it, and run again"
    more = ", ..." if len(others) > _SHOWN else ""
    return f"this collection did not create {', '.join(others[:_SHOWN])}{more}"


def _users(node: NodeState) -> list[Step]:
    steps = []
    for name, exists in node.users.items():
        home = paths.home(name)
        steps += [Step("remove", "user", name, "service user, with its group")] if exists else []
        if home in node.paths and node.paths[home].owner == 0:
            steps.append(Step(KEEP, "tree", home, f"it belongs to root, not to {name}"))
        else:
            steps += _place(node, Place(home, f"home of {name}", "tree"))
    if table.USERS.path in node.paths and any(step.verb == KEEP for step in steps):
        # Without the record, the next run would not find the home.
        steps.append(Step(KEEP, "tree", table.USERS.path, "its users have a home that stays"))
    else:
        steps += _place(node, table.USERS)
    if user := node.other_user:
        note = f"it may have existed before; to remove it: userdel {user}, and then its home {paths.home(user)}"
        steps.append(Step(KEEP, "user", user, note))
    return steps


def _host(node: NodeState) -> list[Step]:
    kept = {os_update_plan.OPTIONS_FILE, *([os_update_plan.BOOT_FILE] if node.hanging else [])}
    names = [place.path for place in table.HOST if place.path in node.paths.keys() - kept]
    steps = [Step("remove", "host", ", ".join(names), "protection of the host; its former state returns")]
    left = [name for place in table.HOST for name in node.temporary.get(place.path, ())]
    steps = (steps if names else []) + [Step("remove", "file", name, _KILLED) for name in left]
    if node.hanging:
        note = f"without it, the kernel {node.hanging} boots, which did not start; remove its packages, and run again"
        steps.append(Step(KEEP, "host", os_update_plan.BOOT_FILE, note))
    if os_update_plan.OPTIONS_FILE in node.paths:
        note = "an installed kernel may need it; to boot without: remove it, and run update-grub"
        steps.append(Step(KEEP, "host", os_update_plan.OPTIONS_FILE, note))
    return steps


def _firewall(node: NodeState) -> list[Step]:
    names = ", ".join(node.firewall)
    steps = [Step("remove", "firewall", names, "access to the node's ports")] if names else []
    if table.FIREWALL_UNIT in node.units and f"{paths.UNIT_FOLDER}/{table.FIREWALL_UNIT}" not in node.firewall:
        steps.append(Step("stop", "unit", table.FIREWALL_UNIT, "service without its unit file"))
    return steps + [step for place in table.FIREWALL if place.path not in node.firewall for step in _place(node, place)]


def _network(node: NodeState) -> list[Step]:
    managed = [place.path for place in table.NETWORK if place.path in node.paths]
    if not managed:
        return [step for place in (*table.NETWORK, *table.STATE) for step in _place(node, place)]
    note = "the network before the first run, with a rollback"
    if not any(path.startswith(table.NETWORK_STATE) for path in managed):
        note = "the former network is unknown: the devices keep their addresses until a boot"
    return [Step("restore", "network", ", ".join(managed), note)]

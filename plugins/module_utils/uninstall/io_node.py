# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read which of the collection's items a node has, and remove them.

`rm` removes folders that the service user can write: it follows no link, and stays on one file system.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import io_host
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_change, io_state
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import LABEL, last
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import plan, table
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.plan import Found, NodeState, Step
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.table import Place

_CONTAINERS = tuple(unit.removesuffix(".service") for unit in paths.UNITS)
_TAG = re.compile(r"(?:localhost/)?gb10\.cluster/runtime:\S+")
_ALL = ("ps", "--all", "--format={{.Names}}")
_STOPPED = ("inactive", "failed")
#: Exit status of systemctl for a unit that is not loaded.
_NOT_LOADED = 5


class UninstallError(ValueError):
    """A step failed; the message names it and the reason."""


def read(run: Run, install_dir: str, user: str) -> NodeState:
    """Return the node's state. Raises ValueError, OSError and FirewallError."""
    texts = [io_file.read(f"{paths.UNIT_FOLDER}/{unit}") for unit in (*paths.UNITS, paths.FALLBACK_UNIT)]
    given = plan.roots(install_dir, texts)
    roots = list(dict.fromkeys(map(os.path.realpath, given)))
    recorded = plan.valid_users(sorted(os.listdir(table.USERS.path)) if os.path.isdir(table.USERS.path) else [])
    containers = {engine: _names(run, [engine, *_ALL]) for engine in engines(texts, roots)}
    return NodeState(
        paths=_paths(roots, recorded),
        roots={root: io_file.exposed(root) if os.path.isdir(root) else "" for root in roots},
        linked=[os.path.realpath(root) for root in given if os.path.islink(root)],
        temporary=_temporary(),
        mounts=plan.mounts(io_file.read("/proc/self/mountinfo")),
        units=_running(run, recorded),
        containers=[*_own_containers(containers), *_copying(run, list(containers))],
        tags=[(engine, tag) for engine in containers for tag in _tags(run, engine)],
        images=_images(),
        silent=[engine for engine, names in containers.items() if names is None],
        users={name: exists(name) for name in recorded},
        other_user=user if user not in recorded and exists(user) else "",
        firewall=[*io_nftables.existing_objects(run), *io_nftables.pending(run)],
        hanging=_hanging(run),
    )


def _hanging(run: Run) -> str:
    """Return the kernel of an update that did not start, "" without one."""
    if not os.path.exists(os_update_plan.BOOT_FILE):
        return ""
    state = io_state.read(run, simulate=False)
    return state.trial.tried if state.trial and os_update_plan.stage(state) == "fell back" else ""


def _places() -> list[Place]:
    return [*table.NODE, *table.HOST, *table.FIREWALL, *table.NETWORK, *table.STATE, table.USERS]


def _paths(roots: Sequence[str], users: Sequence[str]) -> dict[str, Found]:
    wanted = [*table.FOLDERS, *roots, *(f"{root}/{place.path}" for root in roots for place in table.STORE)]
    wanted += [*(place.path for place in _places()), *map(paths.home, users)]
    return {path: found for path in wanted if (found := _found(path))}


def _temporary() -> dict[str, list[str]]:
    files = [place.path for place in _places() if place.kind != "tree"]
    return {path: sorted(name for pattern in plan.patterns(path) for name in glob.iglob(pattern)) for path in files}


def engines(texts: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return the engines to query: none on a node without containers, because a query creates Podman's folders."""
    used = any("rm --force gb10-" in text for text in texts) or os.path.lexists(table.RUNTIME_RECORD)
    return ["docker", "podman"] if used or any(os.path.lexists(f"{root}/images") for root in roots) else []


def _found(path: str) -> Found | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return Found("link", status.st_uid, os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return Found("folder", status.st_uid, names=sorted(os.listdir(path)))
    return Found("file", status.st_uid)


def _running(run: Run, users: Sequence[str]) -> list[str]:
    """Return the collection's units that run, and queries of a killed run as one of these users."""
    units = _active(run, "gb10-*")
    for unit in _active(run, "run-*.service") if users else ():
        _status, stdout, _stderr = run(["systemctl", "show", "--property=User", "--value", unit])
        units += [unit] if stdout.strip() in users else []
    return units


def _active(run: Run, pattern: str) -> list[str]:
    _status, stdout, _stderr = run(["systemctl", "list-units", "--all", "--plain", "--no-legend", pattern])
    fields = [line.split() for line in stdout.splitlines()]
    return [entry[0] for entry in fields if len(entry) > 3 and entry[2] not in _STOPPED]


def _names(run: Run, argv: list[str]) -> list[str] | None:
    """Return the words of an engine's output, None if the engine is installed and does not respond."""
    status, stdout, _stderr = run(argv)
    return stdout.split() if status == 0 else [] if status == NOT_INSTALLED else None


def _own_containers(containers: Mapping[str, Sequence[str] | None]) -> Iterator[tuple[str, str]]:
    return ((engine, name) for engine, names in containers.items() for name in names or () if name in _CONTAINERS)


def _copying(run: Run, engines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for engine in engines:
        found = _names(run, [engine, "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={LABEL}"])
        yield from ((engine, name) for name in found or ())


def _tags(run: Run, engine: str) -> list[str]:
    found = _names(run, [engine, "image", "ls", "--format={{.Repository}}:{{.Tag}}"])
    return [name for name in found or () if _TAG.fullmatch(name)]


def _images() -> list[tuple[str, str]]:
    """Return (name, ID) of the recorded image. A record of wheels has no versions."""
    try:
        record = io_json.json_file(table.RUNTIME_RECORD) or {}
    except (OSError, ValueError):
        return []
    files = record.get("files")
    return (
        [(str(name), str(value)) for name, value in files.items()]
        if record.get("versions") and isinstance(files, dict)
        else []
    )


def exists(user: str) -> bool:
    """Return whether the node has a user of this name."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def sizes(run: Run, steps: Sequence[Step]) -> dict[str, int]:
    """Return the disk usage in bytes of each file and folder that a step names; those without an answer are left
    out."""
    names = [step.name for step in steps if step.kind in ("file", "tree", "folder")]
    _status, stdout, _stderr = (
        run(["du", "--summarize", "--one-file-system", "--block-size=1", "--", *names]) if names else (0, "", "")
    )
    fields = [line.partition("\t") for line in stdout.splitlines()]
    return {name: int(count) for count, _tab, name in fields if count.isdigit()}


def apply(run: Run, steps: Sequence[Step]) -> None:
    """Do the steps, in their order. Raises UninstallError, OSError, FirewallError."""
    for step in steps:
        _ACTIONS[step.kind](run, step)
    if any(paths.UNIT_FOLDER in step.name for step in steps):
        must(run, ["systemctl", "daemon-reload"])
        # A failed unit without a file would stay listed. The command fails for a unit that is not loaded.
        run(["systemctl", "reset-failed", *table.UNITS, table.FIREWALL_UNIT])


def _tree(run: Run, step: Step) -> None:
    names = [f"{step.name}/{name}" for name in sorted(os.listdir(step.name))] if step.verb == "empty" else [step.name]
    must(run, ["rm", "--recursive", "--force", "--one-file-system", "--", *names])


def _stop(run: Run, step: Step) -> None:
    # A transient unit may have ended meanwhile.
    must(run, ["systemctl", "stop", step.name], (0, _NOT_LOADED))


def _file(_run: Run, step: Step) -> None:
    # The removal of the firewall before has disabled its unit, which removes links.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(step.name)


def _folder(_run: Run, step: Step) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(step.name)


def _host(run: Run, step: Step) -> None:
    io_host.restore(run)
    io_change.resume(check=False)
    if os_update_plan.BOOT_FILE in step.name:
        io_change.forget(run, check=False)


_ACTIONS: Mapping[str, Callable[[Run, Step], Any]] = {
    "unit": _stop,
    "container": lambda run, step: must(run, [step.engine, "rm", "--force", "--volumes", step.name]),
    "tag": lambda run, step: must(run, [step.engine, "rmi", step.name]),
    "file": _file,
    "tree": _tree,
    "folder": _folder,
    "user": lambda run, step: must(run, ["userdel", step.name]),
    "host": _host,
    "firewall": lambda run, _step: io_nftables.remove(run),
}


def must(run: Run, argv: list[str], expected: Sequence[int] = (0,)) -> None:
    """Run a command. Raises UninstallError for another exit status than the expected ones."""
    status, stdout, stderr = run(argv)
    if status not in expected:
        raise UninstallError(f"{' '.join(argv)} failed: {last(stderr or stdout)}")

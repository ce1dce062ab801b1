# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a netplan change: the fabric's own, and foreign files without the fabric's interfaces."""

from __future__ import annotations

import difflib
import glob
import os
import shutil
import tempfile
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback, netplan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.io_rollback import NetplanError, Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.owners import NETPLAN_FOLDERS, is_network_manager_file
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import drift, interfaces
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    NETPLAN_FILE,
    NETWORK_MANAGER_FILE,
    SYSCTL_FILE,
)
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: Files that netplan generates for its two renderers: folder, prefix of the name, and suffix after the interface.
#: Source: netplan-generate(8).
_GENERATED = (
    ("/run/systemd/network/", "10-netplan-", ".network"),
    ("/run/NetworkManager/system-connections/", "netplan-", ".nmconnection"),
)
#: The programs that write these files, since netplan 1.2 and before. From 1.0 on, `netplan generate --root-dir` also
#: reloads systemd, which runs netplan on the host's own files and so hides changes that were never applied.
_GENERATORS = ("/usr/libexec/netplan/configure", "/usr/libexec/netplan/generate")
_HEADER = "# gb10.cluster took {interfaces} out of this file; qsfp_netplan_state: absent puts it back as it was.\n"


def target(params: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the wanted files and devices for io_netplan.put(), and the paths of foreign files that change."""
    original = io_rollback.read(io_rollback.ORIGINAL) or {"files": {}, "links": {}}
    absent = params["state"] == "absent"
    # A removal may have no plan, which lists the fabric's other files.
    removed = dict.fromkeys((SYSCTL_FILE, NETWORK_MANAGER_FILE), "") if absent else {}
    ours = {NETPLAN_FILE: params["content"], **removed, **params["files"]}
    return _original(original, ours) if absent else _planned(original, ours, params)


def _original(original: Mapping[str, Any], ours: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the state before the first change, without our files."""
    theirs = [path for path, saved in original["files"].items() if saved and path not in ours]
    back = {path: saved for path in theirs if (saved := _given_back(path, original))}
    rest = {path: saved for path, saved in original["files"].items() if path not in theirs}
    return {"files": {**dict.fromkeys(ours), **rest, **back}, "links": original["links"]}, list(back)


def _planned(
    original: Mapping[str, Any], ours: Mapping[str, str], params: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the state with our files."""
    files = {path: [text, 0o600 if path == NETPLAN_FILE else 0o644] if text else None for path, text in ours.items()}
    interfaces = [rail["interface"] for rail in params["rails"]]
    others = _taken(interfaces) if params["takeover"] else {}
    # Devices that the plan no longer uses get their original settings back.
    left = {name: saved for name, saved in original["links"].items() if name not in netplan.hearing(interfaces)}
    # The owner added these interfaces again since. From now on, a removal restores that version.
    again = {
        path: saved
        for path in others
        if original["files"].get(path) and (saved := _given_back(path, original, known=False))
    }
    return {"files": {**files, **others}, "links": left, "original": again}, list(others)


def _given_back(path: str, original: Mapping[str, Any], known: bool = True) -> list[Any] | None:
    """Return [text, mode] of a foreign file with its removed definitions; None if it stays as it is or is gone.

    A file that is unchanged since we wrote it gets its exact original text (None instead if not `known`).
    Otherwise only the removed definitions return; definitions that the owner added again stay.
    """
    text, mode = io_file.read_file(path)
    saved = original["files"][path]
    if text is None:
        return None
    if io_rollback.digest(text) == original.get("written", {}).get(path):
        return list(saved) if known else None
    rest = netplan.with_again(now := _parsed(path, text), _parsed(path, saved[0]), original["links"])
    if rest == now:
        return None if known else [text, mode]
    return [_dumped(rest), mode]


def _taken(interfaces: Sequence[str]) -> dict[str, list[Any]]:
    taken = {}
    for path in sorted(glob.glob("/etc/netplan/*.yaml")):
        text, mode = io_file.read_file(path)
        if path == NETPLAN_FILE or not any(interface in (text or "") for interface in interfaces):
            continue
        rest, names = netplan.without(_parsed(path, text or ""), interfaces)
        if names:
            taken[path] = [_HEADER.format(interfaces=", ".join(names)) + _dumped(rest), mode]
    return taken


def _parsed(path: str, text: str) -> Any:
    # Needed only with such files; netplan.io depends on it.
    try:
        import yaml  # noqa: PLC0415
    except ImportError as error:
        raise NetplanError(f"{path} cannot be read without PyYAML. Fix: apt install python3-yaml") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Report only the line: the parser quotes the invalid text, which may be a password.
        mark = getattr(error, "problem_mark", None)
        raise NetplanError(f"{path} is not YAML{f' (line {mark.line + 1})' if mark else ''}") from error


def _dumped(document: Any) -> str:
    import yaml  # noqa: PLC0415  # _parsed imported it before.

    return str(yaml.safe_dump(document, sort_keys=False))


def differences(run: Run, params: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return how files and devices differ from their wanted state, one sentence each."""
    links = [name for name, saved in wanted["links"].items() if saved]
    now = io_rollback.capture(run, wanted["files"], links)
    files = {path: saved for path, saved in wanted["files"].items() if now["files"][path] != saved}
    differs = [f"{path} {'should not exist' if saved is None else 'differs'}" for path, saved in files.items()]
    # None: the device is gone, so nothing can be restored.
    differs += [
        f"{name} is not as it was before" for name in links if now["links"][name] not in (wanted["links"][name], None)
    ]
    if params["state"] == "absent":
        return differs
    rails = {rail["interface"]: rail["address"] for rail in params["rails"]}
    differs += drift(rails, params["mtu"], interfaces(node_io_facts.interfaces(run)))
    return [*differs, *(line for interface in rails for line in _settings(interface)), *unapplied(NETPLAN_FILE)]


def _settings(interface: str) -> list[str]:
    """Return how a rail's kernel settings differ. Settings that the kernel lacks, such as all of IPv6, do not count."""
    found = {key: io_rollback.sysctl(interface, key) for key in netplan.RAIL}
    return [
        f"{interface} has {key} {found[key]} instead of {value}"
        for key, value in netplan.RAIL.items()
        if found[key] not in ("", value)
    ]


def unapplied(path: str) -> list[str]:
    """Return a sentence if the file differs from the version applied last since boot: a run may have been killed.

    Compares content, because times are unreliable on a host whose clock was behind at boot.
    """
    text, _mode = io_file.read_file(path)
    last = io_rollback.applied().get(path)
    return (
        []
        if text is None or last in (None, io_rollback.digest(text))
        else [f"{path} was not applied since it was written"]
    )


def refusal(run: Run, files: Mapping[str, Any], interfaces: Sequence[str], scratch: str) -> str:
    """Return why these files must not join the host's other netplan files, "" if they may.

    Either netplan rejects them, or another interface has changes that were never applied: they would go live with ours.
    """
    _copy(scratch, files)
    for path, saved in files.items():
        if saved is not None and os.path.dirname(path) in NETPLAN_FOLDERS:
            io_file.write_file(scratch + path, *saved)
    if answer := _rejection(run, scratch):
        return f"netplan rejects {answer[0] or 'it'}: {answer[1]}"
    ours = {f"{start}{interface}" for interface in interfaces for _folder, start, _end in _GENERATED}
    stale = sorted(name for name in _changed(scratch) if os.path.splitext(name)[0] not in ours)
    if not stale:
        return ""
    names = ", ".join(stale)
    return (
        f"/etc/netplan has changes that were never applied and would go live too ({names}). Apply them first "
        "(netplan try), or undo them"
    )


def rejected(run: Run) -> list[dict[str, str]]:
    """Return {file, reason} of the host's netplan files that netplan rejects, without ours, which is written again.

    Netplan stops at the first one. Only NetworkManager's own files are independent, so only those are left out to find
    more. Raises OSError.
    """
    found: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="gb10-netplan-") as scratch:
        if not os.path.exists(_generator()) or not _copy(scratch, ()):
            return []
        while answer := _rejection(run, scratch):
            file, reason = answer
            if file != NETPLAN_FILE:
                found.append({"file": file or NETPLAN_FOLDERS[1], "reason": f"netplan rejects it: {reason}"})
                if not is_network_manager_file(file):
                    break
            os.unlink(scratch + file)
    return found


def _copy(scratch: str, without: Container[str]) -> int:
    """Copy the host's netplan files to a scratch root. Return their number."""
    copied = 0
    for folder in NETPLAN_FOLDERS:
        os.makedirs(scratch + folder)
        for path in glob.glob(f"{folder}/*.yaml"):
            if path not in without:
                shutil.copy2(path, scratch + folder)
                copied += 1
    return copied


def _generator() -> str:
    return next(filter(os.path.exists, _GENERATORS), _GENERATORS[0])


def _rejection(run: Run, scratch: str) -> tuple[str, str] | None:
    """Return (file, reason) if netplan rejects the files in a scratch root.

    The file is "" if netplan does not name it.
    """
    status, stdout, stderr = run([_generator(), "--root-dir", scratch])
    return netplan.rejection((stderr or stdout).replace(scratch, "")) if status != 0 else None


def _changed(scratch: str) -> set[str]:
    """Return the names of the files that netplan would now generate differently."""
    paths = {
        path.removeprefix(root)
        for root in ("", scratch)
        for folder, start, _end in _GENERATED
        for path in glob.glob(f"{root}{folder}{start}*")
    }
    return {
        os.path.basename(path) for path in paths if io_file.read_file(path)[0] != io_file.read_file(scratch + path)[0]
    }


def diff(wanted: Mapping[str, Any], others: Sequence[str], found: Sequence[str]) -> dict[str, str]:
    """Return the difference as text. Foreign files may hold passwords, so only their names are shown."""
    shown = []
    for path, saved in wanted["files"].items():
        before, after = io_file.read_file(path)[0] or "", saved[0] if saved else ""
        if path in others:
            done = "removed" if after.startswith(_HEADER[:19]) else "restored"
            shown += [f"{path}: the fabric's interfaces are {done}\n"] * (before != after)
        else:
            shown += difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)
    return {"prepared": "".join([*shown, *(f"# {sentence}\n" for sentence in found)])}

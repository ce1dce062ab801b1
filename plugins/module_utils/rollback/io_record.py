# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write, read, compare and restore a node's launch records. record.py describes a record.

/etc/gb10/records/ID.json            one record
/etc/gb10/records/current            a link to the record of the last launch that answered
/etc/gb10/record_secrets.json        the launch files of the current record that have secrets
"""

from __future__ import annotations

import glob
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import File, Record, RecordError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_environments

FOLDER = "/etc/gb10/records"
#: Next to FOLDER.
SECRETS = "record_secrets.json"
_CURRENT = "current"
_PATCH_FIX = f"the vllm_patch_patches of that launch, and site.yml --tags {rollback_record.PATCH_ROLE}"
#: Units and environment may contain names of hosts and users.
_MODE = 0o600
Files = Mapping[str, File]


@dataclass(frozen=True)
class Store:
    """A node's records. ``invalid``: name -> reason. ``secrets``: the secret files of the current record."""

    folder: str
    found: dict[str, Record]
    invalid: dict[str, str]
    current: str
    secrets: Files

    @property
    def of_current(self) -> Record | None:
        """The record of the last launch that answered."""
        return self.found.get(self.current)


def units(files: Mapping[str, Any]) -> list[str]:
    """Return the services among a record's files, in start order."""
    return [unit for unit in paths.UNITS if f"{paths.UNIT_FOLDER}/{unit}" in files]


def read(folder: str) -> Store:
    """Return the node's records. Raises OSError."""
    found: dict[str, Record] = {}
    invalid: dict[str, str] = {}
    for path in sorted(glob.glob(f"{glob.escape(folder)}/*.json")):
        name = os.path.basename(path).removesuffix(".json")
        try:
            found[name] = rollback_record.stored(io_json.json_file(path, rollback_record.MOST) or {}, name)
        except ValueError as error:
            invalid[name] = f"{path}: {error}"
    return Store(folder, found, invalid, current_id(folder), _secrets(f"{os.path.dirname(folder)}/{SECRETS}"))


def current_id(folder: str) -> str:
    """Return the ID of the record of the last launch that answered, "" without one. Raises OSError."""
    link = f"{folder}/{_CURRENT}"
    return os.path.basename(os.readlink(link)).removesuffix(".json") if os.path.islink(link) else ""


def current_since(folder: str) -> float:
    """Return when the launch of the current record answered, in seconds since 1970, 0.0 without a record.

    Raises OSError.
    """
    link = f"{folder}/{_CURRENT}"
    return os.lstat(link).st_mtime if os.path.islink(link) else 0.0


def choices(folder: str, inputs: str) -> list[Mapping[str, Any]]:
    """Return the choices in the current record, [] unless it is of a vLLM with this digest of its launch inputs.

    Raises OSError.
    """
    record = read(folder).of_current if inputs else None
    unit = record.files.get(f"{paths.UNIT_FOLDER}/{paths.VLLM_UNIT}") if record else None
    return list(record.choices) if record and unit and f"GB10_INPUTS={inputs}\n" in unit.text else []


def start_id(store: Store) -> str:
    """Return the launch identifier of the current record, "" without one."""
    return str(store.of_current.content["start"]["id"]) if store.of_current else ""


def current(store: Store, keep_runtimes: int) -> dict[str, Any]:
    """Return {current, settled}: the ID of the current record, and whether a launch with that ID needs no change.

    Raises OSError.
    """
    settled = complete(store, present(rollback_record.SECRET_FILES)) and not io_environments.unused(
        rollback_record.obsolete(store.found, store.current, keep_runtimes)
    )
    return {"current": store.current, "settled": settled}


def present(names: tuple[str, ...], root: str = "") -> dict[str, File]:
    """Return those files of this node. ``root`` prefixes each path. Raises OSError."""
    files = {name: io_file.read_file(f"{root}{name}") for name in names}
    return {name: File(text, mode) for name, (text, mode) in files.items() if text is not None and mode is not None}


def launch_files(root: str = "") -> dict[str, File]:
    """Return the launch inputs of this node's services that have no secrets. Raises OSError."""
    recorded = [name.removeprefix(root) for name in sorted(glob.glob(f"{glob.escape(root)}{paths.OVERRIDES}/*.json"))]
    return present((*rollback_record.FILES, *recorded), root)


def launch(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Return {files, secret_files, driver, kernel} of this node, for record.content(). Raises OSError.

    ``gpu``: see node.io_facts.gpu().
    """
    return {
        "files": {path: rollback_record.file_digest(file) for path, file in launch_files().items()},
        "secret_files": sorted(present(rollback_record.SECRET_FILES)),
        "driver": gpu["driver_version"] or "",
        "kernel": platform.release(),
    }


def save(store: Store, record: Record, keep: int, secrets: Files, write: bool) -> bool:
    """Make the record the current one and remove the oldest. Return whether that is a change. Raises OSError."""
    if record.id == store.current and complete(store, secrets):
        return False
    former = store.found.get(record.id)
    if write:
        parent = store.current if record.id != store.current else former.parent if former else ""
        # The log of a start that ran for weeks may be gone.
        same = former if former and record.id == store.current else record
        read = replace(record, choices=record.choices or same.choices, started=record.started or same.started)
        saved = replace(read, parent=parent)
        os.makedirs(store.folder, mode=0o700, exist_ok=True)
        io_file.write_file(f"{store.folder}/{saved.id}.json", rollback_record.text(saved), _MODE)
        select(store, record.id, secrets)
        found = {**store.found, record.id: saved}
        for name in found.keys() - rollback_record.kept(found, record.id, keep):
            os.unlink(f"{store.folder}/{name}.json")
    return True


def complete(store: Store, secrets: Files) -> bool:
    """Return whether the current record is complete, with these secret launch files. Raises OSError."""
    return bool(store.of_current) and secrets == store.secrets


def select(store: Store, name: str, secrets: Files) -> None:
    """Make a stored record the current one. Raises OSError."""
    copy = json.dumps(load.plain(secrets), indent=1) + "\n"
    io_file.write_file(f"{os.path.dirname(store.folder)}/{SECRETS}", copy, _MODE)
    with io_file.part(f"{store.folder}/{_CURRENT}") as temporary:
        os.symlink(f"{name}.json", temporary)
    io_file.sync_folder(store.folder)


def stored(store: Store, name: str) -> Record:
    """Return a record by its ID, "" for the current one. Raises RecordError if the node has no such record."""
    wanted_id = name or store.current
    if wanted_id not in store.found:
        reason = "; ".join(store.invalid.values()) or f"{store.folder} has no such record"
        raise RecordError(f"there is no launch {wanted_id[: rollback_record.SHOWN]} to restore: {reason}")
    return store.found[wanted_id]


def wanted(store: Store, record: Record) -> Files:
    """Return the launch files of a record, with those that have secrets.

    For the current record these are of its launch, and this node's where the copy was lost. Otherwise they are this
    node's.
    """
    if record.id == store.current:
        return {**record.files, **present(tuple(record.of_node["secret_files"])), **store.secrets}
    return {**record.files, **present(rollback_record.SECRET_FILES)}


def differences(files: Files, now: Files) -> list[str]:
    """Return the paths that differ, including those that only one has.

    An API key that ``files`` lacks does not count: records of earlier releases have none, and their launches need it.
    """
    names = files.keys() | now.keys() - set(paths.API_KEY)
    return sorted(name for name in names if files.get(name) != now.get(name))


def restore(files: Files, names: list[str], root: str = "") -> None:
    """Write those launch files, and remove the ones that ``files`` lacks. Raises OSError."""
    for name in names:
        if name in files:
            io_file.add_folder(os.path.dirname(f"{root}{name}"))
            io_file.write_file(f"{root}{name}", files[name].text, files[name].mode)
        else:
            io_file.install(f"{root}{name}", None)


def missing(run: Run, record: Record) -> list[str]:
    """Return the items that the record needs and this node lacks, each with the variable that installs it.

    Only this imports what looks for them: a node compiles a module's code in every run.
    """
    lost = {item["item"]: item["fix"] for item in rollback_record.required(record) if not _exists(run, item, record)}
    lost = lost or dict.fromkeys(_unpatched(record), _PATCH_FIX)
    return [f"{item} is missing or changed. Fix: {fix}" for item, fix in lost.items()]


def _exists(run: Run, item: Mapping[str, str], record: Record) -> bool:
    if item["kind"] == "image":
        from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine  # noqa: PLC0415

        try:
            return Engine(run, record.content["plan"]["runtime"]["engine"], ()).find(item["item"]) is not None
        except ProblemsError:
            return False
    if item["kind"] == "model":
        return os.path.isfile(f"{item['item']}/config.json")
    return os.path.isfile(item["item"]) and item["digest"] in ("", io_file.sha256(item["item"]))


def _unpatched(record: Record) -> list[str]:
    """Return the files of vLLM that differ from the record."""
    role = rollback_record.PATCH_ROLE
    patched, environment = record.addition(role, "files"), record.addition(role, "environment")
    if not patched:
        return []
    from ansible_collections.gb10.cluster.plugins.module_utils.patch.io_tree import Tree  # noqa: PLC0415
    from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package  # noqa: PLC0415

    # Of an image, a copy of its vLLM is mounted.
    copy = next((mount["source"] for mount in record.addition(role, "mounts")), None)
    python = None if copy else f"{record.content['plan']['runtime']['path']}/bin/python"
    try:
        tree = Tree(io_package.find(copy, python).path, environment.get("VLLM_TUNED_CONFIG_FOLDER", ""))
        found = tree.digests(list(patched), {})
    except (ProblemsError, OSError):
        return list(patched)
    return [path for path, digest in patched.items() if found[path] != digest]


def _secrets(path: str) -> Files:
    """Return the copy of the secret files, {} for a damaged one."""
    try:
        return load.load(cast("Any", Files), io_json.json_file(path) or {}, path)
    except (TypeError, ValueError):
        return {}

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a node: its GPU, interfaces, listeners and services. Nothing here changes anything."""

from __future__ import annotations

import glob
import json
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import (
    additions,
    bounded_json,
    io_file,
    io_model_files,
    model_config,
    model_store,
    node_text,
)

#: Runs an argv and returns (exit status, stdout, stderr), as AnsibleModule.run_command does. 127 stands for a missing command.
Run = Callable[[list[str]], tuple[int, str, str]]

_FIRST_LOGIN, _NOBODY = 1000, 65534
#: What planned_model() returns where there is none to look at.
NO_MODEL: dict[str, Any] = {"model": None, "model_bytes": None, "model_reason": "", "model_at": "", "model_complete": False}
#: Characters of a JSON file. The index of a model with 100000 tensors has 12 million.
MOST_JSON = 1 << 25
#: Of a config.json, all of which goes to the controller. The largest, with names of what is not quantised, have half a million.
MOST_CONFIG = 1 << 22


def read(path: str) -> str:
    """Return a small file of /proc or /sys, or "" if it is gone or closed to us: processes end while they are read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def gpu(run: Run) -> dict[str, Any]:
    """Ask nvidia-smi and /proc/meminfo; see node_text.gpu_facts for the shape."""
    query = run(["nvidia-smi", f"--query-gpu={','.join(node_text.GPU_FIELDS)}", "--format=csv,noheader,nounits"])
    summary = run(["nvidia-smi"]) if query[0] == 0 else (query[0], "", "")
    return node_text.gpu_facts(query, summary[1], read("/proc/meminfo"))


def links(run: Run) -> list[dict[str, Any]]:
    """Return what `ip -json address show` says of every network device. Raises ValueError if it fails."""
    status, stdout, stderr = run(["ip", "-json", "address", "show"])
    if status != 0:
        raise ValueError(f"ip -json address show failed: {stderr.strip()}")
    answer: list[dict[str, Any]] = json.loads(stdout)
    return answer


def interfaces(run: Run) -> dict[str, dict[str, Any]]:
    """Return node_text.interface_facts of every network device, for those who need no more; io_fabric.read adds the rest."""
    return node_text.interface_facts(links(run))


def listeners() -> list[dict[str, Any]]:
    """Return every listening TCP socket as {address, port, pid, process, unit}; pid is None for sockets of other namespaces."""
    sockets = [entry for name in ("tcp", "tcp6") for entry in node_text.listening_sockets(read(f"/proc/net/{name}"))]
    owners = _socket_owners({entry["inode"] for entry in sockets})
    return [
        {"address": entry["address"], "port": entry["port"], **_process(owners.get(entry["inode"]))}
        for entry in sorted(sockets, key=lambda entry: (entry["port"], entry["address"]))
    ]


def _socket_owners(inodes: set[int]) -> dict[int, int]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners = {}
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            inode = wanted.get(os.readlink(link))
        except OSError:  # the process or the descriptor is gone
            continue
        if inode is not None:
            owners[inode] = int(link.split("/")[2])
    return owners


def _process(pid: int | None) -> dict[str, Any]:
    if pid is None:
        return {"pid": None, "process": "", "unit": ""}
    return {"pid": pid, "process": read(f"/proc/{pid}/comm").strip(), "unit": node_text.unit_of_cgroup(read(f"/proc/{pid}/cgroup"))}


def json_file(path: str, most: int = MOST_JSON) -> dict[str, Any] | None:
    """Return the object in a JSON file, None if there is no file. Raises ValueError naming the file if it holds anything else."""
    try:
        text = io_file.read_bounded(path, most)
        found = None if text is None else bounded_json.load(text, most)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if text is None:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no JSON object")
    return found


def model(folder: str, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return {model, model_bytes, model_reason} of a folder: its config.json, its weights, and what is wrong with the latter.

    Both are None if there are none; see model_config.checkpoint. ``sizes``: bytes of its *.safetensors, None to look at what is there. Raises
    ValueError naming a JSON file that cannot be read.
    """
    sizes = _weights(folder) if sizes is None else sizes
    size, reason = model_config.checkpoint(sizes, json_file(f"{folder}/model.safetensors.index.json"))
    return {"model": json_file(f"{folder}/config.json", MOST_CONFIG), "model_bytes": size, "model_reason": reason}


def _weights(folder: str) -> dict[str, int]:
    names = glob.glob(f"{glob.escape(folder)}/*.safetensors")
    return {os.path.basename(name): os.path.getsize(name) for name in names if os.path.exists(name)}


def planned_model(folder: str, source: str, exclude: Sequence[str]) -> dict[str, Any]:
    """Return what model() says of a model that is in its folder or, until that is complete by its manifest, in the one that it is copied from.

    With {model_at, model_complete}: the folder that was read, and whether the first is complete. ``source`` may be "", ``exclude`` are patterns of
    files that are not copied. The answer is the same before and after the copy. Raises ValueError.
    """
    complete = io_model_files.complete(folder)
    place = source if source and not complete and os.path.exists(f"{source}/config.json") else folder
    manifest = io_model_files.manifest(folder) if complete else None
    files = manifest["files"] if manifest else [{"path": name, "size": size} for name, size in _weights(place).items()]
    sizes = model_store.weights(files, exclude if place == source else ())
    return {**model(place, sizes), "model_at": place, "model_complete": complete}


def system() -> dict[str, Any]:
    """Return {kernel, infiniband, cma_total_bytes, cma_free_bytes}: the kernel's release, whether programs can use RDMA, node_text.cma_facts."""
    return {"kernel": os.uname().release, "infiniband": os.path.isdir("/dev/infiniband"), **node_text.cma_facts(read("/proc/meminfo"))}


def login_users() -> list[str]:
    """Return the users who log in: root, and those whose semaphores and shared memory logind deletes when they log out (RemoveIPC=).

    Source: systemd, src/login/logind-user.c: system users, of which the last has the number 999, are left alone.
    """
    return sorted(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == 0 or _FIRST_LOGIN <= entry.pw_uid < _NOBODY)


def recorded_additions() -> dict[str, dict[str, Any]]:
    """Return what roles recorded on this node, by role. Raises ValueError naming a file that cannot be read."""
    names = sorted(glob.glob(f"{additions.FOLDER}/*.json"))
    return {os.path.basename(name).removesuffix(".json"): json_file(name) or {} for name in names}


def service(run: Run, unit: str) -> dict[str, Any]:
    """Return {unit, load, active, sub, result, pid, since, restarts, invocation, container, inputs} of a systemd unit.

    `inputs` is the digest in the environment of the running main process, or of the unit as loaded while systemd is about to
    start it; "" if it does not run or has none.
    """
    status, stdout, stderr = run(["systemctl", "show", unit, f"--property={','.join(node_text.SERVICE_PROPERTIES)}"])
    if status != 0:
        raise ValueError(f"systemctl show {unit} failed: {stderr.strip()}")
    facts = node_text.service_facts(unit, stdout)
    loaded = facts.pop("loaded_inputs")
    if facts["pid"]:
        return {**facts, "inputs": node_text.inputs_of_environment(read(f"/proc/{facts['pid']}/environ"))}
    return {**facts, "inputs": loaded if facts["active"] == "activating" else ""}

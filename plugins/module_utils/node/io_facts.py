# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node's GPU, interfaces, listeners and services. Read-only."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pwd
import stat
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse

_FIRST_LOGIN, _NOBODY = 1000, 65534


def gpu(run: io_command.Run) -> dict[str, Any]:
    """Return the facts of nvidia-smi and /proc/meminfo; see node_text.gpu_facts for the shape."""
    query = run(["nvidia-smi", f"--query-gpu={','.join(node_parse.GPU_FIELDS)}", "--format=csv,noheader,nounits"])
    summary = run(["nvidia-smi"]) if query[0] == 0 else (query[0], "", "")
    return node_parse.gpu_facts(query, summary[1], io_file.read("/proc/meminfo"))


def gpu_state(run: io_command.Run) -> dict[str, Any]:
    """Return node_text.gpu_state of the first GPU."""
    query = f"--query-gpu={','.join(node_parse.GPU_STATE.values())}"
    status, stdout, _stderr = run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    unit = io_file.read(f"{paths.UNIT_FOLDER}/{paths.GPU_CLOCK_UNIT}")
    return node_parse.gpu_state(stdout if status == 0 else "", unit)


def links(run: io_command.Run) -> list[dict[str, Any]]:
    """Return the output of `ip -json address show`, one entry per network device. Raises ValueError if it fails."""
    status, stdout, stderr = run(["ip", "-json", "address", "show"])
    if status != 0:
        raise ValueError(f"ip -json address show failed: {stderr.strip()}")
    answer: list[dict[str, Any]] = json.loads(stdout)
    return answer


def interfaces(run: io_command.Run) -> dict[str, dict[str, Any]]:
    """Return node_text.interface_facts of every network device. fabric.io_facts.read returns more facts."""
    return node_parse.interface_facts(links(run))


def system() -> dict[str, Any]:
    """Return {kernel, infiniband, clock, cma_total_bytes, cma_free_bytes}.

    ``kernel`` is its release; ``infiniband`` is whether programs can use RDMA; ``clock`` has seconds since 1970; the
    others are node_text.cma_facts.
    """
    memory = node_parse.cma_facts(io_file.read("/proc/meminfo"))
    return {
        "kernel": os.uname().release,
        "infiniband": os.path.isdir("/dev/infiniband"),
        "clock": time.time(),
        **memory,
    }


def login_users() -> list[str]:
    """Return root and the users whose semaphores and shared memory logind deletes at logout (RemoveIPC=).

    Source: systemd, src/login/logind-user.c: system users (up to number 999) are excluded.
    """
    return sorted(
        entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == 0 or _FIRST_LOGIN <= entry.pw_uid < _NOBODY
    )


def state(user: str, home: str, runtime: str) -> dict[str, Any]:
    """Return {service_user, service_user_ready, ray_token_digest, message_secret_digest, message_keys_mark,
    runtime_mark, units, certificate, api_key, secret_environment, watchdog_webhook}.

    Roles skip finished work by it. ``units`` are the names of the collection's unit files; ``certificate``,
    ``api_key``, ``secret_environment`` and ``watchdog_webhook`` are whether the node has files of the API's certificate
    and key, of secret variables, and of the watchdog's webhook.
    ``service_user`` is its "UID:GID", "" without such a user; it is ready if the home and its mode are right too.
    ``runtime_mark`` is the digest of the file .complete in the folder that the link "current" next to ``runtime``
    names, "" if the link names another folder. All digests are SHA-256.
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        owner, ready = "", False
    else:
        owner = f"{entry.pw_uid}:{entry.pw_gid}"
        private = (stat.S_IFDIR | 0o700, entry.pw_uid, entry.pw_gid)
        ready = (entry.pw_dir, entry.pw_shell, io_file.owned(home)) == (home, "/usr/sbin/nologin", private)
    current = runtime and os.path.realpath(os.path.join(os.path.dirname(runtime), "current")) == os.path.realpath(
        runtime
    )
    return {
        "service_user": owner,
        "service_user_ready": ready,
        "ray_token_digest": _token_digest(paths.RAY_TOKEN),
        "message_secret_digest": _token_digest(paths.MESSAGE_SECRET),
        "message_keys_mark": _keys_mark(),
        "runtime_mark": _digest(io_file.read(os.path.join(runtime, ".complete"))) if current else "",
        "units": sorted(map(os.path.basename, glob.iglob(f"{paths.UNIT_FOLDER}/gb10-*.service"))),
        "certificate": os.path.lexists(paths.CERTIFICATE),
        "api_key": any(map(os.path.lexists, paths.API_KEY)),
        "secret_environment": os.path.lexists(paths.SECRET_ENVIRONMENT),
        "watchdog_webhook": os.path.lexists(paths.WATCHDOG_WEBHOOK),
    }


def _token_digest(path: str) -> str:
    """Return the digest of a generated token that only root can read; "" for others, because a short word could be
    guessed."""
    if io_file.owned(path) != (stat.S_IFREG | 0o600, 0, 0):
        return ""
    token = io_file.read(path)
    return _digest(token) if paths.GENERATED_TOKEN.fullmatch(token) else ""


def _keys_mark() -> str:
    """Return the mark of the files of keys that only root can read, "" unless they have the same.

    A node without a flight recorder needs no keys of it.
    """
    recorder = any(map(os.path.lexists, (paths.RECORDER_KEYS, f"{paths.UNIT_FOLDER}/{paths.RECORDER_UNIT}")))
    files = (paths.WATCHDOG_KEY, paths.RECORDER_KEYS)[: 1 + recorder]
    if any(io_file.owned(path) != (stat.S_IFREG | 0o600, 0, 0) for path in files):
        return ""
    marks = {io_file.read(path).rstrip("\n").rpartition("\n")[2] for path in files}
    mark = marks.pop()
    return mark if not marks and paths.GENERATED_TOKEN.fullmatch(mark) else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def service(run: io_command.Run, unit: str) -> dict[str, Any]:
    """Return the facts of one systemd unit; see services()."""
    return services(run, (unit,))[unit]


def services(run: io_command.Run, units: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return unit -> {unit, load, active, sub, result, pid, since, restarts, invocation, container, inputs}.

    `inputs` is the digest in the environment of the running main process. While systemd is about to start the unit, it
    is the loaded unit's digest. It is "" if the service does not run or has no digest. Raises ValueError.
    """
    status, stdout, stderr = run(["systemctl", "show", *units, f"--property={','.join(node_parse.SERVICE_PROPERTIES)}"])
    if status != 0:
        raise ValueError(f"systemctl show {' '.join(units)} failed: {stderr.strip()}")
    return {unit: _service(unit, shown) for unit, shown in zip(units, stdout.split("\n\n"), strict=True)}


def _service(unit: str, shown: str) -> dict[str, Any]:
    facts = node_parse.service_facts(unit, shown)
    loaded = facts.pop("loaded_inputs")
    if facts["pid"]:
        return {**facts, "inputs": node_parse.inputs_of_environment(io_file.read(f"/proc/{facts['pid']}/environ"))}
    return {**facts, "inputs": loaded if facts["active"] == "activating" else ""}

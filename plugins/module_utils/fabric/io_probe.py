# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify that every path of a node's rails carries full packets, and measure its round-trip time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import parse as fabric_parse

#: Bytes of the IPv4 and ICMP headers, which the ping payload excludes.
_HEADERS = 28
#: Every IPv4 link carries this size. It distinguishes a path with a smaller MTU from a broken one.
_SMALL = 576


def targets(rails: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each path of the plan's rails as {interface, peer, address, mac}; ``mac`` is "" if it is unknown."""
    return [
        {"interface": rail["interface"], "peer": name, "address": address, "mac": rail["macs"].get(name, "")}
        for rail in rails
        for name, address in rail["peers"].items()
    ]


def verified(run: Run, rails: Sequence[Mapping[str, Any]], mtu: int) -> bool:
    """Return whether every path carries a packet of ``mtu`` bytes at once."""
    return not _failed(run, targets(rails), mtu)


def _ping(run: Run, interface: str, address: str, size: int) -> str:
    """Send one packet of exactly `size` bytes. Returns "" or the error."""
    status, stdout, stderr = run(
        ["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - _HEADERS), "-I", interface, address]
    )
    if status == 0:
        return ""
    reported = [line for line in (stderr or stdout).splitlines() if line.strip() and "statistics" not in line]
    return reported[-1].strip() if reported else f"ping failed with status {status}"


def round_trip(run: Run, target: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Return the entry of `rtts` of one path."""
    interface, address = target["interface"], target["address"]
    _status, said, _error = run(["ping", "-nq", "-c", str(samples), "-i", "0.2", "-W", "1", "-I", interface, address])
    return {"interface": interface, "peer": target["peer"], **fabric_parse.round_trip(said)}


def _answered(run: Run) -> dict[tuple[str, str], str]:
    """Return the link-layer address of each neighbor that replied, by interface and address."""
    status, stdout, _stderr = run(["ip", "-json", "neighbour", "show"])
    entries = json.loads(stdout or "[]") if status == 0 else []
    return {(entry["dev"], entry["dst"]): entry["lladdr"] for entry in entries if "lladdr" in entry}


def _misdirected(run: Run, target: Mapping[str, Any], answered: Mapping[tuple[str, str], str]) -> str:
    """Return a sentence if another device than the rail's replied, and delete that reply, which may be old."""
    interface, address, mac = target["interface"], target["address"], target["mac"]
    other = answered.get((interface, address), mac)
    if not mac or other == mac:
        return ""
    run(["ip", "neighbour", "delete", address, "dev", interface])
    return f"{other} replied instead of {mac}, the device with the address"


def _failed(run: Run, targets: Sequence[Mapping[str, Any]], mtu: int) -> list[dict[str, Any]]:
    """Try each path once. Returns the known part of the entries of `unverified`."""
    pings = [_ping(run, target["interface"], target["address"], mtu) for target in targets]
    answered = _answered(run)
    failed = []
    for target, lost in zip(targets, pings, strict=True):
        misdirected = "" if lost else _misdirected(run, target, answered)
        if lost or misdirected:
            failed.append({**target, "reported": lost or misdirected, "small": None if lost else False})
    return failed


def unverified_paths(run: Run, targets: Sequence[dict[str, Any]], mtu: int, timeout: int) -> list[dict[str, Any]]:
    """Try the paths until all are verified or the timeout ends. Returns the entries of `unverified`."""
    deadline = time.monotonic() + timeout
    unverified = list(targets)
    while unverified:
        unverified = _failed(run, unverified, mtu)
        if time.monotonic() > deadline:
            break
        if unverified:
            time.sleep(0.5)
    for path in unverified:
        if path["small"] is None:
            path["small"] = not _ping(run, path["interface"], path["address"], _SMALL)
            too_large = f"small packets arrive, but not packets of {mtu} bytes"
            path["reported"] = too_large if path["small"] else f"no reply ({path['reported']})"
    return unverified

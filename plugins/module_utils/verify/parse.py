# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert files and output of a node's tools to facts of a verification. An unknown value is None."""

from __future__ import annotations

import base64
import csv
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: The compared distributions.
_PACKAGES = re.compile(
    r"vllm(_cpu)?|torch|ray|flashinfer\w*|nvidia_(nccl|cutlass)\w*|triton|transformers|xgrammar|compressed_tensors"
)
_SITE = re.compile(r"^\S+ \S+ \S+ \S+ \S+ +(/\S*?/(?:site|dist)-packages)/(?:vllm|torch)/", re.MULTILINE)
#: Without a folder above the package.
_SOURCE = re.compile(r"vllm/(?:[\w-]+/)*[\w-]+\.py")
_CUDA = re.compile(r"/libcuda\.so[\d.]*$")


def packages(names: Iterable[str]) -> dict[str, str]:
    """Return the releases of the compared distributions, from the names of *.dist-info folders."""
    found = (name.removesuffix(".dist-info").partition("-") for name in names if name.endswith(".dist-info"))
    return {name: release for name, _dash, release in sorted(found) if _PACKAGES.fullmatch(name)}


def site_packages(maps: str) -> str:
    """Return the package folder whose libraries a process has mapped, from its /proc/PID/maps; "" without one."""
    found = _SITE.search(maps)
    return found[1] if found else ""


def recorded_files(record: str) -> dict[str, str]:
    """Return {path relative to the package folder: SHA-256} of vLLM's Python files in a wheel's RECORD."""
    found = {}
    for row in csv.reader(record.splitlines()):
        if len(row) == 3 and _SOURCE.fullmatch(row[0]) and row[1].startswith("sha256="):
            found[row[0]] = base64.urlsafe_b64decode(row[1].removeprefix("sha256=") + "==").hex()
    return found


def planned_rails(document: Any) -> dict[str, dict[str, Any]]:
    """Return {interface: {addresses, mtu}} of the fabric's netplan file, whose scalars are strings."""
    network = document.get("network") if isinstance(document, Mapping) else None
    ethernets = network.get("ethernets") if isinstance(network, Mapping) else None
    rails = {}
    for name, body in (ethernets if isinstance(ethernets, Mapping) else {}).items():
        addresses = body.get("addresses") if isinstance(body, Mapping) else None
        if isinstance(addresses, list) and all(map(_is_address, addresses)):
            mtu = str(body.get("mtu", ""))
            rails[str(name)] = {"addresses": list(addresses), "mtu": int(mtu) if mtu.isdigit() else None}
    return rails


def _is_address(value: object) -> bool:
    try:
        return isinstance(value, str) and "/" in value and bool(ipaddress.IPv4Interface(value))
    except ValueError:
        return False


def removes_ipc(configuration: str) -> bool:
    """Return whether logind removes a user's shared memory at logout: RemoveIPC= of its files, by default true."""
    values = re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", configuration, re.MULTILINE)
    return not values or values[-1].lower() in ("yes", "true", "on", "1")


def cuda_libraries(maps: str) -> set[str]:
    """Return the paths of the libcuda in a /proc/PID/maps."""
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if len(line.split(None, 5)) == 6}
    return {path.removesuffix(" (deleted)") for path in paths if _CUDA.search(path.removesuffix(" (deleted)"))}


def containers(stdout: str) -> list[dict[str, str]]:
    """Convert the lines NAME, image and image ID, separated by tabs, of an engine's inspect."""
    rows = (line.split("\t") for line in stdout.splitlines())
    return [{"name": row[0].lstrip("/"), "image": row[1], "id": row[2]} for row in rows if len(row) == 3]

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the output of a node's tools to plain data. An unknown value is None, with a reason next to it."""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.systemd import INPUTS_VARIABLE
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

GPU_FIELDS = ("name", "compute_cap", "driver_version", "memory.total", "uuid")
SERVICE_PROPERTIES = (
    "LoadState",
    "UnitFileState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "NRestarts",
    "InvocationID",
    "Job",
    "ExecMainStatus",
    "Environment",
    "ExecStopPost",
    "ExecMainStartTimestampMonotonic",
)
_LISTEN = "0A"
#: nvidia-smi's output for a value that the GPU does not have, unlike a value that it could not read.
_NOT_APPLICABLE = ("[N/A]", "N/A", "[Not Supported]")


def gpu_facts(query: tuple[int, str, str], summary: str, meminfo: str) -> dict[str, Any]:
    """Convert the output of nvidia-smi and /proc/meminfo to facts.

    `query` is (status, stdout, stderr) of the query for GPU_FIELDS, `summary` the output without options.
    Returns {gpus: [{name, capability, sm, memory_bytes, reasons}], driver_version, cuda_version, memory_bytes, unified_memory, reason}.
    `memory_bytes` at the top is the host's MemTotal. A GPU without memory in nvidia-smi, such as GB10, shares it.
    """
    total = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    facts: dict[str, Any] = {
        "gpus": [],
        "driver_version": None,
        "cuda_version": None,
        "memory_bytes": int(total[1]) * 1024 if total else None,
        "unified_memory": None,
        "reason": "",
    }
    status, stdout, stderr = query
    if status != 0:
        reported = " ".join((stderr or stdout).split())
        return {**facts, "reason": "nvidia-smi is not installed" if status == 127 else f"nvidia-smi failed with status {status}: {reported}"}
    rows = [[cell.strip() for cell in row] for row in csv.reader(stdout.splitlines()) if row]
    if not rows:
        return {**facts, "reason": "nvidia-smi lists no GPU"}
    if any(len(row) != len(GPU_FIELDS) for row in rows):
        return {**facts, "reason": f"nvidia-smi printed {' '.join(stdout.split())!r} instead of {', '.join(GPU_FIELDS)}"}
    gpus = [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows]
    facts["gpus"] = [_gpu(gpu) for gpu in gpus]
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", summary)
    facts["driver_version"] = gpus[0]["driver_version"]
    facts["cuda_version"] = cuda[1] if cuda else None
    memory = [gpu["memory.total"] for gpu in gpus]
    if all(text.isdigit() or text in _NOT_APPLICABLE for text in memory):
        facts["unified_memory"] = not any(text.isdigit() for text in memory)
    return {**facts, "reason": "" if cuda else "nvidia-smi prints no CUDA version"}


def available_memory(meminfo: str) -> int:
    """Return MemAvailable of /proc/meminfo in bytes. Raises ValueError if it is missing."""
    return _memory(meminfo, "MemAvailable")


def total_memory(meminfo: str) -> int:
    """Return MemTotal of /proc/meminfo in bytes. Raises ValueError if it is missing."""
    return _memory(meminfo, "MemTotal")


def _memory(meminfo: str, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", meminfo, re.MULTILINE)
    if found is None:
        raise ValueError(f"/proc/meminfo has no {key}")
    return int(found[1]) * 1024


def cma_facts(meminfo: str) -> dict[str, int | None]:
    """Return {cma_total_bytes, cma_free_bytes} of /proc/meminfo, None where the kernel has no CMA.

    CmaFree above CmaTotal identifies a kernel that cannot register RDMA memory (NVIDIA's 7.0.0-1019, NV-Kernels #590).
    """
    found = {name: re.search(rf"^{key}:\s+(\d+) kB", meminfo, re.MULTILINE) for name, key in (("total", "CmaTotal"), ("free", "CmaFree"))}
    return {f"cma_{name}_bytes": int(match[1]) * 1024 if match else None for name, match in found.items()}


def _gpu(row: Mapping[str, str]) -> dict[str, Any]:
    reasons = {}
    try:
        capability: ComputeCapability | None = ComputeCapability.parse(row["compute_cap"], "compute_cap")
    except ProblemsError as error:
        capability, reasons["capability"] = None, str(error.problems[0])
    memory = row["memory.total"]
    if not memory.isdigit():
        shared = ": the GPU shares the host's memory" if memory in _NOT_APPLICABLE else ""
        reasons["memory_bytes"] = f"nvidia-smi reports {memory or 'nothing'}{shared}"
    return {
        "name": row["name"],
        "uuid": row["uuid"],
        "capability": str(capability) if capability else None,
        "sm": capability.sm if capability else None,
        "memory_bytes": int(memory) * 2**20 if memory.isdigit() else None,
        "reasons": reasons,
    }


def interface_facts(links: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Convert `ip -json address show` to name -> {mtu, mac, up, carrier, addresses, link_local}.

    `addresses` are IPv4 with prefix length, `link_local` is the first IPv6 address of that scope, "" if there is none.
    """
    return {
        link["ifname"]: {
            "mtu": link["mtu"],
            "mac": link.get("address"),
            "up": "UP" in link["flags"],
            "carrier": "LOWER_UP" in link["flags"],
            "addresses": [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["family"] == "inet"],
            "link_local": next((entry["local"] for entry in link["addr_info"] if (entry["family"], entry.get("scope")) == ("inet6", "link")), ""),
        }
        for link in links
        if "ifname" in link
    }


def listening_sockets(table: str) -> list[dict[str, Any]]:
    """Convert /proc/net/tcp or tcp6 to [{address, port, inode}] of listening sockets. Source: proc_net_tcp(5)."""
    sockets = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, port = fields[1].split(":")
            sockets.append({"address": _hex_address(address), "port": int(port, 16), "inode": int(fields[9])})
    return sockets


def _hex_address(text: str) -> str:
    # The kernel prints 32-bit words in host order; all supported hosts are little-endian.
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def unit_of_cgroup(text: str) -> str:
    """Return the systemd service in a /proc/PID/cgroup, or "". A gb10 slice counts as its container's service."""
    units = re.findall(r"/([^/\n]+\.service)(?=/|$)", text, re.MULTILINE)
    slices = re.findall(r"/(gb10-[^/\n]+)\.slice/", text)
    return str(units[-1]) if units else f"{slices[-1]}.service" if slices else ""


def service_facts(unit: str, shown: str) -> dict[str, Any]:
    """Convert `systemctl show` of SERVICE_PROPERTIES to the facts of one service; times are seconds since boot."""
    shown_properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {
        "unit": unit,
        "load": shown_properties["LoadState"],
        "enabled": shown_properties["UnitFileState"] == "enabled",
        "active": shown_properties["ActiveState"],
        "sub": shown_properties["SubState"],
        "result": shown_properties["Result"],
        "pid": int(shown_properties["MainPID"]) or None,
        "restarts": int(shown_properties["NRestarts"]),
        "status": int(shown_properties["ExecMainStatus"]),
        "invocation": shown_properties["InvocationID"],
        "queued": shown_properties.get("Job", "0") not in ("", "0"),
        "started": int(shown_properties["ExecMainStartTimestampMonotonic"]) / 1e6,
        "container": " rm --force " in shown_properties.get("ExecStopPost", ""),
        "loaded_inputs": inputs_of_environment(shown_properties["Environment"].replace(" ", "\0")),
    }


def inputs_of_environment(environ: str) -> str:
    """Return the digest of inputs in a /proc/PID/environ, or ""."""
    for entry in environ.split("\0"):
        name, _equals, value = entry.partition("=")
        if name == INPUTS_VARIABLE:
            return value
    return ""

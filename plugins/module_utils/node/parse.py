# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the output of a node's tools to plain data. An unknown value is None, with a reason next to it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
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
    "ActiveExitTimestampMonotonic",
)
#: Fields of nvidia-smi about the present state, and their names in the facts.
GPU_STATE: Mapping[str, str] = {
    "clock_mhz": "clocks.sm",
    "max_clock_mhz": "clocks.max.sm",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
    "utilization": "utilization.gpu",
    "slowed": "clocks_event_reasons.active",
}
POWER_CAP = "power cap"
#: Bits of that last field that slow a GPU down, in words. An idle GPU and a limit of the clock do not count here.
#: Source: NVML, nvmlClocksEventReasons.
_SLOWED: Mapping[int, str] = {
    0x04: POWER_CAP,
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
_LIMIT = re.compile(r"--lock-gpu-clocks=0,(\d{1,5})$", re.MULTILINE)
#: Names of the processes with a share of the model (the kernel keeps 15 characters), most reliable first.
RANKS = ("VLLM::Worker", "ray::RayWorkerP", "VLLM::EngineCor")
#: A container of root's engine, and services that start processes of users.
_CONTAINER = re.compile(r"^\d+:[^:\n]*:/(?!user\.slice/)[^\n]*(?:docker|libpod|containerd)", re.MULTILINE)
_OF_USER = re.compile(r"user@|cron|atd\.")
#: nvidia-smi's output for a value that the GPU does not have, unlike a value that it could not read.
_NOT_APPLICABLE = ("[N/A]", "N/A", "[Not Supported]")


def gpu_facts(query: tuple[int, str, str], summary: str, meminfo: str) -> dict[str, Any]:
    """Convert the output of nvidia-smi and /proc/meminfo to facts.

    `query` is (status, stdout, stderr) of the query for GPU_FIELDS, `summary` the output without options.
    Returns {gpus: [{name, capability, sm, memory_bytes, reasons}], driver_version, cuda_version, memory_bytes,
    unified_memory, reason}. `memory_bytes` at the top is the host's MemTotal. A GPU without memory in nvidia-smi, such
    as GB10, shares it.
    """
    rows, reason = _gpu_rows(query)
    # Since driver 610, "CUDA UMD Version" (of the driver's part in user mode).
    cuda = re.search(r"CUDA (?:UMD )?Version:\s*(\d{1,4}\.\d{1,4})", summary) if rows else None
    if rows and cuda is None:
        reason = "nvidia-smi prints no CUDA version"
    return {
        "gpus": [_gpu(row) for row in rows],
        "driver_version": rows[0]["driver_version"] if rows else None,
        "cuda_version": cuda[1] if cuda else None,
        "memory_bytes": _bytes(meminfo, "MemTotal"),
        "unified_memory": _is_unified([row["memory.total"] for row in rows]),
        "reason": reason,
    }


def gpu_state(stdout: str, unit: str) -> dict[str, Any]:
    """Convert nvidia-smi's line of the GPU_STATE fields of the first GPU, and the text of the unit that limits it.

    Returns the fields as numbers, None if unknown; ``slowed``, the reasons as words; and ``limit_mhz``, None without a
    limit by the role host_guard.
    """
    cells = next(csv.reader(stdout.splitlines()), [])
    if len(cells) != len(GPU_STATE):
        cells = [""] * len(GPU_STATE)
    values = [float(cell) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", cell) else None for cell in cells]
    mask = re.fullmatch(r"\s*0x([0-9a-fA-F]{1,16})\s*", cells[-1])
    bits = int(mask[1], 16) if mask else 0
    limit = _LIMIT.search(unit)
    return {
        **dict(zip(GPU_STATE, values, strict=True)),
        "slowed": [text for bit, text in _SLOWED.items() if bits & bit],
        "limit_mhz": int(limit[1]) if limit else None,
    }


def _gpu_rows(query: tuple[int, str, str]) -> tuple[list[dict[str, str]], str]:
    """Return GPU_FIELDS of each GPU, or the reason if nvidia-smi printed none."""
    status, stdout, stderr = query
    if status == 127:
        return [], "nvidia-smi is not installed"
    if status != 0:
        return [], f"nvidia-smi failed with status {status}: {' '.join((stderr or stdout).split())}"
    rows = [[cell.strip() for cell in row] for row in csv.reader(stdout.splitlines()) if row]
    if not rows:
        return [], "nvidia-smi lists no GPU"
    if any(len(row) != len(GPU_FIELDS) for row in rows):
        return [], f"nvidia-smi printed {' '.join(stdout.split())!r} instead of {', '.join(GPU_FIELDS)}"
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows], ""


def _is_unified(memory: Sequence[str]) -> bool | None:
    """Return whether the GPUs share the host's memory, None if unknown. ``memory`` is nvidia-smi's memory.total."""
    if not memory or not all(text.isdigit() or text in _NOT_APPLICABLE for text in memory):
        return None
    return not any(text.isdigit() for text in memory)


def available_memory(meminfo: str) -> int:
    """Return MemAvailable of /proc/meminfo in bytes. Raises ValueError if it is missing."""
    return _memory(meminfo, "MemAvailable")


def total_memory(meminfo: str) -> int:
    """Return MemTotal of /proc/meminfo in bytes. Raises ValueError if it is missing."""
    return _memory(meminfo, "MemTotal")


def _memory(meminfo: str, key: str) -> int:
    found = _bytes(meminfo, key)
    if found is None:
        raise ValueError(f"/proc/meminfo has no {key}")
    return found


def _bytes(meminfo: str, key: str) -> int | None:
    """Return a value of /proc/meminfo, None if it is missing."""
    found = re.search(rf"^{key}:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def cma_facts(meminfo: str) -> dict[str, int | None]:
    """Return {cma_total_bytes, cma_free_bytes} of /proc/meminfo, None where the kernel has no CMA.

    CmaFree above CmaTotal identifies a kernel that cannot register RDMA memory (NVIDIA's 7.0.0-1019, NV-Kernels #590).
    """
    return {"cma_total_bytes": _bytes(meminfo, "CmaTotal"), "cma_free_bytes": _bytes(meminfo, "CmaFree")}


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
            "addresses": [
                f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["family"] == "inet"
            ],
            "link_local": next(
                (
                    entry["local"]
                    for entry in link["addr_info"]
                    if (entry["family"], entry.get("scope")) == ("inet6", "link")
                ),
                "",
            ),
        }
        for link in links
        if "ifname" in link
    }


def is_rank(name: str, cgroup: str, ours: bool = True) -> bool:
    """Return whether a process is a rank, by its name and /proc/PID/cgroup. A process chooses its name.

    ``ours``: whether the node has this collection's services, whose processes alone are ranks there. Elsewhere root
    must have started the rank, in a container or a service: a user's process could make root read other files.
    """
    unit = systemd.unit_of_cgroup(cgroup)
    started = unit in paths.UNITS if ours else bool(_CONTAINER.search(cgroup) or (unit and not _OF_USER.match(unit)))
    return started and name.startswith(RANKS)


def service_facts(unit: str, shown: str) -> dict[str, Any]:
    """Convert `systemctl show` of SERVICE_PROPERTIES to the facts of one service; times are seconds since boot.

    A timer has no properties of a process.
    """
    shown_properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {
        "unit": unit,
        "load": shown_properties["LoadState"],
        "enabled": shown_properties["UnitFileState"] == "enabled",
        "active": shown_properties["ActiveState"],
        "sub": shown_properties["SubState"],
        "result": shown_properties["Result"],
        "pid": int(shown_properties.get("MainPID", 0)) or None,
        "restarts": int(shown_properties.get("NRestarts", 0)),
        "status": int(shown_properties.get("ExecMainStatus", 0)),
        "invocation": shown_properties["InvocationID"],
        "queued": shown_properties.get("Job", "0") not in ("", "0"),
        "started": int(shown_properties.get("ExecMainStartTimestampMonotonic", 0)) / 1e6,
        "stopped": int(shown_properties.get("ActiveExitTimestampMonotonic") or 0) / 1e6,
        "container": " rm --force " in shown_properties.get("ExecStopPost", ""),
        "loaded_inputs": inputs_of_environment(shown_properties.get("Environment", "").replace(" ", "\0")),
    }


def inputs_of_environment(environ: str) -> str:
    """Return the digest of inputs in a /proc/PID/environ, or ""."""
    for entry in environ.split("\0"):
        name, _equals, value = entry.partition("=")
        if name == systemd.INPUTS_VARIABLE:
            return value
    return ""

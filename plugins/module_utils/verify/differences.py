# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Differences between nodes: one table of all compared attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Found
from ansible_collections.gb10.cluster.plugins.module_utils.common.systemd import digest
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Firmware, Package
from ansible_collections.gb10.cluster.plugins.module_utils.rules import network as rules_network
from ansible_collections.gb10.cluster.plugins.module_utils.verify.environment import DIGEST
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import Cluster, VerifiedNode

_SHORT = 12
_NONE = "none"


@dataclass(frozen=True)
class Row:
    """One attribute with its value on each node that has one. ``check`` is the ID of the check that compares it.

    ``alike``: whether only nodes with the same GPU and product are compared.
    """

    check: str
    attribute: str
    values: Mapping[str, str]
    alike: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the row as plain data, as in a JSON line."""
        return {"kind": "difference", "id": self.check, "attribute": self.attribute, "values": dict(self.values)}


def rows(cluster: Cluster) -> list[Row]:
    """Return the attributes whose values differ."""
    kinds = {node.name: node.kind for node in cluster.read}
    return [row for row in _rows(cluster.read) if _differs(row, kinds)]


def found(check: str, cluster: Cluster) -> list[Found]:
    """Return the differing attributes of a check as findings of the cluster."""
    return [("", _described(row)) for row in rows(cluster) if row.check == check]


def _differs(row: Row, kinds: Mapping[str, tuple[str, str]]) -> bool:
    seen: dict[tuple[str, str], set[str]] = {}
    for name, value in row.values.items():
        seen.setdefault(kinds[name] if row.alike else ("", ""), set()).add(value)
    return any(len(values) > 1 for values in seen.values())


def _described(row: Row) -> str:
    nodes: dict[str, list[str]] = {}
    for name, value in row.values.items():
        nodes.setdefault(value, []).append(name)
    return f"{row.attribute}: " + "; ".join(f"{value} on {', '.join(names)}" for value, names in nodes.items())


def _rows(nodes: Sequence[VerifiedNode]) -> Iterator[Row]:
    yield Row(
        "driver-differs", "driver", _values(nodes, lambda node: node.part("gpu").get("driver_version")), alike=True
    )
    yield Row("kernel-differs", "kernel", _values(nodes, lambda node: node.facts.get("kernel")), alike=True)
    yield Row(
        "kernel-differs",
        "kernel of the next boot",
        _values(nodes, lambda node: node.part("boot").get("kernel")),
        alike=True,
    )
    yield Row("os-level-differs", "DGX OS", _values(nodes, _system), alike=True)
    yield Row(
        "os-level-differs",
        "pending updates",
        {node.name: _pending(node) or _NONE for node in nodes if node.part("updates").get("packages") is not None},
        alike=True,
    )
    yield Row("bios-differs", "BIOS", _values(nodes, lambda node: node.facts.get("bios")), alike=True)
    yield from _each(
        "firmware-differs", "firmware of {}", {node.name: node.part("firmware") for node in nodes}, alike=True
    )
    mtus = {
        node.name: {
            rail: str(node.network.interfaces[rail].mtu) for rail in node.rails if rail in node.network.interfaces
        }
        for node in nodes
    }
    yield from _each("mtu-differs", "MTU of {}", mtus)
    packages = {node.name: node.part("packages") for node in nodes if node.part("packages")}
    yield from _each("packages-differ", "{}", packages, missing=_NONE)
    yield Row("patches-differ", "patched files of vLLM", _values(nodes, _patched))
    yield Row("image-differs", "images of the containers", _values(nodes, _images))
    yield Row("nccl-differs", "NCCL of the ranks", _values(nodes, nccl))
    yield Row(
        "libcuda-differs",
        "libcuda of the ranks",
        _values(nodes, lambda node: ", ".join(node.facts.get("cuda_libraries") or ())),
        alike=True,
    )
    yield from _environments(nodes)


def _system(node: VerifiedNode) -> str:
    level = node.part("updates").get("level") or {}
    return " ".join(filter(None, (level.get("stamp"), level.get("installed"))))


def pending_lines(cluster: Cluster) -> list[str]:
    """Return the pending updates of kernel, driver and firmware, equal ones together."""
    nodes: dict[str, list[str]] = {}
    for node in cluster.read:
        nodes.setdefault(_pending(node), []).append(node.name)
    return [f"pending on {', '.join(names)}: {text} (docs/updates.md)" for text, names in nodes.items() if text]


def _pending(node: VerifiedNode) -> str:
    """Return the pending updates of kernel, driver and firmware, "" without one."""
    found = node.part("updates")
    packages = [Package(**each) for each in found.get("packages") or ()]
    return "; ".join(os_update_plan.pending(packages, [Firmware(**each) for each in found.get("firmware") or ()]))


def _values(nodes: Sequence[VerifiedNode], value: Any) -> dict[str, str]:
    """Return the values of the nodes that have one."""
    return {node.name: text for node in nodes if (text := value(node))}


def _each(
    check: str, attribute: str, values: Mapping[str, Mapping[str, str]], alike: bool = False, missing: str = ""
) -> Iterator[Row]:
    """Yield a row for each key of the nodes. ``missing``: the value of a node without one, "" to leave it out."""
    for key in sorted({key for each in values.values() for key in each}):
        found = {name: each.get(key) or missing for name, each in values.items()}
        yield Row(check, attribute.format(key), {name: value for name, value in found.items() if value}, alike)


def _patched(node: VerifiedNode) -> str:
    files = node.facts.get("files")
    if files is None:
        return ""
    return f"{len(files['patched'])} files, digest {digest(files['patched'])[:_SHORT]}" if files["patched"] else _NONE


def _images(node: VerifiedNode) -> str:
    return ", ".join(
        sorted({container["id"].removeprefix("sha256:")[:_SHORT] for container in node.facts.get("images") or ()})
    )


def nccl(node: VerifiedNode) -> str:
    """Return the path and digest of the libraries that the ranks of a node use; "" without a rank."""
    processes = [process for process in node.facts.get("nccl") or () if not process["unreadable"]]
    used = {
        f"{library['path']} ({(library['sha256'] or 'unknown')[:_SHORT]})"
        for process in processes
        for library in used_libraries(process)
    }
    return ", ".join(sorted(used)) or (_NONE if processes else "")


def used_libraries(process: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the library that a rank uses, or all mapped ones if that is unknown."""
    libraries: Sequence[Mapping[str, Any]] = process["libraries"]
    return [library for library in libraries if library["path"] == process["used"]] or list(libraries)


def _environments(nodes: Sequence[VerifiedNode]) -> Iterator[Row]:
    """Yield a row for each variable of each source. Between different GPUs, only the common variables are compared."""
    sources = sorted({source for node in nodes for source in node.part("environments")})
    for source in sources:
        known = {node.name: node.part("environments")[source] for node in nodes if source in node.part("environments")}
        for variable in sorted({name for each in known.values() for name in each} - rules_network.OWN):
            values = {name: each.get(variable, "unset") for name, each in known.items()}
            alike = not variable.startswith(rules_network.COMMON)
            yield Row("environment-differs", f"{variable} of {source}", _hidden(values), alike)


def _hidden(values: Mapping[str, str]) -> dict[str, str]:
    """Replace digests by numbers, which show only whether two values are equal."""
    digests = list(dict.fromkeys(value for value in values.values() if value.startswith(DIGEST)))
    return {
        name: f"hidden value {digests.index(value) + 1}" if value in digests else value
        for name, value in values.items()
    }

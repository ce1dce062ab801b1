# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node's network hardware and the owners of its interfaces. Runs `ip` once, else reads files. Read-only."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import owners
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import parse as fabric_parse
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse


def read(run: Run, root: str = "/") -> dict[str, Any]:
    """Return {interfaces, rdma, netplan, unreadable}, as fabric_info documents them.

    A `root` other than "/" holds a recorded machine, with the output of `ip -json address show` in its ip-address.json.
    Raises ValueError or OSError if the interfaces cannot be read, ImportError if there is a netplan file but no
    python3-yaml.
    """
    if root == "/":
        links = node_io_facts.links(run)
    else:
        links = json.loads(Path(root, "ip-address.json").read_text(encoding="utf-8"))
    adapters = rdma(root)
    hcas = {facts["interface"]: hca for hca, facts in adapters.items()}
    interfaces = {
        name: {**facts, **_hardware(root, name), "hca": hcas.get(name, "")}
        for name, facts in node_parse.interface_facts(links).items()
    }
    macs = {link["ifname"]: link.get("permaddr") or link.get("address") or "" for link in links if "ifname" in link}
    devices = [
        owners.Device(
            name,
            macs[name],
            facts["driver"],
            fabric_parse.device_type(io_file.read(os.path.join(root, "sys/class/net", name, "uevent"))),
            facts["kind"] == "physical",
        )
        for name, facts in interfaces.items()
    ]
    unreadable: list[dict[str, str]] = []
    netplan = owners.netplan_files(_listings(root, owners.NETPLAN_FOLDERS, unreadable))
    keyfiles = owners.network_manager_files(_listings(root, owners.NETWORK_MANAGER_FOLDERS, unreadable))
    definitions = [found for some in _each(root, netplan, _definitions, unreadable) for found in some]
    owned = owners.owners(devices, definitions, _each(root, keyfiles, owners.profile, unreadable))
    for name, facts in interfaces.items():
        facts["owners"] = owned[name]
    return {"interfaces": interfaces, "rdma": adapters, "netplan": netplan, "unreadable": unreadable}


def _hardware(root: str, name: str) -> dict[str, Any]:
    folder = os.path.join(root, "sys/class/net", name)
    device = os.path.join(folder, "device")
    driver = os.path.join(device, "driver")
    address = os.path.basename(os.path.realpath(device))
    return {
        "driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else "",
        "speed": fabric_parse.speed(io_file.read(os.path.join(folder, "speed"))),
        "kind": "physical" if os.path.exists(device) else "virtual",
        "pci": fabric_parse.pci_facts(
            address, {file: io_file.read(os.path.join(device, file)) for file in fabric_parse.PCI_FILES}
        ),
    }


def rdma(root: str = "/") -> dict[str, dict[str, Any]]:
    """Return the RDMA devices by name, as fabric_info documents them."""
    folder = os.path.join(root, "sys/class/infiniband")
    return {hca: _port(os.path.join(folder, hca), os.path.join(folder, hca, "ports/1")) for hca in _names(folder)}


def _port(device: str, port: str) -> dict[str, Any]:
    gids = []
    for index in sorted(int(name) for name in _names(os.path.join(port, "gids"))):
        gid = io_file.read(os.path.join(port, "gids", str(index)))
        # The attributes of a free slot cannot be read (EINVAL).
        if fabric_parse.is_gid(gid):
            attributes = [
                io_file.read(os.path.join(port, "gid_attrs", name, str(index))) for name in ("types", "ndevs")
            ]
            gids.append(fabric_parse.gid_facts(index, gid, *attributes))
    # Soft RoCE (rdma_rxe) has no hardware below it, and names its interface in this file.
    parent = io_file.read(os.path.join(device, "parent")).strip()
    return {
        "interface": next(iter(_names(os.path.join(device, "device/net"))), parent),
        "state": fabric_parse.port_state(io_file.read(os.path.join(port, "state"))),
        "link_layer": io_file.read(os.path.join(port, "link_layer")).strip(),
        "gids": gids,
    }


def _names(folder: str) -> list[str]:
    return sorted(map(os.path.basename, glob.glob(os.path.join(glob.escape(folder), "*"))))


def _listings(root: str, folders: Iterable[str], unreadable: list[dict[str, str]]) -> dict[str, list[str]]:
    found = {}
    for folder in folders:
        try:
            found[folder] = os.listdir(os.path.join(root, folder.lstrip("/")))
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable.append({"file": folder, "reason": str(error.strerror)})
    return found


def _each(
    root: str, files: Sequence[str], parse: Callable[[str, str], Any], unreadable: list[dict[str, str]]
) -> list[Any]:
    """Return the parsed files. Files that cannot be read or parsed go to `unreadable`, with a reason without quotes."""
    parsed = []
    for file in files:
        try:
            parsed.append(parse(file, Path(root, file.lstrip("/")).read_text(encoding="utf-8")))
        except OSError as error:
            unreadable.append({"file": file, "reason": str(error.strerror)})
        except UnicodeDecodeError:
            unreadable.append({"file": file, "reason": "it is not UTF-8"})
        except ValueError as error:
            unreadable.append({"file": file, "reason": str(error)})
    return parsed


def _definitions(file: str, text: str) -> list[owners.Definition]:
    import yaml  # noqa: PLC0415  # Needed only with netplan; netplan.io depends on it.

    try:
        # Like netplan: all scalars are strings (YAML can take a MAC address for a number), and only the first document
        # counts.
        document = next(yaml.load_all(text, Loader=yaml.BaseLoader), None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # Drop the parser's message, because it may quote the file.
        raise ValueError(f"it is not YAML{f', line {mark.line + 1}' if mark else ''}") from error
    return owners.definitions(file, document)

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait until a node of Kubernetes can run its rank. An init container of each pod runs this file.

It waits and does not fail, because a failed init container would recreate all pods of the group again and again.
The export puts it into a ConfigMap, next to a JSON file for each node. GB10_NODE is the pod's node.
"""

from __future__ import annotations

import glob
import json
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

#: Seconds between two looks.
_PAUSE = 5
_GIB = 1024**3


def closed(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reason of each closed gate."""
    if given["rdma"]:
        yield from _locked_memory()
        yield from _devices()
    config = f"{given['model']}/config.json"
    if given["model"] and not os.access(config, os.R_OK):
        yield f"{config} is not readable. Expected: the model on this node. Fix: run site.yml --tags model_store."
    home, user = given["home"], os.getuid()
    if not os.access(home, os.W_OK):
        fix = "run site.yml, which creates it, and then export.yml again"
        yield f"{home} is not writable for user {user}. Expected: the folder of this user. Fix: {fix}."
    address = given["address"]
    if not _local(address):
        fix = "run site.yml --tags qsfp_netplan"
        yield f"no interface has {address}. Expected: the address of the plan. Fix: {fix}."
    available, needed = f"{_available() / _GIB:.1f}", f"{given['memory'] / _GIB:.1f}"
    if float(available) < float(needed):
        fix = "end other programs; playbooks/stop.yml stops the services of this collection"
        yield f"{available} GiB of memory are available. Expected: {needed} GiB for the model. Fix: {fix}."


def _locked_memory() -> Iterator[str]:
    limit, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY:
        expected = "no limit, else NCCL uses TCP without an error"
        fix = "set LimitMEMLOCK=infinity in the unit of containerd or k3s on this node, and restart it"
        yield f"at most {limit} bytes of memory can be locked. Expected: {expected}. Fix: {fix}."


def _devices() -> Iterator[str]:
    """Open each RDMA device: a mount alone does not let a container open it."""
    fix = "use NVIDIA's container runtime (export_runtime_class), or a device plugin (export_rdma_resource)"
    paths = sorted(glob.glob("/dev/infiniband/uverbs*"))
    if not paths:
        yield f"there is no /dev/infiniband/uverbs* in the pod. Expected: the RDMA devices of the node. Fix: {fix}."
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            yield f"{path} cannot be opened: {error.strerror}. Expected: access without privileges. Fix: {fix}."


def _local(address: str) -> bool:
    """Return whether the node has an address: only then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _available() -> int:
    """Return the available bytes of the node: a pod sees the node's figures."""
    with open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Report closed gates until all are open."""
    path = os.path.join(os.path.dirname(__file__), f"{os.environ['GB10_NODE']}.json")
    with open(path, encoding="utf-8") as file:
        given = json.load(file)["gates"]
    before: list[str] = []
    while reasons := list(closed(given)):
        if reasons != before:
            _write("\n  ".join(["gb10-gates wait:", *reasons]))
        before = reasons
        time.sleep(_PAUSE)
    _write("gb10-gates are open")


if __name__ == "__main__":
    main()

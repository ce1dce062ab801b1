# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the words that this collection itself has in its messages, tables and tasks. They are public."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact

#: Words of tools that a report shows and no other text of this collection has: nvidia-smi, NetworkManager, networkd,
#: systemd, the kernel's version and options, firmware, and the processes and classes in vLLM's log.
TOOLS = """
fb bar1 conf compute protected reserved total used free clocks event reasons idle applications setting sw hw power cap
slowdown brake sync boost display graphics sm memory video max mem customer boost default auto violations samples
duration avg min module instantaneous average current requested limit enforced draw smoothing n/a active not enabled
disabled performance state thermal supported
ethernet 802-3-ethernet 802-11-wireless wifi bridge loopback tun vlan bond vpn wireguard activated activating
deactivating inactive yes no connection netplan
ether wlan carrier degraded routable no-carrier dormant off enslaved unmanaged configured configuring pending linger
deactivated consumed cpu time memory peak swap result exit-code exited invalidargument failure succeeded successfully
scheduled restart job counter timeout watchdog core-dump stopped started stopping starting
linux version gcc gnu ld binutils ubuntu smp preempt preempt_dynamic preempt_rt aarch64 lts desktop
sun mon tue wed thu fri sat jan feb mar apr may jun jul aug sep oct nov dec utc
ro quiet splash iommu iommu.passthrough iommu.strict init_on_alloc init_on_free hugepages hugepagesz
default_hugepagesz transparent_hugepage cma mitigations crashkernel numa_balancing console tty0 ttyama0 earlycon swiotlb
psi preempt isolcpus nohz nohz_full rcu_nocbs pci pcie_aspm pcie_bus_perf pcie_aspm.policy nvidia-drm.modeset
nvidia-drm.fbdev arm-smmu.disable_bypass arm64.nosve kho off on wired root boot_image uuid
nvidia_dgx_spark dgx_name dgx_pretty_name dgx_swbuild_date dgx_swbuild_version dgx_platform dgx_ota_version dgx_ota_date
expecting value property name enclosed double quotes delimiter line column char extra data
/opt/gb10/runtime/current/bin/ninja
/usr/bin/ninja /usr/bin/g++ /usr/bin/gcc /usr/bin/python3 /usr/sbin/netplan /usr/bin/nmcli /usr/sbin/nft /usr/bin/docker
/usr/bin/podman /usr/bin/nvidia-ctk /usr/bin/ib_write_bw /usr/bin/rdma /usr/local/bin /usr/local/cuda/bin/nvcc
dhcp timestamp daily activities autoconnect loaded dead apt apt-get dpkg unattended-upgr
/var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/apt/lists/lock /var/cache/apt/archives/lock
speculativeconfig speculative prefix stable libtorch vllm/_c_stable_libtorch vllm/_moe_c_stable_libtorch
"""

_COLLECTION = Path(__file__).parents[3]


@cache
def public() -> frozenset[str]:
    """Return the words for redact.redacted(). Works on the controller alone, which has all files. Takes about 1 s."""
    return frozenset(word for text in _texts() for word in redact.words(text))


def _texts() -> Iterator[str]:
    for path in _COLLECTION.glob("plugins/module_utils/*/*.py"):
        yield from _strings(path.read_text(encoding="utf-8"))
    yield from map(os.strerror, errno.errorcode)
    for folder in ("plugins/module_utils/*/*", "roles/*/defaults", "roles/*/meta", "roles/*/tasks", "playbooks"):
        for path in _COLLECTION.glob(f"{folder}/*.yml"):
            yield path.read_text(encoding="utf-8")


def _strings(source: str) -> Iterator[str]:
    """Yield the strings of a Python file without its docstrings, which have examples of names."""
    tree = ast.parse(source)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of updates of the operating system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The transient unit of a change of packages: it goes on when the connection or the run ends.
UNIT = "gb10-os-upgrade.service"
#: Kinds of packages whose change needs a reboot or a check of NVIDIA's modules; "" for all others.
KERNEL, DRIVER, FIRMWARE = "kernel", "driver", "firmware"
#: The kernel's options that rules know. Others may name a site.
KERNEL_OPTIONS = ("kho",)
#: The start of the packages whose versions are read and compared. An older nvidia-firmware stays until apt removes it.
COMPARED = ("linux-image-", "linux-modules-", "nvidia-driver-", "nvidia-kernel-")
#: Packages of the driver. Others of NVIDIA, such as nvidia-container-toolkit, need no reboot.
_OF_DRIVER = re.compile(
    r"linux-modules-nvidia-"
    r"|(?:lib)?nvidia-(?:driver|kernel|dkms|firmware|open|compute|utils|cfg1|common|decode|encode|extra|fbc1|gl)\b"
)


@dataclass(frozen=True)
class Level:
    """The level of DGX OS, each "" if unknown.

    ``stamp``: the newest DGX_OTA_VERSION, such as "7.5.0", else the factory's DGX_SWBUILD_VERSION. ``installed``,
    ``newest``: names of NVIDIA's OTA releases by their checker and its newest recipe, such as "OTA2.2". ``torn``:
    percentage of the installed release's parts that the node lacks, None if unknown. Source: nvidia-spark-ota-check
    1.0.16.
    """

    stamp: str = ""
    installed: str = ""
    newest: str = ""
    torn: float | None = None


@dataclass(frozen=True)
class Package:
    """A package that an upgrade changes. ``installed`` is "" for a new one, ``candidate`` is "" for a removed one."""

    name: str
    installed: str
    candidate: str

    @property
    def kind(self) -> str:
        """KERNEL, DRIVER, FIRMWARE or "". Source: names of DGX OS 7.5 and Ubuntu 24.04."""
        if _OF_DRIVER.match(self.name):
            return DRIVER
        if self.name.startswith(("linux-image", "linux-modules", "linux-headers", "linux-nvidia", "linux-generic")):
            return KERNEL
        return FIRMWARE if self.name.startswith(("linux-firmware", "fwupd")) else ""


@dataclass(frozen=True)
class Firmware:
    """A device whose firmware fwupd can update: its versions, the newest one of those that are offered."""

    device: str
    installed: str
    candidate: str


@dataclass(frozen=True)
class Kernel:
    """An installed kernel. ``missing``: the modules of this cluster that it has not, None if its list is unreadable."""

    release: str
    missing: Sequence[str] | None = ()


@dataclass(frozen=True)
class Entry:
    """A boot entry: its identifier for GRUB, with its menus, and its kernel."""

    name: str
    kernel: str


@dataclass(frozen=True)
class Boot:
    """The boot loader. ``default``: the kernel that starts without another choice, "" if unknown.

    ``once``: the kernel of the next boot alone, "" without one. ``forgets``: whether GRUB can remove that choice by
    itself; it cannot write to RAID and LVM. ``options``: the options of KERNEL_OPTIONS that all entries have, so that a
    new kernel gets them too.
    """

    entries: Sequence[Entry] = ()
    default: str = ""
    once: str = ""
    forgets: bool = False
    options: Sequence[str] = ()

    @property
    def next(self) -> str:
        """The kernel of the next boot."""
        return self.once or self.default


@dataclass(frozen=True)
class Trial:
    """An update under way: what io_boot wrote before the first package changed.

    ``former``: the kernel that stays the default until all checks passed. ``tried``: the kernel that was booted once.
    ``served``: whether the node's services were started at boot before the update.
    """

    former: str
    tried: str = ""
    served: bool = False


@dataclass(frozen=True)
class State:
    """The updates of a node. ``running``: its kernel. ``packages``: those that a full upgrade changes, None if unread.

    ``broken``: the packages that dpkg has not finished; ``held``: those that apt-mark holds. ``reboot``: the packages
    that wait for a reboot, also a driver of another version than the loaded one, None without a pending reboot.
    ``updaters``: the sources of automatic updates. ``holder``: the process with dpkg's lock. ``versions``: the
    installed packages of kernel and driver. ``options``: those of KERNEL_OPTIONS on its command line. ``serves``:
    whether its services start at boot. ``firmware``: what fwupd offers, () without it, None if it failed.
    ``with_firmware``: whether the update installs that, too. ``wanted``: the options of the kernel's command line that
    the update adds.
    """

    running: str
    level: Level = Level()
    packages: Sequence[Package] | None = None
    broken: Sequence[str] = ()
    held: Sequence[str] = ()
    kernels: Sequence[Kernel] = ()
    boot: Boot = Boot()
    reboot: Sequence[str] | None = None
    updaters: Sequence[str] = ()
    holder: str = ""
    trial: Trial | None = None
    serves: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    firmware: Sequence[Firmware] | None = ()
    with_firmware: bool = False
    options: Sequence[str] = ()
    wanted: Sequence[str] = ()

    @property
    def former(self) -> str:
        """The kernel that an update keeps as the default."""
        return self.trial.former if self.trial else self.running

    @property
    def newest(self) -> str:
        """The newest kernel, which an update boots."""
        return self.kernels[0].release if self.kernels else self.running

    @property
    def waits(self) -> bool:
        """Whether the node needs a boot, also of the running kernel."""
        return self.reboot is not None or bool(self.pending_options)

    @property
    def next_options(self) -> Sequence[str]:
        """The options of the kernel's command line at the next boot of the update."""
        return (*self.boot.options, *(option for option in self.wanted if option not in self.boot.options))

    @property
    def pending_options(self) -> Sequence[str]:
        """The options of that boot that the running kernel lacks."""
        return [option for option in self.next_options if option not in self.options]

    @property
    def changes(self) -> bool:
        """Whether an update has something to install, or to wait for: the upgrade of a killed run."""
        return bool(self.packages or self.broken or self.upgrading or (self.with_firmware and self.firmware))

    @property
    def upgrading(self) -> bool:
        """Whether the update itself holds dpkg's lock: the next step waits for it."""
        return self.holder.endswith(f", {UNIT})")

    @property
    def next_kernel(self) -> Kernel | None:
        """The kernel of the next boot: the boot loader's, else the newest; None without one."""
        return self.kernel(self.boot.next) or (self.kernels[0] if self.kernels else None)

    @property
    def lacking(self) -> Sequence[str]:
        """The modules that the kernel of the next boot has not."""
        return (self.next_kernel and self.next_kernel.missing) or ()

    def kernel(self, release: str) -> Kernel | None:
        """Return an installed kernel, None for another one."""
        return next((each for each in self.kernels if each.release == release), None)

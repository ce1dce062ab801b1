# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node's updates. Changes nothing: the checker's `is-ota-available` would install a newer checker."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages, packages
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import parse, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    COMPARED,
    Boot,
    Firmware,
    Kernel,
    Level,
    State,
)

#: NVIDIA's checker with its recipes.
_CHECKER = "/opt/nvidia/spark-ota-check/check_ota_status.py"
_RECIPES = "/opt/nvidia/spark-ota-check/metadata/spark-ota-*.json"
_TIMER = "apt-daily-upgrade.timer"
#: Updates come to a machine by phases, which depend on its ID: without this option two nodes get different ones.
#: Without --fix-broken, apt refuses to go on after a power cut between two packages that need each other.
UPGRADE = ("--fix-broken", "-o", "APT::Get::Always-Include-Phased-Updates=true", "full-upgrade")
_FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
#: Exit statuses of fwupdmgr: done, nothing to do, and nothing found. Source: fwupdmgr(1) of fwupd 2.0.
NOTHING = (0, 2, 3)
#: Bounds of files, in bytes, and of their number.
_MOST, _MOST_MODULES, _MOST_RECIPES = 1 << 22, 1 << 25, 100
_FIND, _ATTEMPTS = ("findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target"), 3
_FIRMWARE_SECONDS = "60"
#: File systems that GRUB can write to, on a partition. Source: GRUB's manual, environment block.
_WRITABLE = ("ext2", "ext3", "ext4", "vfat", "xfs")


def read(run: Run, simulate: bool = True, root: str = "") -> State:
    """Return the state. ``simulate``: whether to query apt for pending packages, which takes seconds.

    ``root``: the folder of the node's files, for tests. Raises OSError and ValueError.
    """
    running, needed = os.uname().release, parse.wanted(_text(f"{root}/proc/modules"))
    versions = _versions(run) if simulate else {}
    pending, loaded = io_packages.reboot(root or "/"), _text(f"{root}/sys/module/nvidia/version")
    driver, release = parse.changed_driver(versions, loaded), _text(f"{root}/etc/dgx-release")
    return State(
        running=running,
        level=_level(run, release, root) if simulate else parse.level(release, "", ()),
        packages=parse.packages(output(run, "apt-get", "--simulate", *UPGRADE)) if simulate else None,
        broken=parse.broken(output(run, "dpkg", "--audit")) if simulate else (),
        held=tuple(output(run, "apt-mark", "showhold").split()) if simulate else (),
        kernels=tuple(_kernel(f"{root}/lib/modules", each, needed) for each in parse.releases(_names(f"{root}/boot"))),
        boot=boot(run, root),
        reboot=tuple(dict.fromkeys((*pending["packages"], *driver))) if pending["required"] or driver else None,
        updaters=_updaters(run, root),
        holder=packages.holder(io_packages.holder(root or "/")),
        trial=parse.trial(_text(f"{root}{plan.BOOT_FILE}")),
        versions=versions,
        firmware=offered(run) if simulate else (),
        options=parse.options(_text(f"{root}/proc/cmdline")),
        serves=any(_is(run, "is-enabled", unit) for unit in paths.UNITS),
    )


def facts(run: Run) -> dict[str, Any]:
    """Return the state without pending packages as plain data, or {reason} if it cannot be read.

    The boot entries are left out: their identifiers have the UUID of a disk.
    """
    try:
        found = read(run, simulate=False)
    except (OSError, ValueError) as error:
        return {"reason": " ".join(str(error).split())}
    return asdict(replace(found, boot=replace(found.boot, entries=())))


def boot_id() -> str:
    """Return the ID of this boot."""
    # A bounded read requests the bound at once, and the kernel refuses 4 MiB of a setting (ENOMEM).
    return io_file.read("/proc/sys/kernel/random/boot_id").strip()


def _text(path: str) -> str:
    return io_file.read_bounded(path, _MOST) or ""


def _names(folder: str) -> Sequence[str]:
    return os.listdir(folder) if os.path.isdir(folder) else ()


def last(text: str) -> str:
    """Return the end of a command's output as one short line."""
    return " ".join(text.split())[-500:]


def output(run: Run, *command: str) -> str:
    """Return the output of a command. Raises ValueError if it fails."""
    status, stdout, stderr = run(list(command))
    if status != 0:
        raise ValueError(f"{' '.join(command)} failed: {last(stderr or stdout)}")
    return stdout


def _level(run: Run, release: str, root: str) -> Level:
    recipes = [_text(path) for path in sorted(glob.glob(f"{glob.escape(root)}{_RECIPES}"))[:_MOST_RECIPES]]
    summary = ""
    if os.path.exists(f"{root}{_CHECKER}"):
        # It imports its neighbors, so that -I is not possible.
        _status, summary, _stderr = run(["/usr/bin/python3", "-B", _CHECKER, "summary"])
    return parse.level(release, summary, recipes)


def _kernel(modules: str, release: str, needed: Sequence[str]) -> Kernel:
    dependencies = io_file.read_bounded(f"{modules}/{release}/modules.dep", _MOST_MODULES)
    builtin = io_file.read_bounded(f"{modules}/{release}/modules.builtin", _MOST_MODULES)
    if dependencies is None:
        return Kernel(release, None)
    return Kernel(release, parse.missing(needed, dependencies, builtin or ""))


def boot(run: Run, root: str = "") -> Boot:
    """Return the boot loader. ``root``: as for read(). Raises OSError and ValueError."""
    config = _text(f"{root}/boot/grub/grub.cfg")
    if not config:
        return Boot()
    _status, environment, _stderr = run(["grub-editenv", "/boot/grub/grubenv", "list"])
    words = _mounted(run).split()
    writable = len(words) == 2 and words[0] in _WRITABLE and not words[1].startswith(("/dev/mapper/", "/dev/md"))
    return parse.boot(config, environment, writable)


def _mounted(run: Run) -> str:
    """Return type and device of the file system with GRUB's files. Raises ValueError."""
    for _attempt in range(_ATTEMPTS):
        status, mounted, stderr = run([*_FIND, "/boot/grub"])
        if status == 0:
            return mounted
        # It can find nothing while other mounts come and go.
        time.sleep(1)
    raise ValueError(f"findmnt --target /boot/grub failed with {status}: {stderr.strip()}")


def _updaters(run: Run, root: str) -> tuple[str, ...]:
    unattended = os.path.exists(f"{root}/usr/bin/unattended-upgrade") and _is(run, "is-enabled", _TIMER)
    settings = run(["apt-config", "dump"])[1] if unattended else ""
    dashboard = _is(run, "is-active", host_guard_plan.DASHBOARD_UNIT)
    configuration = _text(f"{root}{host_guard_plan.DASHBOARD_FILE}") if dashboard else ""
    return parse.updaters(settings, unattended, dashboard, configuration)


def _is(run: Run, question: str, unit: str) -> bool:
    return run(["systemctl", "--quiet", question, unit])[0] == 0


def offered(run: Run) -> Sequence[Firmware] | None:
    """Return the updates that fwupd offers by its cached metadata. It does not ask the network."""
    asked = ["get-updates", "--json", "--no-metadata-check", "--no-unreported-check"]
    if run(["fwupdmgr", "--help"])[0] == NOT_INSTALLED:
        return ()
    status, answer, _stderr = run(["timeout", _FIRMWARE_SECONDS, "fwupdmgr", *asked])
    # Without an update, older releases end with the status of nothing to do.
    return () if status in NOTHING[1:] else parse.firmware(answer) if status == 0 else None


def _versions(run: Run) -> dict[str, str]:
    """Return the installed packages of kernel and driver. dpkg-query fails for a pattern without a package."""
    names = [f"{start}*" for start in COMPARED]
    _status, listing, _stderr = run(["dpkg-query", "--show", f"--showformat={_FORMAT}", "--", *names])
    found = (line.split("\t") for line in listing.splitlines())
    return {each[1]: each[2] for each in found if len(each) == 3 and each[0][1:2] == "i"}

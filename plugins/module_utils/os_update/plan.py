# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how an update of a node goes on, what objects to it, and whether there is a way back.

The boot loader's file alone remembers an update under way: it names the former kernel, which it keeps as the default.
So the next run continues a killed one from the state of the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import parse
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    COMPARED,
    DRIVER,
    FIRMWARE,
    KERNEL,
    Firmware,
    Package,
    State,
    Trial,
)

#: The next stage of a node: nothing; the upgrade; its first boot; the checks. Or the new kernel did not boot.
Stage = Literal["current", "upgrade", "boot", "verify", "fell back"]
STAGES: Sequence[Stage] = get_args(Stage)
#: GRUB reads this folder's files after /etc/default/grub, in the order of their names. Source: grub-mkconfig.
BOOT_FILE = "/etc/default/grub.d/zz-gb10-os-update.cfg"
#: It stays after the update, unlike the file above.
OPTIONS_FILE = "/etc/default/grub.d/zy-gb10-kernel-options.cfg"
#: apt reads this folder's files in the order of their names.
PAUSE_FILE = "/etc/apt/apt.conf.d/zz-gb10-os-update"
#: The Dashboard's settings from before the update, as host_guard records them.
DASHBOARD_FORMER = "/etc/gb10/os-update-dashboard.json"
PAUSE = """\
// Ansible managed: playbooks/os_update.yml removes it when the update ends.
APT::Periodic::Enable "0";
"""
#: Seconds after which a kernel that panics in its first boot starts the former one.
_PANIC = 30
#: The driver outside of the kernel, which works only with modules of the same version.
_DRIVER_SPACE = re.compile(r"nvidia-(?:driver|kernel-common|dkms|firmware|open)-|libnvidia-compute")
_OF_KERNEL = re.compile(r"\S+?-(\d+\.\d+\.\d+-\d+-\S+)")
#: Packages that a Spark needs for its GPU and containers: the start of names without a kernel's release.
_NEEDED = (
    *("nvidia-driver-", "nvidia-container-toolkit", "linux-nvidia", "linux-image-nvidia", "linux-modules-nvidia"),
    *("docker-ce", "docker.io", "containerd", "podman"),
)
_DRIVER_OF_KERNEL = re.compile(r"linux-modules-nvidia-(\d+)\S*?-(\d+\.\d+\.\d+-\d+-\S+)")
#: Kernels that reportedly fail on a Spark: the start of the release, and the rule about it.
_BAD = {"7.0.0-1019": "kernel-7-0-0-1019", "7.0.0-31-": "kernel-7-0-0-1019", "6.17.0-1008": "kernel-6-17-0-1008"}
#: The option of the kernel's command line that settles a rule.
_SETTLED = {"kernel-7-0-0-1019": "kho=off"}
#: The options that an update may add. Source: the rules above.
OFFERED: Sequence[str] = tuple(_SETTLED.values())
_SHOWN = 6
_KINDS = (KERNEL, DRIVER, FIRMWARE)


@dataclass(frozen=True)
class Objection:
    """Why an update should not begin or go on, and the fix."""

    found: str
    fix: str


def stage(state: State, again: bool = False) -> Stage:
    """Return the next stage of a node. ``again``: whether to retry a kernel that did not start."""
    if state.trial is None:
        return "upgrade" if state.changes or state.waits else "current"
    # A kernel that was removed since is not tried again.
    tried = state.trial.tried if state.kernel(state.trial.tried) else ""
    if tried and state.running != tried:
        # A run that was killed before the reboot has left the choice for one boot.
        if state.boot.once == tried:
            return "boot"
        return _begun(state) if again else "fell back"
    return "verify" if tried and not state.broken and not state.waits else _begun(state)


def _begun(state: State) -> Stage:
    """Return the next stage of an update whose last kernel was not booted yet."""
    if state.changes:
        return "upgrade"
    return "boot" if state.waits or state.newest != state.running else "verify"


def boot_file(state: State, tried: str = "") -> str:
    """Return the boot loader's file, which keeps the former kernel as the default. ``tried``: what boots once.

    Raises ValueError for a kernel without an entry.
    """
    trial = state.trial or Trial(state.running, served=state.serves)
    return remembered(replace(trial, tried=tried or trial.tried)) + (
        f'GRUB_DEFAULT="{entry_of(state, state.former)}"\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic={_PANIC}"\n'
    )


def remembered(trial: Trial) -> str:
    """Return the boot loader's file with the memory of an update alone, which changes nothing at a boot."""
    return (
        "# Ansible managed: playbooks/os_update.yml removes it after all checks passed.\n"
        f"# former: {trial.former}\n# tried: {trial.tried}\n# served: {'yes' if trial.served else 'no'}\n"
    )


def options_file(options: Sequence[str]) -> str:
    """Return the boot loader's file with options of the kernel's command line, for all kernels."""
    return (
        "# Ansible managed: os_update_kernel_options. To boot without: remove this file, and run update-grub.\n"
        f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(options)}"\n'
    )


def entry_of(state: State, kernel: str) -> str:
    """Return the identifier of a kernel's boot entry, the one inside the menu of all kernels. Raises ValueError."""
    names = [each.name for each in state.boot.entries if each.kernel == kernel]
    if not names:
        raise ValueError(
            f"GRUB has no entry for the kernel {kernel}. Expected: an entry of the running kernel. Fix: run update-grub"
        )
    # The first entry of GRUB is of the newest kernel, whichever that is.
    return next((name for name in names if ">" in name), names[0])


def new_kernel(state: State) -> str:
    """Return the kernel of a pending upgrade, "" if none comes."""
    found = (re.fullmatch(r"linux-image-(\d\S*)", each.name) for each in state.packages or () if not each.installed)
    return max((each[1] for each in found if each), key=parse.numbers, default="")


def objections(state: State) -> list[Objection]:
    """Return what objects to the upgrade of a node before it begins."""
    return [*_ready(state), *_kernels(state), *_drivers(state), *_removals(state)]


def _ready(state: State) -> Iterator[Objection]:
    if state.holder and not state.upgrading:
        yield Objection(f"{state.holder} holds dpkg's lock", "wait until it ends, or end it, and run again")
    if state.held:
        yield Objection(
            f"held packages: {_listed(state.held)}", "release them with apt-mark unhold: parts of a release do not fit"
        )
    if not state.boot.entries:
        yield Objection("grub.cfg has no entry of a kernel", "install GRUB, or update this node by hand")
        return
    if not state.boot.forgets:
        yield Objection(
            "GRUB cannot write to /boot, so that a kernel for one boot would start again and again",
            "move /boot to a partition without RAID and LVM, or update this node by hand",
        )
    if state.trial is None and state.boot.default not in ("", state.newest):
        yield Objection(
            f"GRUB starts {state.boot.default}, not the newest kernel {state.newest}, also after an update",
            "remove GRUB_DEFAULT from /etc/default/grub and /etc/default/grub.d, or the packages of newer kernels that "
            "you do not want, and run update-grub",
        )


def _kernels(state: State) -> Iterator[Objection]:
    new = max((state.newest, new_kernel(state)), key=parse.numbers)
    if new == state.running:
        return
    yield from _bad(new, state.next_options)
    of_driver = {kernel for _branch, kernel in _of_kernels(state)}
    coming = {each[2] for package in state.packages or () if (each := _DRIVER_OF_KERNEL.fullmatch(package.name))}
    if state.running in of_driver and new not in of_driver | coming:
        yield Objection(
            f"no package has NVIDIA's modules for the new kernel {new}",
            "wait until linux-modules-nvidia has them; remove the kernel's packages if it is installed",
        )


def _bad(kernel: str, options: Sequence[str]) -> Iterator[Objection]:
    rule = next((rule for start, rule in _BAD.items() if kernel.startswith(start)), "")
    settled = _SETTLED.get(rule, "")
    if rule and settled not in options:
        added = f"-e os_update_kernel_options={settled} adds it to GRUB; or " if settled else ""
        yield Objection(
            f"the new kernel {kernel} fails on a Spark{f' without {settled}' if settled else ''} (rule {rule})",
            f"{added}wait for a newer one; remove the kernel's packages if it is installed; {_PAGE}#{rule}",
        )


def _drivers(state: State) -> Iterator[Objection]:
    for package in state.packages or ():
        if package.kind == DRIVER and re.search(r"(?:^|:)590\.", package.candidate):
            yield Objection(
                f"the driver {package.name} {package.candidate} (rule driver-590)",
                f"wait for a newer driver; {_PAGE}#driver-590",
            )
            return


def _removals(state: State) -> Iterator[Objection]:
    """Yield the packages that a node needs, if no other package of their kind comes."""
    packages = state.packages or ()
    kept = [each.name for each in packages if each.candidate]
    gone = [
        each.name
        for each in packages
        if not each.candidate
        and not _OF_KERNEL.fullmatch(each.name)
        and (start := next((start for start in _NEEDED if each.name.startswith(start)), ""))
        and not any(name.startswith(start) for name in kept)
    ]
    if gone:
        yield Objection(
            f"the upgrade removes {_listed(gone)}",
            "see `apt-get --simulate full-upgrade` on the node, and correct the sources of apt",
        )


_PAGE = "docs/rules.md"


def next_boot(state: State) -> list[Objection]:
    """Return what objects to a boot of the newest kernel, after the upgrade."""
    kernel = state.kernels[0] if state.kernels else None
    if kernel is None or kernel.release == state.running:
        return []
    if bad := list(_bad(kernel.release, state.next_options)):
        return bad
    if kernel.missing is None:
        found = f"the modules of {kernel.release} cannot be read"
    elif kernel.missing:
        found = f"the new kernel {kernel.release} lacks modules that run now: {', '.join(kernel.missing)}"
    else:
        return []
    return [Objection(found, "install its packages of modules, or remove the kernel; the former one stays the default")]


def way_back(state: State) -> str:
    """Return why there is no way back from the pending upgrade, "" if there is one."""
    packages = state.packages or ()
    of_former = [each for each in packages if each.name.endswith(f"-{state.running}")]
    if not state.kernel(state.running):
        return f"the running kernel {state.running} is not in /boot"
    if removed := [each.name for each in of_former if not each.candidate]:
        return f"the upgrade removes {_listed(removed)}"
    driver = [each for each in packages if _DRIVER_SPACE.match(each.name)]
    changed = any(parse.driver(each.installed) != parse.driver(each.candidate) for each in driver)
    known = any(kernel == state.running for _branch, kernel in _of_kernels(state))
    if changed and known and not of_former:
        return f"the driver changes, and its modules for the running kernel {state.running} do not change with it"
    return ""


def _of_kernels(state: State) -> set[tuple[str, str]]:
    """Return (branch of the driver, kernel) of the installed packages with NVIDIA's modules."""
    found = (_DRIVER_OF_KERNEL.fullmatch(name) for name in state.versions)
    return {(each[1], each[2]) for each in found if each}


def differ(states: Mapping[str, State]) -> list[str]:
    """Return the packages of kernel and driver whose versions differ between the nodes of a unit, as texts.

    An older kernel may stay on one node alone. Only the packages of the newest one must be equal.
    """
    names = sorted({name for state in states.values() for name in state.versions})
    kernels = {name: each[1] for name in names if (each := _OF_KERNEL.fullmatch(name))}
    newest = max(kernels.values(), key=parse.numbers, default="")
    values = {
        name: {node: state.versions.get(name, "none") for node, state in states.items()}
        for name in names
        if kernels.get(name, newest) == newest
    }
    return [
        f"{name}: " + ", ".join(f"{version} on {node}" for node, version in found.items())
        for name, found in values.items()
        if len(set(found.values())) > 1
    ]


def upgraded(state: State) -> State:
    """Return the state with the versions after the pending upgrade."""
    changed = {each.name: each.candidate for each in state.packages or () if each.name.startswith(COMPARED)}
    return replace(state, versions={name: each for name, each in {**state.versions, **changed}.items() if each})


def problems(path: str, node: str, found: Sequence[Objection]) -> list[Problem]:
    """Return objections as problems of a node."""
    return [Problem(path, f"{node}: {each.found}", "nothing that makes the update unsafe", each.fix) for each in found]


def about(state: State) -> list[str]:
    """Return the system of a node for people, with its pending packages if they are known."""
    level = state.level
    names = [f"DGX OS {level.stamp}" if level.stamp else "no DGX OS", level.installed]
    if level.torn:
        names.append(f"{level.torn:g} % of it missing")
    if level.newest and level.newest != level.installed:
        names.append(f"{level.newest} is newer")
    lines = [", ".join(name for name in names if name), *_boot(state)]
    lines += [f"updates by itself: {', '.join(state.updaters)}"] if state.updaters else []
    return [*lines, *_offered(state, state.packages)] if state.packages is not None else lines


def _boot(state: State) -> list[str]:
    boot, kernel = f"kernel {state.running}", state.next_kernel
    if kernel and kernel.release != state.running:
        boot += f", next boot {kernel.release}{' once' if state.boot.once else ''}"
    if state.lacking:
        boot += f", which lacks {', '.join(state.lacking)}"
    added = [option for option in state.wanted if option not in state.boot.options]
    return [boot, f"GRUB gets {' '.join(added)} for all kernels, and keeps it"] if added else [boot]


def _offered(state: State, packages: Sequence[Package]) -> list[str]:
    count = len(packages)
    lines = [f"{count} packages change" if count else "all packages are up to date", *pending(packages)]
    if gone := [each.name for each in packages if not each.candidate and each.kind not in _KINDS]:
        lines.append(f"removed: {_listed(gone)}")
    if state.broken:
        lines.append(f"not finished by dpkg: {_listed(state.broken)}")
    if state.firmware is None:
        lines.append("firmware of devices: unknown, because fwupdmgr get-updates failed")
    given = "installed" if state.with_firmware else "installed only with os_update_firmware=true"
    return lines + [f"{line} ({given}, without a way back)" for line in pending((), state.firmware or ())]


def driver_waits(state: State) -> bool:
    """Return whether a package of the driver waits for a reboot: until then, the GPU cannot be used."""
    return any(Package(name, "", "").kind == DRIVER for name in state.reboot or ())


def waiting(state: State) -> list[str]:
    """Return for people what changes the node now, or at its next boot."""
    found = []
    if state.reboot is not None:
        found.append("a reboot is pending" + (f" for {_listed(state.reboot)}" if state.reboot else ""))
    if options := [option for option in state.boot.options if option not in state.options]:
        found.append(f"the running kernel lacks {' '.join(options)}, which the next boot has")
    if state.holder:
        found.append(f"dpkg's lock is held by {state.holder}")
    if state.trial:
        found.append(f"an update is under way, and {state.trial.former} stays the default")
    return found


def warnings(state: State) -> list[str]:
    """Return the faults of a node's system, each with its fix."""
    kernel, found = state.next_kernel, []
    if kernel and state.lacking:
        found.append(
            f"the kernel of the next boot, {kernel.release}, lacks {', '.join(state.lacking)}. Fix: install its "
            "packages of modules (docs/updates.md)"
        )
    if state.trial:
        found.append("an update of the system is under way. Fix: run playbooks/os_update.yml again")
    return found


def of_nodes(found: Mapping[str, State | str]) -> list[str]:
    """Return the system of each node as one line, equal ones together. A text is why it was not read, "" without a
    query."""
    texts: dict[str, list[str]] = {}
    for name, state in found.items():
        known = (
            "; ".join([*about(state), *waiting(state)]) if isinstance(state, State) else state and f"unknown: {state}"
        )
        if known:
            texts.setdefault(known, []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in texts.items()]


def pending(packages: Sequence[Package], firmware: Sequence[Firmware] = ()) -> list[str]:
    """Return the changes of kernel, driver and firmware, a line for each kind."""
    kinds = {kind: [_change(each) for each in packages if each.kind == kind] for kind in _KINDS}
    kinds["firmware of devices"] = [f"{each.device} {each.installed} -> {each.candidate}" for each in firmware]
    return [f"{kind}: {_listed(changes)}" for kind, changes in kinds.items() if changes]


def _change(package: Package) -> str:
    if not package.candidate:
        return f"{package.name} removed"
    before = f"{package.installed} -> " if package.installed else ""
    return f"{package.name} {before}{package.candidate}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"

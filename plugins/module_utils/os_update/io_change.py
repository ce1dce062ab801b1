# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change a node for an update: its updaters, its boot loader, its packages, and its boot.

Each function can be killed anywhere and called again. Each returns the files that it changes, and changes nothing if
``check`` is true.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, parse, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import UNIT, State

_ENVIRONMENT = ("DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1", "APT_LISTCHANGES_FRONTEND=none")
_KEEP = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
_LOCK = ("-o", "DPkg::Lock::Timeout=600")
#: What waits for a reboot. Source: Ubuntu's update-notifier-common, notify-reboot-required.
_REBOOT = "/run/reboot-required"
_MOST = 1 << 16
#: Seconds for a change of packages, and from the order to the reboot.
_UPGRADE_SECONDS, _REBOOT_SECONDS = 7200, 3

Changes = list[dict[str, str]]


def pause(run: Run, check: bool) -> Changes:
    """Stop automatic updates of the node. Raises OSError and ValueError."""
    changes = _write(plan.PAUSE_FILE, plan.PAUSE, check)
    if run(["systemctl", "--quiet", "is-active", host_guard_plan.DASHBOARD_UNIT])[0] == 0:
        present = io_file.read_bounded(host_guard_plan.DASHBOARD_FILE, _MOST)
        off = host_guard_plan.without_updates(present)
        if off != present:
            if io_file.read_bounded(plan.DASHBOARD_FORMER, 2 * _MOST) is None:
                changes += _write(plan.DASHBOARD_FORMER, host_guard_plan.record(present), check)
            changes += _write(host_guard_plan.DASHBOARD_FILE, off, check)
    return changes


def resume(check: bool) -> Changes:
    """Restore the updaters as they were. Raises OSError and ValueError."""
    changes = []
    if recorded := io_file.read_bounded(plan.DASHBOARD_FORMER, 2 * _MOST):
        former = host_guard_plan.former_text(recorded)
        # Settings that the owner changed since then stay.
        if io_file.read_bounded(host_guard_plan.DASHBOARD_FILE, _MOST) == host_guard_plan.without_updates(former):
            changes += _write(host_guard_plan.DASHBOARD_FILE, former, check)
        changes += _write(plan.DASHBOARD_FORMER, None, check)
    return changes + _write(plan.PAUSE_FILE, None, check)


def keep(run: Run, state: State, check: bool) -> Changes:
    """Keep the running kernel as the boot loader's default. Raises OSError, and ValueError if GRUB has another one."""
    if state.trial and state.boot.default == state.former:
        return []
    changes = _write(plan.BOOT_FILE, plan.boot_file(state), check)
    if not check:
        _update_grub(run)
        if (found := io_state.boot(run).default) != state.former:
            raise ValueError(
                f"GRUB's default is {found or 'unknown'} after {plan.BOOT_FILE} named {state.former}. Expected: the "
                f"former kernel. Fix: remove GRUB_DEFAULT from later files of {os.path.dirname(plan.BOOT_FILE)}"
            )
    return changes


def add_options(run: Run, options: Sequence[str], check: bool) -> Changes:
    """Add options to the command line of all kernels, for good.

    Raises OSError, and ValueError if an entry lacks one afterwards.
    """
    missing = [option for option in options if option not in io_state.boot(run).options]
    if not missing:
        return []
    present = io_file.read_bounded(plan.OPTIONS_FILE, _MOST) or ""
    kept = [option for option in plan.OFFERED if option in present and option not in missing]
    changes = _write(plan.OPTIONS_FILE, plan.options_file([*kept, *missing]), check)
    if not check:
        _update_grub(run)
        if lacking := [option for option in missing if option not in io_state.boot(run).options]:
            raise ValueError(
                f"GRUB's entries lack {' '.join(lacking)} after {plan.OPTIONS_FILE} named it. Expected: each has it. "
                f"Fix: remove GRUB_CMDLINE_LINUX from later files of {os.path.dirname(plan.OPTIONS_FILE)}"
            )
    return changes


def download(run: Run) -> str:
    """Download the packages of the upgrade, and return the log's end. Raises ValueError with the reason."""
    return _apt(run, "--download-only")


def upgrade(run: Run) -> str:
    """Upgrade all packages, and return the log's end. Raises ValueError with the reason."""
    return _apt(run, *_KEEP)


def _apt(run: Run, *options: str) -> str:
    """Upgrade with more options, after a change of packages that a killed run began. Raises ValueError."""
    until = time.monotonic() + _UPGRADE_SECONDS
    while run(["systemctl", "--quiet", "is-active", UNIT])[0] == 0:
        if time.monotonic() > until:
            raise ValueError(f"{UNIT} has not ended. Fix: see journalctl --unit={UNIT}, and run again")
        time.sleep(2)
    # apt does not even download after a power cut inside dpkg. A package may need one that is not unpacked yet: then
    # dpkg fails, and apt goes on from there, or names the cause.
    _detached(run, "dpkg", "--configure", "-a", accepted=(0, 1))
    _detached(run, "apt-get", "--yes", *_LOCK, *options, *io_state.UPGRADE)
    return _log(run)


def refresh(run: Run) -> str:
    """Refresh fwupd's list of firmware, which is on the internet. Returns "": it has no log. Raises ValueError."""
    status, stdout, stderr = run(["fwupdmgr", "refresh"])
    if status == NOT_INSTALLED:
        raise ValueError(f"{stderr}. Fix: install the package fwupd, or leave out os_update_firmware")
    if status not in io_state.NOTHING:
        raise ValueError(
            f"fwupdmgr refresh failed with {status}: {io_state.last(stderr or stdout)}. Fix: give the node "
            "access to the internet, or leave out os_update_firmware"
        )
    return ""


def firmware(run: Run) -> str:
    """Install the firmware that fwupd offers; a reboot activates it. Returns the log's end, "" without an offer.

    Raises OSError and ValueError.
    """
    if io_state.offered(run) == ():
        return ""
    _detached(run, "fwupdmgr", "upgrade", "--assume-yes", "--no-reboot-check", accepted=io_state.NOTHING)
    # fwupd does not ask for a reboot like a package. The folder is empty after it.
    _write(f"{_REBOOT}.pkgs", f"{io_file.read_bounded(f'{_REBOOT}.pkgs', _MOST) or ''}fwupd\n", check=False)
    _write(_REBOOT, "*** System restart required ***\n", check=False)
    return _log(run)


def boot(run: Run, state: State, check: bool) -> Changes:
    """Boot the newest kernel once. The former one stays the default. Raises OSError and ValueError."""
    # First the choice, then its memory: a power cut in between must not look like a kernel that did not start.
    if state.newest != state.running and not check:
        io_state.output(run, "grub-reboot", plan.entry_of(state, state.newest))
    changes = _write(plan.BOOT_FILE, plan.boot_file(state, state.newest), check)
    if check:
        return changes
    os.sync()
    # Detached: a reboot inside of the connection can take the connection away from the one that ordered it.
    io_state.output(run, "systemd-run", "--collect", f"--on-active={_REBOOT_SECONDS}", "systemctl", "reboot")
    return changes


def confirm(run: Run, state: State, check: bool) -> Changes:
    """Make the newest kernel the boot loader's default after an update. Raises OSError, and ValueError if it is not."""
    if (stage := plan.stage(state)) != "verify":
        raise ValueError(
            f"the update is not at its end, but at the step {stage}. Fix: run playbooks/os_update.yml again"
        )
    return forget(run, check, state.kernels[0].release if state.kernels else "")


def forget(run: Run, check: bool, newest: str = "") -> Changes:
    """Remove the memory of an update. ``newest``: the kernel that must be the default then.

    Raises OSError, and ValueError if another one is.
    """
    present = io_file.read_bounded(plan.BOOT_FILE, _MOST)
    if present and not check and (trial := parse.trial(present)):
        # The memory goes last, so that a killed run is repeated.
        io_file.replace(plan.BOOT_FILE, plan.remembered(trial))
        _update_grub(run)
        if newest and (found := io_state.boot(run).default) != newest:
            raise ValueError(
                f"GRUB's default is {found or 'unknown'}. Expected: {newest}. Fix: remove GRUB_DEFAULT from "
                f"/etc/default/grub and other files of {os.path.dirname(plan.BOOT_FILE)}, and run again"
            )
    changes = _write(plan.BOOT_FILE, None, check)
    return [{**change, "before": present or ""} for change in changes]


def _write(path: str, text: str | None, check: bool) -> Changes:
    present = io_file.read_bounded(path, 2 * _MOST)
    if present == text:
        return []
    if not check:
        if text is not None:
            io_file.add_folder(os.path.dirname(path))
        io_file.replace(path, text)
    return [{"before_header": path, "after_header": path, "before": present or "", "after": text or ""}]


def _update_grub(run: Run) -> None:
    io_state.output(run, "grub-mkconfig", "--output=/boot/grub/grub.cfg")


def _detached(run: Run, *command: str, accepted: Collection[int] = (0,)) -> None:
    given = [f"--setenv={each}" for each in _ENVIRONMENT]
    status, _stdout, stderr = run(["systemd-run", "--wait", "--collect", "--quiet", f"--unit={UNIT}", *given, *command])
    if status not in accepted:
        raise ValueError(
            f"{' '.join(command)} failed with {status}: {_log(run) or stderr.strip()}. Fix: correct the cause on the "
            "node, and run again: the run goes on from here"
        )


def _log(run: Run) -> str:
    _status, log, _stderr = run(["journalctl", f"--unit={UNIT}", "--lines=15", "--output=cat", "--quiet"])
    return " | ".join(line.strip() for line in log.splitlines() if line.strip())[-1500:]

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the protection of a host, and change it. ``root`` is a folder in place of /, for tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostState, Protection, Step
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

_UNIT = paths.GPU_CLOCK_UNIT
_PROPERTIES = ("busctl", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1")
_INTERFACE = "org.freedesktop.systemd1.Manager"
_MOST = 1 << 16


def read(run: Run, root: str = "") -> HostState:
    """Return the host's state. systemd is only queried about files that exist. Raises OSError and ValueError."""
    texts = {path: io_file.read_bounded(f"{root}{path}", _MOST) for path in plan.FILES}
    files = {path: text for path, text in texts.items() if text is not None}
    values = {name: io_file.read(f"{root}{_setting(name)}").strip() for name in plan.KERNEL}
    service = node_io_facts.service(run, _UNIT) if plan.UNIT_FILE in files else {}
    return HostState(
        files=files,
        values={name: value for name, value in values.items() if value},
        former=_former(files.get(plan.FORMER_FILE, "")),
        device=any(os.path.exists(f"{root}/dev/{name}") for name in ("watchdog0", "watchdog")),
        manager=_manager(run) if plan.MANAGER_FILE in files else {},
        limited=service.get("active") == "active" and service.get("enabled") is True,
        dashboard=_dashboard(run, root),
    )


def facts(run: Run) -> dict[str, Any]:
    """Return the host's state as plain data. Raises OSError and ValueError."""
    return asdict(read(run))


def apply(run: Run, steps: Sequence[Step], root: str = "") -> None:
    """Do the steps in order. Raises OSError, and ValueError with the reason of systemd."""
    for step in steps:
        if step.kind == "file":
            _install(f"{root}{step.name}", step.after)
        elif step.kind == "value":
            with open(f"{root}{_setting(step.name)}", "w", encoding="ascii") as file:
                file.write(step.after or "")
        else:
            _SYSTEMD[step.kind](run)


def restore(run: Run, root: str = "") -> None:
    """Turn all parts off. Raises as read() and apply()."""
    apply(run, plan.steps(Protection(), read(run, root)), root)


def _dashboard(run: Run, root: str) -> bool:
    installed = os.path.isdir(f"{root}{os.path.dirname(plan.DASHBOARD_FILE)}")
    return installed and run(["systemctl", "--quiet", "is-active", plan.DASHBOARD_UNIT])[0] == 0


def _setting(name: str) -> str:
    return f"/proc/sys/{name.replace('.', '/')}"


def _former(text: str) -> dict[str, str]:
    found = bounded_json.load(text, _MOST) if text else {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{plan.FORMER_FILE} is not an object")
    return {name: str(found[name]) for name in plan.KERNEL if name in found}


def _manager(run: Run) -> dict[str, int]:
    status, stdout, _stderr = run([*_PROPERTIES, _INTERFACE, *plan.MANAGER])
    words = [line.split()[-1] for line in stdout.splitlines() if line.strip()]
    if status != 0 or len(words) != len(plan.MANAGER) or not all(word.isdecimal() for word in words):
        return {}
    return dict(zip(plan.MANAGER, map(int, words), strict=True))


def _install(path: str, text: str | None) -> None:
    folder = os.path.dirname(path)
    if text is not None and not os.path.isdir(folder):
        io_file.install_folder(folder)
    io_file.replace(path, text)
    if text is None and folder.endswith(".conf.d"):
        # systemd's package does not have it.
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _limit(run: Run) -> None:
    _systemctl(run, "daemon-reload")
    _systemctl(run, "enable", _UNIT)
    _systemctl(run, "restart", _UNIT)


def _systemctl(run: Run, *arguments: str) -> None:
    status, stdout, stderr = run(["systemctl", *arguments])
    if status != 0:
        _status, log, _stderr = run(["journalctl", f"--unit={_UNIT}", "--lines=3", "--output=cat", "--quiet"])
        said = " ".join((stderr or stdout).split())
        raise ValueError(f"systemctl {' '.join(arguments)} failed: {said} Its log: {' '.join(log.split())}")


def _unlimit(run: Run) -> None:
    _systemctl(run, "disable", "--now", _UNIT)
    # A failed unit without a file would stay listed. The command fails for a unit that is not loaded.
    run(["systemctl", "reset-failed", _UNIT])


_SYSTEMD: Mapping[str, Callable[[Run], None]] = {
    "manager": lambda run: _systemctl(run, "daemon-reexec"),
    "limit": _limit,
    "unlimit": _unlimit,
    "reload": lambda run: _systemctl(run, "daemon-reload"),
}

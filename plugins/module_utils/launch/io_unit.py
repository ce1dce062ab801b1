# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start, stop and remove systemd services of this collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run

#: The units of ranks do not start while the record of the memory guard's stop exists.
_RANKS = ("gb10-ray.service", "gb10-vllm.service")


def start(run: Run, service: Mapping[str, Any], restart: bool, reload: bool) -> None:
    """Enable and start a service, or restart it, without waiting for it. Raises ValueError and OSError.

    ``service``: its facts, as io_facts.service() returns them. ``reload``: whether its unit file is newer than the
    loaded one.
    """
    name = service["unit"]
    # A container may outlive its killed client, and a new unit does not manage the old container.
    if restart and service["container"] and service["active"] != "inactive":
        _systemctl(run, "stop", name)
    # Earlier starts count for the limit of restarts. The status is 1 for a unit that is not loaded.
    _systemctl(run, "reset-failed", name, allowed=(0, 1))
    if name in _RANKS:
        io_file.install(paths.MEMORY_GUARD_STOP, None)
    # A reload takes the GPUs from Docker's containers that got them by --gpus, also from those of other programs.
    if reload:
        _systemctl(run, "daemon-reload")
    if not service["enabled"]:
        _systemctl(run, "enable", name)
    _systemctl(run, "--no-block", "restart" if restart else "start", name)


def stop(run: Run, service: Mapping[str, Any]) -> None:
    """Stop and disable a service, so that a reboot does not start it. Raises ValueError.

    A running service without its unit file can be stopped, but not disabled.
    """
    if service["enabled"]:
        _systemctl(run, "disable", service["unit"])
    if _runs(service):
        _systemctl(run, "stop", service["unit"])


def stoppable(service: Mapping[str, Any]) -> bool:
    """Return whether stop() would change a service."""
    return service["load"] != "not-found" and (service["enabled"] or _runs(service))


def _runs(service: Mapping[str, Any]) -> bool:
    return service["active"] not in ("inactive", "failed")


def present(found: Iterable[str]) -> list[str]:
    """Return the paths that exist."""
    return [path for path in found if Path(path).is_symlink() or Path(path).exists()]


def remove(run: Run, found: Iterable[str]) -> None:
    """Remove files and whole folders of one file system without following links, and let systemd forget removed units.

    Raises ValueError. A user of a service can make folders that are too deep for a recursion.
    """
    for path in found:
        _checked(run, "rm", "--recursive", "--force", "--one-file-system", "--", path)
    _systemctl(run, "daemon-reload")


def _systemctl(run: Run, *words: str, allowed: tuple[int, ...] = (0,)) -> None:
    _checked(run, "systemctl", *words, allowed=allowed)


def _checked(run: Run, *argv: str, allowed: tuple[int, ...] = (0,)) -> None:
    status, _stdout, stderr = run([*argv])
    if status not in allowed:
        raise ValueError(f"{' '.join(argv)} failed: {stderr.strip() or status}")

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the records of this node. Their folder belongs to the recorder's user, so no link is followed."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath, paths
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import record, report
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.record import Record

#: Records that are read: the newest ones. Seconds for which a status shows one, and after which a sample is old.
_MOST, _SHOWN, _OLD = 10, 86400.0, 10.0


def read(since: float, folder: str = paths.RECORDER_STATE) -> list[tuple[str, Record]]:
    """Return (path, record) of those that are newer than a time, oldest first. A damaged one is left out.

    Raises OSError.
    """
    if not os.path.isdir(folder):
        return []
    place = io_beneath.Folder(folder)
    with place.place() as opened:
        names = filter(record.is_name, os.listdir(opened))
        times = {name: os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime for name in names}
    found = []
    for name in sorted((each for each, when in times.items() if when >= since), key=times.__getitem__)[-_MOST:]:
        try:
            with place.open(name) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
                found.append((f"{folder}/{name}", record.parse(file.read(record.MOST).decode("utf-8", "replace"))))
        except (ValueError, io_beneath.OutsideError):
            continue
    return found


def status(now: float, folder: str = paths.RECORDER_STATE, live: str = paths.RECORDER_SAMPLE) -> list[str]:
    """Return a line for each record of the last day, and one if the installed recorder does not run."""
    found = []
    # A run may remove the folder meanwhile.
    with contextlib.suppress(OSError, io_beneath.OutsideError):
        found = [f"{report.short(each, now)}. File: {path}" for path, each in read(now - _SHOWN, folder)]
    if os.path.exists(f"{paths.UNIT_FOLDER}/{paths.RECORDER_UNIT}") and not _runs(now, live):
        found.append(f"the flight recorder takes no samples. Read journalctl -u {paths.RECORDER_UNIT}")
    return found


def _runs(now: float, live: str) -> bool:
    try:
        return now - os.stat(live).st_mtime < _OLD
    except OSError:
        return False

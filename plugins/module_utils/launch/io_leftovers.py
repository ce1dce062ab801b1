# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove what killed ranks left on a node: shared memory and sockets of the service user that no process uses.

vLLM, PyTorch and NCCL remove them when they end regularly. After kill -9 of the server, vLLM 0.32 left segments of 160
and 240 MiB, whose written pages use memory. systemd's RemoveIPC= waits until no service of the user runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file

#: Python's shared memory and semaphores, NCCL's and PyTorch's segments, and vLLM's offloaded caches and store of media,
#: of which a killed start can leave gigabytes. Other files of the user are left alone. Source: vLLM 0.32 and 0.33,
#: shared_offload_region.py (one file for each part), ec_shared_region.py and envs.py.
_SHARED = re.compile(
    r"psm_[0-9a-f]+|sem\.mp-\w+|nccl-\w+|torch_\w+|vllm_(?:offload|ec)_[\w.-]+\.mmap(?:\.\d+)?|vllm_mm_[\w-]+"
)
#: vLLM's IPC sockets. Source: vLLM 0.13 to 0.33, get_open_zmq_ipc_path.
_SOCKET = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAPPED = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+:[0-9a-f]+) (\d+)", re.MULTILINE)


def remove(user: int, shared: str = "/dev/shm", temporary: str = "/tmp", proc: str = "/proc") -> list[str]:
    """Remove the leftovers of a user (a UID), and return their paths."""
    # What a process creates after this is not in the lists.
    segments = [(path, found) for path, found in _owned(shared, _SHARED, user) if stat.S_ISREG(found.st_mode)]
    sockets = [path for path, found in _owned(temporary, _SOCKET, user) if stat.S_ISSOCK(found.st_mode)]
    used = _used(proc)
    bound = {line.split(" ")[-1] for line in io_file.read(f"{proc}/net/unix").splitlines()}
    left = [path for path, found in segments if (found.st_dev, found.st_ino) not in used]
    left += [path for path in sockets if path not in bound]
    for path in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return left


def _owned(folder: str, name: re.Pattern[str], user: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the paths in a folder whose name matches and that the user owns."""
    for entry in os.scandir(folder):
        if name.fullmatch(entry.name):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                if found.st_uid == user:
                    yield entry.path, found


def _used(proc: str) -> set[tuple[int, int]]:
    """Return device and inode of the files that processes map or have open.

    Processes of other users are only visible to root, who starts containers.
    """
    used = set()
    for pid in filter(str.isdecimal, os.listdir(proc)):
        for device, inode in _MAPPED.findall(io_file.read(f"{proc}/{pid}/maps")):
            major, minor = (int(part, 16) for part in device.split(":"))
            used.add((os.makedev(major, minor), int(inode)))
        with contextlib.suppress(OSError):
            for number in os.listdir(f"{proc}/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found = os.stat(f"{proc}/{pid}/fd/{number}")
                    used.add((found.st_dev, found.st_ino))
    return used

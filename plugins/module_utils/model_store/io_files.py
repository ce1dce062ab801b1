# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's folder on a node: its files, the progress of a copy, and partial files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath, io_file, io_journal
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import Manifest

#: Bytes to read, hash and write at once.
CHUNK = 1 << 20


class GaveUpError(Exception):
    """A model cannot be completed on this node; the text is the reason."""


def manifest(folder: str) -> Manifest | None:
    """Return the manifest of a folder, None without a readable one."""
    try:
        with Folder(folder).open(model_store_plan.MANIFEST) as found, os.fdopen(os.dup(found), "rb") as file:
            return model_store_plan.parse(file.read(model_store_plan.MOST_TEXT + 1).decode("utf-8", "replace"))
    except (FileNotFoundError, NotADirectoryError, OutsideError):
        return None


def there(folder: str) -> dict[str, int]:
    """Return the bytes on the disk by path, for all files below the folder.

    For an incomplete file these are the bytes of its partial file.
    """
    paths = [os.path.join(place, name) for place, _folders, names in os.walk(folder) for name in names]
    found = {}
    # The name of a partial file is longer, so that the file itself counts last.
    for path in sorted(paths, reverse=True):
        with contextlib.suppress(FileNotFoundError):
            found[os.path.relpath(path, folder).removesuffix(model_store_plan.PART)] = os.path.getsize(path)
    return found


def complete(folder: str) -> bool:
    """Return whether the manifest exists and all its files have their size."""
    known = manifest(folder)
    return known is not None and all(_size(f"{folder}/{file.path}") == file.size for file in known.files)


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def write_manifest(folder: str, known: Manifest) -> None:
    """Sync the folders to survive a power cut, then write the manifest, which marks the model as complete.

    Raises GaveUpError.
    """
    within = Folder(folder)
    try:
        for name in {os.path.dirname(file.path) for file in known.files}:
            with within.place(name) as place:
                os.fsync(place)
        with within.place() as place:
            # Write through the descriptor, so that the folder cannot be replaced in between.
            io_file.write_file(
                f"/proc/self/fd/{place}/{model_store_plan.MANIFEST}", json.dumps(known.plain(), indent=1) + "\n", 0o644
            )
    except (OSError, OutsideError) as error:
        raise not_written(folder, model_store_plan.MANIFEST, error) from error


def remove_manifest(folder: str) -> None:
    """Remove the manifest, also for a power cut, before a file changes. Raises GaveUpError."""
    try:
        with Folder(folder).place() as place, contextlib.suppress(FileNotFoundError):
            os.unlink(model_store_plan.MANIFEST, dir_fd=place)
            os.fsync(place)
    except (OSError, OutsideError) as error:
        raise not_written(folder, model_store_plan.MANIFEST, error) from error


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Raise GaveUpError for an error of the block, which reads a file."""
    try:
        yield
    except OutsideError as error:
        raise GaveUpError(f"{path} {error}") from error
    except OSError as error:
        raise GaveUpError(f"{path} cannot be read: {error.strerror}") from error


class Part:
    """The partial file of a file until it is complete and verified. Existing bytes are kept and hashed again.

    Follows no links in the path: the folder's owner could otherwise make root write elsewhere.
    """

    def __init__(self, folder: Folder, path: str) -> None:
        """Open or create the partial file. Raises OSError, OutsideError."""
        self.folder, self.path, self.name = folder.path, path, os.path.basename(path)
        self.size, self.hash = 0, hashlib.sha256()
        with folder.place(os.path.dirname(path), make=True) as place:
            self.descriptor, self.place = io_beneath.create(place, self.name + model_store_plan.PART), os.dup(place)
        buffer = bytearray(CHUNK)
        while count := os.preadv(self.descriptor, [buffer], self.size):
            self.hash.update(memoryview(buffer)[:count])
            self.size += count

    def add(self, data: memoryview) -> None:
        """Append data. Raises GaveUpError."""
        self.hash.update(data)
        try:
            while data:
                count = os.pwrite(self.descriptor, data, self.size)
                self.size += count
                data = data[count:]
        except OSError as error:
            raise not_written(self.folder, self.path, error) from error

    def empty(self) -> None:
        """Drop all bytes."""
        os.ftruncate(self.descriptor, 0)
        self.size, self.hash = 0, hashlib.sha256()

    def keep(self) -> None:
        """Sync the bytes to survive a power cut, and give the file its name, replacing an older one atomically."""
        os.fsync(self.descriptor)
        os.replace(self.name + model_store_plan.PART, self.name, src_dir_fd=self.place, dst_dir_fd=self.place)

    def close(self) -> None:
        """Close the descriptors; a partial file remains for the next run."""
        os.close(self.descriptor)
        os.close(self.place)


class Status:
    """The status file, readable while the program runs: {state, done, total, reason}; bytes of all files together."""

    def __init__(self, path: str, total: int) -> None:
        self.path, self.total = path, total
        self.state, self.reason = "checking", ""
        #: Returns the bytes so far.
        self.measured: Callable[[], int] = int
        self.began, self.writing = time.monotonic(), threading.Lock()

    def write(self) -> None:
        """Write the file."""
        with self.writing:
            done = self.total if self.state == "complete" else min(self.total, self.measured())
            content = {"state": self.state, "done": done, "total": self.total, "reason": self.reason}
            temporary = f"{self.path}.new"
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(temporary, self.path)

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Write the file every second while the block runs, and then its result. GaveUpError ends the block."""
        ended, reason = threading.Event(), "the program failed; see its log"

        def tell() -> None:
            while not ended.wait(1):
                self.write()

        self.write()
        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
            reason = ""
        except GaveUpError as error:
            reason = str(error)
        finally:
            ended.set()
            teller.join()
            self.end(reason)

    def receive(self) -> None:
        """Note that files are fetched. A thread may learn late that another one has failed."""
        with self.writing:
            if self.state != "failed":
                self.state = "receiving"

    def end(self, reason: str = "") -> None:
        """Write the result to the file and the log. The first failure stays."""
        with self.writing:
            if self.state == "failed":
                return
            self.reason, self.state = reason, "failed" if reason else "complete"
        # A reader of the file may end the program.
        say(reason or f"complete after {time.monotonic() - self.began:.1f} s: {self.total} bytes")
        self.write()


def say(text: str) -> None:
    """Write a line to the unit's log."""
    io_journal.say(f"gb10-model: {text}")


def not_written(folder: str, name: str, error: OSError | OutsideError) -> GaveUpError:
    """Return the error for a failed write or an unsafe path. ``name`` is the name of the file."""
    if isinstance(error, OutsideError):
        return GaveUpError(f"{name} cannot be written in {folder}: its path {error}. Fix: remove it and run again")
    free = model_store_plan.gigabytes(io_file.free_bytes(folder))
    return GaveUpError(
        f"{name} cannot be written in {folder}: {error.strerror}; {free} GB are free. "
        "Partial files are kept for the next run"
    )

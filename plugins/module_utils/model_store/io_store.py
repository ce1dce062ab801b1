# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model on this node while it is completed: existing files are checked, and missing ones fetched from an origin."""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import os
from collections.abc import Callable

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import CHUNK, GaveUpError, Status
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import File, Manifest


class Entry:
    """A file of the model, by its number: its bytes here, and whether it is verified with this SHA-256."""

    def __init__(self, number: int, file: File) -> None:
        self.number, self.file, self.path, self.size = number, file, file.path, file.size
        self.have, self.sha256, self.verified = 0, file.sha256, False

    def accept(self, sha256: str) -> None:
        """Note that the file is complete and verified."""
        self.sha256, self.verified = sha256, True
        # Last: a sender that sees these bytes opens the file of a verified one.
        self.have = self.size


class Store:
    """The model on this node, shared by the receiver and the senders.

    One thread writes to a file's entry. The senders look at it again and again, and need no lock: a receiver verifies
    what it gets.
    """

    def __init__(self, folder: str, manifest: Manifest, status: Status) -> None:
        self.within, self.manifest, self.status = Folder(folder), manifest, status
        status.measured = lambda: sum(entry.have for entry in self.files)
        self.files = [Entry(number, file) for number, file in enumerate(manifest.files)]
        self.reason = ""

    def give_up(self, reason: str) -> None:
        """Record the reason of the failure, which all requests then receive; the first reason counts."""
        if not self.reason:
            self.reason = reason
            self.status.end(reason)

    def size(self, entry: Entry) -> int | None:
        """Return the bytes of an existing file; None for a link out of the folder, which is replaced."""
        try:
            return self.within.size(entry.path)
        except (OSError, OutsideError):
            return None

    def check(self, entry: Entry, known: str) -> None:
        """Accept an existing file if its content is right.

        ``known``: the SHA-256 with which it was verified before, "" to read it. Raises GaveUpError.
        """
        size = self.size(entry)
        if size == entry.size:
            with io_files.readable(f"{self.within.path}/{entry.path}"):
                sha256 = known if known and self.matches(entry, known) else self.within.sha256(entry.path)
                if self.matches(entry, sha256):
                    entry.accept(sha256)
                    return
        if size is not None:
            io_files.say(f"{entry.path} has wrong content and is fetched again")

    def matches(self, entry: Entry, sha256: str) -> bool:
        """Return whether an existing file is that of the listing. Raises OSError, OutsideError."""
        if entry.file.sha256:
            return sha256 == entry.file.sha256
        if self.size(entry) != entry.size:
            return False
        with self.within.open(entry.path) as found:
            return not entry.file.git or git_hash(found) == entry.file.git


def git_hash(descriptor: int) -> str:
    """Return git's blob hash of a file."""
    found = hashlib.sha1(b"blob %d\0" % os.fstat(descriptor).st_size, usedforsecurity=False)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        while data := file.read(CHUNK):
            found.update(data)
    return found.hexdigest()


def begin(options: argparse.Namespace, path: str, hashed: bool) -> Store:
    """Return the store for the manifest in a file or, if not ``hashed``, for a listing."""
    manifest = plan.parse(io_file.read_file(path)[0], hashed)
    if manifest is None:
        raise SystemExit(f"{path} is not a valid {'manifest' if hashed else 'listing'}")
    os.makedirs(options.folder, mode=0o755, exist_ok=True)
    return Store(options.folder, manifest, Status(options.status, plan.total(manifest.files)))


def complete(store: Store, fetch: Callable[[Entry], None], streams: int, verify: bool, keep: bool = True) -> None:
    """Check existing files, fetch missing ones in parallel, and write the manifest. Gives up on the first error.

    ``fetch`` fetches and verifies a file; it may raise GaveUpError, OSError and OutsideError. ``verify``: read each
    file. ``keep``: whether an existing file may stay.
    """
    folder, manifest = store.within.path, store.manifest
    before = None if verify else io_files.manifest(folder)
    hashed = all(file.sha256 for file in manifest.files)
    # Another node's manifest has every hash, so only an equal one saves the reading.
    trusted = before and (not hashed or before.digest == manifest.digest)
    known = {(file.path, file.size): file.sha256 for file in before.files} if before and trusted else {}

    def one(entry: Entry) -> None:
        if store.reason:
            return
        try:
            if keep:
                store.check(entry, known.get((entry.path, entry.size), ""))
            if not entry.verified:
                store.status.receive()
                # A killed run may replace a file by one of the same size, which the manifest would then call complete.
                io_files.remove_manifest(folder)
                fetch(entry)
        except GaveUpError as error:
            store.give_up(str(error))
        except (OSError, OutsideError) as error:
            store.give_up(str(io_files.not_written(folder, entry.path, error)))

    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        list(pool.map(one, store.files))
    if not store.reason:
        try:
            io_files.write_manifest(folder, store.manifest.with_hashes(entry.sha256 for entry in store.files))
        except GaveUpError as error:
            store.give_up(str(error))

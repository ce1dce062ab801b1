# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches a model to the head, from Hugging Face Hub or a folder.

Downloads need the library huggingface_hub, a dependency of vLLM, so the runtime's interpreter runs this file. A list
needs no library. The token comes as the systemd credential hub.token, never as an argument.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, io_hub
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import CHUNK, GaveUpError, Part, Status

#: huggingface_hub's subfolder for partial downloads. Source: huggingface_hub 0.36 and 2.4, _local_folder.py.
_CACHE = ".cache"
#: Seconds for the list of a model's files on the Hub.
_LIST_SECONDS = 60


def token() -> str | None:
    """Return the token, None if there is none."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    text, _mode = io_file.read_file(f"{folder}/hub.token") if folder else (None, None)
    return (text or "").strip() or None


def list_folder(folder: str, exclude: Sequence[str]) -> dict[str, Any]:
    """Return the listing of a folder; see plan.py.

    Raises ProblemsError if it is not a model's folder, or has files that root must not read for the folder's owner.
    """
    source = Folder(folder)
    try:
        names = source.names()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_source(folder, "folder not found") from None
    except OSError as error:
        raise _no_source(folder, error.strerror or str(error)) from error
    except OutsideError as error:
        raise _no_source(folder, f"it {error}") from error
    files = model_store_plan.chosen(
        [{"path": name, "size": 0, "sha256": "", "git": ""} for name in names if not _is_work_file(name)], exclude
    )
    if not any(file["path"] == "config.json" for file in files):
        raise _no_source(folder, "config.json is missing")
    if refused := [reason for file in files if (reason := _measure(source, file))]:
        raise ProblemsError(
            [
                Problem(
                    "model_store_source",
                    f"{folder} contains {len(refused)} entries that must not be read: {'; '.join(refused)}",
                    "files, or links to files in this folder (in a Hugging Face cache: to blobs of the same model)",
                    "replace these links with copies of the files, or exclude them with model_store_exclude",
                )
            ]
        )
    return {"model": folder, "revision": "", "commit": "", "files": files}


def _is_work_file(name: str) -> bool:
    """Return whether a file belongs to a download or to the model store, not to the model."""
    return name == model_store_plan.MANIFEST or name.startswith(f"{_CACHE}/") or name.endswith(model_store_plan.PART)


def _measure(source: Folder, file: dict[str, Any]) -> str:
    """Set the size of a file. Returns why it must not be read, "" if it may."""
    try:
        file["size"] = source.size(file["path"])
    except OutsideError as error:
        return f"{file['path']!r} {error}"
    except OSError as error:
        return f"{file['path']!r} {error.strerror}"
    return f"{file['path']!r} is a broken link" if file["size"] is None else ""


def _no_source(folder: str, found: str) -> ProblemsError:
    fix = "correct model_store_source, or mount the folder"
    return ProblemsError([Problem("model_store_source", f"{folder}: {found}", "a model's folder on the head", fix)])


class Fetcher:
    """Fetches the files of a listing into a folder, and verifies them."""

    def __init__(self, listing: Mapping[str, Any], folder: str, source: str, status: Status) -> None:
        self.listing, self.folder, self.source, self.status = listing, folder, source, status
        self.within = Folder(folder)
        #: The bytes of each complete file.
        self.sizes: list[int] = []
        status.measured = self.done

    def done(self) -> int:
        """Return the bytes so far. huggingface_hub does not report its progress."""
        here = sum(io_files.there(self.folder).values()) if self.status.state == "receiving" else 0
        return max(sum(self.sizes), here)

    def fetch(self, streams: int, verify: bool) -> dict[str, Any]:
        """Fetch all files, then write and return the manifest. Raises GaveUpError."""
        known = io_files.manifest(self.folder)
        verified = (
            {} if verify or known is None else {file["path"]: (file["size"], file["sha256"]) for file in known["files"]}
        )

        def one(file: Mapping[str, Any]) -> tuple[str, str]:
            size, sha256 = verified.get(file["path"], (-1, ""))
            if not (size == file["size"] == self._size(file["path"]) and file["sha256"] in ("", sha256)):
                try:
                    sha256 = self._one(file, verify)
                except GaveUpError as error:
                    # Report immediately: files in transfer may take long.
                    self.status.end(str(error))
                    raise
            self.sizes.append(file["size"])
            return file["path"], sha256

        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            hashes = dict(pool.map(one, self.listing["files"]))
        manifest = model_store_plan.manifest(self.listing, hashes)
        io_files.write_manifest(self.folder, manifest)
        if not self.source and os.path.isdir(f"{self.folder}/{_CACHE}"):
            shutil.rmtree(f"{self.folder}/{_CACHE}")
        return manifest

    def _size(self, name: str) -> int | None:
        """Return the bytes of an existing file; None for a link out of the folder, which is replaced."""
        try:
            return self.within.size(name)
        except (OSError, OutsideError):
            return None

    def _one(self, file: Mapping[str, Any], verify: bool) -> str:
        """Fetch a file unless it exists, and return its SHA-256."""
        here = self.source == self.folder
        try:
            # A copied file gets its name only when it is complete, so verification copies it again.
            if self._size(file["path"]) == file["size"] and (here or not self.source or not verify):
                with _readable(f"{self.folder}/{file['path']}"):
                    sha256 = self.within.sha256(file["path"])
                if here or self._is(file, sha256):
                    return sha256
                io_files.say(f"{file['path']} has wrong content and is fetched again")
            elif here:
                raise GaveUpError(f"{file['path']} changed while it was read")
            self.status.state = "receiving"
            return self._copy(file) if self.source else self._download(file, f"{self.folder}/{file['path']}")
        except (OSError, OutsideError) as error:
            raise io_files.not_written(self.folder, file["path"], error) from error

    def _copy(self, file: Mapping[str, Any]) -> str:
        origin = f"{self.source}/{file['path']}"
        with contextlib.closing(Part(self.within, file["path"])) as part:
            # An existing partial file may come from another source.
            part.empty()
            with _readable(origin), Folder(self.source).open(file["path"]) as source:
                # One byte beyond the expected size detects a growing file without copying all of it.
                while data := os.read(source, min(CHUNK, file["size"] + 1 - part.size)):
                    part.add(memoryview(data))
            if part.size != file["size"]:
                raise GaveUpError(f"{origin} changed while it was copied")
            part.keep()
            return part.hash.hexdigest()

    def _download(self, file: Mapping[str, Any], path: str) -> str:
        for again in (False, True):
            self._request(file["path"], again or os.path.exists(path))
            sha256 = self.within.sha256(file["path"])
            if self._is(file, sha256):
                with open(path, "rb") as done:
                    os.fsync(done.fileno())
                os.chmod(path, 0o644)
                return sha256
            io_files.say(f"{file['path']} was damaged in a download from Hugging Face Hub")
        # The damaged file only takes up space.
        os.unlink(path)
        expected = (
            f"SHA-256 {file['sha256']}" if file["sha256"] else f"{file['size']} bytes and git's hash {file['git']}"
        )
        raise GaveUpError(
            f"{file['path']} was damaged in two downloads from Hugging Face Hub: its SHA-256 is {sha256}. "
            f"Expected: {expected}. Fix: try again later"
        )

    def _request(self, name: str, anew: bool) -> None:
        """Download a file with huggingface_hub, which resumes a partial one.

        Without ``anew`` the library accepts an existing file of this commit without checking its content.
        """
        model, commit = self.listing["model"], self.listing["commit"]
        hub = importlib.import_module("huggingface_hub")
        try:
            hub.hf_hub_download(
                model, name, revision=commit, local_dir=self.folder, token=token() or False, force_download=anew
            )
        except Exception as error:  # The library's own libraries have errors of their own.
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if isinstance(error, OSError) and error.errno is not None and not status:
                raise
            reason = model_store_plan.words(str(error).encode()) or type(error).__name__
            refused = status if status in io_hub.REFUSED else 0
            raise GaveUpError(str(model_store_plan.hub_problem(model, commit, reason, refused))) from error

    def _is(self, file: Mapping[str, Any], sha256: str) -> bool:
        """Return whether a file on the disk matches the listing."""
        if file["sha256"]:
            return bool(sha256 == file["sha256"])
        if self._size(file["path"]) != file["size"]:
            return False
        with self.within.open(file["path"]) as found:
            return not file["git"] or git_hash(found) == file["git"]


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raise GaveUpError for an error of the block, which reads a file."""
    try:
        yield
    except OutsideError as error:
        raise GaveUpError(f"{path} {error}") from error
    except OSError as error:
        raise GaveUpError(f"{path} cannot be read: {error.strerror}") from error


def git_hash(descriptor: int) -> str:
    """Return git's blob hash of a file."""
    found = hashlib.sha1(b"blob %d\0" % os.fstat(descriptor).st_size, usedforsecurity=False)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        while data := file.read(CHUNK):
            found.update(data)
    return found.hexdigest()


def fetch(options: argparse.Namespace) -> int:
    """Fetch the files of a listing, verify them, and update the status file every second."""
    listing = json.loads(io_file.read_file(options.listing)[0] or "{}")
    if problem := model_store_plan.files_problem(listing.get("files"), hashed=False):
        raise SystemExit(f"{options.listing}: {problem}")
    status = Status(options.status, model_store_plan.total(listing["files"]))
    os.makedirs(options.folder, mode=0o755, exist_ok=True)
    io_files.say(f"{listing['model']} at {listing['commit'] or 'no commit'}: {status.total} bytes")
    with status.reported():
        Fetcher(listing, options.folder, options.source, status).fetch(options.streams, options.verify)
    return int(status.state == "failed")


def print_list(options: argparse.Namespace) -> int:
    """Print the model's file list, or the problem, as JSON."""
    listing: Mapping[str, Any] = {"model": options.source or options.hub, "revision": "", "commit": "", "files": []}
    problem = None
    try:
        if options.source:
            listing = list_folder(options.source, options.exclude)
        else:
            listing = io_hub.listing(options.hub, options.revision, token() or "", options.exclude, _LIST_SECONDS)
    except ProblemsError as error:
        problem = asdict(error.problems[0])
    except io_hub.HubError as error:
        problem = asdict(model_store_plan.hub_problem(options.hub, options.revision, str(error), error.refused))
    json.dump({**listing, "problem": problem}, sys.stdout)
    return 0

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches a model to the head, from Hugging Face Hub or a folder.

Downloads need the library huggingface_hub, a dependency of vLLM, so the runtime's interpreter runs this file. A list
needs no library. The token comes as the systemd credential hub.token, never as an argument.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, io_hub, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import CHUNK, GaveUpError, Part
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_store import Entry, Store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import File, Manifest

#: huggingface_hub's subfolder for partial downloads. Source: huggingface_hub 0.36 and 2.4, _local_folder.py.
_CACHE = ".cache"
#: Seconds for the list of a model's files on the Hub.
_LIST_SECONDS = 60


def token() -> str | None:
    """Return the token, None if there is none."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    text, _mode = io_file.read_file(f"{folder}/hub.token") if folder else (None, None)
    return (text or "").strip() or None


def list_folder(folder: str, exclude: Sequence[str]) -> Manifest:
    """Return the listing of a folder.

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
    named = model_store_plan.chosen((File(name, 0) for name in names if not _is_work_file(name)), exclude)
    if not any(file.path == "config.json" for file in named):
        raise _no_source(folder, "config.json is missing")
    measured = [_measure(source, file.path) for file in named]
    files = tuple(file for file in measured if isinstance(file, File))
    if refused := [reason for reason in measured if isinstance(reason, str)]:
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
    return Manifest(folder, "", "", files)


def _is_work_file(name: str) -> bool:
    """Return whether a file belongs to a download or to the model store, not to the model."""
    return name == model_store_plan.MANIFEST or name.startswith(f"{_CACHE}/") or name.endswith(model_store_plan.PART)


def _measure(source: Folder, name: str) -> File | str:
    """Return a file with its size, or why it must not be read."""
    try:
        size = source.size(name)
    except OutsideError as error:
        return f"{name!r} {error}"
    except OSError as error:
        return f"{name!r} {error.strerror}"
    return f"{name!r} is a broken link" if size is None else File(name, size)


def _no_source(folder: str, found: str) -> ProblemsError:
    fix = "correct model_store_source, or mount the folder"
    return ProblemsError([Problem("model_store_source", f"{folder}: {found}", "a model's folder on the head", fix)])


class Hub:
    """Downloads a model's files from Hugging Face Hub, and verifies them."""

    def __init__(self, store: Store) -> None:
        self.store, self.measured = store, store.status.measured
        store.status.measured = self.done

    def done(self) -> int:
        """Return the bytes so far. huggingface_hub does not report its progress."""
        here = io_files.there(self.store.within.path) if self.store.status.state == "receiving" else {}
        return max(self.measured(), sum(here.values()))

    def fetch(self, entry: Entry) -> None:
        """Download a file, a second time if it was damaged. Raises GaveUpError, OSError, OutsideError."""
        path, file = f"{self.store.within.path}/{entry.path}", entry.file
        for again in (False, True):
            self._request(entry.path, again or os.path.exists(path))
            sha256 = self.store.within.sha256(entry.path)
            if self.store.matches(entry, sha256):
                with open(path, "rb") as done:
                    os.fsync(done.fileno())
                os.chmod(path, 0o644)
                entry.accept(sha256)
                return
            io_files.say(f"{entry.path} was damaged in a download from Hugging Face Hub")
        # The damaged file only takes up space.
        os.unlink(path)
        expected = f"SHA-256 {file.sha256}" if file.sha256 else f"{file.size} bytes and git's hash {file.git}"
        raise GaveUpError(
            f"{entry.path} was damaged in two downloads from Hugging Face Hub: its SHA-256 is {sha256}. "
            f"Expected: {expected}. Fix: try again later"
        )

    def _request(self, name: str, anew: bool) -> None:
        """Download a file with huggingface_hub, which resumes a partial one.

        Without ``anew`` the library accepts an existing file of this commit without checking its content.
        """
        model, commit = self.store.manifest.model, self.store.manifest.commit
        folder, hub = self.store.within.path, importlib.import_module("huggingface_hub")
        try:
            hub.hf_hub_download(
                model, name, revision=commit, local_dir=folder, token=token() or False, force_download=anew
            )
        except Exception as error:  # The library's own libraries have errors of their own.
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if isinstance(error, OSError) and error.errno is not None and not status:
                raise
            reason = model_store_plan.words(str(error).encode()) or type(error).__name__
            refused = status if status in io_hub.REFUSED else 0
            raise GaveUpError(str(model_store_plan.hub_problem(model, commit, reason, refused))) from error


def _copy(store: Store, source: str, entry: Entry) -> None:
    """Copy a file of another folder. Raises GaveUpError, OSError, OutsideError."""
    origin = f"{source}/{entry.path}"
    if source == store.within.path:
        raise GaveUpError(f"{entry.path} changed while it was read")
    with contextlib.closing(Part(store.within, entry.path)) as part:
        # An existing partial file may come from another source.
        part.empty()
        with io_files.readable(origin), Folder(source).open(entry.path) as descriptor:
            # One byte beyond the expected size detects a growing file without copying all of it.
            while data := os.read(descriptor, min(CHUNK, entry.size + 1 - part.size)):
                part.add(memoryview(data))
        if part.size != entry.size:
            raise GaveUpError(f"{origin} changed while it was copied")
        part.keep()
        entry.accept(part.hash.hexdigest())


def fetch(options: argparse.Namespace) -> int:
    """Fetch the files of a listing, verify them, and update the status file every second."""
    store, source = io_store.begin(options, options.listing, hashed=False), options.source
    io_files.say(f"{store.manifest.model} at {store.manifest.commit or 'no commit'}: {store.status.total} bytes")
    origin = partial(_copy, store, source) if source else Hub(store).fetch
    # A copied file gets its name only when it is complete, so verification copies it again.
    keep = not (source and options.verify) or source == options.folder
    with store.status.reported():
        io_store.complete(store, origin, options.streams, options.verify, keep)
        # Before the result: its reader may end this program.
        if not (source or store.reason) and os.path.isdir(f"{options.folder}/{_CACHE}"):
            shutil.rmtree(f"{options.folder}/{_CACHE}")
    return int(store.status.state == "failed")


def print_list(options: argparse.Namespace) -> int:
    """Print the model's file list, or the problem, as JSON."""
    listing = Manifest(options.source or options.hub, "", "", ())
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
    json.dump({**asdict(listing), "problem": problem}, sys.stdout)
    return 0

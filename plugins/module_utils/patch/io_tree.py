# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replacing files of an installed package one by one, and giving back what was shipped.

Beside a file that was written lie what was there (`.gb10-original`, unless nothing was) and a record in sha256sum's format
(`.gb10-sha256`): the digest of the original, if there is one, and that of what was written. Original and record are on disk before the
file itself is replaced, so a run that was killed anywhere is told apart from everything else by digests alone.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.blocks import MARKER
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PTXAS

#: NCCL's library beside the package, as NVIDIA's wheel brings it.
NCCL = "../nvidia/nccl/lib/libnccl.so.2"
#: Large files that may be replaced by a link; only digests of them are ever asked for.
LARGE = (PTXAS, NCCL)
_ORIGINAL, _RECORD = ".gb10-original", ".gb10-sha256"


@dataclass(frozen=True)
class _State:
    """What is known of a file. ``kept`` says that an earlier run's original or record lies beside it."""

    real: str
    current: Wanted
    shipped: bytes | None
    ours: bool
    kept: bool
    trouble: str
    record: tuple[str, ...]


class Tree:
    """A vllm_patch_types.Tree on disk that reads each file once, and the way to change it. ``folder`` is the one for tuned tables."""

    def __init__(self, root: str, folder: str = "") -> None:
        self._root = root
        self._folder = folder or os.path.join(os.path.dirname(root), "gb10_moe_configs")
        self._states: dict[str, _State] = {}

    def shipped(self, path: str) -> bytes | None:
        return self._state(path).shipped

    def current(self, path: str) -> Wanted:
        return self._state(path).current

    def exists(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self._root, path))

    def trouble(self, path: str) -> str:
        return self._state(path).trouble

    def ours(self, path: str) -> bool:
        return self._state(path).ours

    def stale(self, path: str) -> bool:
        state = self._state(path)
        return state.kept and not state.ours and not state.trouble

    def original(self, path: str) -> str:
        """Return where the file lies that vLLM or Triton shipped, be it where it was or beside that."""
        state = self._state(path)
        return state.real + (_ORIGINAL if state.ours else "")

    def changes(self, files: Mapping[str, Wanted]) -> dict[str, Wanted]:
        """Return those files that are not yet what they are to be."""
        return {path: wanted for path, wanted in files.items() if not self._is(path, wanted)}

    def _is(self, path: str, wanted: Wanted) -> bool:
        state = self._state(path)
        return not (state.ours or state.kept) if wanted is None else state.ours and state.current == wanted

    def digests(self, paths: Iterable[str], files: Mapping[str, Wanted]) -> dict[str, str]:
        """Return the SHA-256 of what each path is once ``files`` are written, "" where nothing is; a link's is that of its text."""
        result = {}
        for path in paths:
            state = self._state(path)
            wanted = files.get(path, state.current)
            if wanted is None and path in files:
                wanted = state.shipped if state.ours else state.current
            if path.startswith(LARGE) and not isinstance(wanted, Link):
                # Its content was not read.
                shipped = self.original(path) if path in files else state.real
                result[path] = _digest(shipped) if os.path.lexists(shipped) else ""
            else:
                result[path] = "" if wanted is None else _sha256(wanted)
        return result

    def texts(self, path: str, wanted: Wanted) -> tuple[str, str, str]:
        """Return (path, text before, text after) of a change."""
        state = self._state(path)
        # What is not ours and not wanted is left alone; only what was kept beside it goes.
        after = wanted if wanted is not None else state.shipped if state.ours else state.current
        return state.real, _text(state.current), _text(after)

    def _real(self, path: str) -> str:
        """Return where a file lies. Raises ProblemsError if a symbolic link leads out of where it belongs."""
        full = os.path.join(self._root, path)
        base = self._folder if path.startswith(self._folder) else os.path.dirname(self._root) if path.startswith("../") else self._root
        # Such a file may be a link itself, ours for one.
        real = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)) if path.startswith(LARGE) else os.path.realpath(full)
        if os.path.commonpath([real, os.path.realpath(base)]) != os.path.realpath(base):
            found = f"{os.path.normpath(full)} is a symbolic link to {real}"
            expected = f"files in {base}, which no other environment shares"
            raise self._refusal(path, found, expected, "install vLLM without links, with uv by --link-mode=copy")
        return real

    def _refusal(self, path: str, found: str, expected: str, fix: str) -> ProblemsError:
        argument = "config_folder" if path.startswith(self._folder) else "package_dir"
        return ProblemsError([Problem(argument, found, expected, fix)])

    def _state(self, path: str) -> _State:
        if path not in self._states:
            self._states[path] = self._look(path)
        return self._states[path]

    def _look(self, path: str) -> _State:
        real = self._real(path)
        record = _record(real + _RECORD)
        kept = bool(record) or os.path.lexists(real + _ORIGINAL)
        link = os.path.islink(real)
        current: Wanted = Link(os.readlink(real)) if link else b"" if path.startswith(LARGE) and os.path.exists(real) else _read(real)
        digest = _digest(real) if record and current is not None else ""
        ours = digest in [line.partition("  ")[0] for line in record if not line.endswith(_ORIGINAL)]
        marked = isinstance(current, bytes) and MARKER.search(current) is not None
        trouble = ""
        shipped = current if isinstance(current, bytes) else None
        if ours:
            shipped = None if link or path.startswith(LARGE) else _read(real + _ORIGINAL)
            originals = [line.partition("  ")[0] for line in record if line.endswith(_ORIGINAL)]
            if originals and not (os.path.lexists(real + _ORIGINAL) and _digest(real + _ORIGINAL) == originals[0]):
                trouble = f"{real}{_ORIGINAL} is not the original that {real}{_RECORD} tells of; install vLLM anew"
        elif marked and record:
            trouble = f"{real} was changed after it was patched; put that right, or put {real}{_ORIGINAL} in its place"
        elif marked:
            trouble = f"{real} carries a patch, and what it was before is not kept beside it; install vLLM anew"
        return _State(real, current, shipped, ours, kept, trouble, record)

    def check(self, files: Mapping[str, Wanted]) -> None:
        """Raise ProblemsError if a file's folder cannot be written to, SyntaxError if one is no Python after all."""
        for path, wanted in files.items():
            real = self._state(path).real
            folder = os.path.dirname(real)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            if not os.access(folder, os.W_OK):
                found = f"{folder} cannot be written to"
                raise self._refusal(path, found, "a folder that this user may change", "become its owner, mount it read-write")
            if path.endswith(".py") and isinstance(wanted, bytes):
                compile(wanted, real, "exec", dont_inherit=True)

    def write(self, files: Mapping[str, Wanted]) -> None:
        """Make these files what they are to be, each at once or not at all. Raises what check() does, and then all are as they were."""
        self.check(files)
        written: list[str] = []
        try:
            for path, wanted in files.items():
                written.append(path)
                self._put(self._state(path), wanted)
        except OSError as error:
            for path in reversed(written):
                self._back(self._states[path])
            failed = f"writing failed: {error}"
            raise self._refusal(written[-1], failed, "a folder that this user may change", "make room, mount it read-write") from error
        finally:
            self._states.clear()

    def _put(self, state: _State, wanted: Wanted) -> None:
        real = state.real
        folder, name = os.path.split(real)
        _sweep(real)
        _drop_bytecode(real)
        if wanted is None:
            if state.ours:
                _restore(real)
            _forget(real)
            if folder == os.path.realpath(self._folder) and not os.listdir(folder):
                os.rmdir(folder)
            return
        os.makedirs(folder, exist_ok=True)
        if state.ours:
            # What is there stays recorded until it is replaced, so that it is known wherever the run is killed.
            now = _digest(real)
            record = [line for line in state.record if line.endswith(_ORIGINAL) or line.startswith(now)]
        else:
            _forget(real)
            record = [f"{_digest(real)}  {name}{_ORIGINAL}"] if state.current is not None else []
            if state.current is not None:
                os.link(real, real + _ORIGINAL, follow_symlinks=False)
                io_file.sync_folder(folder)
        _write_record(real, [*record, f"{_sha256(wanted)}  {name}"])
        _write(real, wanted)
        _drop_bytecode(real)

    def _back(self, state: _State) -> None:
        """Undo _put(), however far it came."""
        real = state.real
        if not state.ours:
            if os.path.lexists(real + _ORIGINAL) or state.current is None:
                _restore(real)
            _forget(real)
        elif state.current is not None:
            if any(line.endswith(_ORIGINAL) for line in state.record) and not os.path.lexists(real + _ORIGINAL):
                os.link(real, real + _ORIGINAL, follow_symlinks=False)
            _write_record(real, state.record)
            _write(real, state.current)


def _beside(real: str) -> str:
    """Return a name in a file's folder that nothing has; only a call that never replaces may use it."""
    return os.path.join(os.path.dirname(real), f".{os.path.basename(real)}.{secrets.token_hex(8)}")


def _write(real: str, wanted: bytes | Link) -> None:
    """Put a file or link in a file's place at once; mode and owner stay, a new file's are 0644 and its folder's."""
    if isinstance(wanted, Link):
        temporary = _beside(real)  # symlink() never follows or replaces
        os.symlink(wanted, temporary)
        _replace(temporary, real)
        return
    there = os.path.exists(real)
    status = os.stat(real if there else os.path.dirname(real))
    io_file.write_file(real, wanted, status.st_mode & 0o7777 if there else 0o644, (status.st_uid, status.st_gid))


def _write_record(real: str, lines: Sequence[str]) -> None:
    io_file.write_file(real + _RECORD, "".join(f"{line}\n" for line in lines), 0o644)


def _record(path: str) -> tuple[str, ...]:
    text, _mode = io_file.read_file(path)
    return tuple((text or "").splitlines())


def _restore(real: str) -> None:
    """Put the very file that was kept back, with its mode, owner and times; where none was kept, there was no file."""
    if os.path.lexists(real + _ORIGINAL):
        temporary = _beside(real)  # link() never replaces
        os.link(real + _ORIGINAL, temporary, follow_symlinks=False)
        _replace(temporary, real)
    else:
        _unlink(real)


def _replace(temporary: str, real: str) -> None:
    try:
        os.replace(temporary, real)
    finally:
        # After a failure, and where both are the same file already: then rename(2) leaves both names.
        _unlink(temporary)
    io_file.sync_folder(os.path.dirname(real))


def _forget(real: str) -> None:
    """Drop what is kept of a file; the record goes last, so that a killed run leaves nothing that nobody knows of."""
    _unlink(real + _ORIGINAL)
    _unlink(real + _RECORD)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _drop_bytecode(real: str) -> None:
    folder, name = os.path.split(real)
    for path in glob.glob(f"{glob.escape(folder)}/__pycache__/{glob.escape(os.path.splitext(name)[0])}.*.pyc"):
        _unlink(path)


def _sweep(real: str) -> None:
    """Remove what a killed run had not yet moved into place."""
    folder, name = os.path.split(real)
    for path in glob.glob(f"{glob.escape(folder)}/.{glob.escape(name)}.*"):
        _unlink(path)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _sha256(wanted: bytes | Link) -> str:
    return hashlib.sha256(f"link to {wanted}".encode() if isinstance(wanted, Link) else wanted).hexdigest()


def _digest(path: str) -> str:
    """Return the digest of what a path is: a link's is that of where it points."""
    return _sha256(Link(os.readlink(path))) if os.path.islink(path) else io_file.sha256(path)


def _text(content: Wanted) -> str:
    return f"link to {content}\n" if isinstance(content, Link) else (content or b"").decode("utf-8", "replace")

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace files of an installed package one by one, and restore the shipped files.

A written file's folder also holds its original (`.gb10-original`), if there was one. A record in sha256sum's format
(`.gb10-sha256`) holds the digests of the original and of the written content. Both are on disk before the file is
replaced, so the digests identify the state after a run was killed at any point.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.blocks import MARKER
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, State, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PTXAS

#: The library of NVIDIA's NCCL wheel, relative to the package.
NCCL = "../nvidia/nccl/lib/libnccl.so.2"
#: Large files that a link may replace. Only their digests are read.
LARGE = (PTXAS, NCCL)
_ORIGINAL, _RECORD = ".gb10-original", ".gb10-sha256"
#: Maximum bytes of a file that is read as a whole.
_MOST = 64 << 20


@dataclass(frozen=True)
class _State(State):
    """A file on disk: also its real path, and the record of an earlier run."""

    real: str
    record: tuple[str, ...]


class Tree:
    """A schema.Tree on disk that reads each file once and can write it. ``folder`` is for tuned tables."""

    def __init__(self, root: str, folder: str = "") -> None:
        self._root = root
        self._folder = folder or os.path.join(os.path.dirname(root), "gb10_moe_configs")
        self._states: dict[str, _State] = {}

    def exists(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self._root, path))

    def original(self, path: str) -> str:
        """Return the path of the file that vLLM or Triton shipped, original or in place."""
        state = self.state(path)
        return state.real + (_ORIGINAL if state.ours else "")

    def changes(self, files: Mapping[str, Wanted]) -> dict[str, Wanted]:
        """Return the files that differ from their wanted content."""
        return {path: wanted for path, wanted in files.items() if not self._is(path, wanted)}

    def _is(self, path: str, wanted: Wanted) -> bool:
        state = self.state(path)
        return not (state.ours or state.kept) if wanted is None else state.ours and state.current == wanted

    def digests(self, paths: Iterable[str], files: Mapping[str, Wanted]) -> dict[str, str]:
        """Return each path's SHA-256 after ``files`` are written, "" if absent. A link's digest is that of its text."""
        result = {}
        for path in paths:
            state = self.state(path)
            wanted = files.get(path, state.current)
            if wanted is None and path in files:
                wanted = state.shipped if state.ours else state.current
            if path.startswith(LARGE) and not isinstance(wanted, Link):
                # The content of a large file was not read.
                shipped = self.original(path) if path in files else state.real
                result[path] = _digest(shipped) if os.path.lexists(shipped) else ""
            else:
                result[path] = "" if wanted is None else _sha256(wanted)
        return result

    def apply(self, files: Mapping[str, Wanted], check_mode: bool) -> dict[str, tuple[str, str, str]]:
        """Write the files that differ from their wanted content, unless in check mode. Raises the errors of write().

        Returns path -> (real path, text before, text after) of each change.
        """
        changes = self.changes(files)
        texts = {path: self._texts(path, wanted) for path, wanted in changes.items()}
        if check_mode:
            self.check(changes)
        else:
            self.write(changes)
        return texts

    def _texts(self, path: str, wanted: Wanted) -> tuple[str, str, str]:
        """Return (real path, text before, text after) of a change."""
        state = self.state(path)
        # A foreign file that is not wanted stays. Only its kept original and record are removed.
        after = wanted if wanted is not None else state.shipped if state.ours else state.current
        return state.real, _text(state.current), _text(after)

    def _real(self, path: str) -> str:
        """Return the real path of a file. Raises ProblemsError if a symbolic link leads out of its folder."""
        full = os.path.join(self._root, path)
        base = (
            self._folder
            if path.startswith(self._folder)
            else os.path.dirname(self._root)
            if path.startswith("../")
            else self._root
        )
        # Such a file may itself be a link, such as this module's.
        real = (
            os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
            if path.startswith(LARGE)
            else os.path.realpath(full)
        )
        if os.path.commonpath([real, os.path.realpath(base)]) != os.path.realpath(base):
            found = f"{os.path.normpath(full)} is a symbolic link to {real}"
            expected = f"files in {base}, not shared with another environment"
            raise self._refusal(path, found, expected, "install vLLM without links (uv: --link-mode=copy)")
        return real

    def _refusal(self, path: str, found: str, expected: str, fix: str) -> ProblemsError:
        argument = "config_folder" if path.startswith(self._folder) else "package_dir"
        return ProblemsError([Problem(argument, found, expected, fix)])

    def state(self, path: str) -> _State:
        if path not in self._states:
            self._states[path] = self._look(path)
        return self._states[path]

    def _look(self, path: str) -> _State:
        real, large = self._real(path), path.startswith(LARGE)
        record = _record(real + _RECORD)
        kept = bool(record) or os.path.lexists(real + _ORIGINAL)
        current = _current(real, large)
        if record and current is not None and _digest(real) in _recorded(record, of_original=False):
            shipped = None if large or isinstance(current, Link) else _read(real + _ORIGINAL)
            return _State(current, shipped, True, kept, _original_trouble(real, record), real, record)
        shipped = current if isinstance(current, bytes) else None
        trouble = ""
        if shipped is not None and MARKER.search(shipped):
            trouble = f"{real} is patched, but its original is missing; reinstall vLLM"
            if record:
                trouble = (
                    f"{real} was changed after it was patched; undo that change, or replace it with {real}{_ORIGINAL}"
                )
        return _State(current, shipped, False, kept, trouble, real, record)

    def check(self, files: Mapping[str, Wanted]) -> None:
        """Raise ProblemsError if a file's folder is not writable, SyntaxError if a file is not valid Python."""
        for path, wanted in files.items():
            real = self.state(path).real
            folder = os.path.dirname(real)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            if not os.access(folder, os.W_OK):
                found, fix = f"{folder} is not writable", "run as its owner, or mount it read-write"
                raise self._refusal(path, found, "a folder that this user may change", fix)
            if path.endswith(".py") and isinstance(wanted, bytes):
                compile(wanted, real, "exec", dont_inherit=True)

    def write(self, files: Mapping[str, Wanted]) -> None:
        """Write these files, each atomically. On an error, all files are restored. Raises the errors of check()."""
        self.check(files)
        written: list[str] = []
        try:
            for path, wanted in files.items():
                written.append(path)
                self._put(self.state(path), wanted)
        except OSError as error:
            for path in reversed(written):
                self._back(self._states[path])
            failed, fix = f"writing failed: {error}", "free disk space, or mount it read-write"
            raise self._refusal(written[-1], failed, "a folder that this user may change", fix) from error
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
        io_file.add_folder(folder)
        if state.ours:
            # Keep the current content recorded until it is replaced, so that a killed run is recognized.
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
        """Undo _put(), even if it was incomplete."""
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


def _current(real: str, large: bool) -> Wanted:
    """Return a file's content: a link's target, empty for a large file, None if it does not exist."""
    if os.path.islink(real):
        return Link(os.readlink(real))
    return b"" if large and os.path.exists(real) else _read(real)


def _recorded(record: Sequence[str], of_original: bool) -> list[str]:
    """Return the digests in a record: that of the original, or those of written content."""
    return [line.partition("  ")[0] for line in record if line.endswith(_ORIGINAL) == of_original]


def _original_trouble(real: str, record: Sequence[str]) -> str:
    """Return why a written file's original cannot be restored, "" if it can or if there was none."""
    for digest in _recorded(record, of_original=True)[:1]:
        if not os.path.lexists(real + _ORIGINAL) or _digest(real + _ORIGINAL) != digest:
            return f"{real}{_ORIGINAL} does not match {real}{_RECORD}; reinstall vLLM"
    return ""


def _beside(real: str) -> str:
    """Return an unused name in a file's folder. Use it only with calls that never replace a file."""
    return os.path.join(os.path.dirname(real), f".{os.path.basename(real)}.{secrets.token_hex(8)}")


def _write(real: str, wanted: bytes | Link) -> None:
    """Replace a file atomically. Mode and owner stay; a new file gets 0644 and its folder's owner."""
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
    return tuple((_read(path) or b"").decode("utf-8", "replace").splitlines())


def _restore(real: str) -> None:
    """Restore the kept file with its mode, owner and times. Remove the file if none was kept."""
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
        # After a failure, or if both are the same file already: then rename(2) keeps both names.
        _unlink(temporary)
    io_file.sync_folder(os.path.dirname(real))


def _forget(real: str) -> None:
    """Remove the kept original, then the record. This order leaves no unknown files if the run is killed."""
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
    """Remove temporary files of a killed run."""
    folder, name = os.path.split(real)
    for path in glob.glob(f"{glob.escape(folder)}/.{glob.escape(name)}.*"):
        _unlink(path)


def _read(path: str) -> bytes | None:
    """Return the content of a file, None if there is none.

    A package may come from an image: a link could lead to a file of the host, which a diff would show. Raises
    ProblemsError for anything but a file of at most _MOST bytes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _no_file(path, "a symbolic link") from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_file(path, "no regular file")
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise _no_file(path, f"larger than {_MOST} bytes")
    return content


def _no_file(path: str, found: str) -> ProblemsError:
    return ProblemsError([Problem("package_dir", f"{path} is {found}", "a file of the package", "reinstall vLLM")])


def _sha256(wanted: bytes | Link) -> str:
    return hashlib.sha256(f"link to {wanted}".encode() if isinstance(wanted, Link) else wanted).hexdigest()


def _digest(path: str) -> str:
    """Return the digest of a file, or of a link's target path."""
    return _sha256(Link(os.readlink(path))) if os.path.islink(path) else io_file.sha256(path)


def _text(content: Wanted) -> str:
    return f"link to {content}\n" if isinstance(content, Link) else (content or b"").decode("utf-8", "replace")

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open files below a folder that users other than root may change at any moment.

Each part of a path is opened relative to its parent's descriptor, and the kernel follows no link.
So no change can happen between check and use. Hard links cannot be distinguished from files:
fs.protected_hardlinks, which Debian and Ubuntu set, forbids hard links to other users' files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator

#: Maximum links in one path, as in the kernel.
_LINKS = 40
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: O_NONBLOCK, because opening a pipe must not wait for its other end.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutsideError(Exception):
    """A path leads out of its folder, or not to a regular file. The text continues after the path."""


class Folder:
    """A folder, by its path. Links in that path must belong to root or the caller, as no other user can make those.

    Links below the folder must end inside it. Links of a Hugging Face cache are allowed too: from a folder
    `snapshots/REVISION` directly into the `blobs` next to `snapshots`, which belong to the same model.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.normpath(path)
        above, self._inside = self.path, []
        if os.path.basename(os.path.dirname(above)) == "snapshots":
            above, revision = os.path.dirname(os.path.dirname(above)), os.path.basename(above)
            self._inside = ["snapshots", revision]
        self._above = above

    @contextlib.contextmanager
    def _base(self) -> Iterator[int]:
        """Yield a descriptor of the folder that links must stay in."""
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with _Walk(root, "") as walk:
            walk.to(self._above.split("/"), trusted=True)
            yield walk.here

    @contextlib.contextmanager
    def place(self, path: str = "", make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder below this one ("" for itself), without following links; ``make`` creates it.

        Raises OSError, OutsideError.
        """
        with self._base() as base, _Walk(os.dup(base), self._above) as walk:
            walk.to([*self._inside, *path.split("/")], links=False, make=make)
            # The walk's descriptors are O_PATH; this one can be listed and synced.
            found = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walk.here)
            try:
                yield found
            finally:
                os.close(found)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Yield a descriptor to read a file. Raises OSError, OutsideError."""
        with self._base() as base, _Walk(os.dup(base), self._above) as walk:
            name = walk.to([*self._inside, *path.split("/")], file=True)
            names = [*walk.names, name]
            blob = bool(self._inside) and len(names) == 2 and names[0] == "blobs"
            if names[: len(self._inside)] != self._inside and not blob:
                raise OutsideError(f"leads to {'/'.join([self._above, *names])}, which is outside of {self.path}")
            found = _regular(os.open(name, os.O_RDONLY | _FILE, dir_fd=walk.here))
        try:
            yield found
        finally:
            os.close(found)

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, None if it does not exist. Raises OSError, OutsideError."""
        try:
            with self.open(path) as found:
                return os.fstat(found).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file, which may be large. Raises OSError, OutsideError."""
        with self.open(path) as found, os.fdopen(os.dup(found), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def names(self) -> list[str]:
        """Return the relative path of every file below the folder. Links to folders are neither listed nor followed."""
        with self.place() as place:
            # os.fwalk lists links to folders as folders.
            walk = os.fwalk(".", dir_fd=place)
            return [
                os.path.normpath(f"{above}/{name}") for above, _folders, names, _descriptor in walk for name in names
            ]


def create(place: int, name: str) -> int:
    """Open a file for reading and writing, and create it if needed. Raises OSError, OutsideError."""
    return _regular(os.open(name, os.O_RDWR | os.O_CREAT | _FILE, 0o644, dir_fd=place))


def _regular(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OutsideError("is not a regular file")
    return descriptor


class _Walk:
    """A path down from a folder. Each step stays open until the end. It takes ownership of the descriptor ``top``."""

    def __init__(self, top: int, path: str) -> None:
        self.path, self.places, self.names, self.links = path, [top], list[str](), 0

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_error: object) -> None:
        for place in self.places:
            os.close(place)

    @property
    def here(self) -> int:
        """The descriptor of the current folder."""
        return self.places[-1]

    def to(
        self, parts: list[str], file: bool = False, links: bool = True, trusted: bool = False, make: bool = False
    ) -> str:
        """Descend to a folder or, with ``file``, to a file's folder. Returns the file's name, "" without ``file``."""
        todo = [part for part in reversed(parts) if part not in ("", ".")]
        while todo:
            name = todo.pop()
            if name == "..":
                self._up(trusted)
                continue
            found = self._look(name, make)
            mode = os.fstat(found).st_mode
            if stat.S_ISLNK(mode):
                try:
                    todo += self._follow(found, links, trusted)
                finally:
                    os.close(found)
            elif file and not todo and not stat.S_ISDIR(mode):
                os.close(found)
                return name
            else:
                self.places.append(found)
                self.names.append(name)
        if file:
            raise OutsideError("is not a regular file")
        return ""

    def _look(self, name: str, make: bool) -> int:
        try:
            return os.open(name, _LOOK, dir_fd=self.here)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=self.here)
        return os.open(name, _LOOK, dir_fd=self.here)

    def _up(self, trusted: bool) -> None:
        if len(self.places) > 1:
            os.close(self.places.pop())
            self.names.pop()
        elif not trusted:  # the parent of / is /
            raise OutsideError(f"leads out of {self.path}")

    def _follow(self, link: int, links: bool, trusted: bool) -> list[str]:
        """Return the parts of a link's target, last one first. An absolute target starts at the top again."""
        target, self.links = os.readlink("", dir_fd=link), self.links + 1
        if not links or self.links > _LINKS:
            raise OutsideError(f"is a link to {target}" if not links else "is a link in a loop of links")
        if trusted and os.fstat(link).st_uid not in (0, os.geteuid()):
            raise OutsideError(f"has a link to {target} in its path, which belongs to another user")
        if target.startswith("/"):
            if not trusted and not target.startswith(f"{self.path}/"):
                raise OutsideError(f"leads to {target}, which is outside of {self.path}")
            target = target.removeprefix(self.path)
            while len(self.places) > 1:
                os.close(self.places.pop())
            self.names.clear()
        return [part for part in reversed(target.split("/")) if part not in ("", ".")]

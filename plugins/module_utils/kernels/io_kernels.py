# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the unit that compiles FlashInfer's kernels, and keep its results in the runtime, as root."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath, io_file, io_tar, io_work_unit
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import plan
from ansible_collections.gb10.cluster.plugins.module_utils.kernels.plan import Progress

#: Where root finds the files of the unit's temporary user.
_CACHE = f"/var/cache/private/{plan.CACHE}"
_LIBRARY = 0o755


def store(python: str) -> str:
    """Return the folder for the modules in FlashInfer's package, "" if the environment has no FlashInfer."""
    packages = glob.glob(
        f"{glob.escape(os.path.dirname(os.path.dirname(python)))}/lib/python3*/site-packages/flashinfer"
    )
    return f"{packages[0]}/{plan.STORE}" if packages else ""


def _release(folder: str) -> str:
    """Return the release of FlashInfer that has the folder, such as "flashinfer_python-0.7.2.dist-info", "" if
    unknown."""
    packages = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    found = sorted(glob.glob(f"{glob.escape(packages)}/flashinfer_python-*.dist-info"))
    return os.path.basename(found[0]) if found else ""


def _empty_of_others(folder: str) -> None:
    """Remove the modules of another release of FlashInfer, which a node's own wheel may have replaced.

    Raises OSError.
    """
    mark = f"{folder}/{plan.MANIFESTS}/{plan.RELEASE}"
    if io_file.differs(mark, _release(folder)):
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        io_file.install_folder(os.path.dirname(mark))
        io_file.install(mark, _release(folder))


def stored(folder: str, name: str) -> dict[str, str] | None:
    """Return the SHA-256 of each stored module of ``name``, None if one is missing or none was stored."""
    if io_file.read(f"{folder}/{plan.MANIFESTS}/{plan.RELEASE}") != _release(folder):
        return None
    modules = plan.parse_manifest(io_file.read(f"{folder}/{plan.MANIFESTS}/{name}.json"), name)
    if modules is None or not all(os.path.isfile(f"{folder}/{module}/{module}.so") for module in modules):
        return None
    return modules


def progress(run: Run, name: str) -> Progress:
    """Return the progress of the unit. That of another model is replaced."""
    state = io_work_unit.read(run, plan.UNIT, name).state
    return plan.progress("none" if state == "other" else state, _files())


def cause(run: Run) -> str:
    """Return the last lines of the unit's log."""
    _status, stdout, _stderr = run(["journalctl", f"--unit={plan.UNIT}", "--output=cat", "--lines=12", "--no-pager"])
    return "\n".join(line[:300] for line in stdout.splitlines())


def collect(folder: str, name: str, jobs: int) -> dict[str, str]:
    """Copy the finished modules of the temporary user to the store, and return the SHA-256 of each.

    A stored module with the same name stays, because processes may have mapped it. Raises ProblemsError, OSError.
    """
    found = plan.built(_files())
    _refuse_many(len(found))
    return _keep(folder, name, _compiled(found), jobs)


def _compiled(found: Mapping[str, str]) -> Iterator[tuple[str, IO[bytes]]]:
    for module, path in found.items():
        try:
            with io_beneath.Folder(_CACHE).open(path) as place, os.fdopen(os.dup(place), "rb") as source:
                yield module, source
        except io_beneath.OutsideError as error:
            raise OSError(f"{path} {error}") from error


def pack(folder: str, name: str, path: str) -> str:
    """Write the stored modules of ``name`` to a tar file for other nodes, and return its SHA-256. Raises OSError."""
    modules = stored(folder, name) or {}
    with tarfile.open(path, "w") as archive:
        for module in modules:
            archive.add(f"{folder}/{module}/{module}.so", arcname=f"{module}.so", recursive=False)
    os.chmod(path, io_file.READABLE)
    return io_file.sha256(path)


def unpack(folder: str, name: str, path: str, jobs: int) -> dict[str, str]:
    """Store the modules of another node's tar file, and return the SHA-256 of each. Raises ProblemsError, OSError."""
    # Without compression, whose headers could need any memory.
    with tarfile.open(path, "r:") as archive:
        return _keep(folder, name, _received(archive, os.path.getsize(path)), jobs)


def _received(archive: tarfile.TarFile, size: int) -> Iterator[tuple[str, IO[bytes]]]:
    for number, entry in enumerate(archive):
        _refuse_many(number)
        module = entry.name.removesuffix(".so")
        source = io_tar.plain(archive, entry, size)
        if source is None or not plan.MODULE.fullmatch(module) or entry.size > plan.MOST_BYTES:
            found = f"{entry.name[:100]!r} is not a module"
            raise ProblemsError([Problem("archive", found, "modules of FlashInfer", "compile them again")])
        yield module, source


def _keep(folder: str, name: str, found: Iterable[tuple[str, IO[bytes]]], jobs: int) -> dict[str, str]:
    """Store the modules, then their manifest, which marks them as complete."""
    _empty_of_others(folder)
    modules = {module: _add(folder, module, source) for module, source in found}
    io_file.install_folder(f"{folder}/{plan.MANIFESTS}")
    io_file.install(f"{folder}/{plan.MANIFESTS}/{name}.json", plan.manifest(name, modules, jobs))
    return modules


def _refuse_many(count: int) -> None:
    if count > plan.MOST_MODULES:
        raise ProblemsError(
            [Problem("modules", str(count), f"at most {plan.MOST_MODULES}", "remove the folder of the compilation")]
        )


def _add(folder: str, module: str, source: IO[bytes]) -> str:
    """Store one module, and return its SHA-256. Raises ProblemsError for a too large one, OSError."""
    place = f"{folder}/{module}"
    content = source.read(plan.MOST_BYTES + 1)
    if len(content) > plan.MOST_BYTES:
        raise ProblemsError(
            [Problem("modules", f"{module} is too large", f"at most {plan.MOST_BYTES} bytes", "compile it again")]
        )
    digest = hashlib.sha256(content).hexdigest()
    path = f"{place}/{module}.so"
    if not os.path.isfile(path):
        io_file.install_folder(place)
        io_file.write_file(path, content, _LIBRARY)
        return digest
    return io_file.sha256(path)


def _files() -> list[str]:
    """Return the relative path of every file of the temporary user, [] if there is none."""
    try:
        return io_beneath.Folder(_CACHE).names()
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_cache() -> None:
    """Remove the objects of the compilation, which take gigabytes. Raises OSError."""
    if os.path.isdir(_CACHE):
        shutil.rmtree(_CACHE)

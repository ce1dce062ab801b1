# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the build's unit. It runs as the unit's own user, which owns the folder of the build.

It copies the source, which root owns, compiles it, and writes a status. After an interruption it continues with the
objects that exist. It imports only the standard library, because it runs without this collection.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

#: The copy of the source, with all objects. Its path is equal for all builds, because the compiler cache depends on it.
WORK = "work"
#: Characters of a commit.
_COMMIT = 40


def main(argv: Sequence[str]) -> int:
    """Build the wheel of ``--name``. Return the exit status of the build."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("name", "source", "state", "python"):
        parser.add_argument(f"--{option}", required=True)
    given = parser.parse_args(argv)
    begin = time.monotonic()
    os.chdir(given.state)
    shutil.rmtree("tmp", ignore_errors=True)
    for folder in ("home", "tmp", "ccache"):
        os.makedirs(folder, exist_ok=True)
    status = {"name": given.name, "state": "building", "seconds": 0.0, "wheel": "", "ccache": {}, "dependencies": {}}
    _write(status)
    resumed = _copy(given.source, given.name)
    shutil.rmtree("dist", ignore_errors=True)
    _ccache("--zero-stats")
    uv = f"{os.path.dirname(given.python)}/uv"
    # Without isolation, the build uses the packages of the environment, which the role pinned.
    # The program runs without Ansible.
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        [
            uv,
            "build",
            "--wheel",
            "--no-build-isolation",
            "--python",
            given.python,
            "--out-dir",
            f"{given.state}/dist",
            WORK,
        ],
        check=False,
    )
    wheels = sorted(name for name in os.listdir("dist") if name.endswith(".whl")) if os.path.isdir("dist") else []
    finished = done.returncode == 0 and len(wheels) == 1
    status |= {
        "state": "finished" if finished else "failed",
        "seconds": 0.0 if resumed else round(time.monotonic() - begin, 1),
    }
    status |= {"wheel": wheels[0] if finished else "", "ccache": _statistics(), "dependencies": _dependencies()}
    _write(status)
    return 0 if finished else done.returncode or 1


def _copy(source: str, name: str) -> bool:
    """Copy the source of a build once, and return whether it was there. Times stay, because they decide what ninja
    compiles again.

    Another build replaces the objects of the last one, which take gigabytes. The compiler cache keeps their results.
    """
    mark = f"{WORK}/.gb10-copied"
    if os.path.exists(mark):
        with open(mark, encoding="utf-8") as file:
            if file.read() == name:
                return True
        os.unlink(mark)
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(source, WORK, symlinks=True)
    with open(mark, "w", encoding="utf-8") as file:
        file.write(name)
    return False


def _ccache(option: str) -> str:
    if shutil.which("ccache") is None:
        return ""
    # The program runs without Ansible.
    return subprocess.run(["ccache", option], stdout=subprocess.PIPE, check=False, text=True).stdout  # pylint: disable=ansible-bad-function


def _statistics() -> dict[str, int]:
    """Return the numbers of results from the compiler cache and of compilations."""
    found = {}
    for line in _ccache("--print-stats").splitlines():
        name, _tab, value = line.partition("\t")
        if name in ("direct_cache_hit", "preprocessed_cache_hit", "cache_miss") and value.isdigit():
            found[name] = int(value)
    return found


def _dependencies() -> dict[str, str]:
    """Return {dependency: commit} of the sources that CMake downloaded.

    Source: CMake, FetchContent, folder NAME-src.
    """
    found = {}
    for head in sorted(glob.glob(f"{WORK}/.deps/*-src/.git/HEAD")):
        with open(head, encoding="utf-8") as file:
            # A branch would have a path here.
            if len(text := file.read(64).strip()) == _COMMIT:
                found[head.split("/")[-3].removesuffix("-src")] = text
    return found


def _write(status: dict[str, object]) -> None:
    """Replace the status atomically."""
    with open(".status", "w", encoding="utf-8") as file:
        json.dump(status, file)
    os.replace(".status", "status.json")


if __name__ == "__main__":
    # The program runs without Ansible.
    sys.exit(main(sys.argv[1:]))  # pylint: disable=ansible-bad-function

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wheels of a node's own, in place of the lock's: the same releases, built for another GPU.

A wheel is ``{"wheel": str, "sha256": str}``: an absolute path on the controller or an address, and what the file must be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: Name, version without its local part, then tags. Source: packaging.python.org, "Binary distribution format".
_WHEEL = re.compile(r"([A-Za-z0-9._]+)-([0-9][^-+]*)(?:\+[^-]*)?(?:-[0-9][^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_PIN = r"^{}(?:\[[^]]*\])?==([^ ;\\+\n]+)"
_KEYS = {"wheel", "sha256"}


def check(wheels: Sequence[Any], lock: str, path: str) -> list[Problem]:
    """Return every problem of a node's wheels. Another release than the lock's would be one that the other nodes do not run."""
    problems = []
    for index, wheel in enumerate(wheels):
        where = f"{path}[{index}]"
        if not isinstance(wheel, Mapping) or set(wheel) != _KEYS:
            problems.append(Problem(where, repr(wheel), "wheel and sha256", "give both, and nothing else"))
            continue
        place, digest = str(wheel["wheel"]), str(wheel["sha256"])
        if not re.fullmatch("[0-9a-f]{64}", digest):
            problems.append(Problem(f"{where}.sha256", repr(digest), "64 hexadecimal digits in lower case", "take what sha256sum prints of the file"))
        if not re.match("/|https?://", place):
            problems.append(Problem(f"{where}.wheel", place, "an absolute path on the controller, or an address", "correct it"))
        problems += _release(place, lock, f"{where}.wheel")
    return problems


def _release(place: str, lock: str, where: str) -> list[Problem]:
    """Hold a wheel's name against the lock."""
    name = place.rpartition("/")[2]
    found = _WHEEL.fullmatch(name)
    if not found:
        return [Problem(where, name, "NAME-VERSION-TAGS.whl", "give the file the name that its builder gave it")]
    package = re.sub("[-_.]+", "-", found[1]).lower()
    pin = re.search(_PIN.format(re.sub("-", "[-_.]+", package)), lock, re.MULTILINE | re.IGNORECASE)
    if pin is None:
        return [Problem(where, name, "a package that the lock pins", "add it to gb10_runtime_lock, or leave the wheel out")]
    if pin[1] != found[2]:
        return [Problem(where, f"{package} {found[2]}", f"{pin[1]}, as on the other nodes", "build that release, or change gb10_runtime_lock")]
    return []

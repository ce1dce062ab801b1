# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's own wheels, in place of the lock's: the same releases, built for another GPU.

A wheel is ``{"wheel": str, "sha256": str}``: an absolute path on the controller or an address, and the file's SHA-256.
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


def check_wheels(wheels: Sequence[Any], lock: str, path: str, built: bool = False) -> list[Problem]:
    """Return all problems of a node's wheels. Their releases must be the lock's, because the other nodes run those.

    ``built``: vLLM may be built from source, so that a wheel of it is one.
    """
    problems = _check_built(wheels, path) if built else []
    for index, wheel in enumerate(wheels):
        where = f"{path}[{index}]"
        if not isinstance(wheel, Mapping) or set(wheel) != _KEYS:
            problems.append(Problem(where, repr(wheel), "wheel and sha256", "set both, and nothing else"))
            continue
        place, digest = str(wheel["wheel"]), str(wheel["sha256"])
        if not re.fullmatch("[0-9a-f]{64}", digest):
            expected = "64 hexadecimal digits in lower case"
            fix = "use the output of sha256sum for the file"
            problems.append(Problem(f"{where}.sha256", repr(digest), expected, fix))
        if not re.match("/|https?://", place):
            problems.append(
                Problem(f"{where}.wheel", place, "an absolute path on the controller, or an address", "correct it")
            )
        problems += _release(place, lock, f"{where}.wheel")
    return problems


def _release(place: str, lock: str, where: str) -> list[Problem]:
    """Check a wheel's name against the lock."""
    name = place.rpartition("/")[2]
    found = _WHEEL.fullmatch(name)
    if not found:
        return [Problem(where, name, "NAME-VERSION-TAGS.whl", "restore the file's original name")]
    package = re.sub("[-_.]+", "-", found[1]).lower()
    pin = re.search(_PIN.format(re.sub("-", "[-_.]+", package)), lock, re.MULTILINE | re.IGNORECASE)
    if pin is None:
        return [
            Problem(where, name, "a package that the lock pins", "add it to gb10_runtime_lock, or leave the wheel out")
        ]
    if pin[1] != found[2]:
        return [
            Problem(
                where,
                f"{package} {found[2]}",
                f"{pin[1]}, as on the other nodes",
                "build that release, or change gb10_runtime_lock",
            )
        ]
    return []


def _check_built(wheels: Sequence[Any], path: str) -> list[Problem]:
    names = [str(wheel.get("wheel", "") if isinstance(wheel, Mapping) else "").rpartition("/")[2] for wheel in wheels]
    expected, fix = (
        "no wheel of vllm, because it is built from source",
        "remove the wheel, or set vllm_build_enabled: false",
    )
    return [
        Problem(f"{path}[{index}]", name, expected, fix) for index, name in enumerate(names) if name.startswith("vllm-")
    ]

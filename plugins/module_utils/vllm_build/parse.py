# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the role vllm_build, and untrusted input: the builds and extensions of nodes, and the status of a
build.

The code that is built can write the status too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import (
    HITS,
    MISSES,
    WHEEL,
    Dependency,
    Patch,
    Request,
    Status,
    Stored,
)

#: The largest status, in characters, and the most dependencies.
MOST_STATUS, _MOST_DEPENDENCIES = 1 << 16, 100
#: Seconds, and the limit of a number, which could have thousands of digits.
_YEAR, _MOST_COUNT = 366 * 86400, 1 << 63
_NAME, _SHA256 = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"), re.compile("[0-9a-f]{64}")
_DEPENDENCY, _COMMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"), re.compile("[0-9a-f]{40}")


def request(given: Mapping[str, Any]) -> Request:
    """Return the user's variables, typed.

    Text counts as it does with ``-e name=value``. Raises no error; see choice.check_request().
    """
    forms = {"patches": list, "capabilities": list, "environment": dict, "dependencies": list}
    typed = {name: given[name] if isinstance(given.get(name), form) else form() for name, form in forms.items()}
    return Request(
        wanted=str(given["enabled"]).lower(),
        source=str(given["source"]),
        version=str(given["version"]),
        commit=str(given["commit"]),
        checksum=str(given["checksum"]),
        patches=tuple(Patch(str(patch["path"]), str(patch["sha256"])) for patch in typed["patches"]),
        capabilities=tuple(map(str, typed["capabilities"])),
        separate=str(given["separate"]).lower() in ("true", "yes", "on", "1"),
        environment={str(name): str(value) for name, value in typed["environment"].items()},
        dependencies=tuple(_dependency(each, given.get("archives", {})) for each in typed["dependencies"]),
        found=str(given.get("archives", {}).get(str(given["source"]), "")),
        wrong={
            name: repr(given[name]) for name, form in forms.items() if not isinstance(given.get(name, form()), form)
        },
    )


def _dependency(given: Any, archives: Mapping[str, str]) -> Dependency:
    values = dict(_items(given))
    variable, archive, digest = (str(values.get(name, "")) for name in ("variable", "archive", "sha256"))
    return Dependency(variable, archive, digest, str(archives.get(archive, "")))


def builds(stamps: Any) -> tuple[Stored, ...]:
    """Return the builds of a node's stamps. A stamp of another form than vllm_build_wheel writes counts as missing."""
    return tuple(found for found in map(build, stamps if isinstance(stamps, list) else ()) if found)


def build(stamp: Any) -> Stored | None:
    """Return the build of a stamp, None if a value has another form. The file's name is plain, without a folder."""
    given = stamp if isinstance(stamp, Mapping) else {}
    name, wheel, digest = (
        _matching(_NAME, given.get("name")),
        _matching(WHEEL, given.get("wheel")),
        _matching(_SHA256, given.get("sha256")),
    )
    if not (name and wheel and digest):
        return None
    return Stored(name, wheel, digest, _seconds(given.get("seconds")), count(given.get("jobs")))


def published(found: Any) -> dict[str, dict[str, int]] | None:
    """Return the coverage of each extension of a node's published wheel, None if a value has another form."""
    if not isinstance(found, Mapping):
        return None
    extensions = {str(name): dict(_items(counts)) for name, counts in found.items()}
    return (
        extensions if all(_is_count(number) for counts in extensions.values() for number in counts.values()) else None
    )


def count(value: Any) -> int:
    """Return a number of a node, 0 if it has another form."""
    return value if _is_count(value) else 0


def status(text: str) -> Status:
    """Return a status. A value of another form than io_run.py writes counts as missing."""
    try:
        found = bounded_json.load(text, MOST_STATUS)
    except ValueError:
        found = None
    given = found if isinstance(found, dict) else {}
    return Status(
        name=_text(given.get("name")),
        state=_text(given.get("state")),
        seconds=_seconds(given.get("seconds")),
        wheel=_matching(WHEEL, given.get("wheel")),
        ccache={
            name: value for name, value in _items(given.get("ccache")) if name in (*HITS, *MISSES) and _is_count(value)
        },
        dependencies=dict(sorted(_dependencies(given.get("dependencies")).items())[:_MOST_DEPENDENCIES]),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: Any) -> float:
    """Return a duration. Infinity, which JSON of Python can have, and longer ones than a year count as unknown."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _YEAR else 0.0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_COUNT


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    return value if pattern.fullmatch(_text(value)) else ""


def _dependencies(value: Any) -> dict[str, str]:
    return {
        name: commit for name, commit in _items(value) if _matching(_DEPENDENCY, name) and _matching(_COMMIT, commit)
    }

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The status that a build's program writes. The code that is built can write it too, so it is untrusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Status

#: The largest status, in characters, and the most dependencies.
MOST_STATUS, _MOST_DEPENDENCIES = 1 << 16, 100
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,250}\.whl")
_DEPENDENCY, _COMMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"), re.compile("[0-9a-f]{40}")
#: The statistics of ccache that io_run.py writes.
_STATISTICS = ("direct_cache_hit", "preprocessed_cache_hit", "cache_miss")


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
        wheel=_matching(_WHEEL, given.get("wheel")),
        ccache={name: value for name, value in _items(given.get("ccache")) if name in _STATISTICS and _is_count(value)},
        dependencies=dict(sorted(_dependencies(given.get("dependencies")).items())[:_MOST_DEPENDENCIES]),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    return value if pattern.fullmatch(_text(value)) else ""


def _dependencies(value: Any) -> dict[str, str]:
    return {name: commit for name, commit in _items(value) if _matching(_DEPENDENCY, name) and _matching(_COMMIT, commit)}

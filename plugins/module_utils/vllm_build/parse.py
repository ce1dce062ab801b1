# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The untrusted builds of nodes, and why and how far a build is, from its unit and the end of its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import SHA256, WHEEL, Stored

#: The values of a stamp of a build.
_STAMP = {"name": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"), "wheel": WHEEL, "sha256": SHA256}
#: Lines of a log that name the cause of a failure. CMake indents the text of an error below it.
_CAUSE = re.compile(
    r"^.*(?:\berror\b|FAILED:|fatal|No space left|Killed|cannot find -l).*(?:\n  \S.*){0,3}",
    re.IGNORECASE | re.MULTILINE,
)
_SHOWN, _WIDTH = 12, 300
#: What systemd knows about the end of a unit.
_KNOWN = {
    "oom-kill": "the kernel ended it because of its memory limit; set vllm_build_jobs lower",
    "timeout": "it ran longer than vllm_build_timeout",
    "signal": "a signal ended it",
    "success": "its unit is gone, such as by a restart of the host",
}


def builds(stamps: Any) -> tuple[Stored, ...]:
    """Return the builds of a node's stamps. A stamp of another form than the module vllm_build writes does not
    count."""
    return tuple(filter(None, map(build, stamps))) if isinstance(stamps, list) else ()


def build(stamp: Any) -> Stored:
    """Return the build of a stamp, {} if a value has another form. The file's name is plain, without a folder."""
    given = stamp if isinstance(stamp, Mapping) else {}
    found = {name: value for name in _STAMP if isinstance(value := given.get(name), str)}
    return found if all(pattern.fullmatch(found.get(name, "")) for name, pattern in _STAMP.items()) else {}


def cause(result: str, log: str) -> str:
    """Return why a build failed: the unit's ``result``, and the lines of the log that name a cause."""
    named = "\n".join(match[0] for match in _CAUSE.finditer(log))
    lines = [line[:_WIDTH] for line in (named or log).splitlines() if line.strip()]
    # systemd knows these causes; the log has at most a compiler's error about its end.
    if result in _KNOWN:
        return "\n".join([_KNOWN[result], *lines[-1:]])
    return "\n".join(["the build failed", *lines[-_SHOWN:]])

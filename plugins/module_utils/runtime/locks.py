# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that a lock file leaves no choice to an index: root installs it, so each line needs one release and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: A release or an address, after optional extras, before a marker and hashes. Source: pip's "Requirements File Format".
_PIN = re.compile(
    r"[A-Za-z0-9][\w.-]*(\[[\w,. -]*\])?\s*(==\s*[^\s;*,]+|@\s*https?://\S+)(\s*;[^#]*?)?(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})*)"
)
#: Options for the location of packages, which do not change the releases.
_PLACES = re.compile(r"(-i|-f|--index-url|--extra-index-url|--find-links|--only-binary)[ =]\S+|--no-index")
_SHOWN = 3


def check_lock(lock: str, path: str) -> list[Problem]:
    """Return the problems of a lock file's text; ``path`` is its name for messages."""
    unpinned = [
        f"line {number}: {line}"
        for number, line in _logical(lock)
        if not (_PIN.fullmatch(line) or _PLACES.fullmatch(line))
    ]
    unhashed = [
        f"line {number}: {line}"
        for number, line in _logical(lock)
        if (found := _PIN.fullmatch(line)) and not found["hashes"]
    ]
    problems = []
    if unpinned:
        fix = "resolve it with: uv pip compile --generate-hashes"
        found_text = f"{path} has lines without an exact release ({_some(unpinned)})"
        problems.append(Problem("gb10_runtime_lock", found_text, "NAME==VERSION", fix))
    if unhashed:
        found_text = f"{path} has releases without hash ({_some(unhashed)})"
        fix = "add them with: uv pip compile --no-deps --generate-hashes"
        expected = "--hash=sha256:... for each, because root installs them"
        problems.append(Problem("gb10_runtime_lock", found_text, expected, fix))
    return problems


def _some(lines: list[str]) -> str:
    more = len(lines) - _SHOWN
    return "; ".join([*(line[:80] for line in lines[:_SHOWN]), *([f"{more} more"] if more > 0 else [])])


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, line) without comments; backslash continuations are joined."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        rest = re.sub(r"(^|\s)#.*$", "", line).strip()
        first = first or number
        joined = f"{joined} {rest.removesuffix(chr(92)).strip()}".strip()
        if not rest.endswith("\\"):
            if joined:
                yield first, joined
            joined, first = "", 0
    if joined:
        yield first, joined

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup of a vLLM release's options and environment variables in table.py. Other packages use checks.py instead."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as release_of
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import table as vllm_release_table
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.replacements import EARLIER, REPLACED

Number = tuple[int, int, int]


def number(version: str) -> Number:
    """Return (0, 21, 1) of "0.21.1rc1.dev169+gabc". Raises ValueError for an invalid version."""
    found = release_of(version)
    if found is None:
        raise ValueError(f"{version!r} is not a vLLM version such as 0.32.0")
    major, minor, patch = found
    return major, minor, patch


_READ: tuple[Number, ...] = tuple(number(version) for version in vllm_release_table.READ.split())
#: The first and the last release in the table.
FIRST, LAST = _READ[0], _READ[-1]


@dataclass(frozen=True)
class Option:
    """An option of `vllm serve`.

    ``kind`` is its number of values: value (one), optional (none or one), list (one or more), append (one per
    occurrence), flag (none). The ``aliases`` of a negatable flag include its --no- form. ``choices`` is empty if the
    option accepts any value. A value is converted to ``fold`` case (lower, with - as _, or upper) before the
    comparison. ``open``: the parser accepts any value. The choices are vLLM's values for the later check; plugins can
    add others.
    """

    name: str
    kind: str = "value"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    fold: str = ""
    open: bool = False

    def folded(self, value: str) -> str:
        """Return a value in the case for comparison."""
        return {"lower": value.lower().replace("-", "_"), "upper": value.upper()}.get(self.fold, value)

    def takes(self, value: str) -> bool:
        """Return whether a value may be valid. For an ``open`` option that includes names with a dot: classes."""
        return not self.choices or self.folded(value) in self.choices or (self.open and (value in ("", "None") or "." in value))


def text(release: Number) -> str:
    """Return "0.32.0" of (0, 32, 0)."""
    return ".".join(map(str, release))


def known(release: str) -> bool:
    """Return whether a release is within the table. A release between two listed ones counts as the older one."""
    return FIRST <= number(release) <= LAST


def read(release: str) -> Number:
    if not known(release):
        raise ValueError(f"unknown vLLM release {release} (known releases: {text(FIRST)} to {text(LAST)})")
    return _READ[bisect_right(_READ, number(release)) - 1]


def spans(word: str) -> list[tuple[Number, Number | None]]:
    """Return the spans (first release, first release without it or None) of a word in the table."""
    found = []
    for span in word.partition("@")[2].split(",") if "@" in word else ["-"]:
        since, _dash, until = span.partition("-")
        found.append((number(since) if since else FIRST, number(until) if until else None))
    return found


def among(word: str, release: Number) -> bool:
    return any(since <= release and (until is None or release < until) for since, until in spans(word))


@functools.cache
def rows(block: str) -> Mapping[str, tuple[str, ...]]:
    """Return the words of each row of the table by its name; the first word is the name with its releases."""
    # Continuation lines are indented.
    lines = getattr(vllm_release_table, block).strip().replace("\n    ", " ").splitlines()
    words = (tuple(line.split()) for line in lines)
    return {row[0].partition("@")[0]: row for row in words}


def _option(row: Sequence[str], release: Number) -> Option:
    words = [word.partition("@")[0] for word in row if among(word, release)]
    end = words.index("=") if "=" in words else len(words)
    name, kind, *rest = words[:end]
    aliases = [word for word in rest if word.startswith("-")]
    if kind == "bool":
        aliases += [f"--no-{long.removeprefix('--')}" for long in (name, *aliases) if long.startswith("--")]
    fold = next((word for word in rest if word in ("lower", "upper")), "")
    return Option(name, "flag" if kind == "bool" else kind, tuple(aliases), tuple(words[end + 1 :]), fold, "open" in rest)


@functools.cache
def _options(release: Number) -> Mapping[str, Option]:
    return {name: _option(row, release) for name, row in rows("OPTIONS").items() if among(row[0], release)}


def options(release: str) -> Mapping[str, Option]:
    """Return the options of a release by their long names. Raises ValueError for a release that is not known()."""
    return _options(read(release))


def options_of(answer: Sequence[Mapping[str, Any]]) -> Mapping[str, Option]:
    """Return the options from the module vllm_arguments_info by their long names."""
    return {
        entry["name"]: Option(entry["name"], entry["kind"], tuple(entry["aliases"]), tuple(entry["choices"]), entry["fold"], entry["open"])
        for entry in answer
    }


def has_option(release: str, name: str) -> bool:
    """Return whether a release has an option of this long name. Raises ValueError for a release that is not known()."""
    return name in options(release)


def has_variable(release: str, name: str) -> bool:
    """Return whether a release reads an environment variable. Raises ValueError for a release that is not known()."""
    row = rows("VARIABLES").get(name)
    return row is not None and among(row[0], read(release))


def history(word: str, name: str, release: Number) -> str:
    """Return the history of a name that this release lacks; ``word`` is the name's entry in the table."""
    found = spans(word)
    later = [since for since, _until in found if since > release]
    if later:
        return f"{name} exists only since vLLM {text(later[0])}"
    return f"{name} was removed in vLLM {text(next(until for _since, until in reversed(found) if until))}"


def words_of(name: str) -> tuple[str, ...]:
    """Return the choices of an option in the table, with their releases."""
    row = rows("OPTIONS").get(name, ())
    return row[row.index("=") + 1 :] if "=" in row else ()


def advice(name: str, word: str, release: Number) -> str:
    """Return the replacement of a name that the release lacks, "" if unknown."""
    later = bool(word) and any(since > release for since, _until in spans(word))
    return (EARLIER if later else REPLACED).get(name, ("", ""))[0]

"""Writes plugins/module_utils/vllm_release/table.py from the sources of vLLM's releases: `make release-table`, which fetches them once."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from patch import sources  # noqa: E402
from patch.arguments import Argument, Release  # noqa: E402

TABLE = ROOT / "plugins/module_utils/vllm_release/table.py"
#: Every release of the package index from 0.13.0 on. A new one goes at the end.
RELEASES = (
    *("0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1"),
    *("0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1"),
    *("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
)
_HEAD = '''\
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options and environment variables of vLLM's releases: data only, read from their Python sources.

Made by `make release-table` (tests/patch/release_table.py), never by hand. A line is a name and what it is; what is not in all of these
releases has behind it in which it is: `@0.17-0.24` from 0.17.0 to before 0.24.0, for the rest of a line within those of its name.
Behind an option's name come its kind (value, list: one or more, optional: none or one, append, flag, bool: a flag with --no-), its other
names, how a value is changed before it is compared (lower, upper), `open` where plugins can add choices, and behind `=` the choices.
"""

from __future__ import annotations

'''


def label(version: str) -> str:
    return version.removesuffix(".0")


def spans(held: Sequence[bool], within: Sequence[bool]) -> str:
    """Return in which releases something is, "" where it is in all that count: "@0.15-0.17,0.20-"."""
    counted = [index for index, counts in enumerate(within) if counts]
    if all(held[index] for index in counted):
        return ""
    parts, since = [], None
    for index in counted:
        if held[index] and since is None:
            since = "" if index == counted[0] else label(RELEASES[index])
        if not held[index] and since is not None:
            parts.append(f"{since}-{label(RELEASES[index])}")
            since = None
    return f"@{','.join([*parts, *([f'{since}-'] if since is not None else [])])}"


def tokens(values: Sequence[Iterable[str] | None]) -> list[str]:
    """Return the words of each release, None where there is no line for it, with their spans."""
    within = [value is not None for value in values]
    names = list(dict.fromkeys(name for value in values for name in value or ()))
    return [name + spans([value is not None and name in value for value in values], within) for name in names]


def lines(read: Sequence[Mapping[str, Argument]]) -> Iterable[str]:
    """Yield a line for each option."""
    for name in sorted({name for arguments in read for name in arguments}):
        found = [arguments.get(name) for arguments in read]

        def words(part: Callable[[Argument], Iterable[str]], found: Sequence[Argument | None] = tuple(found)) -> list[str]:
            return tokens([None if argument is None else tuple(part(argument)) for argument in found])

        words_of = [
            *words(lambda argument: [argument.kind]),
            *words(lambda argument: argument.aliases),
            *words(lambda argument: filter(None, [argument.fold, "open" if argument.open else ""])),
        ]
        choices = sorted(words(lambda argument: argument.choices), key=lambda word: word.partition("@")[0])
        named = name + spans([argument is not None for argument in found], [True] * len(found))
        line = " ".join([named, *words_of, *(["=", *choices] if choices else [])])
        yield textwrap.fill(line, 150, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def render(releases: Sequence[Release]) -> str:
    """Return the text of the table."""
    blocks = {
        "OPTIONS": lines([release.arguments() for release in releases]),
        "VARIABLES": sorted(tokens([release.variables() for release in releases])),
    }
    read = textwrap.fill(" ".join(RELEASES), 140)
    text = f'{_HEAD}#: The releases that were read.\nREAD = """\n{read}\n"""\n'
    for name, block in blocks.items():
        text += f'\n{name} = """\n' + "".join(f"{line}\n" for line in block) + '"""\n'
    return text


if __name__ == "__main__":
    TABLE.write_text(render([Release(sources.tree(version)) for version in RELEASES]), encoding="utf-8")

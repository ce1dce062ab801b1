# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which options and environment variables a vLLM release has, and what is wrong with given ones. Nothing is guessed: what is known
of a release is in vllm_release_table, and of a newer one counts what the installed vLLM answered (gb10.cluster.vllm_arguments)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.lookup import (
    FIRST,
    LAST,
    Option,
    advice,
    among,
    has_option,
    has_variable,
    history,
    known,
    number,
    options,
    options_of,
    read,
    rows,
    text,
    words_of,
)

#: What the rest of the collection calls; vllm_release_lookup is not imported elsewhere.
__all__ = [
    "FIRST",
    "LAST",
    "Option",
    "check_environment",
    "has_option",
    "has_variable",
    "known",
    "number",
    "options",
    "options_of",
    "parse",
]


def newer(release: str, path: str) -> Problem:
    """Say that only the installed vLLM can tell."""
    return Problem(
        path,
        f"vLLM {release} is not among the releases whose arguments are known here, {text(FIRST)} to {text(LAST)}",
        "one of these, or what the installed vLLM says of itself",
        f"ask it with gb10.cluster.vllm_arguments, or name a release up to {text(LAST)}",
    )


def check_environment(environment: Mapping[str, str], release: str, asked: Sequence[str] | None = None, path: str = "environment") -> list[Problem]:
    """Return a problem for each VLLM_* variable that the release does not read. ``asked``: those that an installed vLLM named."""
    given = sorted(name for name in environment if name.startswith("VLLM_"))
    if asked is None and given and not known(release):
        return [newer(release, path)]
    read = set(asked) if asked is not None else {name for name in given if has_variable(release, name)}
    return [_unread(name, release, asked, path) for name in given if name not in read]


def _unread(name: str, release: str, asked: Sequence[str] | None, path: str) -> Problem:
    table = rows("VARIABLES")
    at, word = number(release), table.get(name, ("",))[0]
    there = asked if asked is not None else [other for other, row in table.items() if among(row[0], read(release))]
    close = get_close_matches(name, there, n=1, cutoff=0.85)
    said = history(word, name, at) if word and asked is None else f"vLLM {release} does not read {name}"
    fix = advice(name, word, at) or (f"write {close[0]}" if close else "leave it out")
    # Only a warning tells, and an error only with --fail-on-environ-validation: the variable does nothing, unseen.
    return Problem(f"{path}.{name}", f"{said}; vLLM goes on without it", f"a variable that vLLM {release} reads", fix)


def unknown(name: str, release: str, there: Mapping[str, Option], asked: bool, path: str) -> Problem:
    """Say what is wrong with an option that there is not: when it was there, what replaces it, or what it may have meant."""
    at, word = number(release), rows("OPTIONS").get(name, ("",))[0]
    names = [flag for option in there.values() for flag in (option.name, *option.aliases)]
    # The parser takes an abbreviation that only one option begins with; in the next release that may be two, so it is refused here.
    begins = [flag for flag in names if flag.startswith(name)] if name.startswith("--") and len(name) > 2 else []
    positive = name.replace("--no-", "--", 1)
    if word and not asked:
        said = history(word, name, at)
    elif begins:
        said = f"{name} is short for {' or '.join(begins[:3])}"
    elif positive != name and positive in there:
        return Problem(path, f"{positive} cannot be turned off", f"{positive} or nothing", "leave it out")
    else:
        said = f"vLLM {release} has no option {name}"
    close = begins[:1] or get_close_matches(name, names, n=1, cutoff=0.75)
    fix = advice(name, word, at) or (f"write {close[0]}" if close and not word else "leave it out")
    return Problem(path, said, f"an option of `vllm serve` {release}", fix)


def unfit(option: Option, value: str, release: str, asked: bool, path: str) -> Problem:
    """Say what is wrong with a value that is not among the choices."""
    word = next((word for word in words_of(option.name) if word.partition("@")[0] == value and "@" in word), "")
    said = history(word, f"{option.name} {value}", number(release)) if word and not asked else f"{option.name} does not take {value!r}"
    close = [] if word else get_close_matches(option.folded(value), option.choices, n=3, cutoff=0.6)
    choices = " ".join(option.choices)
    return Problem(path, said, f"one of {choices}", f"write {' or '.join(close)}" if close else f"choose one that vLLM {release} has")


def parse(
    argv: Sequence[str], release: str, asked: Mapping[str, Option] | None = None, path: str = "gb10_vllm_extra_args"
) -> tuple[dict[str, Any], list[Problem]]:
    """Return what the arguments behind the model's name say, by long names, and what is wrong with them.

    A value is text, folded as vLLM does it; True or False for a flag, a list for kinds list and append, True for an optional one without
    value; the last one counts. `--compilation-config.mode 3` is under "--compilation-config.mode". What a file named by --config says is not
    known here. ``asked`` are the options of the installed vLLM (options_of()), which count instead of the table's; without them a release
    that is not known() is a problem.
    """
    if asked is None and not known(release):
        return {}, [newer(release, path)]
    parser = _Parser(asked if asked is not None else options(release), release, asked is not None, path)
    parser.read(argv)
    return parser.values, parser.problems


_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
#: Where the names of these options' values can come from too.
_PLUGINS = {"--tool-call-parser": "--tool-parser-plugin", "--reasoning-parser": "--reasoning-parser-plugin"}


class _Parser:
    """Reads an argv as vLLM's FlexibleArgumentParser does (vllm/utils/argparse_utils.py), which is argparse with a few rewritings before."""

    def __init__(self, there: Mapping[str, Option], release: str, asked: bool, path: str) -> None:
        self.there, self.release, self.asked, self.path = there, release, asked, path
        self.flags = {flag: option for option in there.values() for flag in (option.name, *option.aliases)}
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.chosen: list[tuple[int, Option, str]] = []

    def read(self, argv: Sequence[str]) -> None:
        """Read all of it, then look at the values, since what names a plugin may come last."""
        position = 0
        while position < len(argv):
            position = self.argument(argv, position)
        for index, option, value in self.chosen:
            if not option.takes(value) and not (option.open and self.values.get(_PLUGINS.get(option.name, ""))):
                self.problems.append(unfit(option, value, self.release, self.asked, f"{self.path}[{index}]"))
        self.problems.sort(key=lambda problem: int(problem.path.rpartition("[")[2].rstrip("]")))

    def argument(self, argv: Sequence[str], position: int) -> int:
        """Read the argument at a position and return that of the next."""
        name, equals, given = argv[position].partition("=")
        value = given if equals else None
        if name.startswith("--"):
            head, dot, keys = name.partition(".")
            name = head.replace("_", "-") + dot + keys
        elif name.startswith("-O"):
            # -O3, -O=3 and -O 3 are written out before anything else.
            following = argv[position + 1] if argv[position] == "-O" and position + 1 < len(argv) else ""
            if argv[position] != "-O":
                name, value = "--optimization-level", given if name == "-O" else argv[position][2:]
            elif following in ("0", "1", "2", "3"):
                name = "--optimization-level"
        if not name.startswith("-") or name == "-":
            return self.stray(argv, position)
        if "." in name:
            return self.dotted(argv, position, name, value)
        option = self.flags.get(name)
        if option is None and not name.startswith("--") and (short := self.flags.get(name[:2])) is not None:
            # A name of one letter may have its value behind it: -qfp8.
            option, value = short, argv[position][2:]
        if option is None:
            self.problems.append(unknown(name, self.release, self.there, self.asked, f"{self.path}[{position}]"))
            return position + 1 if value is not None else self.behind(argv, position + 1, 1)
        return self.take(argv, position, name, option, value)

    def take(self, argv: Sequence[str], position: int, name: str, option: Option, value: str | None) -> int:
        """Note the value of an option."""
        if option.name == "--model":
            self.problem(position, "the model is named already, before the arguments", "one model", "leave --model out")
        if option.kind == "flag":
            if value is not None:
                self.problem(position, f"{name} takes no value", f"{name} alone", f"write {name}, or leave it out")
            self.values[option.name] = name == option.name or not name.startswith("--no-")
            return position + 1
        end = position + 1 if value is not None else self.behind(argv, position + 1, len(argv) if option.kind == "list" else 1)
        found = [value] if value is not None else list(argv[position + 1 : end])
        if not found and option.kind != "optional":
            self.problem(position, f"{name} has no value", "a value behind it", f"write {name} and its value as two arguments, or leave it out")
            return end
        self.chosen += [(position if value is not None else position + 1 + offset, option, one) for offset, one in enumerate(found)]
        found = [option.folded(one) for one in found]
        match option.kind:
            case "list":
                self.values[option.name] = found
            case "append":
                self.values.setdefault(option.name, []).extend(found)
            case _:
                self.values[option.name] = found[0] if found else True
        return end

    def dotted(self, argv: Sequence[str], position: int, name: str, value: str | None) -> int:
        """Note one key of an option that takes JSON: what follows is its value, whatever it begins with."""
        head, _dot, keys = name.partition(".")
        option = self.flags.get(head)
        end = position + 1 if value is not None else position + 2
        if option is None:
            self.problems.append(unknown(head, self.release, self.there, self.asked, f"{self.path}[{position}]"))
        elif option.kind != "value" or option.choices:
            self.problem(position, f"{head} takes no keys", "an option that takes JSON before the dot", f"give {option.name} without .{keys}")
        elif end > len(argv):
            self.problem(position, f"{name} has no value", "a value behind it", f"write {name} and its value as two arguments, or leave it out")
        else:
            self.values[f"{option.name}.{keys}"] = argv[position + 1] if value is None else value
        return min(end, len(argv))

    def stray(self, argv: Sequence[str], position: int) -> int:
        before = argv[position - 1] if position else ""
        option = self.flags.get(before)
        said = f"{before} takes no value, and {argv[position]!r} is behind it" if option else f"{argv[position]!r} is no option and no option's value"
        self.problem(position, said, "options and their values", "leave it out, or name the option that it belongs to")
        return position + 1

    def behind(self, argv: Sequence[str], position: int, most: int) -> int:
        """Return where the values that begin at a position end."""
        end = position
        while end < len(argv) and end - position < most and self.is_value(argv[end]):
            end += 1
        return end

    def is_value(self, argument: str) -> bool:
        """Return whether argparse takes an argument for a value."""
        if not argument.startswith("-") or argument == "-":
            return True
        return argument.partition("=")[0] not in self.flags and (bool(_NUMBER.fullmatch(argument)) or (" " in argument and argument[:2] != "--"))

    def problem(self, position: int, found: str, expected: str, fix: str) -> None:
        self.problems.append(Problem(f"{self.path}[{position}]", found, expected, fix))

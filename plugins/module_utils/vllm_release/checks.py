# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of vLLM options and environment variables against a release.

Known releases are in table.py. For a newer release the installed vLLM provides the options
(gb10.cluster.vllm_arguments_info).
"""

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

#: The interface for the rest of the collection, which does not import lookup.py.
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
    """Return the Problem for a release outside the table."""
    return Problem(
        path,
        f"the arguments of vLLM {release} are unknown (known releases: {text(FIRST)} to {text(LAST)})",
        "a known release, or the arguments from the installed vLLM",
        f"read them with gb10.cluster.vllm_arguments_info, or use a release up to {text(LAST)}",
    )


def check_environment(environment: Mapping[str, str], release: str, queried: Sequence[str] | None = None, path: str = "environment") -> list[Problem]:
    """Return a problem for each VLLM_* variable that the release does not read.

    ``queried``: the variables of the installed vLLM, if they were queried.
    """
    given = sorted(name for name in environment if name.startswith("VLLM_"))
    if queried is None and given and not known(release):
        return [newer(release, path)]
    read = set(queried) if queried is not None else {name for name in given if has_variable(release, name)}
    return [_unread(name, release, queried, path) for name in given if name not in read]


def _unread(name: str, release: str, queried: Sequence[str] | None, path: str) -> Problem:
    table = rows("VARIABLES")
    at, word = number(release), table.get(name, ("",))[0]
    there = queried if queried is not None else [other for other, row in table.items() if among(row[0], read(release))]
    close = get_close_matches(name, there, n=1, cutoff=0.85)
    found = history(word, name, at) if word and queried is None else f"vLLM {release} does not read {name}"
    fix = advice(name, word, at) or _write(close)
    # vLLM only logs a warning, and fails only with --fail-on-environ-validation: the variable would have no effect.
    return Problem(f"{path}.{name}", f"{found}; vLLM ignores it", f"a variable that vLLM {release} reads", fix)


def unknown(name: str, release: str, there: Mapping[str, Option], queried: bool, path: str) -> Problem:
    """Return the Problem for an unknown option: its history, its replacement, or a similar name."""
    at, word = number(release), rows("OPTIONS").get(name, ("",))[0]
    names = [flag for option in there.values() for flag in (option.name, *option.aliases)]
    # argparse accepts an unambiguous abbreviation. It may be ambiguous in the next release, so it is refused here.
    begins = [flag for flag in names if flag.startswith(name)] if name.startswith("--") and len(name) > 2 else []
    positive = name.replace("--no-", "--", 1)
    if word and not queried:
        found = history(word, name, at)
    elif begins:
        found = f"{name} is short for {' or '.join(begins[:3])}"
    elif positive != name and positive in there:
        return Problem(path, f"{positive} cannot be turned off", f"{positive} or nothing", "remove it")
    else:
        found = f"vLLM {release} has no option {name}"
    close = [] if word else begins[:1] or get_close_matches(name, names, n=1, cutoff=0.75)
    fix = advice(name, word, at) or _write(close)
    return Problem(path, found, f"an option of `vllm serve` {release}", fix)


def _write(close: Sequence[str]) -> str:
    return f"write {close[0]}" if close else "remove it"


def unfit(option: Option, value: str, release: str, queried: bool, path: str) -> Problem:
    """Return the Problem for a value that is not among the choices."""
    word = next((word for word in words_of(option.name) if word.partition("@")[0] == value and "@" in word), "")
    found = (
        history(word, f"{option.name} {value}", number(release))
        if word and not queried
        else f"{option.name} does not accept {value!r}"
    )
    close = [] if word else get_close_matches(option.folded(value), option.choices, n=3, cutoff=0.6)
    choices = " ".join(option.choices)
    fix = f"write {' or '.join(close)}" if close else f"choose a value that vLLM {release} accepts"
    return Problem(path, found, f"one of {choices}", fix)


def parse(
    argv: Sequence[str], release: str, queried: Mapping[str, Option] | None = None, path: str = "gb10_vllm_extra_args"
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of the arguments after the model's name, by long option names, and the problems with them.

    A value is text in vLLM's normalized case; True or False for a flag; a list for kinds list and append; True for an
    optional one without value. The last occurrence counts. `--compilation-config.mode 3` has the key
    "--compilation-config.mode". The content of a --config file is not read. ``queried``: the options of the installed
    vLLM (options_of()), which replace the table's; without them a release that is not known() is a problem.
    """
    if queried is None and not known(release):
        return {}, [newer(release, path)]
    parser = _Parser(queried if queried is not None else options(release), release, queried is not None, path)
    parser.read(argv)
    return parser.values, parser.problems


_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
#: Options whose plugins can define further values.
_PLUGINS = {"--tool-call-parser": "--tool-parser-plugin", "--reasoning-parser": "--reasoning-parser-plugin"}


def _split(argv: Sequence[str], position: int) -> tuple[str, str | None]:
    """Return the option's name and the value in its argument, rewritten as vLLM does before argparse."""
    argument = argv[position]
    if argument == "-O":
        level = argv[position + 1 : position + 2]
        return ("--optimization-level" if level and level[0] in ("0", "1", "2", "3") else argument), None
    name, equals, given = argument.partition("=")
    value = given if equals else None
    if name.startswith("-O"):  # -O3 or -O=3
        return "--optimization-level", given if name == "-O" else argument[2:]
    if name.startswith("--"):
        head, dot, keys = name.partition(".")
        name = head.replace("_", "-") + dot + keys
    return name, value


class _Parser:
    """Parses an argv like vLLM's FlexibleArgumentParser (vllm/utils/argparse_utils.py): argparse after some rewriting."""

    def __init__(self, there: Mapping[str, Option], release: str, queried: bool, path: str) -> None:
        self.there, self.release, self.queried, self.path = there, release, queried, path
        self.flags = {flag: option for option in there.values() for flag in (option.name, *option.aliases)}
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.chosen: list[tuple[int, Option, str]] = []

    def read(self, argv: Sequence[str]) -> None:
        """Parse all arguments, then check the values, because a plugin option may come last."""
        position = 0
        while position < len(argv):
            position = self.argument(argv, position)
        for index, option, value in self.chosen:
            if not option.takes(value) and not (option.open and self.values.get(_PLUGINS.get(option.name, ""))):
                self.problems.append(unfit(option, value, self.release, self.queried, f"{self.path}[{index}]"))
        self.problems.sort(key=lambda problem: int(problem.path.rpartition("[")[2].rstrip("]")))

    def argument(self, argv: Sequence[str], position: int) -> int:
        """Parse the argument at a position and return the position of the next one."""
        name, value = _split(argv, position)
        if not name.startswith("-") or name == "-":
            return self.stray(argv, position)
        if "." in name:
            return self.dotted(argv, position, name, value)
        option = self.flags.get(name)
        if option is None and not name.startswith("--") and (short := self.flags.get(name[:2])) is not None:
            # A value may directly follow a one-letter name: -qfp8.
            option, value = short, argv[position][2:]
        if option is None:
            self.problems.append(unknown(name, self.release, self.there, self.queried, f"{self.path}[{position}]"))
            return position + 1 if value is not None else self.behind(argv, position + 1, 1)
        return self.take(argv, position, name, option, value)

    def take(self, argv: Sequence[str], position: int, name: str, option: Option, value: str | None) -> int:
        """Record the value of an option."""
        if option.name == "--model":
            self.problem(position, "the model is already set before the arguments", "one model", "remove --model")
        if option.kind == "flag":
            if value is not None:
                self.problem(position, f"{name} takes no value", f"{name} alone", f"write {name}, or remove it")
            self.values[option.name] = name == option.name or not name.startswith("--no-")
            return position + 1
        if value is not None:
            end, given = position + 1, [(position, value)]
        else:
            end = self.behind(argv, position + 1, len(argv) if option.kind == "list" else 1)
            given = [(index, argv[index]) for index in range(position + 1, end)]
        if not given and option.kind != "optional":
            self.no_value(position, name)
            return end
        self.chosen += [(index, option, one) for index, one in given]
        found = [option.folded(one) for _index, one in given]
        match option.kind:
            case "list":
                self.values[option.name] = found
            case "append":
                self.values.setdefault(option.name, []).extend(found)
            case _:
                self.values[option.name] = found[0] if found else True
        return end

    def no_value(self, position: int, name: str) -> None:
        self.problem(position, f"{name} has no value", "a value after it", f"write {name} and its value as two arguments, or remove it")

    def dotted(self, argv: Sequence[str], position: int, name: str, value: str | None) -> int:
        """Record one key of an option that takes JSON; the next argument is always its value."""
        head, _dot, keys = name.partition(".")
        option = self.flags.get(head)
        end = position + 1 if value is not None else position + 2
        if option is None:
            self.problems.append(unknown(head, self.release, self.there, self.queried, f"{self.path}[{position}]"))
        elif option.kind != "value" or option.choices:
            fix = f"write {option.name} without .{keys}"
            self.problem(position, f"{head} takes no keys", "an option that takes JSON before the dot", fix)
        elif end > len(argv):
            self.no_value(position, name)
        else:
            self.values[f"{option.name}.{keys}"] = argv[position + 1] if value is None else value
        return min(end, len(argv))

    def stray(self, argv: Sequence[str], position: int) -> int:
        before = argv[position - 1] if position else ""
        option = self.flags.get(before)
        found = f"unexpected argument {argv[position]!r}" + (f" after {before}, which takes no value" if option else "")
        self.problem(position, found, "--option or --option=value", "remove it, or add its option")
        return position + 1

    def behind(self, argv: Sequence[str], position: int, most: int) -> int:
        """Return the end of the values that begin at a position."""
        end = position
        while end < len(argv) and end - position < most and self.is_value(argv[end]):
            end += 1
        return end

    def is_value(self, argument: str) -> bool:
        """Return whether argparse interprets an argument as a value."""
        if not argument.startswith("-") or argument == "-":
            return True
        return argument.partition("=")[0] not in self.flags and (bool(_NUMBER.fullmatch(argument)) or (" " in argument and argument[:2] != "--"))

    def problem(self, position: int, found: str, expected: str, fix: str) -> None:
        self.problems.append(Problem(f"{self.path}[{position}]", found, expected, fix))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options and environment variables of a vLLM release, and the problems with those that it lacks.

Known releases are in table.py. For a newer release the installed vLLM provides the options
(the step vllm_arguments_info of a node).
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import similar
from ansible_collections.gb10.cluster.plugins.module_utils.common.flags import inverse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
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
#: Since this release --disable-x turns the flag --enable-x off, and the reverse (vllm/utils/argparse_utils.py).
_PAIRED = (0, 33, 0)


@dataclass(frozen=True)
class Option:
    """An option of `vllm serve`.

    ``kind`` is its number of values: value (one), optional (none or one), list (one or more), append (one per
    occurrence), flag (none). The ``aliases`` of a negatable flag include those that turn it off. ``choices`` is empty
    if the option accepts any value. A value is converted to ``fold`` case (lower, with - as _, or upper) before the
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
        return (
            not self.choices
            or self.folded(value) in self.choices
            or (self.open and (value in ("", "None") or "." in value))
        )


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


def _turns_off(name: str, option: Option) -> bool:
    return name != option.name and (name.startswith("--no-") or inverse(name) == option.name)


def _option(row: Sequence[str], release: Number) -> Option:
    words = [word.partition("@")[0] for word in row if among(word, release)]
    end = words.index("=") if "=" in words else len(words)
    name, kind, *rest = words[:end]
    aliases = [word for word in rest if word.startswith("-")]
    if kind == "bool":
        longs = [long for long in (name, *aliases) if long.startswith("--")]
        aliases += [f"--no-{long.removeprefix('--')}" for long in longs]
        aliases += filter(None, map(inverse, longs)) if release >= _PAIRED else ()
    fold = next((word for word in rest if word in ("lower", "upper")), "")
    return Option(
        name, "flag" if kind == "bool" else kind, tuple(aliases), tuple(words[end + 1 :]), fold, "open" in rest
    )


@functools.cache
def _options(release: Number) -> Mapping[str, Option]:
    return {name: _option(row, release) for name, row in rows("OPTIONS").items() if among(row[0], release)}


def options(release: str) -> Mapping[str, Option]:
    """Return the options of a release by their long names. Raises ValueError for a release that is not known()."""
    return _options(read(release))


def options_of(answer: Sequence[Mapping[str, Any]]) -> Mapping[str, Option]:
    """Return the options from the step vllm_arguments_info by their long names."""
    return {
        entry["name"]: Option(
            entry["name"], entry["kind"], tuple(entry["aliases"]), tuple(entry["choices"]), entry["fold"], entry["open"]
        )
        for entry in answer
    }


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


def newer(release: str, path: str) -> Problem:
    """Return the Problem for a release outside the table."""
    return Problem(
        path,
        f"the arguments of vLLM {release} are unknown (known releases: {text(FIRST)} to {text(LAST)})",
        "a known release, or the arguments from the installed vLLM",
        f"use a release up to {text(LAST)}; site.yml reads the arguments of a newer one after its installation",
    )


def check_environment(
    environment: Mapping[str, str], release: str, queried: Sequence[str] | None = None, path: str = "environment"
) -> list[Problem]:
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
    close = similar.close(name, there, cutoff=0.85)
    found = history(word, name, at) if word and queried is None else f"vLLM {release} does not read {name}"
    fix = advice(name, word, at) or _write(close)
    # vLLM only logs a warning, and fails only with --fail-on-environ-validation: the variable would have no effect.
    return Problem(f"{path}.{name}", f"{found}; vLLM ignores it", f"a variable that vLLM {release} reads", fix)


def unknown(name: str, release: str, there: Mapping[str, Option], queried: bool, path: str) -> Problem:
    """Return the Problem for an unknown option: its history, its replacement, or a similar name."""
    # What follows a blank may be a secret.
    name = re.split(r"\s", name, maxsplit=1)[0]
    at, word = number(release), rows("OPTIONS").get(name, ("",))[0]
    names = [flag for option in there.values() for flag in (option.name, *option.aliases)]
    # argparse accepts an unambiguous abbreviation. It may be ambiguous in the next release, so it is refused here.
    begins = [flag for flag in names if re.match("--.", name) and flag.startswith(name)]
    positive = name.replace("--no-", "--", 1)
    if word and not queried:
        found = history(word, name, at)
    elif begins:
        found = f"{name} is short for {' or '.join(begins[:3])}"
    elif positive != name and positive in there:
        return Problem(path, f"{positive} cannot be turned off", f"{positive} or nothing", "remove it")
    else:
        found = f"vLLM {release} has no option {name}"
    fix = advice(name, word, at) or _write([] if word else _same(name, there) or begins[:1] or _similar(name, names))
    return Problem(path, found, f"an option of `vllm serve` {release}", fix)


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return the similar names, the closest first. The opposite of a flag is none."""
    opposite = inverse(name.replace("--no-", "--", 1))
    # Below this, "--enable-" alone makes two names similar.
    return similar.close(name, [other for other in names if other != opposite], cutoff=0.85)


def _same(name: str, there: Mapping[str, Option]) -> list[str]:
    """Return the flag that does the same as --disable-x or --no-disable-x where only --enable-x exists, [] if none."""
    positive = name.replace("--no-", "--", 1)
    option = there.get(inverse(positive))
    off = f"--no-{inverse(positive)[2:]}"
    if option is None or off not in option.aliases:
        return []
    return [off if name == positive else option.name]


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
    close = [] if word else similar.close(option.folded(value), option.choices, most=3)
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


@dataclass(frozen=True)
class Release:
    """The vLLM that a cluster runs. ``listed``: whether the table has it; ``queried``: whether the installed one
    reported ``options``.

    ``options`` by long name are the table's if it was not queried, and for an unlisted release those of the last one.
    ``variables`` are None if it was not queried. ``unread``: the image may have another release, and a later run checks
    it.
    """

    version: str
    number: Number
    listed: bool
    queried: bool
    options: Mapping[str, Option]
    variables: Sequence[str] | None
    unread: bool

    def arguments(self, argv: Sequence[str], path: str) -> tuple[dict[str, Any], list[Problem]]:
        """Return parse() of arguments at ``path``; no values and no problems if the options are unknown."""
        if not self.listed and not self.queried:
            return {}, []
        values, problems = parse(argv, self.version, self.options if self.queried else None, path)
        return values, [] if self.unread else problems

    def serves(self, since: str, until: str) -> bool:
        """Return whether it is a release from ``since`` to ``until``, each "" for any."""
        return (not since or number(since) <= self.number) and (not until or self.number <= number(until))

    def unread_variables(self, environment: Mapping[str, str], path: str) -> list[Problem]:
        """Return check_environment() of variables at ``path``, [] if the variables are unknown."""
        if self.unread or (not self.listed and self.variables is None):
            return []
        return check_environment(environment, self.version, self.variables, path)


def of_runtime(
    version: str,
    answer: Sequence[Mapping[str, Any]] | None = None,
    variables: Sequence[str] | None = None,
    unread: bool = False,
) -> Release:
    """Return a release with the installed vLLM's ``answer`` about its options, as for options_of().

    Raises ValueError for an invalid version.
    """
    listed = known(version)
    options = _options(read(version) if listed else LAST) if answer is None else options_of(answer)
    return Release(version, number(version), listed, answer is not None, options, variables, unread)


_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
#: Options whose plugins can define further values.
_PLUGINS = {"--tool-call-parser": "--tool-parser-plugin", "--reasoning-parser": "--reasoning-parser-plugin"}


def _split(argv: Sequence[str], position: int) -> tuple[str, str | None]:
    """Return the option's name and the value in its argument, rewritten as vLLM does before argparse."""
    argument = argv[position]
    if argument == "-O":
        level = next(iter(argv[position + 1 :]), "")
        return ("--optimization-level" if level in ("0", "1", "2", "3") else argument), None
    name, equals, given = argument.partition("=")
    value = given if equals else None
    if name.startswith("-O"):  # -O3 or -O=3
        return "--optimization-level", given if name == "-O" else argument[2:]
    if name.startswith("--"):
        head, dot, keys = name.partition(".")
        name = head.replace("_", "-") + dot + keys
    return name, value


class _Parser:
    """Parses an argv like vLLM's FlexibleArgumentParser (vllm/utils/argparse_utils.py): argparse after some
    rewriting."""

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
        first, blank, rest = argv[position].partition(" ")
        # A value may directly follow a one-letter name, and contain blanks behind =.
        option = self.flags.get(_split((first,), 0)[0].partition(".")[0]) if blank and "=" not in first else None
        if option and len(first) > 2:
            self.joined(position, first, rest, option.kind)
            return position + 1
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
            self.values[option.name] = not _turns_off(name, option)
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

    def joined(self, position: int, name: str, rest: str, kind: str) -> None:
        """Report an option and its value in one argument. The value may be a secret."""
        found, fix = f"{name} and the text after it are one argument", "make each word a separate list item"
        if kind != "flag" and not rest.startswith("-"):
            fix = f"write {name}={rest if rest.isdecimal() else 'VALUE'}, or two list items"
        self.problem(position, found, "--option or --option=value", fix)

    def no_value(self, position: int, name: str) -> None:
        self.problem(
            position,
            f"{name} has no value",
            "a value after it",
            f"write {name} and its value as two arguments, or remove it",
        )

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
        return argument.partition("=")[0] not in self.flags and (
            bool(_NUMBER.fullmatch(argument)) or (" " in argument and argument[:2] != "--")
        )

    def problem(self, position: int, found: str, expected: str, fix: str) -> None:
        self.problems.append(Problem(f"{self.path}[{position}]", found, expected, fix))

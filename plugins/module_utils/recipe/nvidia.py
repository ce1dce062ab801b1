# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse a recipe of NVIDIA's catalog, which is untrusted. Source: NVIDIA/local-ai-inference-recipes, schemas 3 and 4.

Its commands are shell texts for terminals on each node. Nothing here runs them: their words become a recipe.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Measured
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import words
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import (
    NETWORK,
    Forms,
    Recipe,
    is_image,
    is_text,
    problem,
)

#: The file with NVIDIA's measurements, next to a recipe.
PERFORMANCE = "performance.yaml"
#: The key under which the reader of the file names other recipes of the model, which have such a file.
OTHERS = "measured recipes"
#: No figure is as large.
_MOST = 1e9


def _are_commands(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, Mapping) for each in value))


_SPARKS = ("dgx-spark", "dgx-spark-2gpu", "dgx-spark-4gpu")
#: The values that are read. NVIDIA's texts for people are not.
_KEYS: Forms = {
    "schema_version": (lambda value: value in (3, 4), "3 or 4"),
    "backend": (lambda value: value == "vllm", "vllm"),
    "hardware": (lambda value: value in _SPARKS, " or ".join(_SPARKS)),
    "runtime.kind": (lambda value: value == "container", "container"),
    "title": (words.is_line, "a line of text"),
    "runtime.image": (is_image, "the name of an image"),
    "runtime.setup_command": (is_text, "a text"),
    "serve.command": (is_text, "a text"),
    "topology.node_count": (lambda value: value in (1, 2, 4) and not isinstance(value, bool), "1, 2 or 4"),
    "serve.additional_commands": (_are_commands, "a list of mappings"),
}
#: Values that a terminal on each node has, in the options and variables that the plan replaces.
_OWN = re.compile(r"\$\{?(HEAD_IP|MASTER_PORT|NODE_RANK)\}?")
_OWN_OPTIONS = ("--master-addr", "--master-port", "--node-rank")
#: Variables of those terminals, which no rank needs.
_TERMINAL = ("HF_TOKEN", "HEAD_IP", "MASTER_PORT", "NODE_RANK")
_RANK = ("--node-rank", "--headless")
#: In place of $ while words are split. No YAML has this character.
_MARK = "\0"
#: A variable of one command, before it.
_ASSIGNED = re.compile(rf"[A-Za-z_]\w*=[^{_MARK}]*", re.ASCII)
_SHELL = re.compile(r"\$\{?(\w+)\}?|~")


def digest(text: str) -> str:
    """Return what performance.yaml names as recipe_sha256: the SHA-256 of a recipe without its license."""
    # Ansible reads a file without the line break at its end.
    own = text[max(text.find("schema_version:"), 0) :].rstrip()
    return hashlib.sha256(f"{own}\n".encode()).hexdigest()


def parse(data: Mapping[str, Any]) -> tuple[Recipe | None, list[Problem]]:
    """Return the recipe of a file's plain data, None if there is a problem, and every problem.

    PERFORMANCE: the data of the file next to it, {} if that is of another version. OTHERS: a text for people.
    """
    if problems := _values(data):
        return None, problems
    runtime, serve = data["runtime"], data["serve"]
    commands = [("serve.command", serve["command"])]
    commands += [
        (f"serve.additional_commands[{index}].command", str(each.get("command")))
        for index, each in enumerate(serve.get("additional_commands") or ())
    ]
    try:
        container = _container(runtime["setup_command"])
        (exported, found), *others = [_serve(key, text) for key, text in commands]
    except words.CommandError as error:
        return None, [problem(error.place, error.found, "one command, vllm serve, after exports", error.fix)]
    problems = [
        problem(key, "other arguments or variables than serve.command has", "equal ranks", "correct the recipe")
        for (key, _text), (variables, words_) in zip(commands[1:], others, strict=True)
        if (variables, _common(words_)) != (exported, _common(found))
    ]
    nodes, image = data["topology"]["node_count"], str(runtime["image"])
    pins, measured, about = _measured(data.get(PERFORMANCE))
    if data.get(OTHERS):
        about = (*about, f"NVIDIA has figures of older recipes of this model: nvidia:{data[OTHERS]}")
    if image not in runtime["setup_command"]:
        about = (*about, f"runtime.setup_command starts another image: {image}, the runtime.image, is used")
    if "image" in pins and "@" not in image:
        image += f"@{pins['image']}"
    recipe = Recipe(
        name=str(data["title"]),
        model=found[0],
        # The command's own revision, if it has one, comes last.
        args=(*(("--revision", pins["model"]) if "model" in pins else ()), *found[1:]),
        environment={**container, **exported},
        container=runtime["image"],
        image=image,
        mods=(),
        build_args=(),
        cluster_only=nodes > 1,
        solo_only=nodes == 1,
        about=about,
        measured=measured,
        keys={
            **dict.fromkeys(container, "runtime.setup_command"),
            **dict.fromkeys(("command", *exported), "serve.command"),
        },
    )
    return (None if problems else recipe), problems


def _measured(data: Any) -> tuple[dict[str, str], tuple[Measured, ...], tuple[str, ...]]:
    """Return {model, image}, the measured revision and digest, then NVIDIA's figures, and text about them."""
    if data is None:
        return {}, (), ()
    if not data:
        other = f"{PERFORMANCE} is of another version of this recipe: its revision, image and figures are not used"
        return {}, (), (other,)
    pins = {}
    for name, path, form in (
        ("model", "model_revision", r"[0-9a-f]{40}"),
        ("image", "runtime_revision", r"sha256:[0-9a-f]{64}"),
    ):
        if re.fullmatch(form, str(_at(data, f"software.{path}"))):
            pins[name] = str(_at(data, f"software.{path}"))
    profiles = data.get("profiles")
    figures = tuple(
        Measured(
            source="NVIDIA",
            dataset=f"{_word(each, 'workload.dataset')} {_word(each, 'workload.profile')}",
            input_tokens=int(_number(each, "workload.input_tokens")),
            output_tokens=int(_number(each, "workload.output_tokens")),
            concurrency=int(_number(each, "workload.concurrency")),
            decode=_number(each, "results.decode_tokens_per_second_mean"),
            prefill=_number(each, "results.prefill_tokens_per_second_mean"),
            harness=f"{_word(data, 'harness.name')} {_word(data, 'harness.version')}",
            date=_word(data, "measured_at"),
            driver=_word(data, "system.driver_version"),
            vllm=_word(data, "software.backend_version"),
            revision=pins.get("model", "?"),
            image=pins.get("image", "?"),
        )
        for each in (profiles if isinstance(profiles, list) else [])[:4]
    )
    return pins, figures, tuple(map(_spoken, figures))


def _spoken(each: Measured) -> str:
    def shown(value: float) -> str:
        return f"{value:g}" if value else "?"

    return (
        f"{each.source} measured {shown(each.decode)} tokens/s of decode and {shown(each.prefill)} of prefill: "
        f"{each.dataset}, {shown(each.input_tokens)} tokens in and {shown(each.output_tokens)} out, "
        f"{shown(each.concurrency)} at a time; {each.harness}, driver {each.driver}, {each.date}"
    )


def _number(data: Any, path: str) -> float:
    """Return a number of figures, 0 for any other value."""
    found = _at(data, path)
    return found if isinstance(found, int | float) and not isinstance(found, bool) and 0 < found < _MOST else 0


def _word(data: Any, path: str) -> str:
    """Return a value as a short word for people, ? for any other value."""
    found = str(_at(data, path))
    return found if re.fullmatch(r"[\w./-]{1,40}", found, re.ASCII) else "?"


def _at(data: Any, path: str) -> Any:
    """Return the value at a path of keys, None if there is none."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _values(data: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the values that are read."""
    fix = "use a recipe of NVIDIA's catalog for DGX Sparks and vLLM"
    return [
        problem(path, repr(_at(data, path))[:60], expected, fix)
        for path, (fits, expected) in _KEYS.items()
        if not fits(_at(data, path))
    ]


def _split(key: str, text: str, skipped: int = 0) -> list[str]:
    """Return the words of a command, which begins after ``skipped`` lines of its text. Raises CommandError."""
    try:
        return [word if _MARK in word else words.line(word) for word in words.split(text)]
    except words.CommandError as error:
        raise words.CommandError(error.line + skipped, error.found, error.fix, key) from None


def _exports(key: str, lines: list[str]) -> dict[str, str]:
    """Remove comments and exports at the start of a text, and return the exported variables. Raises CommandError."""
    variables, count = dict[str, str](), len(lines)
    while lines and (not lines[0].strip() or lines[0].lstrip().startswith(("#", "export "))):
        place = count - len(lines)
        for pair in _split(key, lines.pop(0), place)[1:]:
            name, equals, value = pair.partition("=")
            if not equals or _MARK in value:
                found = pair.replace(_MARK, "$")[:100] if equals else "an export without a value"
                raise words.CommandError(place + 1, found, "write export NAME=VALUE", key)
            variables[name] = value
    return variables


def _serve(key: str, text: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables before ``vllm serve``, and the words after it: the model and the options.

    Raises CommandError for everything else, and for a value of the terminal elsewhere than in the plan's options.
    """
    lines = _OWN.sub(rf"{_MARK}\1", text).splitlines()
    variables = _exports(key, lines)
    place = len(text.splitlines()) - len(lines)
    found = _split(key, "\n".join(lines), place)
    while found and _ASSIGNED.fullmatch(found[0]):
        name, _equals, value = found.pop(0).partition("=")
        variables[name] = value
    if found[:2] != ["vllm", "serve"] or not re.match(r"[^-]", "".join(found[2:3])):
        shown = " ".join(found[:3])[:100] or "nothing"
        raise words.CommandError(place + 1, f"it runs {shown}", "start vLLM with vllm serve MODEL", key)
    for name, _given, given in arguments.options(found[3:]):
        if any(_MARK in word for word in given) and name not in _OWN_OPTIONS:
            shown = " ".join(given).replace(_MARK, "$")[:100]
            fix = f"use such a value for {', '.join(_OWN_OPTIONS)} only"
            raise words.CommandError(place + 1, shown, fix, key)
    return variables, [word.replace(_MARK, "$") for word in found[2:]]


def _container(text: str) -> dict[str, str]:
    """Return the variables of ``docker run -e NAME=VALUE``. The rest of that command is the plan's own.

    Raises CommandError for a variable whose value only a shell would know, unless the plan sets it.
    """
    key, start = "runtime.setup_command", re.search(r"^docker run\b", text, re.MULTILINE)
    if not start:
        raise words.CommandError(1, "no docker run", "use a recipe that starts a container", key)
    marked = _SHELL.sub(lambda each: f"{_MARK}{each[1] or 'HOME'}", text[start.start() :])
    found = _split(key, marked, text.count("\n", 0, start.start()))
    variables = dict[str, str]()
    for option, pair in itertools.pairwise(found):
        name, equals, value = pair.partition("=")
        if option.startswith(("-e=", "--env=", "--env-")):
            raise words.CommandError(1, option.replace(_MARK, "$")[:100], "write -e NAME=VALUE", key)
        if option not in ("-e", "--env") or name in _TERMINAL:
            continue
        if not equals or (_MARK in value and not NETWORK.fullmatch(name)):
            raise words.CommandError(1, pair.replace(_MARK, "$")[:100], "write the value itself", key)
        variables[name] = value.replace(_MARK, "$")
    return variables


def _common(found: Sequence[str]) -> list[str]:
    """Return the words of a rank without its number."""
    return [word for name, _given, given in arguments.options(found) if name not in _RANK for word in given]

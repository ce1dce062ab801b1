# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse a recipe, which is untrusted.

Sources of the format: version 1: eugr/spark-vllm-docker, recipes/README.md; version 2: sparkrun 0.4.2, core/recipe.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import similar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import nvidia, words
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import (
    Forms,
    Recipe,
    is_image,
    is_text,
    problem,
)

#: OWNER/NAME on Hugging Face Hub, or an absolute path.
_MODEL = re.compile(r"\w[\w.-]*/\w[\w.-]*|/[\w./+-]+", re.ASCII)
#: A mod's folder. Its name becomes part of a path, of a Containerfile and of a shell's command.
_MOD = re.compile(r"mods/[A-Za-z0-9][\w.-]{0,63}/?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
#: A recipe's name in a folder, such as 4x-spark-cluster/minimax-m2.5.
_PLACE = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)


def place(recipe: str, folder: str, inventory: str) -> str:
    """Return the file of ``gb10_recipe``: a path, or a name below ``folder``. Relative paths start at the inventory.

    A name outside the folder gives "".
    """
    given = recipe if recipe.endswith((".yaml", ".yml")) else f"{recipe}.yaml"
    if recipe.startswith(("/", "~")):
        return recipe
    if not _PLACE.fullmatch(recipe) or ".." in recipe.split("/"):
        return ""
    return posixpath.join(inventory, folder, given)


def parse(data: Any) -> tuple[Recipe | None, list[Problem]]:
    """Return the recipe of a file's plain data, None if there is a problem, and every problem."""
    if not isinstance(data, Mapping):
        return None, [problem("", _kind(data), "a mapping with the keys of a recipe", "correct the file")]
    recipe, problems = nvidia.parse(data) if "schema_version" in data else _parse(data)
    if recipe:
        problems = _contradictions(recipe)
    return (None if problems else recipe), problems


def _parse(data: Mapping[Any, Any]) -> tuple[Recipe | None, list[Problem]]:
    """Return a recipe of eugr or sparkrun, None if there is a problem, and every problem.

    sparkrun takes the keys of version 2 with every version, and ignores unknown ones; eugr has version 1 alone. Source:
    spark-arena/sparkrun, core/recipe.py (2026-10).
    """
    # A key without a value counts as missing.
    data = {key: value for key, value in data.items() if value is not None}
    second = str(data.get("recipe_version", "2")) != "1" or "runtime" in data
    keys = {**_KEYS, **_SECOND} if second else _KEYS
    unknown, ignored = _unknown(data, keys, second)
    problems = [*unknown, *_values(data, keys)]
    if problems:
        return None, problems
    try:
        assigned, model, args = _command(data, second)
    except words.CommandError as error:
        return None, [problem(error.place, error.found, "one command: vllm serve MODEL, with options", error.fix)]
    environment = {**{str(name): _text(value) for name, value in data.get("env", {}).items()}, **assigned}
    pulled, mode = data.get("pull_image", ""), data.get("mode", "auto")
    recipe = Recipe(
        name=str(data.get("name", "")),
        model=model,
        args=args,
        environment=environment,
        container=str(data.get("container", "")),
        image=str((data.get("container") if pulled is True else pulled) or ""),
        mods=tuple(map(str, data.get("mods", ()))),
        build_args=tuple(map(str, data.get("build_args", ()))),
        cluster_only=data.get("cluster_only", mode == "cluster"),
        solo_only=data.get("solo_only", mode == "solo"),
        about=tuple(f"{key} has no effect here" for key in data if key in (*_WITHOUT_EFFECT, *ignored)),
        min_nodes=data.get("min_nodes", 0),
        max_nodes=data.get("max_nodes", 0),
        keys=dict.fromkeys(assigned, "command"),
    )
    return recipe, []


def _kind(value: object) -> str:
    """Return a short value, or a value's kind, for a message."""
    if isinstance(value, str | int | float) and len(str(value)) <= 60:
        return repr(value)
    return {dict: "a mapping", list: "a list", str: "a text", type(None): "empty"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _is_table(value: object) -> bool:
    if not isinstance(value, Mapping):
        return value is None
    return all(
        isinstance(name, str) and _NAME.fullmatch(name) and isinstance(each, str | int | float | None)
        for name, each in value.items()
    )


def _are_mods(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and _MOD.fullmatch(each) for each in value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_list(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(words.is_line(each) for each in value))


#: Other projects add the keys that have no effect here.
_KEYS: Forms = {
    "recipe_version": (lambda value: bool(re.fullmatch(r"\d{1,3}", str(value), re.ASCII)), "a number"),
    "name": (words.is_line, "a line of text"),
    "description": (is_text, "a text"),
    "model": (words.is_line, "OWNER/NAME on Hugging Face Hub"),
    "container": (is_image, "the name of an image"),
    # true: the container is a published image.
    "pull_image": (lambda value: isinstance(value, bool) or is_image(value), "a published image, or true"),
    "command": (is_text, "a text: vllm serve MODEL, with options"),
    "defaults": (_is_table, "a mapping from parameters to values"),
    "env": (_is_table, "a mapping from variables to values"),
    "mods": (_are_mods, "a list of folders, each mods/NAME with letters, digits, dots, hyphens and underscores"),
    "build_args": (_is_list, "a list of arguments"),
    "cluster_only": (lambda value: isinstance(value, bool), "true or false"),
    "solo_only": (lambda value: isinstance(value, bool), "true or false"),
}
#: Keys of version 2 about that project's machines, clients and files. They change no rank of this plan.
_WITHOUT_EFFECT = (
    "runtime_version",
    "min_sparkrun_version",
    "benchmark",
    "builder",
    "capabilities",
    "unsupported_capabilities",
    "distribution_config",
    "executor",
    "executor_config",
    "readiness",
    "runtime_cache",
    "scheduler",
)
#: Keys of sparkrun that change more than image, command and environment, and their effects.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("pre_exec", "post_exec", "post_commands"), "runs additional commands"),
    "patches": "changes files of the image",
    "volumes": "mounts folders of the nodes",
    "containers": "has another image for some nodes",
    "include": "takes keys of another file",
    **dict.fromkeys(("cluster_config", "runtime_config"), "changes the launch of another project"),
}
_RUNTIMES = ("vllm", "vllm-distributed", "vllm-ray")
#: Keys that version 2 adds.
_SECOND: Forms = {
    "runtime": (lambda value: value in _RUNTIMES, f"a runtime that is vLLM: {', '.join(_RUNTIMES)}"),
    "model_revision": (words.is_line, "a branch, a tag or a commit"),
    "mode": (lambda value: value in ("auto", "cluster", "solo"), "auto, cluster or solo"),
    **dict.fromkeys(("min_nodes", "max_nodes"), (_is_count, "a number of nodes")),
    **dict.fromkeys(("metadata", *_WITHOUT_EFFECT), (lambda _value: True, "")),
}
#: From this similarity on, an unknown key is a misspelled one.
_MISSPELLED = 0.8


def _unknown(data: Mapping[Any, Any], keys: Collection[str], second: bool) -> tuple[list[Problem], list[str]]:
    """Return the problems of unknown keys, and the keys that sparkrun ignores, such as those of other tools."""
    problems, ignored = [], []
    for key in (str(key)[:100] for key in data if key not in keys):
        close = similar.close(key, keys, cutoff=_MISSPELLED)
        if second and key in _REFUSED:
            fix = "put it into an image or a layer of your own (gb10_image_layers), and remove the key"
            problems.append(problem(key, f"it {_REFUSED[key]}", "an image, a command and variables", fix))
        elif second and not close and words.is_line(key):
            ignored.append(key)
        else:
            fix = f"perhaps use {close[0]}" if close else f"remove it, or use one of {', '.join(keys)}"
            problems.append(problem("", f"unknown key {key!r}", "a key of a recipe", fix))
    return problems, ignored


def _values(data: Mapping[Any, Any], keys: Forms) -> list[Problem]:
    missing = [] if "command" in data else [problem("command", "missing", keys["command"][1], "add command")]
    return missing + [
        problem(key, _kind(value), keys[key][1], f"correct {key}")
        for key, value in data.items()
        if key in keys and not keys[key][0](value)
    ]


def _command(data: Mapping[str, Any], second: bool) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Return the command's assignments, model and other words. Raises CommandError."""
    own = {name: data[name] for name in ("model", "model_revision") if name in data}
    values = {name: _text(value) for name, value in {**own, **data.get("defaults", {})}.items()}
    # sparkrun repairs a blank between a backslash and the end of its line.
    command = re.sub(r"\\[ \t]+\n", "\\\n", data["command"]) if second else data["command"]
    filled = words.fill(command, values, literal=second)
    found = [words.line(word) for word in words.split(filled)]
    # The command's own revision, if it has one, comes last.
    revision = ("--revision", values["model_revision"]) if "model_revision" in values else ()
    start = next((index for index, word in enumerate(found) if not _ASSIGNMENT.fullmatch(word)), len(found))
    assigned = dict(word.split("=", 1) for word in found[:start])
    program, rest = found[start : start + 2], found[start + 2 :]
    if program != ["vllm", "serve"]:
        shown = " ".join(program)[:100] or "nothing"
        raise words.CommandError(1, f"it runs {shown}", "use a recipe that starts vLLM with vllm serve")
    model, args = _model(rest)
    return assigned, model, (*revision, *args)


def _model(rest: list[str]) -> tuple[str, list[str]]:
    """Return the model of the words after ``vllm serve``, and the other words. Raises CommandError."""
    if rest and not rest[0].startswith("-"):
        return rest[0], rest[1:]
    for index, word in enumerate(rest):
        name, equals, value = word.partition("=")
        if name == "--model":
            model, after = (value, index + 1) if equals else ("".join(rest[index + 1 : index + 2]), index + 2)
            return model, [*rest[:index], *rest[after:]]
    raise words.CommandError(1, "no model after vllm serve", "add the model")


def _contradictions(recipe: Recipe) -> list[Problem]:
    problems = []
    if not _MODEL.fullmatch(recipe.model) or ".." in recipe.model.split("/"):
        expected = "OWNER/NAME on Hugging Face Hub, or an absolute path"
        problems.append(
            Problem(
                recipe.command_path,
                f"the model {recipe.model[:100]!r}",
                expected,
                "correct the model of vllm serve",
            )
        )
    if recipe.cluster_only and recipe.solo_only:
        problems.append(problem("solo_only", "cluster_only is true too", "one of the two", "remove one of them"))
    if not recipe.container and not recipe.image:
        problems.append(problem("container", "missing", "the name of an image", "add container or pull_image"))
    return problems

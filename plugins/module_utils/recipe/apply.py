# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn a recipe into variables of the role gb10, and into arguments and environment for vLLM.

A variable that the inventory sets wins. So does everything that the plan decides: network, addresses and ports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments, secret_environment, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import drafts
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import allowed, options
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import NETWORK, Recipe, Use, problem
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import layers

NATIVE = "native"
IMAGES = "gb10_recipe_images"
_NODE, _B12X = "vllm-node", "vllm-node-b12x"
#: The images that eugr's builder pulls under these names, unless arguments change them: build-and-copy.sh, 2026-10.
_PUBLISHED: Mapping[str, str] = {
    _NODE: "eugr/spark-vllm@sha256:2c2aa4062f3fa74a5917db55fe4bde29cfd8ddd4e90722165b6b22b1867d7066",
    _B12X: "eugr/spark-vllm-b12x@sha256:16ce6e7efce8bebda9a800fd1432c7dde42d28f901354af00b2f3a57e68e3654",
}
_PUBLISHED_SOURCE = (
    "what eugr published and NVIDIA measured on 2026-09-03 (NVIDIA/local-ai-inference-recipes, performance.yaml of "
    "DeepSeek-V4-Flash and of -0731)"
)
#: The arguments of that builder that keep a published image: those without an effect any more, and the choice of B12X.
_KEPT, _KEPT_B12X = {"--tf5", "--pre-tf", "--pre-transformers"}, {"--exp-b12x", "--experimental-b12x"}
_UNITS: Mapping[str, int] = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


def tokens(text: str) -> int:
    """Return vLLM's number of tokens, such as 32768, 128k and 1.5M; 0 for auto. Raises ValueError for other text.

    Source: vLLM 0.33, engine/arg_utils.py, human_readable_int_or_auto().
    """
    if text in ("auto", "-1"):
        return 0
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([kmgKMG]?)", text, re.ASCII)
    if not found:
        raise ValueError(text)
    return int(float(found[1]) * _UNITS[found[2]])


_SIZES = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
#: The conversions of options' values for the plan's variables that are not text.
_CONVERT: Mapping[str, Callable[[str], Any]] = {
    "--enable-expert-parallel": lambda _none: True,
    "--max-model-len": tokens,
}
#: Maximum shown characters of an option. Its effect follows them.
_SHOWN = 200


def use(
    recipe: Recipe, given: Collection[str], nodes: int, images: Mapping[str, str], extra: Collection[str] = ()
) -> tuple[Use, list[Problem]]:
    """Return the use of a recipe on a number of nodes, and every problem.

    ``given``: the variables that the inventory sets; ``images``: gb10_recipe_images; ``extra``: the names in
    gb10_extra_env.
    """
    # An image of an unknown name may have any release, so that nothing is checked against another one.
    command = _Command(given, nodes, recipe.command_path, bool(recipe.mods))
    for name, values, found in arguments.options(recipe.args):
        command.add(options.whole(name), [*options.joined(name), *values], found)
    runtime, default, refused = _image(recipe, given, images)
    variables, replaced, unsafe = _environment(recipe, extra)
    environment = {} if refused else variables
    # The name that vLLM itself would use, and that the clients in a recipe's documentation use.
    served = {} if recipe.model.startswith("/") else {"gb10_served_model_name": recipe.model}
    settings = {
        "gb10_model": recipe.model,
        **served,
        "gb10_distributed_executor_backend": "mp",
        **runtime,
        **command.settings,
    }
    about = f"the recipe {recipe.name or recipe.model} with {runtime.get('gb10_container_image') or recipe.container}"
    result = Use(
        model=recipe.model,
        revision=command.revision,
        reasoning=command.reasoning,
        settings={name: value for name, value in settings.items() if name not in given},
        args=() if refused else tuple(command.args),
        environment=environment,
        about=[about, *default, *recipe.about, *command.replaced, *replaced, *command.effects],
        args_path=recipe.command_path,
        environment_paths={name: recipe.variable_path(name) for name in environment},
        measured=recipe.measured,
    )
    secrets = secret_environment.check_arguments(recipe.args, recipe.command_path)
    return result, [
        *_check_model(recipe, given),
        *_check_draft(recipe),
        *_check_nodes(recipe, nodes),
        *command.problems,
        *secrets,
        *refused,
        *unsafe,
    ]


class _Command:
    """The options of a recipe's command: variables, replaced options, and arguments."""

    def __init__(self, given: Collection[str], nodes: int, path: str, mods: bool) -> None:
        self.given, self.nodes, self.path, self.mods = given, nodes, path, mods
        self.settings: dict[str, Any] = {}
        self.args: list[str] = []
        self.replaced: list[str] = []
        self.effects: list[str] = []
        self.problems: list[Problem] = []
        self.revision = ""
        self.reasoning = False

    def add(self, name: str, values: list[str], found: list[str]) -> None:
        """Add an option with its values; ``name``: from options.whole(), ``found``: its words."""
        option = name.partition(".")[0]
        shown = _cut(found)
        if full := options.short_for(name):
            self._refuse(f"{shown}: {option} is short for {full}", "whole names of options", f"write {full}")
        elif option in _SIZES and self.nodes == 1:
            self.replaced += [f"{shown} is replaced: there is one node"] if values != ["1"] else []
        elif option in allowed.PLANNED:
            self._set(option, values, found)
        elif option in allowed.REPLACED:
            self.replaced.append(f"{shown} is replaced: {allowed.REPLACED[option]}")
        elif option == "--revision":
            self.revision = "".join(values)
        else:
            self.args += self._absolute(option, values, found)
            # check_arguments() has its own messages about these.
            if option not in allowed.CHECKED:
                self._judge(name, values, shown)
            self.reasoning = self.reasoning or name == "--reasoning-parser"

    def _absolute(self, option: str, values: list[str], found: list[str]) -> list[str]:
        """Return the words of an option with the path of a file that a mod writes into the image's working folder."""
        name = values[0] if values else ""
        if option not in allowed.FILES or not allowed.FILE.fullmatch(name):
            return found
        if not self.mods:
            expected = "an absolute path in the image, or a mod that writes the file"
            where = f"{_cut(found)}: a file of the image's working folder, where the server does not start"
            self._refuse(where, expected, "write its absolute path")
        path = f"{layers.WORKSPACE}/{name.removeprefix('./')}"
        return [f"{word[: -len(name)]}{path}" if word.endswith(name) else word for word in found]

    def _judge(self, name: str, values: list[str], shown: str) -> None:
        """Name what an option does besides serving, or refuse it."""
        found = options.effect(name, values)
        if found is None:
            return
        member, effect = found
        told = f"{shown}: its {member} {effect.text}" if member else f"{shown} {effect.text}"
        if effect.refused:
            fix = "remove it, or set it in gb10_vllm_extra_args if you trust it"
            self._refuse(told, "options that stay within the nodes and the API (docs/recipes.md)", fix)
        else:
            self.effects.append(f"{told}: trust it, or remove the option")

    def _refuse(self, found: str, expected: str, fix: str) -> None:
        self.problems.append(Problem(self.path, found, expected, fix))

    def _set(self, name: str, values: list[str], found: list[str]) -> None:
        variable, convert = allowed.PLANNED[name], _CONVERT.get(name, str)
        shown = _cut(found)
        try:
            self.settings[variable] = convert(values[0] if values else "")
        except ValueError:
            self._refuse(shown, "a number of tokens", f"set {variable}")
        # All of several names stay valid, and auto lowers the context to what fits.
        kept = len(values) > 1 if name == "--served-model-name" else name == "--max-model-len" and values == ["auto"]
        self.args += found if kept and variable not in self.given else []
        self.replaced += [f"{shown} is replaced: the inventory sets {variable}"] if variable in self.given else []


def _cut(found: list[str]) -> str:
    """Return the words of an option for people."""
    shown = " ".join(found)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _check_model(recipe: Recipe, given: Collection[str]) -> list[Problem]:
    """Return a problem for a folder of a node: only the inventory decides which of its files vLLM reads."""
    if not recipe.model.startswith("/") or "gb10_model" in given:
        return []
    model = recipe.model[:100]
    fix = f"set gb10_model: {model} if the model is there"
    found, expected = f"the model {model}, a folder of the nodes", "OWNER/NAME on Hugging Face Hub"
    return [Problem(recipe.command_path, found, expected, fix)]


def _check_draft(recipe: Recipe) -> list[Problem]:
    """Return a problem for a draft in a folder of a node, as for a model."""
    if not (draft := drafts.path(recipe.args)):
        return []
    found, expected = f"the draft {draft[:100]!r}, a folder of the nodes", "OWNER/NAME on Hugging Face Hub"
    fix = "remove --speculative-config in a copy of the recipe, and set it in gb10_vllm_extra_args"
    return [Problem(recipe.command_path, found, expected, fix)]


def _check_nodes(recipe: Recipe, nodes: int) -> list[Problem]:
    if recipe.cluster_only and nodes == 1:
        return [problem("cluster_only", "the inventory has one node", "two or more nodes", "use a recipe for one node")]
    if recipe.solo_only and nodes > 1:
        return [problem("solo_only", f"the inventory has {nodes} nodes", "one node", "use a recipe for several nodes")]
    limits = {"min_nodes": (recipe.min_nodes, nodes < recipe.min_nodes)}
    limits["max_nodes"] = (recipe.max_nodes, 0 < recipe.max_nodes < nodes)
    return [
        problem(key, f"{limit}, but the inventory has {nodes}", "nodes of this recipe", "use another recipe")
        for key, (limit, wrong) in limits.items()
        if wrong
    ]


def _image(
    recipe: Recipe, given: Collection[str], images: Mapping[str, str]
) -> tuple[dict[str, Any], list[str], list[Problem]]:
    """Return the settings of the recipe's runtime, text about a default, and the problems.

    The image is the inventory's, else of its map, else the recipe's public one, else the one that eugr publishes.
    """
    decided = bool({"gb10_container_image", "gb10_runtime"} & set(given))
    chosen = images.get(recipe.container, recipe.image)
    # The other project's builder makes images without a registry's or an owner's name.
    public = recipe.container if "/" in recipe.container else ""
    default = "" if decided or chosen else _PUBLISHED.get(_built(recipe), "")
    image = chosen or default or public
    about = f"{recipe.container} is {default} by default: {_PUBLISHED_SOURCE}; {IMAGES} may name another"
    problems = []
    if not image and not decided:
        found = f"{recipe.container} is the name of an image that another project's builder makes"
        expected = "a published image, or an entry of gb10_recipe_images"
        fix = f"map it: {IMAGES}: {{{recipe.container}: NAME@sha256:...}}, or to {NATIVE}"
        problems.append(problem("container", found, expected, fix))
    if recipe.mods and image == NATIVE:
        fix = f"map {recipe.container} to an image in {IMAGES}"
        problems.append(problem("mods", f"{', '.join(recipe.mods)}: changes of an image", "a container", fix))
    problems += _check_build(recipe, image, decided or bool(chosen))
    settings = {"gb10_runtime": NATIVE}
    if image != NATIVE:
        settings = {"gb10_runtime": "container", "gb10_container_image": image}
    return settings if image and not decided else {}, [about] if default else [], problems


def _built(recipe: Recipe) -> str:
    """Return the name of the image that the other project's builder makes."""
    return recipe.container.removesuffix(":latest")


def _check_build(recipe: Recipe, image: str, chosen: bool) -> list[Problem]:
    """Return the problem of arguments of the other project's builder that change an image, unless it was chosen."""
    kept = _KEPT | (_KEPT_B12X if _built(recipe) == _B12X else set())
    changing = [word for word in recipe.build_args if word not in kept]
    if chosen or not changing:
        return []
    found = f"{' '.join(changing)}: arguments of another project's builder that change {image or 'an image'}"
    fix = f"build it there, and map it: {IMAGES}: {{{recipe.container}: NAME@sha256:...}}"
    return [problem("build_args", found, "an image that was built so", fix)]


def _environment(recipe: Recipe, extra: Collection[str]) -> tuple[dict[str, str], list[str], list[Problem]]:
    """Return the variables for the ranks, the replaced ones as text, and the problems."""
    environment, replaced = dict[str, str](), list[str]()
    problems = list[Problem]()
    for name, value in recipe.environment.items():
        path = recipe.variable_path(name)
        if secret := secret_environment.check_environment({name: value}, path):
            problems += secret
        elif NETWORK.fullmatch(name):
            replaced.append(f"{name}={value} is replaced: the plan sets the network of each node")
        elif name in allowed.CACHES:
            replaced.append(f"{name}={value} is replaced: the plan names the model by its path on the nodes")
        elif name in extra:
            replaced.append(f"{name}={value} is replaced: gb10_extra_env sets it")
        elif options.settable(name, value):
            environment[name] = value
        else:
            shown = _cut([f"{name}={value}"])
            found = f"{shown} is not a variable that a recipe may set: it could run code, or reach files and hosts"
            fix = "remove it, or set it in gb10_extra_env if you trust it"
            expected = "variables that choose kernels, sizes and times (docs/recipes.md)"
            problems.append(Problem(f"{path}.{name}", found, expected, fix))
    try:
        systemd.environment_file(environment)
    except ValueError as error:
        problems.append(problem("env", str(error), "variable names and one-line values", "correct env"))
    return environment, replaced, problems

"""Tests of the parser of recipes: valid ones give one Recipe, invalid and hostile ones give their problems."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.recipe.parse import parse, place

COMMAND = "vllm serve owner/model \\\n  --port {port} \\\n  -tp {tensor_parallel}\n"


def recipe(**changes: Any) -> dict[str, Any]:
    """Return a valid recipe's data with changes; None removes a key."""
    data = {
        "recipe_version": "1",
        "name": "Model",
        "description": "A model",
        "model": "owner/model",
        "container": "vllm-node",
        "defaults": {"port": 8000, "tensor_parallel": 2},
        "env": {"VLLM_USE_X": 1},
        "command": COMMAND,
    }
    return {key: value for key, value in {**data, **changes}.items() if value is not None}


def second(**changes: Any) -> dict[str, Any]:
    """Return a valid recipe of version 2 with changes; None removes a key."""
    data = {
        "recipe_version": "2",
        "model": "owner/model",
        "runtime": "vllm",
        "container": "vllm-node",
        "min_nodes": 2,
        "max_nodes": 3,
        "metadata": {"description": "A model"},
        "executor_config": {"user": "root"},
        "defaults": {"port": 8000},
        "command": 'vllm serve {model} --x \'{"n": {"m": 2}}\' --port {port}',
    }
    return {key: value for key, value in {**data, **changes}.items() if value is not None}


def problems(data: Any) -> list[str]:
    found, refused = parse(data)
    assert found is None
    return [str(problem) for problem in refused]


VALID = parse(recipe())[0]
#: Data of a recipe, and what differs from the valid one.
ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a recipe": (
        recipe(),
        {
            "name": "Model",
            "model": "owner/model",
            "args": ("--port", "8000", "-tp", "2"),
            "environment": {"VLLM_USE_X": "1"},
            "container": "vllm-node",
            "image": "",
            "mods": (),
            "build_args": (),
            "cluster_only": False,
            "solo_only": False,
            "min_nodes": 0,
            "max_nodes": 0,
            "about": (),
        },
    ),
    "more keys": (
        recipe(mods=["mods/x"], build_args=["--y"], pull_image="vllm/vllm-openai:v0.33.0", cluster_only=True),
        {"mods": ("mods/x",), "build_args": ("--y",), "image": "vllm/vllm-openai:v0.33.0", "cluster_only": True},
    ),
    "assignments before the command are variables": (
        recipe(command="VLLM_A=1 VLLM_USE_X='2 3' vllm serve owner/model"),
        {
            "environment": {"VLLM_USE_X": "2 3", "VLLM_A": "1"},
            "args": (),
            "keys": {"VLLM_A": "command", "VLLM_USE_X": "command"},
        },
    ),
    "a key without a value counts as missing": (
        {**recipe(), "mods": None, "name": None, "cluster_only": None, "env": None},
        {"name": "", "environment": {}},
    ),
    "the container is a published image": (recipe(pull_image=True), {"image": "vllm-node"}),
    "the container is no published image": (recipe(pull_image=False), {}),
    "a published image": (recipe(pull_image="a/b:1"), {"image": "a/b:1"}),
    **{
        f"the model may be an option: {option}": (
            recipe(command=f"vllm serve --x {option} --y 1 --z"),
            {"args": ("--x", "--y", "1", "--z")},
        )
        for option in ("--model owner/model", "--model=owner/model")
    },
    "version 2": (
        second(),
        {
            "name": "",
            "args": ("--x", '{"n": {"m": 2}}', "--port", "8000"),
            "environment": {},
            "min_nodes": 2,
            "max_nodes": 3,
            "about": ("executor_config has no effect here",),
        },
    ),
    "version 2 with doubled braces": (
        second(command='vllm serve {model} --x \'{{"n": {{"m": {port}}}}}\'', min_nodes=None, max_nodes=None),
        {
            "name": "",
            "args": ("--x", '{"n": {"m": 8000}}'),
            "environment": {},
            "about": ("executor_config has no effect here",),
        },
    ),
    # deepseek-v4-flash-0731-b12x of sparkrun's registry.
    "version 2 with doubled and single braces": (
        second(command='vllm serve {model} --x \'{"n":""}\' --y \'{{"m": {port}}}\''),
        {
            "name": "",
            "args": ("--x", '{"n":""}', "--y", '{"m": 8000}'),
            "environment": {},
            "min_nodes": 2,
            "max_nodes": 3,
            "about": ("executor_config has no effect here",),
        },
    ),
    # As sparkrun repairs it; qwen3.6-27b-prismaquant of emosaru.
    "version 2 with a blank behind a backslash": (
        second(command="vllm serve {model} \\ \t\n  --port {port}", min_nodes=None, max_nodes=None),
        {
            "name": "",
            "args": ("--port", "8000"),
            "environment": {},
            "about": ("executor_config has no effect here",),
        },
    ),
    # styles01 counts the versions of its recipes; emosaru writes 1 with sparkrun's keys.
    **{
        f"sparkrun takes version {version} as 2, and ignores keys of other tools": (
            second(recipe_version=version, maintainer="me", command_mtp="x", min_nodes=None, max_nodes=None),
            {
                "name": "",
                "args": ("--x", '{"n": {"m": 2}}', "--port", "8000"),
                "environment": {},
                "about": (
                    "executor_config has no effect here",
                    "maintainer has no effect here",
                    "command_mtp has no effect here",
                ),
            },
        )
        for version in ("1", "4", None)
    },
    "version 2 for one node, with a revision": (
        second(command="vllm serve {model}", model_revision="abc", mode="solo", min_nodes=None, max_nodes=None),
        {
            "name": "",
            "args": ("--revision", "abc"),
            "environment": {},
            "solo_only": True,
            "about": ("executor_config has no effect here",),
        },
    ),
    "JSON over several lines becomes one": (
        recipe(command="vllm serve owner/model --x '{{\n  \"n\": 1\n}}'"),
        {"args": ("--x", '{"n": 1}')},
    ),
}


@pytest.mark.parametrize(("data", "changes"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_valid_recipe(data: dict[str, Any], changes: dict[str, Any]) -> None:
    found, refused = parse(data)
    assert (found and vars(found), refused) == ({**vars(VALID), **changes}, [])


REFUSED = {
    "a line break in a value": (
        recipe(command="vllm serve a/b --x 'y\nz'"),
        "gb10_recipe.command, line 1: a line break",
    ),
    "no mapping": ([], "gb10_recipe: a list. Expected: a mapping with the keys of a recipe"),
    "an unknown key": (
        recipe(default={}),
        "gb10_recipe: unknown key 'default'. Expected: a key of a recipe. Fix: perhaps use defaults.",
    ),
    "a version that is no number": (
        recipe(recipe_version="v3"),
        "gb10_recipe.recipe_version: 'v3'. Expected: a number",
    ),
    "a misspelled key of version 2": (
        second(comand="x"),
        "gb10_recipe: unknown key 'comand'. Expected: a key of a recipe. Fix: perhaps use command.",
    ),
    "a key of version 2": (recipe(min_nodes=2), "gb10_recipe: unknown key 'min_nodes'"),
    "a key with commands": (
        second(pre_exec=["id"]),
        "gb10_recipe.pre_exec: it runs additional commands. Expected: an image, a command and variables. Fix: put",
    ),
    "a key with mounts": (second(volumes=["/:/host"]), "gb10_recipe.volumes: it mounts folders of the nodes"),
    "a key with patches": (second(patches=["x.py"]), "gb10_recipe.patches: it changes files of the image"),
    "another runtime": (
        second(runtime="sglang"),
        "gb10_recipe.runtime: 'sglang'. Expected: a runtime that is vLLM: vllm, vllm-distributed, vllm-ray.",
    ),
    "no number of nodes": (second(max_nodes=True), "gb10_recipe.max_nodes: True. Expected: a number of nodes"),
    "a parameter without a value": (
        second(command="vllm serve {model} --x {y}"),
        "gb10_recipe.command, line 1: {y} has no value",
    ),
    "no command": (recipe(command=None), "gb10_recipe.command: missing"),
    "no container": (recipe(container=None), "gb10_recipe.container: missing"),
    "an image with an option": (
        recipe(container="--privileged"),
        "gb10_recipe.container: '--privileged'. Expected: the name of an image",
    ),
    "mods as text": (recipe(mods="mods/x"), "gb10_recipe.mods: 'mods/x'. Expected: a list of folders"),
    "a nested default": (recipe(defaults={"port": [1]}), "gb10_recipe.defaults: a mapping"),
    "a variable's name": (recipe(env={"A B": "1"}), "gb10_recipe.env: a mapping"),
    "another program": (recipe(command="sglang serve x/y"), "gb10_recipe.command, line 1: it runs sglang serve"),
    "no program": (recipe(command="  "), "gb10_recipe.command, line 1: it runs nothing"),
    "no model": (recipe(command="vllm serve --port 1"), "gb10_recipe.command, line 1: no model after vllm serve"),
    "a model above the folder": (recipe(command="vllm serve ../x"), "gb10_recipe.command: the model '../x'"),
    "no value": (recipe(defaults={"port": 1}), "gb10_recipe.command, line 3: {tensor_parallel} has no value"),
    "both kinds": (recipe(cluster_only=True, solo_only=True), "gb10_recipe.solo_only: cluster_only is true too"),
}


@pytest.mark.parametrize(("data", "expected"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_recipe_is_refused(data: Any, expected: str) -> None:
    (found,) = problems(data)
    assert found.startswith(expected)


def test_all_problems_are_reported_together() -> None:
    assert len(problems(recipe(command=None, mods=1, cluster_only="yes", x=1))) == 4


SHELL = ("; id", "$(id)", "`id`", "| id", "&& id", "> /tmp/x", "\nid", "$HOME", "'", '"')


@pytest.mark.parametrize(
    "mod",
    ["/srv/x", "srv/x", "mods/../x", "mods/x/y", "mods/x y", "mods/x;id", "mods/$(id)", "mods/-x", "mods/", "mods/x\n"],
)
def test_a_mod_elsewhere_or_with_shell_syntax_is_refused(mod: str) -> None:
    (found,) = problems(recipe(mods=["mods/fix", mod]))
    assert found.startswith("gb10_recipe.mods: a list. Expected: a list of folders, each mods/NAME")


@pytest.mark.parametrize("text", SHELL)
@pytest.mark.parametrize("key", ["container", "pull_image", "recipe_version", "defaults", "command"])
def test_shell_syntax_is_refused(key: str, text: str) -> None:
    hostile = {"defaults": {"port": f"1{text}", "tensor_parallel": 2}, "command": COMMAND.rstrip() + text}
    assert problems(recipe(**{key: hostile.get(key, f"vllm{text}")}))


@pytest.mark.parametrize("text", SHELL)
def test_shell_syntax_in_a_variable_stays_its_value(text: str) -> None:
    found, _refused = parse(recipe(env={"VLLM_X": text}))
    assert found is not None
    assert found.environment == {"VLLM_X": text}


def test_no_message_repeats_a_long_value() -> None:
    long = "x" * 100_000
    found = problems(recipe(recipe_version=long, container=long, name=long, command=long, **{long: 1}))
    assert max(map(len, found)) < 500


PLACES = {
    "/srv/r.yaml": "/srv/r.yaml",
    "~/r.yaml": "~/r.yaml",
    "r.yml": "/inventory/recipes/r.yml",
    "4x-spark-cluster/r": "/inventory/recipes/4x-spark-cluster/r.yaml",
    "model-2.5": "/inventory/recipes/model-2.5.yaml",
    "../r": "",
    "a/../../r.yaml": "",
    "r; id": "",
    "{{ r }}": "",
}


@pytest.mark.parametrize(("name", "path"), PLACES.items())
def test_the_file_of_a_name(name: str, path: str) -> None:
    assert place(name, "recipes", "/inventory") == path

"""Tests of the use of a recipe: the variables that it sets, its arguments for vLLM, and what the plan replaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.recipe.apply import tokens, use
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Recipe, Use

IMAGE = f"vllm/vllm-openai@sha256:{'0' * 64}"


def recipe(*args: str, **changes: Any) -> Recipe:
    values = {
        "name": "Model",
        "model": "owner/model",
        "args": args,
        "environment": {},
        "container": "vllm-node",
        "image": IMAGE,
        "mods": (),
        "build_args": (),
        "cluster_only": False,
        "solo_only": False,
    }
    return Recipe(**{**values, **changes})


def used(found: Recipe, given: Collection[str] = (), nodes: int = 2, images: Mapping[str, str] | None = None) -> Use:
    result, problems = use(found, given, nodes, images or {})
    assert problems == []
    return result


def refused(found: Recipe, given: Collection[str] = (), nodes: int = 2, images: Mapping[str, str] | None = None) -> list[str]:
    return [problem.path for problem in use(found, given, nodes, images or {})[1]]


RUNTIME = {"gb10_runtime": "container", "gb10_container_image": IMAGE, "gb10_distributed_executor_backend": "mp"}
NAME = {"gb10_served_model_name": "owner/model"}


def test_options_become_variables_and_the_rest_are_arguments() -> None:
    result = used(
        recipe(
            "-tp", "2", "--max-model-len", "128k", "--kv_cache_dtype=fp8", "--max-num-seqs", "4", *"--served-model-name m --x --y -1 --z=1".split()
        )
    )
    assert result.settings == {
        **RUNTIME,
        "gb10_model": "owner/model",
        "gb10_tensor_parallel_size": "2",
        "gb10_max_model_len": 128_000,
        "gb10_kv_cache_dtype": "fp8",
        "gb10_max_num_seqs": "4",
        "gb10_served_model_name": "m",
    }
    assert result.args == ("--x", "--y", "-1", "--z=1")
    assert result.about == [f"the recipe Model with {IMAGE}"]


def test_the_inventory_wins_and_the_plan_shows_it() -> None:
    result = used(recipe("-tp", "2", "--max-model-len", "4096"), given={"gb10_max_model_len", "gb10_model", "gb10_runtime"})
    assert result.settings == {"gb10_tensor_parallel_size": "2", "gb10_distributed_executor_backend": "mp", **NAME}
    assert result.about[1:] == ["--max-model-len 4096 is replaced: the inventory sets gb10_max_model_len"]
    assert result.model == "owner/model"


def test_what_the_plan_decides_is_replaced() -> None:
    result = used(
        recipe(
            "--host",
            "0.0.0.0",
            "--port=9000",
            "--allowed-local-media-path",
            "/",
            "--nnodes",
            "2",
            "--headless",
            "--x",
            environment={"NCCL_IB_HCA": "a", "VLLM_X": "1"},
        )
    )
    assert (result.args, result.environment) == (("--x",), {"VLLM_X": "1"})
    assert [line.partition(" is replaced: ")[0] for line in result.about[1:]] == [
        "--host 0.0.0.0",
        "--port=9000",
        "--allowed-local-media-path /",
        "--nnodes 2",
        "--headless",
        "NCCL_IB_HCA=a",
    ]


def test_one_node_has_one_rank() -> None:
    result = used(recipe("-tp", "2", "--pipeline-parallel-size", "1"), nodes=1)
    assert not {"gb10_tensor_parallel_size", "gb10_pipeline_parallel_size"} & set(result.settings)
    assert result.about[1:] == ["-tp 2 is replaced: there is one node"]


def test_the_executor_is_the_inventorys() -> None:
    result = used(recipe("--distributed-executor-backend", "ray"))
    assert result.settings["gb10_distributed_executor_backend"] == "mp"
    assert result.about[1].startswith("--distributed-executor-backend ray is replaced")
    assert "gb10_distributed_executor_backend" not in used(recipe(), given={"gb10_distributed_executor_backend"}).settings


def test_several_names_stay_valid() -> None:
    result = used(recipe("--served-model-name", "a", "b"))
    assert (result.settings["gb10_served_model_name"], result.args) == ("a", ("--served-model-name", "a", "b"))


def test_the_revision_and_the_reasoning_parser_belong_to_the_model() -> None:
    result = used(recipe("--revision", "abc", "--reasoning-parser", "qwen3"))
    assert (result.revision, result.reasoning, result.args) == ("abc", True, ("--reasoning-parser", "qwen3"))


IMAGES = {
    "the map": ({}, {"vllm-node": "sha256:" + "1" * 64}, "container", "sha256:" + "1" * 64),
    "pull_image": ({}, {}, "container", IMAGE),
    "a published container": ({"container": "nvcr.io/nvidia/vllm:26.04-py3", "image": ""}, {}, "container", "nvcr.io/nvidia/vllm:26.04-py3"),
    "native": ({}, {"vllm-node": "native"}, "native", None),
}


@pytest.mark.parametrize(("changes", "images", "runtime", "image"), IMAGES.values(), ids=IMAGES)
def test_the_runtime(changes: dict[str, str], images: dict[str, str], runtime: str, image: str | None) -> None:
    settings = used(recipe(**changes), images=images).settings
    assert (settings["gb10_runtime"], settings.get("gb10_container_image")) == (runtime, image)


PROBLEMS = {
    "a local image": (recipe(image=""), 2, "gb10_recipe.container"),
    "cluster only": (recipe(cluster_only=True), 1, "gb10_recipe.cluster_only"),
    "solo only": (recipe(solo_only=True), 2, "gb10_recipe.solo_only"),
    "a context": (recipe("--max-model-len", "many"), 2, "gb10_recipe.command"),
    "a loader's variable": (recipe(environment={"LD_PRELOAD": "/tmp/x.so"}), 2, "gb10_recipe.env.LD_PRELOAD"),
    "Python's path": (recipe(environment={"PYTHONPATH": "/tmp"}), 2, "gb10_recipe.env.PYTHONPATH"),
}


@pytest.mark.parametrize(("found", "nodes", "path"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_honored_is_refused(found: Recipe, nodes: int, path: str) -> None:
    assert refused(found, nodes=nodes) == [path]


def test_mods_need_an_image() -> None:
    found = recipe(mods=("mods/x",))
    assert refused(found, images={"vllm-node": "native"}) == ["gb10_recipe.mods"]
    assert refused(found) == []


def test_arguments_of_the_other_builder_need_an_image() -> None:
    found = recipe(image="", build_args=("--x",))
    assert refused(found) == ["gb10_recipe.container", "gb10_recipe.build_args"]
    assert refused(found, images={"vllm-node": IMAGE}) == []
    assert refused(found, given={"gb10_container_image"}) == []


@pytest.mark.parametrize(("text", "number"), [("4096", 4096), ("128k", 128_000), ("1K", 1024), ("1.5M", 1_572_864), ("auto", 0), ("-1", 0)])
def test_tokens(text: str, number: int) -> None:
    assert tokens(text) == number


@pytest.mark.parametrize("text", ["k", "1.5.1k", "-4096", "1T"])
def test_other_text_is_no_number_of_tokens(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tokens(text)

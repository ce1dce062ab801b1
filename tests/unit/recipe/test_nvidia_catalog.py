"""A recipe of NVIDIA's catalog by its name, in a folder with the layout of that repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils import recipe_yaml
from ansible_collections.gb10.cluster.plugins.plugin_utils.nvidia_catalog import find

PLACES = {
    "qwen/small/dgx-spark/linux/vllm/nvfp4": 3,
    "qwen/small/dgx-spark/linux/vllm/128gb/nvfp4": 4,
    "qwen/small/dgx-spark-2gpu/linux/vllm/nvfp4": 3,
    "qwen/small/dgx-spark-2gpu/linux/vllm/fp8": 3,
    "qwen/small/rtx-pro/linux/vllm": 4,
    "google/large/dgx-spark/linux/vllm": 4,
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for place, schema in PLACES.items():
        folder = tmp_path / "clone/models" / place
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(f"# License\n\nschema_version: {schema}\n", encoding="utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "recipe.yaml").write_text("schema_version: 9\n", encoding="utf-8")
    (tmp_path / "clone/models/google/large/dgx-spark-2gpu/linux").mkdir(parents=True)
    (tmp_path / "clone/models/google/large/dgx-spark-2gpu/linux/vllm").symlink_to(outside)
    return tmp_path / "clone"


@pytest.mark.parametrize(
    ("name", "nodes", "expected"),
    [
        ("small", 1, "qwen/small/dgx-spark/linux/vllm/128gb/nvfp4"),
        ("small/nvfp4", 1, "qwen/small/dgx-spark/linux/vllm/nvfp4"),
        ("qwen/small/fp8", 2, "qwen/small/dgx-spark-2gpu/linux/vllm/fp8"),
        ("google/large", 1, "google/large/dgx-spark/linux/vllm"),
    ],
)
def test_a_name_finds_the_recipe_with_the_newest_schema(clone: Path, name: str, nodes: int, expected: str) -> None:
    assert find(f"nvidia:{name}", str(clone), nodes) == (str(clone / "models" / expected / "recipe.yaml"), "")


@pytest.mark.parametrize(
    ("name", "nodes", "found"),
    [
        ("small", 2, "fits 2 recipes for 2 Sparks in {}: qwen/small/fp8, qwen/small/nvfp4"),
        ("none", 1, "fits 0 recipes for 1 Spark in {}: google/large, qwen/small/128gb/nvfp4, qwen/small/nvfp4"),
        ("mall", 1, "fits 0 recipes for 1 Spark"),
        ("large", 2, "fits 0 recipes for 2 Sparks"),
        ("small", 3, "recipes for 1, 2 and 4 Sparks"),
        ("../outside", 1, "no name of a model"),
    ],
)
def test_another_name_is_refused_with_the_names_that_exist(clone: Path, name: str, nodes: int, found: str) -> None:
    path, problem = find(f"nvidia:{name}", str(clone), nodes)
    assert path == "" and found.format(clone) in problem
    assert "gb10_nvidia_recipes is not set" in find(f"nvidia:{name}", "", nodes)[1]


def test_the_refusal_is_a_problem_of_the_plan() -> None:
    data, (problem,) = recipe_yaml.document({"problem": "nvidia:none, which fits 0 recipes"})
    assert data is None
    assert str(problem).startswith("gb10_recipe: nvidia:none, which fits 0 recipes. Expected: the name of one recipe")

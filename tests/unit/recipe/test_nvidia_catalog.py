"""A recipe of NVIDIA's catalog by its name, in a folder with the layout of that repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils import recipe_yaml
from ansible_collections.gb10.cluster.plugins.plugin_utils.nvidia_catalog import clone as fetched
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
    assert find(f"nvidia:{name}", str(clone), nodes) == (str(clone / "models" / expected / "recipe.yaml"), "", "")


@pytest.mark.parametrize(
    ("name", "nodes", "found"),
    [
        ("small", 2, "fits 2 recipes for 2 Sparks in {}: qwen/small/fp8, qwen/small/nvfp4"),
        ("none", 1, "fits 0 recipes for 1 Spark in {}: google/large, qwen/small/128gb/nvfp4, qwen/small/nvfp4"),
        ("mall", 1, "fits 0 recipes for 1 Spark"),
        ("large", 2, "fits 0 recipes for 2 Sparks"),
        ("small", 4, "nvidia:small, but {} is missing, or has no recipe for 4 Sparks and vLLM"),
        ("small", 3, "recipes for 1, 2 and 4 Sparks"),
        ("../outside", 1, "not the name of a model"),
    ],
)
def test_another_name_is_refused_with_the_names_that_exist(clone: Path, name: str, nodes: int, found: str) -> None:
    path, problem, _others = find(f"nvidia:{name}", str(clone), nodes)
    assert path == "" and found.format(clone) in problem
    assert "gb10_nvidia_recipes is not set" in find(f"nvidia:{name}", "", nodes)[1]


def test_a_folder_whose_name_is_no_name_is_left_out(clone: Path) -> None:
    folder = clone / "models/qwen/small/dgx-spark/linux/vllm/nvfp4\nwarning: x"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("schema_version: 9\n", encoding="utf-8")
    assert "128gb/nvfp4/recipe.yaml" in find("nvidia:small", str(clone), 1)[0]
    assert "warning" not in find("nvidia:none", str(clone), 1)[1]


def test_the_names_of_older_recipes_with_figures_are_found_too(clone: Path) -> None:
    for place in ("qwen/small/dgx-spark/linux/vllm/nvfp4", "google/large/dgx-spark/linux/vllm"):
        (clone / "models" / place / "performance.yaml").touch()
    assert find("nvidia:small", str(clone), 1)[2] == "qwen/small/nvfp4"
    assert find("nvidia:large", str(clone), 1)[2] == find("nvidia:small/nvfp4", str(clone), 1)[2] == ""


def test_the_refusal_is_a_problem_of_the_plan() -> None:
    given = {"name": "nvidia:none", "problem": "nvidia:none, but gb10_nvidia_recipes is not set"}
    data, (problem,) = recipe_yaml.document(given)
    assert data is None
    assert str(problem) == (
        "gb10_recipe: nvidia:none, but gb10_nvidia_recipes is not set. Expected: the name of one recipe in NVIDIA's "
        "catalog. Fix: set gb10_nvidia_recipes to a clone of NVIDIA/local-ai-inference-recipes, and use a name in it."
    )


@pytest.fixture
def remote(clone: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return URL@COMMIT of a repository whose last commit has no file, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(clone.parent / "cache"))
    (clone / ".git/hooks").mkdir(parents=True)

    def git(*arguments: str) -> str:
        given = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
        return subprocess.run(given, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=a")
    commit = git("rev-parse", "HEAD")
    git("rm", "--quiet", "-r", "models")
    git("commit", "--quiet", "--message=b")
    return f"file://{clone}@{commit}"


def test_a_commit_is_fetched_once_and_its_links_become_files(remote: str, clone: Path) -> None:
    folder, problem = fetched(remote, "/none")
    assert problem == ""
    assert find("nvidia:google/large", folder, 1)[1] == ""
    assert (Path(folder) / "models/google/large/dgx-spark-2gpu/linux/vllm").is_file()
    shutil.rmtree(clone)
    assert fetched(remote, "/none") == (folder, "")
    assert {path.name for path in Path(folder).parent.iterdir()} == {"lock", remote.rpartition("@")[2]}


@pytest.mark.usefixtures("remote")
def test_a_commit_runs_no_filter_of_the_user(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = clone.parent / "ran"
    configuration = clone.parent / "gitconfig"
    configuration.write_text(
        f'[user]\nname = a\nemail = a@example.com\n[filter "own"]\nsmudge = touch {ran}; cat\n', encoding="utf-8"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    (clone / ".gitattributes").write_text("[attr]macro filter=own\n*.md filter=own\n*.yaml macro\n", encoding="utf-8")
    for name in ("a.md", "a.yaml"):
        (clone / name).write_text("text\n", encoding="utf-8")
    for arguments in (["add", "."], ["commit", "--quiet", "--message=c"]):
        subprocess.run(["git", "-C", str(clone), *arguments], check=True)
    ran.unlink(missing_ok=True)
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    folder, problem = fetched(f"file://{clone}@{head.stdout.strip()}", "/none")
    assert (problem, (Path(folder) / "a.yaml").read_text(encoding="utf-8")) == ("", "text\n")
    assert not ran.exists()


def test_a_schema_of_any_length_is_read(clone: Path) -> None:
    path = clone / "models/google/large/dgx-spark/linux/vllm/recipe.yaml"
    path.write_text(f"schema_version: {'9' * 5000}\n", encoding="utf-8")
    assert find("nvidia:large", str(clone), 1) == (str(path), "", "")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("https://example.com/recipes", "not an https or file URL"),
        (f"https://me:password@example.com/recipes@{'a' * 40}", "not an https or file URL"),
        (f"ext::sh -c id://x@{'a' * 40}", "not an https or file URL"),
        ("{}" + "0" * 40, "of file:///"),
    ],
)
def test_another_source_is_refused_and_leaves_nothing(remote: str, tmp_path: Path, given: str, found: str) -> None:
    folder, problem = fetched(given.format(remote[:-40]), "/none")
    assert folder == "" and found in problem and "password@" not in problem
    assert {path.name for path in tmp_path.glob("cache/gb10/nvidia-recipes/*")} <= {"lock"}


def test_a_relative_folder_starts_at_the_inventory() -> None:
    assert fetched("clone", "/inventory") == ("/inventory/clone", "")
    assert fetched("", "/inventory") == ("", "")

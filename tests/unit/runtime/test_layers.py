"""Tests of image layers: their checks, their builds, and the reading of their folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_layers
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.layers import Layer, builds, check

BASE = f"vllm/vllm-openai@sha256:{'0' * 64}"


def layer(name: str = "fix", digest: str = "1", *packages: str, network: bool = False) -> Layer:
    return Layer(name, "" if packages else f"/srv/{name}", digest, packages, network)


def test_each_layer_is_one_build_on_the_one_before() -> None:
    first, second = builds(BASE, [layer(), layer("packages", "", "ray==2.60.0", network=True)], "python3")
    assert (first.base, second.base, second.base_name) == (BASE, first.image, first.image)
    assert first.containerfile == (
        f"FROM {first.base_name}\nUSER 0:0\nCOPY layer /workspace/mods/fix\n"
        'RUN ["/bin/bash", "-c", "export WORKSPACE_DIR=\\"$PWD\\"; ln -sfn \\"$PWD\\" /workspace/working-folder && cd /workspace/mods/fix && exec bash ./run.sh"]\n'
    )
    assert second.containerfile == (
        f'FROM {first.image}\nUSER 0:0\nRUN ["python3", "-m", "pip", "install", "--no-cache-dir", '
        '"--break-system-packages", "ray==2.60.0"]\n'
    )
    assert (first.network, second.network) == (False, True)


def test_equal_layers_have_equal_images_and_each_change_another_one() -> None:
    variants = [
        builds(BASE, [layer()], "python3"),
        builds(BASE + "1", [layer()], "python3"),
        builds(BASE, [layer("other")], "python3"),
        builds(BASE, [layer(digest="2")], "python3"),
        builds(BASE, [layer(network=True)], "python3"),
        builds(BASE, [layer("p", "", "a==1")], "python3"),
        builds(BASE, [layer("p", "", "a==1")], "/opt/python"),
    ]
    assert len({found[-1].image for found in variants}) == len(variants)
    assert builds(BASE, [layer()], "python3") == variants[0]
    assert builds(BASE, [], "python3") == []


WHEEL = Layer(
    "vllm-0.33.0-ab",
    "",
    "5" * 64,
    (),
    False,
    "/opt/gb10/build/wheels/0.33.0-ab/vllm-0.33.0+gb10.ab-cp312-cp312-linux_aarch64.whl",
)


def test_a_wheel_replaces_the_release_below_the_other_layers() -> None:
    wheel, above = builds(BASE, [WHEEL, layer()], "python3")
    assert wheel.containerfile == (
        f"FROM {wheel.base_name}\nUSER 0:0\nCOPY layer /workspace/wheels\n"
        'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "--break-system-packages", "--isolated", '
        '"--no-deps", "--no-index", "--force-reinstall", '
        '"/workspace/wheels/vllm-0.33.0+gb10.ab-cp312-cp312-linux_aarch64.whl"]\n'
    )
    assert (wheel.wheel, wheel.sha256, wheel.network, above.base) == (WHEEL.wheel, "5" * 64, False, wheel.image)
    assert (above.wheel, above.sha256) == ("", "")


def test_equal_wheels_have_equal_images() -> None:
    def image(**changes: str) -> str:
        return builds(BASE, [replace(WHEEL, **changes)], "python3")[0].image

    assert image(wheel=WHEEL.wheel.replace("/opt/gb10", "/srv")) == image(), "the folder of the store does not count"
    assert len({image(), image(digest="6" * 64), image(wheel=WHEEL.wheel.replace("ab-cp", "cd-cp"))}) == 3


REFUSED: dict[str, tuple[Any, str]] = {
    "a text": ("mods/x", "gb10_image_layers"),
    "a word": (["mods/x"], "gb10_image_layers[0]"),
    "an unknown key": ([{"path": "x", "script": "y"}], "gb10_image_layers[0]"),
    "neither": ([{"network": True}], "gb10_image_layers[0]"),
    "both": ([{"path": "x", "packages": ["a==1"]}], "gb10_image_layers[0]"),
    "a name with a blank": ([{"path": "/srv/a b"}], "gb10_image_layers[0].path"),
    "a name with a quote": ([{"path": "/srv/a'b"}], "gb10_image_layers[0].path"),
    "no folder": ([{"path": "/"}], "gb10_image_layers[0].path"),
    "a release that can move": ([{"packages": ["ray"]}], "gb10_image_layers[0].packages"),
    "an option of pip": ([{"packages": ["--pre"]}], "gb10_image_layers[0].packages"),
    "a text as network": ([{"packages": ["a==1"], "network": "yes"}], "gb10_image_layers[0].network"),
}


@pytest.mark.parametrize(("given", "path"), REFUSED.values(), ids=REFUSED)
def test_other_layers_are_refused(given: Any, path: str) -> None:
    assert [problem.path for problem in check(given)] == [path]


def test_valid_layers() -> None:
    assert check([{"path": "mods/fix-x"}, {"packages": ["ray[default]==2.60.0"], "network": True}]) == []


@pytest.fixture
def mod(tmp_path: Path) -> Path:
    folder = tmp_path / "mods" / "fix"
    (folder / "files").mkdir(parents=True)
    (folder / "run.sh").write_text("true\n", encoding="utf-8")
    (folder / "files" / "a.patch").write_text("x\n", encoding="utf-8")
    return folder


def test_the_digest_changes_with_names_contents_and_modes(mod: Path) -> None:
    patch = mod / "files" / "a.patch"
    digests = {io_layers.digest(str(mod))}
    for change in (
        lambda: (mod / "run.sh").chmod(0o755),
        lambda: patch.write_text("y\n", encoding="utf-8"),
        lambda: patch.rename(mod / "files" / "b.patch"),
    ):
        change()
        digests.add(io_layers.digest(str(mod)))
    assert len(digests) == 4


@pytest.mark.parametrize(("name", "target"), [("files/passwd", "/etc/passwd"), ("etc", "/etc")])
def test_a_link_is_refused(mod: Path, name: str, target: str) -> None:
    (mod / name).symlink_to(target)
    with pytest.raises(ValueError, match=f"{name} is a link or a special file"):
        io_layers.digest(str(mod))


def test_many_files_are_refused(mod: Path) -> None:
    for number in range(1000):
        (mod / str(number)).touch()
    with pytest.raises(ValueError, match="more than 1000 files"):
        io_layers.digest(str(mod))


def test_the_mods_of_a_recipe_are_in_a_folder_above_it(mod: Path, tmp_path: Path) -> None:
    found = io_layers.of_recipe("mods/fix/", str(tmp_path / "recipes" / "4x" / "a.yaml"))
    assert (found["name"], found["folder"], found["problem"]) == ("fix", str(mod), "")
    assert found == io_layers.of_inventory({"path": "mods/fix"}, str(tmp_path))


@pytest.mark.parametrize("name", ["../mods/fix", "/etc", "mods/missing", "mods/../../etc"])
@pytest.mark.usefixtures("mod")
def test_a_mod_elsewhere_is_a_problem(tmp_path: Path, name: str) -> None:
    found = io_layers.of_recipe(name, str(tmp_path / "recipes" / "a.yaml"))
    assert found["problem"].startswith(f"no folder {name} in the folder of ")


@pytest.mark.parametrize("linked", ["mods", "mods/fix"])
def test_a_mod_behind_a_link_is_a_problem(mod: Path, tmp_path: Path, linked: str) -> None:
    repository = tmp_path / "repository"
    link = repository / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(mod if linked == "mods/fix" else mod.parent)
    found = io_layers.of_recipe("mods/fix", str(repository / "recipes" / "a.yaml"))
    assert (found["folder"], found["problem"]) == ("", f"{repository}/mods/fix is a link, or is behind one")


def test_a_folder_without_a_script_is_a_problem(tmp_path: Path) -> None:
    assert io_layers.of_inventory({"path": "empty"}, str(tmp_path))["problem"] == f"{tmp_path}/empty has no run.sh"


def test_packages_have_no_folder() -> None:
    found = io_layers.of_inventory({"packages": ["a==1"], "network": True}, "/srv")
    assert (found["packages"], found["network"], found["folder"], found["problem"]) == (["a==1"], True, "", "")


def test_a_mod_may_reach_its_limits(mod: Path) -> None:
    for number in range(997):
        (mod / str(number)).touch()
    (mod / "large").touch()
    os.truncate(mod / "large", (64 << 20) - 7)
    assert io_layers.of_inventory({"path": str(mod)}, "/")["problem"] == "", "with run.sh and a.patch, of 7 bytes"
    os.truncate(mod / "large", (64 << 20) - 6)
    found = io_layers.of_inventory({"path": str(mod), "network": "yes"}, "/")
    assert (found["problem"], found["network"], found["digest"]) == (
        f"{mod} has more than 1000 files or 64 MiB",
        False,
        "",
    )
    os.truncate(mod / "large", 0)
    (mod / "one more").touch()
    with pytest.raises(ValueError, match="more than 1000 files"):
        io_layers.digest(str(mod))


def test_the_nearest_folder_of_a_mod_counts_up_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "a/mods/x").mkdir(parents=True)
    (tmp_path / "mods/x").mkdir(parents=True)
    assert io_layers._nearest(str(tmp_path / "a/b/c.yaml"), "mods/x") == str(tmp_path / "a/mods/x")
    assert io_layers._nearest(str(tmp_path / "c.yaml"), "mods/x") == str(tmp_path / "mods/x")
    assert io_layers._nearest("/none/c.yaml", "tmp") == "/tmp" and io_layers._nearest("/c.yaml", "none") == ""
    assert io_layers.of_recipe("mods/x", "")["problem"].startswith("no folder mods/x in")

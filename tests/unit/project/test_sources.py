"""What settings refer to on the controller: models, locks, builds, recipes, layers and secrets."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from rendered_units import SETTINGS

from ansible_collections.gb10.cluster.plugins.plugin_utils import recipe_yaml, sources

KEY = "a-secret-key-of-32-characters-abc"


def settings(**changes: Any) -> dict[str, Any]:
    secret = {"gb10_api_key": "", "gb10_api_tls_key": "", "gb10_secret_env": {}}
    return {**SETTINGS, **secret, "gb10_install_dir": "/opt/gb10", **changes}


@pytest.mark.parametrize(
    ("name", "models", "store", "path", "hub"),
    [
        ("mine", {"mine": {"path": "/srv/mine"}}, True, "/srv/mine", {}),
        ("/srv/mine", {"mine": {"pathh": "/srv/mine"}}, True, "/srv/mine", {}),
        ("org/mine", {}, False, "", {"name": "org/mine", "revision": "main"}),
        ("org/mine", {}, True, "/opt/gb10/models/org--mine/main", {"name": "org/mine", "revision": "main"}),
        ("mine", {"mine": {"hub": "a/b", "revision": "v1"}}, False, "", {"name": "a/b", "revision": "v1"}),
        ("no such", {}, True, "", {}),
        ("mine", {"mine": {"hubb": "a/b"}}, True, "", {}),
    ],
)
def test_a_model_is_in_a_folder_or_on_the_hub(
    name: str, models: dict[str, Any], store: bool, path: str, hub: dict[str, str]
) -> None:
    found = sources.model(name, settings(gb10_models=models, model_store_enabled=store))
    assert found == {"model_path": path, "hub_model": hub}


def test_the_lock_is_the_owners_or_the_stacks() -> None:
    assert Path(sources.lock(settings())).is_file()
    assert sources.lock(settings(gb10_stack="curent")) == ""
    assert sources.lock(settings(gb10_stack="curent", gb10_runtime_lock="mine.lock")) == "mine.lock"


@pytest.mark.parametrize(
    ("lock", "known"), [("vllm==99.0.0", False), ("vllm==0.32.0", True), ("ray==2.60.0", True), ("", True)]
)
def test_releases_of_the_table_are_known(lock: str, known: bool) -> None:
    assert sources.known_release(lock) is known


def test_only_the_head_reads_the_archives_of_a_build(tmp_path: Path) -> None:
    for name in ("fix.patch", "vllm.tar.gz"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    digest = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("fix.patch", "vllm.tar.gz")}
    given = settings(
        vllm_build_enabled=True,
        vllm_build_source="vllm.tar.gz",
        vllm_build_patches=["fix.patch", "none.patch"],
        vllm_build_dependencies=[{"variable": "X", "archive": "none.zip", "sha256": 7}],
    )
    worker, head = (sources.build(given, head, str(tmp_path)) for head in (False, True))
    assert worker["patches"] == [
        {"path": f"{tmp_path}/fix.patch", "sha256": digest["fix.patch"]},
        {"path": f"{tmp_path}/none.patch", "sha256": ""},
    ]
    assert (worker["enabled"], worker["archives"], worker["dependencies"][0]["sha256"]) == (True, {}, "7")
    assert head == {**worker, "archives": {"vllm.tar.gz": digest["vllm.tar.gz"], "none.zip": ""}}
    assert sources.build({**given, "vllm_build_enabled": False}, True, str(tmp_path))["archives"] == {}


RECIPE = (
    "recipe_version: '1'\nname: x\nmodel: org/mine\ncontainer: vllm\ncommand: vllm serve org/mine\nmods: [mods/fix]\n"
)


def test_a_recipe_brings_its_model_and_its_mods(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    given = settings(gb10_recipe=str(path), gb10_image_layers=[{"packages": ["a==1"]}])
    found = sources.recipe(given, str(tmp_path), 2, lambda name: Path(name).read_text(encoding="utf-8"))
    assert found["recipe"] == {
        "name": str(path),
        "path": str(path),
        "text": RECIPE,
        "measured": "",
        "others": "",
        "problem": "",
    }
    assert found["model"] == "org/mine"
    assert [layer["packages"] for layer in found["layers"]] == [["a==1"], []]
    assert sources.recipe({**given, "gb10_model": "other"}, "", 2, lambda _name: RECIPE)["model"] == "other"


def test_a_huge_recipe_is_not_read(tmp_path: Path) -> None:
    """A commit of a few kilobytes can have files of gigabytes."""
    path = tmp_path / "x.yaml"
    path.touch()
    os.truncate(path, 1 << 33)

    def read(_path: str) -> str:
        raise AssertionError

    given = {"gb10_recipe": str(path), "gb10_recipe_folder": ""}
    document = sources._document(given, str(tmp_path), 1, read)
    assert 65536 < len(document["text"]) < 1 << 20 and document["problem"] == ""


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/version", "../outside.yaml", "fifo"])
def test_a_link_out_of_the_folder_or_to_a_device_is_not_read(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    (tmp_path / "outside.yaml").write_text(RECIPE, encoding="utf-8")
    os.mkfifo(folder / "fifo")
    (folder / "x.yaml").symlink_to(target)

    def read(_path: str) -> str:
        raise AssertionError

    document = sources._document(settings(gb10_recipe="x", gb10_recipe_folder="clone"), str(tmp_path), 1, read)
    assert document["text"] == "" and "x.yaml is not a readable file" in document["problem"]
    if not target.startswith(".."):
        given = settings(gb10_recipe=str(folder / "x.yaml"))
        assert sources._document(given, str(tmp_path), 1, read)["text"] == ""


def test_a_link_inside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "x.yaml").symlink_to("a.yaml")
    given = settings(gb10_recipe="x", gb10_recipe_folder=str(tmp_path))
    assert sources._document(given, str(tmp_path), 1, lambda _path: RECIPE)["text"] == RECIPE


def test_a_recipe_that_cannot_be_read_brings_nothing() -> None:
    found = sources.recipe(settings(gb10_recipe="/none.yaml", gb10_image_layers="text"), "", 2, lambda _name: "")
    nothing = {"text": "", "measured": "", "others": "", "problem": ""}
    assert found == {"recipe": {"name": "/none.yaml", "path": "/none.yaml", **nothing}, "layers": [], "model": ""}
    assert sources.recipe(settings(), "", 2, lambda _name: "x")["recipe"] == {"name": "", "path": "", **nothing}


@pytest.mark.parametrize(
    ("folder", "name", "found"),
    [
        ("", "small", "{}/small.yaml is not a readable file on the controller, and gb10_recipe_folder is not set"),
        ("none", "small", "{}/none/small.yaml is not a readable file on the controller; recipes in {}/none: none"),
        ("own", "../x", "../x is not a readable file on the controller; recipes in {}/own: mine"),
        (
            "many",
            "x",
            "{}/many/x.yaml is not a readable file on the controller; recipes in {}/many: 0, 1, 10, 11, 2, 3, 4, "
            "5, 6, 7 and 2 more",
        ),
        ("own", "nvidia:x", "nvidia:x, but gb10_nvidia_recipes is not set"),
    ],
)
def test_a_missing_recipe_is_refused_with_those_of_the_folder(
    tmp_path: Path, folder: str, name: str, found: str
) -> None:
    for place in ("own/mine", "own/two\nlines", *(f"many/{number}" for number in range(12))):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / f"{place}.yaml").touch()
    given = settings(gb10_recipe=name, gb10_recipe_folder=folder)
    recipe = sources.recipe(given, str(tmp_path), 2, lambda _name: "")["recipe"]
    assert recipe["problem"] == found.replace("{}", str(tmp_path))
    (problem,) = recipe_yaml.document(recipe)[1]
    assert problem.found == recipe["problem"] and ("gb10_nvidia_recipes" in problem.fix) is name.startswith("nvidia:")


def test_no_verdict_has_a_secret() -> None:
    given = settings(gb10_api_key=f"{KEY} ", gb10_secret_env={"HF_TOKEN": KEY}, gb10_api_tls_certificate="/none.pem")
    found = sources.secrets(given, True, "192.168.1.11", lambda _path: "")
    assert found["key_problem"] and found["secrets"]["names"] == ["HF_TOKEN"]
    assert found["tls"]["problems"] and KEY not in str(found)
    assert sources.secrets(given, False, "192.168.1.11", lambda _path: "")["tls"] == {}


def test_the_certificate_of_the_head_is_read_without_its_key() -> None:
    files = {"/c.pem": "certificate", "/k.pem": KEY}
    given = settings(gb10_api_tls_certificate="/c.pem", gb10_api_tls_key="/k.pem")
    found = sources.secrets(given, True, "192.168.1.11", lambda path: files.get(path, ""))
    assert found["certificates"] == {"certificate": "certificate", "ca": "certificate"} and KEY not in str(found)
    assert found["client"] == {
        "endpoint": "https://192.168.1.11:8000/v1",
        "address": "192.168.1.11",
        "key_file": "/etc/gb10/api.key",
        "ca_file": "/etc/gb10/tls/ca.crt",
    }
    worker = sources.secrets(given, False, "192.168.1.12", lambda path: files.get(path, ""))
    assert worker["certificates"] == {"certificate": "", "ca": ""}
    plain = sources.secrets(settings(gb10_api_key_enabled=False), True, "192.168.1.11", lambda _path: "")
    assert (plain["client"]["key_file"], plain["client"]["ca_file"]) == ("", "")

"""An inventory that is a folder: what Ansible reads of it, and files of others there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

HOSTS = """\
gb10_cluster:
  vars: {gb10_recipe_folder: FOLDER, gb10_recipe: fast, gb10_runtime: container}
  children:
    head:
      hosts:
        spark1: {ansible_host: 192.168.1.11, ansible_user: nvidia}
"""
RECIPE = """\
plugin: ansible.builtin.constructed
"gb10_cluster": {"vars": {"x": "from a recipe"}}
all: {vars: {ansible_connection: local}}
"""
#: An own configuration, as of an installed collection.
OWN = f"[defaults]\ncollections_path = {ROOT}/.collections\ninject_facts_as_vars = False\n"


class Mine:
    """An inventory ``mine`` with recipes and a mod, whose program leaves a file if it runs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.ran = folder / "mine", folder / "ran"
        mod = self.folder / name / "mods" / "fix"
        mod.mkdir(parents=True)
        (mod / "run.sh").write_text(f"#!/bin/sh\ntouch {self.ran}\necho {{}}\n", encoding="utf-8")
        (mod / "run.sh").chmod(0o755)
        (self.folder / name / "fast.yaml").write_text(RECIPE, encoding="utf-8")
        self.write("hosts.yml", HOSTS.replace("FOLDER", name))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def ansible(self, *arguments: str, own: bool = False) -> str:
        """Run a program of Ansible, and return its output; ``own``: with another configuration than the checkout's."""
        configuration = self.folder.parent / "own.cfg"
        configuration.write_text(OWN, encoding="utf-8")
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(configuration if own else ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "gb10.cluster.brief",
        }
        program = Path(sys.executable).with_name(arguments[0])
        command = [str(program), *arguments[1:], "-i", str(self.folder)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + (done.stderr if arguments[0] == "ansible-playbook" else "")

    def listed(self, *arguments: str) -> Any:
        return json.loads(self.ansible("ansible-inventory", "--list", *arguments))

    def plan(self, own: bool = False) -> str:
        return self.ansible("ansible-playbook", "playbooks/plan.yml", "-e", "gb10_plan_offline=typical", own=own)


@pytest.mark.parametrize("name", ["recipes", "hosts", ".recipes"])
def test_the_configuration_reads_no_file_of_others(tmp_path: Path, name: str) -> None:
    mine = Mine(tmp_path, name)
    found = mine.listed()
    assert [*found["_meta"]["hostvars"]] == ["spark1"]
    assert {"x", "ansible_connection"}.isdisjoint(found["_meta"]["hostvars"]["spark1"])
    assert not mine.ran.exists()


def test_several_files_and_variables_beside_them_are_read(tmp_path: Path) -> None:
    mine = Mine(tmp_path, "recipes")
    mine.write("hosts_more.yaml", "gb10_cluster:\n  children:\n    worker:\n      hosts:\n        spark2:\n")
    mine.write("group_vars/gb10_cluster.yml", "gb10_model: of_the_group\n")
    mine.write("host_vars/spark1.yml", "gb10_api_port: 8001\n")
    vault = tmp_path / "password"
    vault.write_text("a-password", encoding="utf-8")
    mine.write("group_vars/head.yml", "gb10_api_key: sealed\n")
    program = str(Path(sys.executable).with_name("ansible-vault"))
    sealed = str(mine.folder / "group_vars/head.yml")
    subprocess.run([program, "encrypt", "--vault-password-file", str(vault), sealed], check=True, capture_output=True)
    found = mine.listed("--vault-password-file", str(vault))["_meta"]["hostvars"]
    names = ("gb10_model", "gb10_api_port", "gb10_api_key")
    assert [found["spark1"].get(name) for name in names] == ["of_the_group", 8001, "sealed"]
    assert [found["spark2"].get(name) for name in names] == ["of_the_group", None, None]


@pytest.mark.slow
def test_the_plan_names_a_file_that_is_not_read(tmp_path: Path) -> None:
    mine = Mine(tmp_path, ".recipes")
    mine.write("more.yml", '"gb10_cluster":\n  hosts:\n')
    mine.write("old", "[worker]\nspark3\n")
    mine.write("site/hosts.yml", "worker:\n  hosts:\n    spark4:\n")
    mine.write("notes.yml", "- name: Mine\n  hosts: gb10_cluster\n")
    said = mine.plan()
    for name in ("more.yml", "old", "site/hosts.yml"):
        assert f"mine/{name}: groups of the cluster, in a file that Ansible does not read." in said, said
    assert "notes.yml" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "refused"), [("recipes", True), ("group_vars/gb10_cluster", True), (".recipes", False)]
)
def test_the_plan_refuses_recipes_that_another_configuration_reads(tmp_path: Path, name: str, refused: bool) -> None:
    said = Mine(tmp_path, name).plan(own=True)
    words = f"gb10_recipe_folder: {tmp_path}/mine/{name}, which Ansible reads with the inventory"
    assert (words in said) is refused, said


@pytest.mark.slow
def test_the_plan_refuses_all_other_paths_there(tmp_path: Path) -> None:
    mine = Mine(tmp_path, "recipes")
    given = {
        "gb10_image_layers": [{"path": "recipes/mods/fix"}],
        "gb10_nvidia_recipes": "recipes",
        "vllm_build_patches": ["recipes/fast.yaml"],
        "nccl_sm121_build_patches": [str(tmp_path / "link/fast.yaml")],
    }
    (tmp_path / "link").symlink_to(mine.folder / "recipes")
    mine.write("group_vars/gb10_cluster.yml", json.dumps(given))
    said = mine.plan(own=True)
    assert [name for name in ("gb10_recipe", *given) if f" {name}: {tmp_path}/" not in said] == [], said

"""The step cluster_inputs in Ansible: every place of a variable, types, defaults, refusals and secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from repository import files, load_yaml, read
from run_playbook import LOCAL, run, run_plays

from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import cluster_inputs

HOST = {
    **LOCAL,
    "vllm_serve_smoke_tokens": 7,
    "qsfp_netplan_state": "gone",
    "base": "/srv",
    "model_store_source": "{{ base }}/models",
    "model_store_hub_token": "hf_secret",
    "vllm_build_environment": "CMAKE_ARGS=-DX",
    "vllm_runtime_index_url": "{{ gb10_plan.nothing }}",
}
PLAY = """
- hosts: all
  gather_facts: false
  vars: {gb10_ray_port: 7000}
  tasks:
    - gb10.cluster.step:
        name: cluster_inputs
      register: gb10_inputs
    - ansible.builtin.copy:
        content: "{{ gb10_inputs | to_json }}"
        dest: "{{ result }}"
        mode: "0600"
"""
PARAMETERS = """
- hosts: localhost
  gather_facts: false
  vars: {gb10_ray_port: 7000}
  roles:
    - {role: probe, gb10_ray_port: 1500, own: 1}
    - {role: probe, vars: {vllm_serve_smoke_tokens: 7}}
    - probe
  tasks:
    - ansible.builtin.include_role:
        name: probe
      vars: {golden_enabled: false}
    - ansible.builtin.include_role:
        name: around
      vars: {gb10_ray_port: 8000}
"""
PROBE = """
- gb10.cluster.step:
    name: cluster_inputs
  register: gb10_inputs
- gb10.cluster.step:
    name: image_query
    inputs:
      image: any
      python: python3
  register: refused
  ignore_errors: true
- ansible.builtin.debug:
    msg: "{{ {'found': gb10_inputs.refused, 'stopped': refused.msg} | to_json }}"
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("inputs")
    extra = f"model_store_enabled=no result={folder}/result.json benchmark_model_concurrencies=1,2"
    run_plays(load_yaml(PLAY), {"spark1": HOST}, folder, "-e", extra).assert_ok()
    return json.loads(Path(folder / "result.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm_serve_smoke_tokens", 7),
        ("vllm_build_environment", {"CMAKE_ARGS": "-DX"}),
        ("gb10_ray_port", 7000),
        ("model_store_enabled", False),
        ("model_store_source", "/srv/models"),
        ("benchmark_model_concurrencies", [1, 2]),
        ("golden_enabled", True),
        # It refers to the plan.
        ("nccl_sm121_build_version", None),
        # It refers to a variable that a later task may define.
        ("vllm_runtime_index_url", ""),
    ],
)
def test_a_variable_has_its_value_or_its_default_in_the_type_of_its_role(found: Any, name: str, value: Any) -> None:
    assert found["settings"][name] == value


def test_a_value_that_its_role_will_refuse_is_reported(found: Any) -> None:
    assert found["refused"] == [{"name": "qsfp_netplan_state", "found": "'gone'", "expected": "one of present, absent"}]


@pytest.mark.slow
def test_a_parameter_of_one_role_is_refused_by_the_plan_and_by_a_role_after_it(tmp_path: Path) -> None:
    (tmp_path / "roles/probe/tasks").mkdir(parents=True)
    (tmp_path / "roles/probe/tasks/main.yml").write_text(PROBE, encoding="utf-8")
    (tmp_path / "roles/around/tasks").mkdir(parents=True)
    around = "- ansible.builtin.include_role:\n    name: probe\n"
    (tmp_path / "roles/around/tasks/main.yml").write_text(around, encoding="utf-8")
    done = run_plays(load_yaml(PARAMETERS), {"localhost": LOCAL}, tmp_path)
    results = [json.loads(line) for line in re.findall(r"^ +(\{\"found\".*)", done.output, re.MULTILINE)]
    assert [[entry["name"] for entry in each["found"]] for each in results] == [
        ["gb10_ray_port"],
        ["vllm_serve_smoke_tokens"],
        [],
        ["golden_enabled"],
        [],
    ], done.output
    assert "gb10_ray_port: set for this role alone. Expected: variables of the inventory" in results[0]["stopped"]
    # Without a parameter it goes on, to the missing plan.
    assert "set for this role alone" not in results[2]["stopped"]


def test_no_secret_is_a_result(found: Any) -> None:
    assert "hf_secret" not in json.dumps(found) and "model_store_hub_token" not in found["settings"]


def test_the_names_are_those_of_the_inventory_without_defaults_of_roles(found: Any) -> None:
    assert {"base", "model_store_source", "vllm_serve_smoke_tokens"} <= set(found["variables"])
    assert "golden_enabled" not in found["variables"] and "gb10_ray_port" not in found["variables"]
    assert "ccache" in found["packages"]


def test_roles_read_settings_with_a_value_before_the_plan_and_no_secret() -> None:
    texts = map(read, files("roles/*/tasks/*.yml", "roles/*/vars/*.yml", "playbooks/**/*.yml"))
    names = {name for text in texts for name in re.findall(r"gb10_inputs\.settings\.(\w+)", text)}
    known = argument_specs.options()
    assert names and names <= known.keys()
    assert not [name for name in names if known[name].get("no_log") or "{{" in str(known[name].get("default"))]


@pytest.mark.slow
def test_a_verbose_plan_shows_no_credentials() -> None:
    url = "https://user:hidden@x/"
    options = ["-v", "-i", "inventories/two-spark", "-e", f"gb10_plan_offline=typical vllm_watchdog_webhook={url}"]
    assert "hidden" not in run("playbooks/plan.yml", options).assert_ok().output
    refused = run("playbooks/plan.yml", [*options, "-e", f"vllm_runtime_index_url={url}"])
    assert refused.status and "hidden" not in refused.output and "vllm_runtime_index_url" in refused.output


@pytest.mark.parametrize(
    ("local", "ssh", "refused"),
    [
        (0, "echo user root", True),
        (0, "echo user nvidia", False),
        (0, '[ "$*" = "-G -o User=nvidia 192.168.1.11" ] || echo user root', False),
        (1000, "echo user root", False),
        (0, "exit 255", False),
        (0, "", False),
    ],
)
def test_a_login_as_root_by_default_is_refused(
    local: int, ssh: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ssh:
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{ssh}\n", encoding="utf-8")
        (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: local)
    found = cluster_inputs._login("192.168.1.11", ["-o", "User=nvidia"])
    assert [each["name"] for each in found] == ["ansible_user"] * refused

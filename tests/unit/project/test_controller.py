"""Mistakes on the controller: an inventory that cannot be read, an old ansible-core, another working directory."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from ansible import constants, context
from ansible.errors import AnsibleError
from repository import ROOT, files, load_yaml, read
from run_playbook import command, run

from ansible_collections.gb10.cluster.plugins.filter import access, cluster
from ansible_collections.gb10.cluster.plugins.plugin_utils import supported
from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require_run

#: Playbooks without an inventory of a cluster.
OTHERS = ("playbooks/access.yml", "playbooks/discover.yml")
CLUSTER = sorted(set(files("playbooks/*.yml")) - set(OTHERS))


@pytest.mark.parametrize("path", files("playbooks/*.yml"))
def test_every_playbook_chooses_its_hosts_with_a_filter_that_refuses_a_wrong_controller(path: str) -> None:
    """The filters also refuse an empty inventory. Other than a task, neither a tag nor --start-at-task skips them."""
    hosts = [play["hosts"] for play in load_yaml(read(path)) if play["hosts"] != "localhost"]
    first = "{{ playbook_selected.hosts " if path in CLUSTER else "{{ groups | gb10.cluster.access_hosts }}"
    assert hosts[0].startswith(first)
    assert [
        name for name in hosts if not name.startswith(("{{ playbook_", "{{ groups | gb10.cluster.access_hosts }}"))
    ] == []


@pytest.mark.parametrize("injected", [True, False])
def test_facts_of_a_node_never_become_variables(injected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", injected)
    groups = {"gb10_cluster": ["a"], "head": ["a"], "all": ["a"]}
    said = r"inject_facts_as_vars: true.* Expected: false.* Fix: export ANSIBLE_INJECT_FACT_VARS=false"
    for call in (partial(access.access_hosts, groups), partial(cluster.selected_clusters, groups), require_run):
        with pytest.raises(AnsibleError, match=said) if injected else nullcontext():
            call()
    # It contacts no node.
    monkeypatch.setattr(context, "CLIARGS", {"syntax": True})
    access.access_hosts(groups)


def test_a_check_of_the_syntax_needs_no_inventory() -> None:
    run("playbooks/gateway_keys.yml", ["--syntax-check"]).assert_ok()


@pytest.mark.parametrize("version", ["2.16.3", "2.18.9rc1"])
def test_an_old_ansible_core_is_refused_with_one_line(version: str) -> None:
    with pytest.raises(
        AnsibleError, match=rf"^ansible-core: version {version}\. Expected: 2\.19 or newer\. Fix: [^\n]+\.$"
    ):
        supported.require(version)


def test_the_oldest_ansible_core_is_that_of_the_collection() -> None:
    oldest = ".".join(map(str, supported.OLDEST))
    assert load_yaml(read("meta/runtime.yml"))["requires_ansible"] == f">={oldest}.0"
    supported.require(f"{oldest}.0")


@pytest.mark.slow
def test_a_playbook_runs_from_another_folder(tmp_path: Path) -> None:
    """There Ansible reads no ansible.cfg, as in a world-writable clone.

    So the run has to get the setting that protects it.
    """
    arguments = ["-i", str(ROOT / "inventories/two-spark"), "-e", f"gb10_plan_offline=true gb10_facts_dir={tmp_path}"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_INJECT_FACT_VARS": "false"}
    # It imports playbooks of another folder.
    argv = command("site.yml", [*arguments, "--check"])
    result = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "spark1 has no recorded facts" in result.stdout, result.stdout + result.stderr

"""The playbook reset.yml, as far as it runs without a node: this machine in check mode, and without a confirmation."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from run_playbook import Run, run


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Create an installation folder with a runtime and a model."""
    for name in ("runtime/0123456789ab/bin/python", "models/a/b/gb10-model.json"):
        (tmp_path / "store" / name).parent.mkdir(parents=True)
        (tmp_path / "store" / name).write_text("x", encoding="utf-8")
    return tmp_path / "store"


def reset(playbook: Path | str, installed: Path, *arguments: str) -> Run:
    """Run a playbook on this machine, with an inventory that site.yml refuses."""
    inventory = installed.parent / "hosts.yml"
    host = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "gb10_install_dir": str(installed),
        "gb10_fabric_topology": "none such",
    }
    inventory.write_text(
        yaml.safe_dump({"gb10_cluster": {"children": {"head": {"hosts": {"spark1": host}}}}}), encoding="utf-8"
    )
    return run(str(playbook), ["--inventory", str(inventory), *arguments])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the lock is in a folder of root")
def test_check_mode_lists_and_removes_nothing(installed: Path) -> None:
    done = reset("playbooks/reset.yml", installed, "--check", "--diff").assert_ok()
    assert f"remove {installed}/runtime (tree, " in done.output
    assert f"-remove {installed}/runtime" in done.output
    assert f"keep {installed}/models (tree, " in done.output
    assert done.changed_tasks() == {"List the items of this collection on the node"}
    assert (installed / "runtime/0123456789ab/bin/python").exists()


@pytest.mark.slow
def test_without_a_terminal_and_a_confirmation_nothing_is_removed(installed: Path) -> None:
    playbook = installed.parent / "role.yml"
    play = {"name": "Reset", "hosts": "gb10_cluster", "gather_facts": False, "roles": [{"role": "gb10.cluster.reset"}]}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    done = reset(playbook, installed)
    assert done.status != 0
    assert (
        "Nothing was removed from spark1. Expected: the answer yes on a terminal, or reset_confirmed: true."
        in done.output
    )
    assert "Stop the services" not in done.output
    assert (installed / "runtime/0123456789ab/bin/python").exists()

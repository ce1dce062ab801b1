"""Build the collection, install it into an empty folder, and use it there, as a user gets it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import samples
from repository import ROLES, ROOT
from sanity.installed import Installed, install

INVENTORIES = sorted(samples.names())
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("collections"))


def test_only_what_a_user_runs_is_packaged(installed: Installed) -> None:
    checkout_only = {"tests", "molecule", "Makefile", "pyproject.toml", "ansible.cfg", "site.yml", "build"}
    names = {path.name for path in installed.root.iterdir()}
    assert {name for name in names if name.startswith(".") or name in checkout_only} == set()
    assert {"COPYING", "README.md", "meta", "playbooks", "plugins", "roles"} <= names
    assert {path.suffix for path in (installed.root / "docs").rglob("*") if path.is_file()} == {".md", ".svg"}
    assert [path for path in installed.root.rglob("*") if path.suffix == ".pyc" or path.name == "__pycache__"] == []
    assert [path for path in installed.root.rglob("lab") if path.is_dir()] == []


def documentation(installed: Installed, roles: list[str]) -> dict[str, Any]:
    """Return what ansible-doc shows about roles. For plugins, `ansible-test sanity` does the same."""
    result = installed.run("ansible-doc", "--json", "-t", "role", *(f"gb10.cluster.{name}" for name in roles))
    assert result.returncode == 0, result.stderr
    assert "[WARNING]" not in result.stderr
    shown: dict[str, Any] = json.loads(result.stdout)
    assert set(shown) == {f"gb10.cluster.{name}" for name in roles}
    return shown


def test_roles_are_documented(installed: Installed) -> None:
    shown = documentation(installed, ROLES)
    assert [name for name, role in shown.items() if not role["entry_points"]["main"]["short_description"]] == []


def test_missing_documentation_is_noticed(installed: Installed) -> None:
    with pytest.raises(AssertionError, match="no_such_role"):
        documentation(installed, ["no_such_role"])


@pytest.fixture(scope="session")
def checked(installed: Installed) -> Callable[[str], str]:
    """Check the syntax of all playbooks with an inventory, once, and return the output; the first error ends the
    check."""

    @functools.cache
    def checked(inventory: str) -> str:
        names = [f"gb10.cluster.{name}" for name in PLAYBOOKS]
        result = installed.run("ansible-playbook", *names, "--syntax-check", "-i", ROOT / "inventories" / inventory)
        return result.stdout + result.stderr

    return checked


@pytest.mark.parametrize("inventory", INVENTORIES)
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbook_syntax(checked: Callable[[str], str], installed: Installed, playbook: str, inventory: str) -> None:
    output = checked(inventory)
    assert "ERROR" not in output, output
    assert f"playbook: {installed.root}/playbooks/{playbook}.yml\n" in output, output


#: A node that records each connection, and answers all modules with facts that name a file of the controller.
HOSTILE = """#!/bin/sh
[ -t 0 ] || cat >> {0}/received
echo "$*" >> {0}/connections
cat {0}/answer
"""


@dataclass(frozen=True)
class Stolen:
    """A secret file of the controller, and the environment of a run against a hostile node."""

    folder: Path
    environment: dict[str, str]

    def received(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.folder.glob("received"))


@pytest.fixture
def hostile(tmp_path: Path) -> Stolen:
    secret, ssh = tmp_path / "id_ed25519", tmp_path / "ssh"
    secret.write_text("the private key", encoding="utf-8")
    facts = {"common_environment_wheelhouses": [str(secret)], "vllm_runtime_wheelhouse_archive": str(secret)}
    answer = {"changed": False, "stat": {"exists": True, "isdir": True}, "ansible_facts": facts}
    (tmp_path / "answer").write_text(json.dumps(answer), encoding="utf-8")
    ssh.write_text(HOSTILE.format(tmp_path), encoding="utf-8")
    ssh.chmod(0o755)
    settings = {"SSH_EXECUTABLE": str(ssh), "SSH_TRANSFER_METHOD": "piped", "PIPELINING": "true", "NOCOLOR": "1"}
    return Stolen(tmp_path, {f"ANSIBLE_{name}": value for name, value in settings.items()})


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_contacts_no_node_whose_facts_would_become_variables(
    playbook: str, installed: Installed, hostile: Stolen
) -> None:
    """A release has no ansible.cfg, and Ansible's default lets any node replace variables of the run."""
    new = hostile.folder / "new"
    given = [
        "-i",
        ROOT / "inventories" / "two-spark",
        "-e",
        f"discover_directory={new}",
        "--skip-tags",
        "always",
        "--forks",
        "1",
    ]
    model = ["-e", "gb10_model=openai/gpt-oss-20b"] if playbook == "switch_model" else []
    done = installed.run("ansible-playbook", f"gb10.cluster.{playbook}", *given, *model, env=hostile.environment)
    assert done.returncode != 0
    assert "Fix: export ANSIBLE_INJECT_FACT_VARS=false" in done.stdout + done.stderr
    assert not (hostile.folder / "connections").exists()
    assert [path.name for path in hostile.folder.iterdir() if path.name not in ("answer", "id_ed25519", "ssh")] == []


@pytest.mark.parametrize(("injected", "sent"), [("true", True), ("false", False)])
def test_a_hostile_node_gets_no_file_of_the_controller(
    injected: str, sent: bool, installed: Installed, hostile: Stolen
) -> None:
    """The tasks of an environment unpack an archive of the controller on the node.

    With Ansible's default, the node names it.
    """
    environment = {
        "ansible.builtin.include_role": {
            "name": "gb10.cluster.common",
            "tasks_from": "environment",
            "rolespec_validate": False,
        }
    }
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"gb10.cluster.node_info": {}}, environment]}
    (hostile.folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    given = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_become": False,
        "common_environment_python": "python3",
    }
    given |= {
        "common_environment_path": "/opt/e",
        "common_environment_lock": "uv==1",
        "common_environment_constraint": "",
    }
    inventory = {"all": {"hosts": {"evil": {**given, "common_environment_wheelhouses": []}}}}
    (hostile.folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    setting = {**hostile.environment, "ANSIBLE_INJECT_FACT_VARS": injected}
    # The same answer cannot be that of a file and that of a folder.
    no_files = ["-e", '{"_common_environment_files": []}']
    done = installed.run(
        "ansible-playbook", "-i", hostile.folder / "hosts.json", hostile.folder / "play.yml", *no_files, env=setting
    )
    # The node answered, and the run got as far as the task that sends archives.
    assert "Unpack the wheelhouses" in done.stdout, done.stdout + done.stderr
    assert (b"the private key" in hostile.received()) is sent, done.stdout + done.stderr

"""Run playbooks/discover.yml with a fake ssh that answers for the machines. No machine is contacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from run_module import program
from run_playbook import Run, run
from sparks import PAIR, RING3, machine

#: Prints the file named after the target host and saves its configuration. The host is the word before the command.
SSH = """
for word; do host=$command; command=$word; case $previous in -F) cat "$word" >> {0}/configured;; esac; previous=$word; done
cat > /dev/null
cat "{0}/$host" 2> /dev/null || echo '{{"ping": "pong"}}'
"""


class Cables:
    """Answers of machines on cables, as files named after the given address or discovery's name for a found machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.directory = folder, folder / "mine"
        self.ssh = program(folder / "bin", "ssh", SSH.format(folder)) / "ssh"

    def answers(self, name: str, number: int, wires: tuple[Any, ...], **changes: Any) -> None:
        observed = {**machine(number, wires)["observed"], **changes}
        (self.folder / name).write_text(json.dumps({"changed": False, **observed}), encoding="utf-8")

    def discover(self, *arguments: str) -> Run:
        given = ["-i", "192.168.1.1,", "-u", "nvidia", f"--extra-vars=discover_directory={self.directory}", *arguments]
        interpreter = f"--extra-vars=ansible_python_interpreter={sys.executable}"
        return run("playbooks/discover.yml", [*given, interpreter], {"ANSIBLE_SSH_EXECUTABLE": str(self.ssh)})

    def configured(self) -> str:
        path = self.folder / "configured"
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture
def cables(tmp_path: Path) -> Cables:
    return Cables(tmp_path)


@pytest.mark.slow
def test_a_pair_is_found_and_its_inventory_loads(cables: Cables) -> None:
    cables.answers("192.168.1.1", 1, (PAIR,))
    cables.answers("found-020000000202", 2, (PAIR,))
    shown = cables.discover("--diff").assert_ok()
    assert "+    gb10_fabric_topology: direct" in shown.output
    assert "HostName fe80::2:10%%enp1s0f1np1" in cables.configured()
    listed = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "--inventory", cables.directory, "--list"],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    written = json.loads(listed.stdout)
    assert (written["head"]["hosts"], written["worker"]["hosts"]) == (["spark1"], ["spark2"])
    variables = written["_meta"]["hostvars"]["spark2"]
    assert (variables["ansible_host"], variables["gb10_fabric_topology"]) == ("192.168.1.2", "direct")
    assert (cables.directory / "known_hosts.txt").read_text(encoding="utf-8").startswith("192.168.1.2 ssh-ed25519 AAAA")


def test_a_folder_that_exists_is_refused_with_another_name(cables: Cables) -> None:
    cables.directory.mkdir()
    done = cables.discover()
    assert done.status != 0
    assert f"{cables.directory} exists. Expected: a new folder" in done.output
    assert f"Fix: -e discover_directory={cables.directory}2." in done.output


@pytest.mark.slow
@pytest.mark.parametrize("check", [(), ("--check", "--diff")], ids=["write", "check"])
def test_a_hostile_machine_on_a_cable_gets_nothing(cables: Cables, check: tuple[str, ...]) -> None:
    """The hostile answer tries each injection at once: through ssh_config, a template and the written inventory."""
    mark = cables.folder / "owned"
    cables.answers("192.168.1.1", 1, RING3)
    for name, number in (("found-020000000202", 2), ("found-020000000300", 3)):
        cables.answers(name, number, RING3)
    hostile = json.loads((cables.folder / "found-020000000300").read_text(encoding="utf-8"))
    evil = {"address": f"127.0.0.1\n  ProxyCommand sh -c 'touch {mark}'", "name": f"'; touch {mark} #"}
    hostile |= {
        "neighbors": {"enp1s0f0np0": [{"mac": "02:00:00:00:09:01", "host_key": "", **evil}]},
        "management": f"{{{{ lookup('ansible.builtin.pipe', 'touch {mark}') }}}}",
        "hostname": "x\nall:\n  vars: {ansible_connection: local}",
        "add_host": {"host_name": "localhost", "host_vars": {"ansible_python_interpreter": str(mark)}},
        "ansible_facts": {"x": "{{ y }}"},
    }
    (cables.folder / "found-020000000300").write_text(json.dumps(hostile), encoding="utf-8")
    done = cables.discover(*check)
    assert done.status != 0
    for field in ("hostname", "management", "neighbors.enp1s0f0np0[0].mac", "neighbors.enp1s0f0np0[0].address"):
        assert (f"found-020000000300.{field}: invalid value" in done.output) is not field.endswith(".mac"), done.output
    assert "ProxyCommand sh" not in cables.configured() and cables.configured().count("Host found-") > 1
    assert not mark.exists() and not cables.directory.exists()

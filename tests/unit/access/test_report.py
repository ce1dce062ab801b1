"""The meaning of the results of the role's tasks, and the actions that return them where no machine answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ROOT
from run_module import program

from ansible_collections.gb10.cluster.plugins.module_utils.access import report
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import access_report

KEY = {"key": "ssh-ed25519 AAAA", "fingerprint": "SHA256:x", "state": "stored", "reason": ""}
READ = {"node": {"name": "spark1", "address": "10.0.0.1", "port": 22, "user": "nvidia", "host_key": KEY}}
DENIED = {"reason": "Permission denied (publickey,password).", "sudo_free": False}
GOOD, FREE = {"reason": "", "sudo_free": False}, {"reason": "", "sudo_free": True}
SKIPPED = {"skipped": True, "changed": False}


@pytest.mark.parametrize(
    ("login", "password", "sudo", "found"),
    [
        ({}, {}, {}, ("no answer", None, False, None)),
        ({"failed": True, "msg": "sudo is not installed"}, {}, {}, ("sudo is not installed", None, False, None)),
        (FREE, {}, SKIPPED, ("", None, True, None)),
        (DENIED, SKIPPED, SKIPPED, (DENIED["reason"], None, False, None)),
        (DENIED, {"unreachable": True, "msg": "no"}, SKIPPED, (DENIED["reason"], "no", False, None)),
        (DENIED, {"unreachable": True}, SKIPPED, (DENIED["reason"], "no answer", False, None)),
        (GOOD, {"changed": True}, {"reason": ""}, ("", "", False, "")),
        (GOOD, {"changed": False}, {"reason": "Incorrect sudo password"}, ("", "", False, "Incorrect sudo password")),
    ],
)
def test_a_node_from_the_results_of_tasks(login: Any, password: Any, sudo: Any, found: tuple[Any, ...]) -> None:
    node = report.of_results(READ, login, password, sudo)
    assert (node["key"], node["password"], node["sudo_free"], node["sudo"]) == found
    assert {name: node[name] for name in READ["node"]} == READ["node"]


def test_a_node_without_access_fails_the_report_of_all() -> None:
    good, bad = report.of_results(READ, FREE, {}, {}), report.of_results(READ, DENIED, {}, {})
    assert access_report.logins([good]) == {
        "lines": ["spark1 (nvidia@10.0.0.1): login by key, sudo without a password"]
    }
    found = access_report.logins([good, {**bad, "name": "spark2"}])
    assert found["failed"] and found["msg"].startswith(
        "1 of 2 machines without access:\n  1. spark2: Permission denied"
    )


@pytest.mark.parametrize(
    ("login", "password", "sudo", "found", "fix"),
    [
        (DENIED, {}, {}, "spark1: Permission denied", "'ssh-copy-id nvidia@10.0.0.1'"),
        # This login offered no key, so the refusal is about the password.
        (
            DENIED,
            {"unreachable": True, "msg": DENIED["reason"]},
            {},
            "spark1: Permission denied",
            "'ssh -o PubkeyAuthentication=no nvidia@10.0.0.1'",
        ),
        (DENIED, {"unreachable": True, "msg": "No route to host"}, {}, "spark1: No route", "run 'ping 10.0.0.1'"),
        (DENIED, {"unreachable": True, "msg": "another"}, {}, "spark1: another", "run 'ssh nvidia@10.0.0.1'"),
        (
            DENIED,
            {"changed": True},
            {},
            "spark1: the key is installed, but Permission denied",
            "'ssh -v nvidia@10.0.0.1'",
        ),
        (GOOD, {}, {"reason": "Incorrect sudo password"}, "spark1: Incorrect sudo password", "sudo -k id"),
    ],
)
def test_each_failed_step_of_a_login_has_its_fix(login: Any, password: Any, sudo: Any, found: str, fix: str) -> None:
    text = access_report.logins([report.of_results(READ, login, password, sudo)])["msg"]
    assert found in text and fix in text


@pytest.mark.parametrize(
    ("login", "sudo", "found"),
    [
        (FREE, SKIPPED, "sudo without a password"),
        (GOOD, {"reason": ""}, "sudo with the password"),
        (GOOD, SKIPPED, "sudo with a password, which was not verified"),
    ],
)
def test_the_report_of_a_login_tells_whether_commands_need_the_sudo_password(login: Any, sudo: Any, found: str) -> None:
    line, *more = access_report.logins([report.of_results(READ, login, {}, sudo)])["lines"]
    assert line == f"spark1 (nvidia@10.0.0.1): login by key, {found}"
    assert [text[:9] for text in more] == ([] if login["sudo_free"] else ["Append -K"])


@pytest.mark.parametrize(
    ("key", "failed", "unknown"),
    [
        (KEY, False, 0),
        ({**KEY, "state": "new"}, False, 1),
        ({**KEY, "state": "changed"}, True, 0),
        ({**KEY, "key": "", "state": "", "reason": "Connection refused"}, True, 0),
        # The controller itself.
        ({}, False, 0),
    ],
)
def test_a_changed_or_missing_host_key_fails(key: dict[str, str], failed: bool, unknown: int) -> None:
    node = report.of_results({"node": {**READ["node"], "host_key": key}}, {}, {}, {})
    found = access_report.host_keys([node])
    assert (found.get("failed", False), len(found.get("unknown", ()))) == (failed, unknown)


@pytest.mark.parametrize(("login", "options"), [(FREE, ""), (GOOD, "-K"), ({}, "-K")])
def test_the_inventory_has_the_address_and_its_commands_their_option(login: Any, options: str) -> None:
    found = access_report.written([report.of_results(READ, login, {}, {})])
    (host,) = yaml.safe_load(found["text"])["gb10_cluster"]["children"]["head"]["hosts"].values()
    assert (host, found["options"]) == ({"ansible_host": "10.0.0.1", "ansible_user": "nvidia"}, options)


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gb10.cluster.step:
        name: host_key_info
        inputs:
          known_hosts: /dev/null
      register: key
    - gb10.cluster.step:
        name: fabric_neighbors_info
      register: cables
    - gb10.cluster.step:
        name: login_info
      register: login
    - ansible.builtin.copy:
        content: "{{ {'key': key, 'cables': cables, 'login': login} | to_json }}"
        dest: "{{ result }}/{{ inventory_hostname }}"
        mode: "0600"
      delegate_to: localhost
      connection: local
"""


@pytest.mark.slow
def test_a_machine_that_refuses_stays_in_the_play_and_its_settings_may_be_templates(tmp_path: Path) -> None:
    away = {
        "ansible_host": "{{ '127.0.0' }}.9",
        "ansible_port": "{{ '1' }}",
        "ansible_user": "{{ 'nvi' }}dia",
        "ansible_ssh_private_key_file": "{{ '/none' }}",
        "ansible_ssh_common_args": "-o User={{ 'nvidia' }}",
    }
    hosts = {"away": away, "here": {"ansible_connection": "local"}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    # No key of this machine is offered, and its sudo does not run.
    path = program(tmp_path / "bin", "sudo", "exit 1")
    command = [Path(sys.executable).with_name("ansible-playbook"), tmp_path / "play.yml", "-i", tmp_path / "hosts.json"]
    variables = ["-e", f"result={tmp_path}", "-e", f"ansible_python_interpreter={sys.executable}"]
    environment = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(
        [*command, *variables], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found, here = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("away", "here"))
    node = found["key"]["node"]
    assert (node["name"], node["address"], node["port"], node["user"]) == ("away", "127.0.0.9", 1, "nvidia")
    assert node["host_key"]["reason"] == "connect to 127.0.0.9 port 1: Connection refused"
    machine = found["cables"]["machine"]
    login = {"user": "nvidia", "key": "/none", "port": 1, "arguments": "-o User=nvidia", "local": False}
    assert (machine["login"], machine["address"], machine["observed"]) == (login, "127.0.0.9", {})
    assert "Connection refused" in machine["unreachable"] and "Connection refused" in found["login"]["reason"]
    assert here["key"]["node"]["host_key"] == {} and here["cables"]["machine"]["login"]["local"]
    assert (here["login"]["reason"], here["login"]["sudo_free"]) == ("", False)

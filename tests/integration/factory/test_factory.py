"""An owner's first hour on two hosts like factory Sparks: only the README's commands, as a user without rights on this
machine.

The management connection breaks for ten seconds with each `netplan apply`, and another process holds dpkg's lock when
site.yml begins.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from factory_hosts import OWNER, TESTER, WEB_PORT, Evening, booted, errors
from host_state import differences
from live_cluster import lock_dpkg

pytestmark = pytest.mark.disruptive

#: Seconds for which another process holds dpkg's lock.
LOCKED = 90


def test_the_preview_changes_nothing(evening: Evening) -> None:
    evening.play("site.yml", "--check", "--diff").assert_ok()
    assert evening.connect("spark1").run("test -e /etc/gb10 -o -e /etc/netplan/60-gb10-qsfp.yaml").rc != 0


def test_a_full_disk_is_one_clear_error(evening: Evening) -> None:
    """Before it, the run waits until dpkg's lock is free."""
    host = evening.connect("spark2")
    lock_dpkg(host, LOCKED)
    host.check_output("mount -t tmpfs -o size=200m lab /opt")
    try:
        done = evening.play("site.yml")
    finally:
        host.check_output("umount --lazy /opt")
    done.assert_failed()
    assert re.search(r"spark2.*(free|space)", errors(done)), done.output
    assert "Traceback" not in done.output
    assert re.search(r"spark2: apt is locked by python3 \(PID \d+, lab-upgrade.service\): waiting", done.output)


def test_one_command_serves_the_model(evening: Evening) -> None:
    """The same command again continues after the full disk."""
    evening.play("site.yml").assert_ok()
    assert evening.connect("spark1").file("/run/netplan-in-a-lab").exists, "the management connection was interrupted"
    assert evening.play("site.yml").assert_unchanged()


def test_daily_commands(evening: Evening) -> None:
    evening.play("playbooks/status.yml").assert_ok("/srv/models/tiny")
    evening.play("playbooks/verify.yml").assert_ok()
    evening.play("playbooks/switch_model.yml", "-e gb10_model=/srv/models/tiny-moe").assert_ok()


def test_a_published_container_port(evening: Evening) -> None:
    """Docker's ports bypass the firewall of a host. The page says so."""
    address = evening.hosts.nodes["spark1"]["ansible_host"]
    command = ["curl", "--silent", "--max-time", "5", "--write-out", "%{http_code}", f"http://{address}:{WEB_PORT}/"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout.endswith("404")


def test_reset_returns_the_first_state(evening: Evening) -> None:
    """The owner's public key stays: without it, only the password would be left."""
    evening.play("playbooks/reset.yml", "-e reset_confirmed=true", "-e reset_models=true").assert_ok()
    evening.hosts.power("off", *evening.hosts.nodes)
    evening.hosts.power("on", *evening.hosts.nodes)
    now = booted(evening.hosts)
    for state in now.values():
        assert state["files"].pop("/home/nvidia/.ssh/authorized_keys")
    for name, state in evening.first.items():
        assert {kind: differences(state[kind], now[name][kind]) for kind in state} == {kind: {} for kind in state}, name


def test_ansible_on_the_head(evening: Evening) -> None:
    """Without a third machine: the owner's folders on the head, which Ansible reaches without SSH.

    The worker verifies its firewall.
    """
    head = evening.hosts.nodes["spark1"]
    access = [f"-i{head['lab_dir']}/ssh/id_ed25519", f"-oUserKnownHostsFile={head['lab_dir']}/ssh/known_hosts"]
    keys = f"sudo cp /home/{OWNER}/.ssh/id_* /home/{OWNER}/.ssh/known_hosts /home/nvidia/.ssh/"
    hosts = evening.home / "gb10.cluster/inventories/mine/hosts.yml"
    hosts.write_text(
        hosts.read_text(encoding="utf-8").replace(
            "ansible_user: nvidia", "ansible_user: nvidia, ansible_connection: local", 1
        )
    )
    packed = subprocess.Popen(["tar", "--directory=/home", "--create", OWNER], stdout=subprocess.PIPE)
    unpack = (
        f"sudo tar --directory=/home --extract && {keys} && sudo chown --recursive nvidia: /home/{OWNER} "
        "/home/nvidia/.ssh"
    )
    subprocess.run(["ssh", *access, f"{TESTER}@{head['ansible_host']}", unpack], stdin=packed.stdout, check=True)
    there = (
        f"cd /home/{OWNER}/gb10.cluster && . ../gb10/bin/activate && ansible-playbook site.yml -i inventories/mine -K"
    )
    evening.run(f"ssh -t nvidia@{head['ansible_host']} '{there}'").assert_ok()
    for name in evening.hosts.nodes:
        assert "policy drop" in evening.connect(name).check_output("nft list table inet gb10")
    evening.run(f"ssh -t nvidia@{head['ansible_host']} '{there}'").assert_unchanged()

"""Run playbooks/access.yml on a terminal, against machines with a real sshd and sudo in namespaces of their own."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ssh_hosts
from ssh_hosts import Site

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

FIRST, SECOND = "198.51.100.11", "198.51.100.12"
#: Ansible would template it, a shell would split it.
PASSWORD = "a {{ 7 * 6 }} 'secret'"
CONFIRM, ASK = ("Do these fingerprints belong", "yes"), ("Login password", PASSWORD)
BOTH = ("-i", f"{FIRST},{SECOND},", "-u", "nvidia")
STORED = "~/.ssh/known_hosts"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ssh_hosts.site(tmp_path) as found:
        found.start(FIRST, PASSWORD, "nvidia ALL=(ALL) ALL")
        yield found


def visible(secret: str, found: list[str], stop: threading.Event) -> None:
    """Search the arguments and environments of all processes."""
    while not stop.wait(0.02):
        for path in (path for name in ("cmdline", "environ") for path in Path("/proc").glob(f"[0-9]*/{name}")):
            with contextlib.suppress(OSError):
                found += [f"{path}"] * (secret.encode() in path.read_bytes())


@pytest.mark.slow
def test_from_a_password_to_an_inventory(site: Site, tmp_path: Path) -> None:
    site.start(SECOND, PASSWORD, "nvidia ALL=(ALL) NOPASSWD: ALL")
    mine = tmp_path / "mine"
    preview = site.playbook(*BOTH, "-e", f"access_directory={mine}", "--check", answers=[ASK]).assert_ok()
    assert preview.output.count("(ED25519)") == 2
    assert (
        site.run(["ls", "-A", Path.home() / ".ssh"]).output == ""
        or site.run(["test", "-e", Path.home() / ".ssh"]).status != 0
    )
    refused = site.playbook(*BOTH, answers=[(CONFIRM[0], "no"), ASK])
    assert refused.status != 0
    assert "The host keys are not stored." in refused.output
    leaks: list[str] = []
    stop = threading.Event()
    watch = threading.Thread(target=visible, args=("{{ 7 * 6 }}", leaks, stop))
    watch.start()
    done = site.playbook(*BOTH, "-e", f"access_directory={mine}", "--diff", "-vvv", answers=[CONFIRM, ASK]).assert_ok()
    stop.set()
    watch.join()
    assert leaks == []
    assert "secret'" not in done.output and PASSWORD not in done.output
    for line in (
        "this run creates ~/.ssh/id_ed25519, without a passphrase",
        f"{FIRST} (nvidia@{FIRST}): login by key, sudo with the password",
        f"{SECOND} (nvidia@{SECOND}): login by key, sudo without a password",
        f"ansible-playbook site.yml -i {mine} --check --diff -K",
    ):
        assert line in done.output
    own = site.on_host(SECOND, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert f"{SECOND} (nvidia@{SECOND}): {own} (ED25519)" in preview.output
    assert site.on_host(FIRST, "stat -c %a:%U /home/nvidia/.ssh /home/nvidia/.ssh/authorized_keys").split() == [
        "700:nvidia",
        "600:nvidia",
    ]
    # From another folder, and without the password.
    again = site.playbook("-i", str(mine), answers=[(ASK[0], "")], cwd=tmp_path).assert_unchanged()
    assert f"spark1 (nvidia@{FIRST}): login by key, sudo with a password, which was not verified" in again.output
    exists = site.playbook(*BOTH, "-e", f"access_directory={mine}", answers=[ASK])
    assert f"access_directory: {mine} exists. Expected: a new folder" in exists.output


@pytest.mark.slow
def test_machines_without_a_valid_host_key_are_one_report_before_any_change(site: Site) -> None:
    site.run(["sh", "-c", f"mkdir -p ~/.ssh; ssh-keyscan -t ed25519 {FIRST} > {STORED} 2>/dev/null"])
    before = site.run(["sh", "-c", f"cat {STORED}"]).output
    site.stop(FIRST)
    site.start(FIRST, PASSWORD, "nvidia ALL=(ALL) ALL")
    hosts = [FIRST, ssh_hosts.REFUSED, ssh_hosts.NO_ROUTE, ssh_hosts.SILENT, "spark.invalid"]
    done = site.playbook("-i", f"{','.join(hosts)},", "-u", "nvidia", answers=[ASK])
    assert done.status != 0
    assert "5 problems found; nothing was changed." in done.output
    for host, text, fix in (
        (
            FIRST,
            f"{FIRST} has another host key than known_hosts: SHA256:",
            f"run 'ssh-keygen -R {FIRST}', then 'ssh nvidia@{FIRST}'",
        ),
        (ssh_hosts.REFUSED, "Connection refused", "run 'sudo systemctl enable --now ssh'"),
        (ssh_hosts.NO_ROUTE, "No route to host", f"run 'ping {ssh_hosts.NO_ROUTE}'"),
        (ssh_hosts.SILENT, "Connection timed out", f"run 'ping {ssh_hosts.SILENT}'"),
        ("spark.invalid", "", "set ansible_host to the IP address instead of spark.invalid"),
    ):
        (line,) = {line.strip() for line in done.output.splitlines() if f" {host}: " in line}
        assert text in line and fix in line
    assert site.run(["sh", "-c", f"cat {STORED}"]).output == before


#: The variables with which a login fails, by cause.
FAILURES = {
    "host-key-unknown": {
        "ansible_host": FIRST,
        "ansible_ssh_extra_args": "-o UserKnownHostsFile=/dev/null -o BatchMode=yes",
    },
    "login-denied": {
        "ansible_host": FIRST,
        "ansible_ssh_extra_args": "-o PubkeyAuthentication=no -o PasswordAuthentication=no",
    },
    "sudo-password-missing": {"ansible_host": FIRST, "ansible_become": True},
    "sudo-password-wrong": {"ansible_host": FIRST, "ansible_become": True, "ansible_become_password": "wrong"},
    "name-unknown": {"ansible_host": "spark.invalid"},
    "ssh-refused": {"ansible_host": ssh_hosts.REFUSED},
    "no-route": {"ansible_host": ssh_hosts.NO_ROUTE},
    "ssh-timeout": {"ansible_host": ssh_hosts.SILENT},
}


@pytest.mark.slow
def test_a_wrong_password_a_user_without_sudo_and_the_messages_of_ssh_have_their_causes(
    site: Site, tmp_path: Path
) -> None:
    site.start(SECOND, "another", "nobody ALL=(ALL) ALL")
    confirmed = (*BOTH, "-e", "access_confirmed=true")
    wrong = site.playbook(*confirmed, answers=[ASK])
    assert wrong.status != 0
    assert "1 of 2 machines without access:" in wrong.output
    assert f"'ssh -o PubkeyAuthentication=no nvidia@{SECOND}'" in wrong.output
    # The others have their key already, so each password needs one run.
    denied = site.playbook(*confirmed, "--limit", SECOND, answers=[(ASK[0], "another")])
    assert denied.status != 0
    assert f"'usermod -aG sudo nvidia' on {SECOND}" in denied.output
    shared = {"ansible_user": "nvidia", "ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none"}
    inventory = tmp_path / "failures.json"
    inventory.write_text(json.dumps({"all": {"hosts": FAILURES, "vars": shared}}), encoding="utf-8")
    program = Path(ssh_hosts.sys.executable).with_name("ansible")
    lines = site.run([program, "-i", inventory, "all", "-T", "3", "-f", "8", "-o", "-m", "ping"]).output.splitlines()
    causes_of = {name: causes.find(line) for line in lines for name in FAILURES if line.startswith(f"{name} | ")}
    assert {name: cause and cause.id for name, cause in causes_of.items()} == {name: name for name in FAILURES}

"""States of a new host that stop the first run. Each gives one clear error before anything changes."""

from __future__ import annotations

import re
import subprocess

import pytest
from factory_hosts import Evening, errors
from live_cluster import dpkg_locked
from root_file_system import put

pytestmark = pytest.mark.disruptive

LEFT = "ls -d /etc/gb10 /opt/gb10 /etc/netplan/60-gb10-qsfp.yaml"
PYTHON = "/usr/local/bin/lab-python"
FOREIGN = "/etc/netplan/95-broken.yaml"


def refused(evening: Evening, *arguments: str) -> str:
    """Run site.yml, which must fail without a traceback and without a change. Returns its list of errors."""
    done = evening.play("site.yml", *arguments).assert_failed()
    assert "Traceback" not in done.output
    for name in evening.hosts.nodes:
        if (host := evening.reachable(name)) is not None:
            left = host.run(f"{LEFT}; nft list table inet gb10; systemctl list-unit-files 'gb10-*' --no-legend")
            assert left.stdout.strip() == "", left.stdout
    return errors(done)


def twins(evening: Evening, state: str) -> None:
    """Set the second PCIe function of both ports of spark2, as a cheap cable or an old BIOS does."""
    lab = evening.hosts.nodes["spark2"]["lab_name"]
    for interface in ("enP2p1s0f0np0", "enP2p1s0f1np1"):
        subprocess.run(["ip", "-n", f"{lab}-spark2", "link", "set", interface, state], check=True)


def test_the_hosts_are_like_factory_sparks(evening: Evening) -> None:
    host = evening.connect("spark1")
    devices = dict(line.split(":")[:2] for line in host.check_output("nmcli -t -f DEVICE,STATE device").splitlines())
    assert devices["enP7s7"] == "connected"
    assert devices["enp1s0f1np1"].startswith("connecting")
    assert host.run("command -v ninja").rc != 0
    assert host.run("python3 -c 'import ensurepip'").rc != 0
    assert host.run("sudo -u nvidia sudo -n true").rc != 0, "sudo needs a password"


def test_a_foreign_netplan_file_that_netplan_rejects(evening: Evening) -> None:
    host = evening.connect("spark2")
    host.check_output(f"printf 'network: {{ethernets: {{enP7s7: {{dhcp9: true}}}}}}' > {FOREIGN}; chmod 600 {FOREIGN}")
    try:
        found = refused(evening)
        evening.play("playbooks/field_report.yml").assert_ok()
    finally:
        host.check_output(f"rm {FOREIGN}")
    assert FOREIGN in found
    assert "dhcp9" in found
    report = (evening.home / "gb10.cluster/inventories/mine/.gb10/field_report.json").read_text(encoding="utf-8")
    # The owner chose the file's name.
    assert "95-broken" not in report and "/etc/netplan/PATH" in report
    assert "netplan rejects" in report
    assert "broken" not in report
    assert evening.hosts.nodes["spark2"]["ansible_host"] not in report


def test_a_port_with_one_working_twin(evening: Evening) -> None:
    twins(evening, "down")
    try:
        found = refused(evening)
    finally:
        twins(evening, "up")
    assert re.search(r"another cable.*BIOS.*unplug its power supply", found), found


def test_a_node_without_power(evening: Evening) -> None:
    evening.hosts.power("off", "spark2")
    try:
        found = refused(evening)
    finally:
        evening.hosts.power("on", "spark2")
        evening.connect("spark2")
    address = evening.hosts.nodes["spark2"]["ansible_host"]
    assert re.search(rf"ping {address}", found), found


def test_a_wrong_sudo_password(evening: Evening) -> None:
    done = evening.play("site.yml", password="wrong").assert_failed()
    assert "sudo password" in errors(done), done.output
    assert "Traceback" not in done.output


def test_a_clock_that_is_off_by_a_day(evening: Evening) -> None:
    """The hosts share the machine's clock, so libfaketime changes the clock of Ansible's interpreter."""
    for name, command in {"spark1": "exec", "spark2": "exec faketime -f -1d"}.items():
        put(evening.connect(name), PYTHON, f'#!/bin/sh\n{command} /usr/bin/python3 "$@"\n', "755")
    done = evening.play("playbooks/plan.yml", f"-e ansible_python_interpreter={PYTHON}").assert_ok()
    for name in evening.hosts.nodes:
        evening.connect(name).check_output(f"rm {PYTHON}")
    assert "spark2: its clock is 24.0 hours behind this machine's" in done.output, done.output
    assert "spark1: its clock" not in done.output


def test_dpkg_locked_for_longer_than_the_limit(evening: Evening) -> None:
    with dpkg_locked(evening.connect("spark2")):
        found = refused(evening, "-e gb10_apt_timeout=20")
    assert re.search(r"locked by python3 \(PID \d+, lab-upgrade", found), found

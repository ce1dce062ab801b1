"""A failed fabric change restores the former configuration. On a cluster of three or more nodes on a switch, without a
model.

Each test restores the fabric; the tests run in the file's order.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import paramiko
import pytest
import yaml
from live_cluster import Cluster, extra
from run_playbook import Run, run_and_kill
from testinfra.host import Host
from waiting import wait_until

pytestmark = pytest.mark.disruptive

TAG = ("--tags", "qsfp_netplan")
OURS, MANAGEMENT = "/etc/netplan/60-gb10-qsfp.yaml", "/etc/netplan/00-management.yaml"
#: Most tests change the MTU, because then every rail of every node differs.
MTU = 8000
#: The task before the confirmations. A kill at the first confirmation can come after it, and then some hosts keep the
#: change.
UNCONFIRMED = "Verify every rail with full-size frames"
State = dict[str, object]


def state(host: Host) -> State:
    """Return the state that a change can affect: addresses, MTU and flags of every device, and netplan's files."""
    links = {
        link["ifname"]: (
            link["mtu"],
            sorted(flag for flag in link["flags"] if flag in ("UP", "LOWER_UP")),
            sorted(f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"]),
        )
        for link in json.loads(host.check_output("ip -json address show"))
    }
    # In one command: a timer may be removing files.
    found = host.run(
        "find /etc/netplan /etc/NetworkManager -type f -printf '%m ' -exec sha256sum '{}' ';' 2>/dev/null"
    ).stdout
    return {
        "links": links,
        "files": {
            path: (mode, digest) for mode, digest, path in (line.split(maxsplit=2) for line in found.splitlines())
        },
    }


@pytest.fixture
def states(nodes: dict[str, Host]) -> Callable[[], dict[str, State]]:
    return lambda: {name: state(host) for name, host in nodes.items()}


@contextmanager
def switch_port(cluster: Cluster, node: str, *change: str, back: tuple[str, ...], port: int = 1) -> Iterator[None]:
    """Change the switch's end of both PCIe functions of a node's port, without access to the node."""
    lab = cluster.nodes[node]["lab_name"]
    number = list(cluster.nodes).index(node) + 1

    def change_both(words: tuple[str, ...]) -> None:
        for end in (f"n{number}-f{port}", f"n{number}-P2f{port}"):
            subprocess.run(["ip", "-n", f"{lab}-switch", "link", "set", end, *words], check=True, capture_output=True)

    change_both(change)
    try:
        yield
    finally:
        change_both(back)


def assert_fresh(host: Host) -> None:
    """Assert the state after the first boot: MTU 1500, up, and only the kernel's own link-local addresses."""
    assert not host.file(OURS).exists
    links = state(host)["links"]
    assert isinstance(links, dict)
    for device in ("enp1s0f1np1", "enP2p1s0f1np1"):
        mtu, flags, addresses = links[device]
        assert (mtu, flags) == (1500, ["LOWER_UP", "UP"])
        assert [address.startswith("fe80::") for address in addresses] == [True]
        assert host.check_output(f"cat /proc/sys/net/ipv4/conf/{device}/arp_ignore") == "0"
    assert host.check_output("ls /var/lib/gb10-netplan") == "last.json\nlock"
    assert host.check_output("ls /etc/sysctl.d").count("gb10") == 0


def failed(run: Run) -> str:
    """Return the report of a failed run, or its whole output if it has no report."""
    run.assert_failed()
    return run.output.split("The fabric is not as planned.")[-1].split("Origin:")[0]


def test_a_pulled_cable_is_found_before_anything_changes(
    cluster: Cluster, states: Callable[[], dict[str, State]]
) -> None:
    before = states()
    with switch_port(cluster, "spark2", "down", back=("up",)):
        run = cluster.site(*TAG, *extra(gb10_fabric_mtu=MTU))
    run.assert_failed(
        "nodes[1].ports[0]: port 1 of spark2 has no carrier, port 0 has. Expected: a link on every port of the fabric."
    )
    assert "nodes[0].ports[0]" not in run.output
    assert states() == before


def test_auto_takes_what_is_cabled_and_then_what_it_took(
    cluster: Cluster, states: Callable[[], dict[str, State]]
) -> None:
    """A list puts the fabric on port 1. Without carrier on port 0, auto selects the same port."""
    before = states()
    auto = extra(gb10_fabric_ports="auto")
    with ExitStack() as stack:
        for node in cluster.nodes:
            stack.enter_context(switch_port(cluster, node, "down", back=("up",), port=0))
        cluster.site(*TAG, *auto).assert_unchanged("auto takes port 1, with carrier on every node")
    assert states() == before
    try:
        cluster.site(*TAG, *auto).assert_ok("auto takes ports 0 and 1, with carrier on every node")
        cluster.site(*TAG, *auto).assert_unchanged()
        # A selected port stays a part of the plan.
        with switch_port(cluster, "spark3", "down", back=("up",), port=0):
            run = cluster.site(*TAG, *auto)
        assert "nodes[2].ports[0]: port 0 of spark3 has no carrier" in run.output
        assert set(run.changed.values()) == {0}
    finally:
        cluster.site(*TAG).assert_ok()
    assert states() == before


def test_a_path_that_carries_nothing_ends_in_a_clear_error_and_the_old_state(
    cluster: Cluster, states: Callable[[], dict[str, State]]
) -> None:
    """A port in another network of the switch has carrier, so only the probe finds the error."""
    before = states()
    with switch_port(cluster, "spark2", "nomaster", back=("master", "qsfp1")):
        said = failed(cluster.site(*TAG, *extra(gb10_fabric_mtu=MTU, qsfp_netplan_probe_timeout=6)))
    assert "spark1 enp1s0f1np1 -> spark2 (10.110.0.2): no reply" in said
    assert "Every failing path ends at spark2: check the cable" in said
    assert "The configuration from before this run is restored on" in said
    assert states() == before


def test_one_node_with_an_mtu_of_1500_is_found_by_name(
    cluster: Cluster, states: Callable[[], dict[str, State]]
) -> None:
    before = states()
    with switch_port(cluster, "spark3", "mtu", "1500", back=("mtu", "9216")):
        said = failed(cluster.site(*TAG, *extra(qsfp_netplan_probe_timeout=6)))
    assert "spark1 enp1s0f1np1 -> spark3 (10.110.0.3): small packets arrive, but not packets of 9000 bytes" in said
    assert "Every failing path ends at spark3: a device carries less than 9000 bytes" in said
    # Nothing was due, so nothing was changed.
    assert "is restored on" not in said
    assert states() == before


def test_what_was_changed_by_hand_is_mended_on_that_node_alone(cluster: Cluster, nodes: dict[str, Host]) -> None:
    nodes["spark2"].check_output(
        "ip link set enP2p1s0f1np1 mtu 1500; echo 0 > /proc/sys/net/ipv4/conf/enP2p1s0f1np1/arp_ignore"
    )
    run = cluster.site(*TAG).assert_ok(
        "enP2p1s0f1np1 has MTU 1500 instead of 9000", "enP2p1s0f1np1 has ipv4/arp_ignore 0 instead of 1"
    )
    assert {name for name, changed in run.changed.items() if changed} == {"spark2"}


def test_a_change_that_cuts_the_management_network_comes_back_by_itself(
    cluster: Cluster, nodes: dict[str, Host], states: Callable[[], dict[str, State]]
) -> None:
    """spark2 reaches its controller through a router, at an address inside the fabric's new subnet.

    No preflight can detect that.
    """
    name, host = "spark2", nodes["spark2"]
    lab, gateway = cluster.nodes[name]["lab_name"], cluster.nodes[name]["lab_prefix"] + ".1"
    controller = ["address", "{}", "10.120.0.200/32", "dev", f"{lab}-mgmt"]
    subprocess.run(["ip", *(word.format("add") for word in controller)], check=True)
    try:
        route = {
            "network": {"version": 2, "ethernets": {"enP7s7": {"routes": [{"to": "10.120.0.0/16", "via": gateway}]}}}
        }
        host.check_output(f"umask 077; echo '{json.dumps(route)}' > /etc/netplan/01-route.yaml; netplan apply")
        before = states()
        through = "{{ '-o BindAddress=10.120.0.200 -o ControlPath=none' if inventory_hostname == 'spark2' else '' }}"
        began = time.monotonic()
        settings = extra(
            gb10_fabric_cidr="10.120.0.0/16", qsfp_netplan_confirm_timeout=25, ansible_ssh_extra_args=through
        )
        run = cluster.site(*TAG, *settings)
        assert "spark2: connection lost during the change" in run.output
        said = failed(run)
        assert "spark2: the change cut the host off for" in said
        assert "it was restored by the timer, and the old configuration is in place" in said
        assert time.monotonic() - began < 180
        # The workers that changed with it are put back, the head was never touched.
        assert "The configuration from before this run is restored on spark3, spark4." in said
        assert states() == before
    finally:
        host.check_output("rm -f /etc/netplan/01-route.yaml; netplan apply")
        subprocess.run(["ip", *(word.format("delete") for word in controller)], check=True)


def test_a_controller_that_dies_before_confirming_leaves_the_old_state(
    cluster: Cluster, states: Callable[[], dict[str, State]]
) -> None:
    before = states()
    changed = extra(gb10_fabric_mtu=MTU, qsfp_netplan_confirm_timeout=15)
    run_and_kill("site.yml", [*cluster.arguments, *TAG, *changed], UNCONFIRMED)
    assert states() != before
    wait_until(lambda: states() == before, 40)
    cluster.site(*TAG).assert_unchanged()


def test_a_node_that_loses_power_before_the_confirmation_comes_up_with_the_old_state(
    cluster: Cluster, nodes: dict[str, Host], states: Callable[[], dict[str, State]]
) -> None:
    """Users power-cycle a host that they cannot reach any more."""
    before = states()
    changed = extra(gb10_fabric_mtu=MTU, qsfp_netplan_confirm_timeout=25)
    run_and_kill("site.yml", [*cluster.arguments, *TAG, *changed], UNCONFIRMED)
    cluster.power("off", "spark4")
    cluster.power("on", "spark4")

    def restored() -> bool:
        with suppress(pytest.fail.Exception, OSError, paramiko.SSHException, AssertionError):  # not up yet
            return states() == before
        return False

    wait_until(restored, 90, pause=2)
    assert "restored by the timer" in nodes["spark4"].file("/var/lib/gb10-netplan/last.json").content_string


def test_a_full_disk_does_not_keep_the_old_network_from_coming_back(
    cluster: Cluster, nodes: dict[str, Host], states: Callable[[], dict[str, State]]
) -> None:
    """netplan's directory is a separate disk, which fills between the change and the end of the rollback timer."""
    host = nodes["spark4"]
    host.check_output(
        "cp -a /etc/netplan /var/tmp/netplan && mount -t tmpfs -o size=256k,mode=755 tmpfs /etc/netplan && cp "
        "-a /var/tmp/netplan/. /etc/netplan/"
    )
    try:
        before = states()
        changed = extra(gb10_fabric_mtu=MTU, qsfp_netplan_confirm_timeout=25)
        run_and_kill("site.yml", [*cluster.arguments, *TAG, *changed], UNCONFIRMED)
        assert host.run("cat /dev/zero > /etc/netplan/fill").rc != 0
        last = "find /var/lib -path '*netplan/last.json' -newer /etc/netplan/fill -exec cat {} +"
        wait_until(lambda: "restored by the timer" in host.check_output(last), 60)
        host.check_output("rm /etc/netplan/fill")
        wait_until(lambda: states() == before, 60)
    finally:
        host.check_output("umount /etc/netplan; rm -r /var/tmp/netplan")
    cluster.site(*TAG).assert_unchanged()


def test_a_clock_that_is_behind_changes_nothing(cluster: Cluster, nodes: dict[str, Host]) -> None:
    """By the clock, all generated files are older than their source file."""
    nodes["spark2"].check_output(f"touch --date='+1 day' {OURS}")
    try:
        cluster.site(*TAG).assert_unchanged()
    finally:
        nodes["spark2"].check_output(f"touch {OURS}")


def test_killed_in_the_middle_of_a_change_the_next_run_completes_it(cluster: Cluster, nodes: dict[str, Host]) -> None:
    run_and_kill(
        "site.yml",
        [*cluster.arguments, *TAG, *extra(gb10_fabric_mtu=MTU)],
        "Apply the fabric configuration on the workers",
        after=1.5,
    )
    cluster.site(*TAG, *extra(gb10_fabric_mtu=MTU)).assert_ok()
    for host in nodes.values():
        assert host.check_output("cat /sys/class/net/enp1s0f1np1/mtu") == str(MTU)
        assert not host.file("/var/lib/gb10-netplan/pending.json").exists
    cluster.site(*TAG).assert_ok()


def test_somebody_elses_unapplied_edit_does_not_go_live_with_ours(
    cluster: Cluster, nodes: dict[str, Host], states: Callable[[], dict[str, State]]
) -> None:
    host = nodes["spark3"]
    content = host.file(MANAGEMENT).content_string
    edited = json.loads(content)
    edited["network"]["ethernets"]["enP7s7"]["mtu"] = 1400
    host.check_output(f"echo '{json.dumps(edited)}' > {MANAGEMENT}")
    try:
        before = states()
        said = failed(cluster.site(*TAG, *extra(gb10_fabric_mtu=MTU)))
        assert "changes that were never applied and would go live too (10-netplan-enP7s7" in said
        assert states() == before
    finally:
        host.check_output(f"cat > {MANAGEMENT} <<'END'\n{content}END")


def test_the_fabric_is_removed_then_another_file_refused_taken_over_and_given_back(
    cluster: Cluster, nodes: dict[str, Host], states: Callable[[], dict[str, State]]
) -> None:
    """NVIDIA's own file, with a device outside the fabric and a password that must not be shown."""
    host, path, secret = nodes["spark2"], "/etc/netplan/40-cx7.yaml", "hunter2-of-the-bridge"
    foreign = (
        "network:\n  version: 2\n  ethernets:\n    enp1s0f1np1:  # NVIDIA's\n      dhcp4: no\n      addresses: "
        f"[192.168.100.11/24]\n    enp1s0f0np0:\n      optional: true  # password {secret}\n"
    )
    cluster.site(*TAG, *extra(qsfp_netplan_state="absent")).assert_ok()
    for node in nodes.values():
        assert_fresh(node)
    host.check_output(f"umask 077; cat > {path} <<'END'\n{foreign}END\nnetplan apply; sleep 3")
    try:
        before = states()
        said = failed(cluster.site(*TAG))
        assert f"nodes[1].ports[0]: enp1s0f1np1 of spark2 is configured by {path}" in said
        assert "gb10_fabric_replace_existing: true" in said
        assert states() == before

        taken = cluster.site(*TAG, "--diff", *extra(gb10_fabric_replace_existing=True)).assert_ok()
        rest = host.file(path).content_string
        assert "enp1s0f1np1:" not in rest
        assert "enp1s0f0np0:" in rest
        assert host.file(path).mode == 0o600
        # After the replacement, the variable is not needed any more.
        cluster.site(*TAG).assert_unchanged()

        given_back = cluster.site(*TAG, "--diff", *extra(qsfp_netplan_state="absent")).assert_ok()
        assert states() == before
        assert secret not in taken.output + given_back.output

        cluster.site(*TAG, *extra(gb10_fabric_replace_existing=True)).assert_ok()
        host.check_output(f"sed -i 's/optional: true/optional: false/' {path} && netplan apply")
        cluster.site(*TAG, *extra(qsfp_netplan_state="absent")).assert_ok()
        edited = yaml.safe_load(host.file(path).content_string)["network"]["ethernets"]
        assert edited == {
            "enp1s0f0np0": {"optional": False},
            "enp1s0f1np1": {"dhcp4": False, "addresses": ["192.168.100.11/24"]},
        }
    finally:
        host.check_output(f"rm -f {path}; netplan apply; ip address flush dev enp1s0f1np1")
    cluster.site(*TAG).assert_ok()

"""A port scan from a machine that is not a peer, over IPv4 and IPv6, in the cases that opened hosts before: only SSH
and the API are open.

Each test restores the cluster; the tests run in the file's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from api_client import completion
from live_cluster import Cluster, extra, on_all
from run_playbook import run_and_kill
from testinfra.host import Host
from unlisted_host import MANAGEMENT, PORT, UnlistedHost, link_local, listening
from waiting import wait_until

pytestmark = pytest.mark.disruptive

#: OFFERED is the port of a user's service on every address of a node.
SSH, API, OFFERED = 22, 8000, 8999
TAG = ("--tags", "peer_firewall")
TABLE = "nft --stateless list table inet gb10"
RULES = "/etc/gb10/firewall.nft"
TIMERS = "systemctl list-units --plain --no-legend 'gb10-firewall-restore-*'"
#: Ray's process, which no firewall change may end.
RAY = "systemctl show --property=MainPID --value gb10-ray"
BRIDGE = "br-lan"
#: The addresses of the head and of the unlisted host on the bridge's network.
ON_BRIDGE, BESIDE_IT = "10.99.0.1", "10.99.0.2"


def offer(host: Host) -> None:
    """Start a server on every address of a node."""
    server = f"python3 -m http.server {OFFERED} --bind :: --directory /run/offered"
    # An interrupted run leaves the unit.
    host.run("systemctl stop offered")
    host.check_output(f"mkdir -p /run/offered; systemd-run --quiet --collect --unit=offered {server}")
    wait_until(lambda: OFFERED in listening(host), 30, pause=0.5)


@pytest.fixture(scope="module", autouse=True)
def offered(nodes: dict[str, Host]) -> Iterator[None]:
    for host in nodes.values():
        offer(host)
    yield
    for host in nodes.values():
        host.run("systemctl stop offered; rmdir /run/offered")


def assert_only_ssh_and_the_api(unlisted_host: UnlistedHost, host: Host, address: str, api: bool) -> None:
    """Scan a node over its management network."""
    ports = listening(host)
    assert OFFERED in ports
    assert unlisted_host.open(address, ports | {API}) == ({SSH, API} if api else {SSH}), "over IPv4"
    # The API listens on gb10_api_host, which is 0.0.0.0.
    assert unlisted_host.open(f"{link_local(host, MANAGEMENT)}%eth0", ports | {API}) == {SSH}, "over IPv6"


def assert_all_closed(unlisted_host: UnlistedHost, cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    for name, host in nodes.items():
        assert_only_ssh_and_the_api(unlisted_host, host, cluster.nodes[name]["ansible_host"], host is head)


#: As in Ubuntu 24.04, systemd holds the SSH port and starts sshd at the first connection. Existing sessions continue.
BY_SOCKET = "systemctl disable --now ssh.service; systemctl enable --now ssh.socket"
BY_SERVICE = "systemctl disable --now ssh.socket; systemctl enable ssh.service; systemctl restart ssh.service"


@contextmanager
def bridged(cluster: Cluster, name: str, host: Host, unlisted_host: UnlistedHost) -> Iterator[None]:
    """Create a bridge on a node, with a name like Docker's, and a port of the node in it that other hosts use."""
    host.check_output(
        f"ip link add {BRIDGE} type bridge && echo 0 >/proc/sys/net/ipv6/conf/{BRIDGE}/accept_dad && ip link "
        f"set {BRIDGE} up"
    )
    try:
        unlisted_host.plug_in(f"{cluster.nodes[name]['lab_name']}-{name}", BESIDE_IT)
        for words in (
            f"link set {PORT} master {BRIDGE} up",
            f"address add {ON_BRIDGE}/24 dev {BRIDGE}",
            f"route add default via {BESIDE_IT}",
        ):
            host.check_output(f"ip {words}")
        yield
    finally:
        # The default route goes with the bridge.
        host.run(f"ip link del {PORT}")
        host.check_output(f"ip link del {BRIDGE}")


@pytest.mark.slow
def test_with_sshd_started_by_its_socket(
    cluster: Cluster, nodes: dict[str, Host], head: Host, unlisted_host: UnlistedHost
) -> None:
    try:
        # The run must write rules, so it has to find the SSH port.
        head.check_output(f"{BY_SOCKET}; nft delete table inet gb10; systemctl stop ssh.service")
        cluster.site(*TAG).assert_ok("open to others: SSH (22)")
        cluster.site(*TAG).assert_unchanged()
        # sshd does not run; the scan starts it.
        head.check_output("systemctl stop ssh.service")
        assert_all_closed(unlisted_host, cluster, nodes, head)
    finally:
        head.check_output(BY_SERVICE)
        cluster.site(*TAG).assert_ok()
    assert_all_closed(unlisted_host, cluster, nodes, head)


@pytest.mark.slow
def test_with_a_bridge_that_has_a_port_of_the_node(cluster: Cluster, head: Host, unlisted_host: UnlistedHost) -> None:
    name = cluster.groups["head"][0]
    with bridged(cluster, name, head, unlisted_host):
        ports = listening(head)
        for _again in range(2):
            assert unlisted_host.open(ON_BRIDGE, ports) == {SSH, API}
            assert unlisted_host.open(f"{link_local(head, BRIDGE)}%eth1", ports) == {SSH}
            # The second pass has rules for the bridge.
            cluster.site(*TAG).assert_ok()
        before = head.check_output(TABLE)
        wrong = extra(peer_firewall_trusted_interfaces=["docker*", "br-*"], gb10_fabric_mtu=1500)
        refused = cluster.site("--tags", "qsfp_netplan,peer_firewall", *wrong).assert_failed()
        assert "Changing the fabric" not in refused.output
        assert (
            "peer_firewall_trusted_interfaces[1]: 'br-*' matches br-lan, which carries the default route"
            in refused.output
        )
        assert "nothing was changed" in refused.output
        assert (head.check_output(TABLE), head.run(TIMERS).stdout.strip()) == (before, "")
        # Its exact name is an explicit decision of the user.
        cluster.site(*TAG, *extra(peer_firewall_trusted_interfaces=[BRIDGE])).assert_ok()
        assert {SSH, API, OFFERED} <= unlisted_host.open(ON_BRIDGE, ports)
        cluster.site(*TAG).assert_ok()
        assert unlisted_host.open(ON_BRIDGE, ports) == {SSH, API}


@pytest.mark.slow
def test_after_whatever_debians_service_does(
    cluster: Cluster, nodes: dict[str, Host], head: Host, unlisted_host: UnlistedHost
) -> None:
    rays = on_all(nodes, RAY)
    # Debian's nftables.conf begins with `flush ruleset`.
    try:
        for verb in ("start", "reload", "restart"):
            for name, host in nodes.items():
                host.check_output(f"systemctl {verb} nftables")
                assert host.run(TABLE).rc == 0, (verb, name)
            assert_all_closed(unlisted_host, cluster, nodes, head)
        cluster.site(*TAG).assert_unchanged()
    finally:
        for host in nodes.values():
            # The unit's stop command flushes all tables.
            host.check_output("systemctl stop nftables; systemctl reload gb10-firewall")
    assert on_all(nodes, RAY) == rays


@pytest.mark.slow
def test_a_full_disk_ends_with_the_rules_that_were_confirmed(cluster: Cluster, workers: list[Host]) -> None:
    (worker, *_others) = workers
    before = worker.check_output(TABLE)
    worker.check_output(
        "cp -a /etc/gb10 /run/gb10-copy; mount -t tmpfs -o size=1m,mode=0755 tmpfs /etc/gb10; cp -a "
        "/run/gb10-copy/. /etc/gb10"
    )
    try:
        worker.check_output("dd if=/dev/zero of=/etc/gb10/full bs=4k 2>/dev/null || true")
        cluster.site(*TAG, *extra(peer_firewall_open_ports=["8443/tcp"])).assert_failed("No space left on device")
        assert "8443" not in worker.check_output(TABLE)
        assert worker.check_output(TIMERS).strip() == ""
    finally:
        worker.check_output("umount /etc/gb10; rm -rf /run/gb10-copy")
        cluster.site(*TAG).assert_ok()
    assert worker.check_output(TABLE) == before


def settled(host: Host) -> bool:
    """Return whether no restore is due, and the rules are those of the file."""
    return not host.check_output(TIMERS).strip() and (
        ("8443" in host.check_output(TABLE)) == ("8443" in host.file(RULES).content_string)
    )


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.5, 2])
def test_killed_while_it_closes_the_node_has_what_was_confirmed(
    cluster: Cluster, nodes: dict[str, Host], after: float
) -> None:
    new = extra(peer_firewall_open_ports=["8443/tcp"], peer_firewall_confirm_timeout=10)
    try:
        run_and_kill("site.yml", [*cluster.arguments, *TAG, *new], "Apply or remove the firewall rules", after=after)
        wait_until(lambda: all(map(settled, nodes.values())), 30)
        cluster.site(*TAG, *new).assert_ok()
        assert all("8443" in host.check_output(TABLE) for host in nodes.values())
    finally:
        cluster.site(*TAG).assert_ok()
    assert not any("8443" in host.check_output(TABLE) for host in nodes.values())


@pytest.mark.slow
def test_after_a_reboot(cluster: Cluster, nodes: dict[str, Host], head: Host, unlisted_host: UnlistedHost) -> None:
    """A worker with ssh.socket and with Debian's own service, which flushes all tables when it starts."""
    name = cluster.groups["worker"][0]
    host, address = nodes[name], cluster.nodes[name]["ansible_host"]
    try:
        host.check_output(f"{BY_SOCKET}; systemctl enable nftables")
        host = cluster.reboot(name, host)
        assert host.check_output("systemctl show --property=ActiveState --value gb10-firewall nftables").split() == [
            "active",
            "active",
        ]
        # Services open ports only after the rules are loaded.
        began = "systemctl show --value --property={} {}"
        loaded = int(host.check_output(began.format("ActiveEnterTimestampMonotonic", "gb10-firewall")))
        ray = began.format("ExecMainStartTimestampMonotonic", "gb10-ray")
        assert 0 < loaded <= wait_until(lambda: int(host.check_output(ray)), 60, "gb10-ray did not start")
        offer(host)
        assert_only_ssh_and_the_api(unlisted_host, host, address, api=False)
        cluster.site(*TAG).assert_unchanged()
    finally:
        host.check_output(f"{BY_SERVICE}; systemctl disable --now nftables; systemctl reload gb10-firewall")
        cluster.site().assert_ok()
    assert_only_ssh_and_the_api(unlisted_host, host, address, api=False)
    assert completion(head).strip()

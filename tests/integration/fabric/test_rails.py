"""The rails of the inventory's fabric on the nodes: pair, ring, switch or machines without ConnectX."""

from __future__ import annotations

import ipaddress
import json

import pytest
from live_cluster import Cluster
from testinfra.host import Host

NETPLAN = "/etc/netplan/60-gb10-qsfp.yaml"
#: The first PCIe function of each QSFP port.
PORTS = ("enp1s0f0np0", "enp1s0f1np1")
#: IPv4 and ICMP headers.
HEADERS = 28
Rails = dict[str, dict[str, ipaddress.IPv4Interface]]


@pytest.fixture(scope="module")
def rails(cluster: Cluster, nodes: dict[str, Host]) -> Rails:
    """The address of every device of every node in the fabric's network."""
    pool = ipaddress.IPv4Network(cluster.variable("gb10_fabric_cidr", "10.110.0.0/16"))
    found: Rails = {}
    for name, host in nodes.items():
        links = [link for link in json.loads(host.check_output("ip -json -4 address show")) if link]
        every = {
            link["ifname"]: [ipaddress.IPv4Interface(f"{a['local']}/{a['prefixlen']}") for a in link["addr_info"]]
            for link in links
        }
        found[name] = {
            device: addresses[0] for device, addresses in every.items() if addresses and addresses[0].ip in pool
        }
        assert all(len(every[device]) == 1 for device in found[name]), every
    return found


def test_each_cabled_port_has_two_rails_and_other_machines_one(
    cluster: Cluster, nodes: dict[str, Host], rails: Rails
) -> None:
    for name, found in rails.items():
        if cluster.variable("gb10_fabric_topology", "auto", name) == "socket":
            assert len(found) == 1, name
            continue
        ports = cluster.variable("gb10_fabric_ports", "auto", name)
        # All nodes of a lab have the same cabling.
        cabled = (
            [port for port in PORTS if nodes[name].check_output(f"cat /sys/class/net/{port}/carrier") == "1"]
            if ports == "auto"
            else ports
        )
        assert len(found) == 2 * len(cabled), name


def test_no_two_devices_of_a_node_share_a_subnet(rails: Rails) -> None:
    for name, found in rails.items():
        assert len({address.network for address in found.values()}) == len(found), name


def test_no_address_is_used_twice(rails: Rails) -> None:
    every = [address.ip for found in rails.values() for address in found.values()]
    assert len(set(every)) == len(every)


def test_the_netplan_file_is_private(nodes: dict[str, Host]) -> None:
    for host in nodes.values():
        file = host.file(NETPLAN)
        assert (file.mode, file.user, file.group) == (0o600, "root", "root")


def test_each_rail_carries_frames_of_the_mtu_to_every_peer_and_no_more(
    cluster: Cluster, nodes: dict[str, Host], rails: Rails
) -> None:
    mtu = cluster.variable("gb10_fabric_mtu", 9000)
    topology, count = cluster.variable("gb10_fabric_topology", "auto"), len(nodes)
    for name, host in nodes.items():
        for device, own in rails[name].items():
            peers = {
                peer: a.ip
                for peer, found in rails.items()
                if peer != name
                for a in found.values()
                if a.network == own.network
            }
            assert len(peers) == (1 if topology == "ring" else count - 1), f"{name} {device}"
            for peer, address in peers.items():
                ping = f"ping -n -c 1 -W 2 -M do -I {device}"
                assert host.run(f"{ping} -s {mtu - HEADERS} {address}").rc == 0, f"{name} {device} -> {peer}"
                assert host.run(f"{ping} -s {mtu + 1 - HEADERS} {address}").rc != 0, (
                    f"{name} {device} -> {peer} carries more than {mtu}"
                )


def test_each_address_is_answered_for_by_its_own_device(nodes: dict[str, Host], rails: Rails) -> None:
    """Otherwise one PCIe function would receive the traffic of two rails.

    The test above has just contacted every peer.
    """
    macs = {
        str(address.ip): nodes[name].check_output(f"cat /sys/class/net/{device}/address")
        for name, found in rails.items()
        for device, address in found.items()
    }
    for name, host in nodes.items():
        for entry in json.loads(host.check_output("ip -json -4 neighbour show")):
            if entry["dst"] in macs and "lladdr" in entry:
                assert entry["lladdr"] == macs[entry["dst"]], f"{name}: {entry}"


def test_nothing_waits_for_a_confirmation(nodes: dict[str, Host]) -> None:
    for host in nodes.values():
        assert not host.file("/var/lib/gb10-netplan/pending.json").exists
        assert host.run("systemctl is-active gb10-netplan-restore.timer").stdout.strip() == "inactive"

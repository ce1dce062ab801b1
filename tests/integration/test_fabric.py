"""The fabric as the nodes see it."""

from __future__ import annotations

import ipaddress
import json

import pytest
from testinfra.host import Host

NETPLAN = "/etc/netplan/60-gb10-qsfp.yaml"
TWINS = ("enp1s0f1np1", "enP2p1s0f1np1")
#: IPv4 and ICMP headers.
HEADERS = 28


def addresses(host: Host) -> dict[str, ipaddress.IPv4Interface]:
    links = json.loads(host.check_output("ip -json -4 address show"))
    return {
        link["ifname"]: ipaddress.IPv4Interface(f"{link['addr_info'][0]['local']}/{link['addr_info'][0]['prefixlen']}")
        for link in links
        if link.get("ifname") in TWINS
    }


def test_both_twins_have_an_address_in_a_subnet_of_their_own(nodes: dict[str, Host]) -> None:
    for name, host in nodes.items():
        found = addresses(host)
        assert set(found) == set(TWINS), name
        assert len({address.network for address in found.values()}) == len(TWINS), name


def test_no_address_is_used_twice(nodes: dict[str, Host]) -> None:
    every = [address.ip for host in nodes.values() for address in addresses(host).values()]
    assert len(set(every)) == len(every) == len(nodes) * len(TWINS)


def test_netplan_file_is_private(nodes: dict[str, Host]) -> None:
    for host in nodes.values():
        file = host.file(NETPLAN)
        assert (file.mode, file.user, file.group) == (0o600, "root", "root")


@pytest.mark.parametrize("twin", TWINS)
def test_each_rail_carries_frames_of_9000_bytes_and_no_more(nodes: dict[str, Host], twin: str) -> None:
    found = {name: addresses(host)[twin] for name, host in nodes.items()}
    for name, host in nodes.items():
        for peer, address in found.items():
            if peer == name:
                continue
            ping = f"ping -n -c 1 -W 2 -M do -I {twin}"
            assert host.run(f"{ping} -s {9000 - HEADERS} {address.ip}").rc == 0, f"{name} -> {peer}"
            assert host.run(f"{ping} -s {9001 - HEADERS} {address.ip}").rc != 0, f"{name} -> {peer} carries more than 9000"
